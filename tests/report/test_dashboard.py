"""The published pages as files: that asv writes them, what stands in them, and that a site changes in one step."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import asv
import pytest

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.report.dashboard import asv_site, build, commits, headstart, kept, plugin, points, specs
from hybrid_kernels.report.dashboard import publish as publishing
from hybrid_kernels.report.dashboard.links import Graphs, Project, web

OURS = ["figures.html", "corrections.html", "sweeps.html", "machines.html", "events.xml"]
ATOM = "{http://www.w3.org/2005/Atom}"
WWW = Path(asv.__file__).parent / "www"


@pytest.fixture
def small(asv_project):
    """A project with two commits, one machine and one benchmark."""
    project = asv_project(2)
    project.machine("box")
    project.benchmark("suite.time_it")
    for at in (0, 1):
        project.result("box", at, {"suite.time_it": 0.1})
    return project


def test_one_line_in_the_configuration_brings_the_pages(fleet):
    """`asv publish` with the plugin named, dot included, writes our pages beside its own."""
    html = fleet.root / "html"
    assert [name for name in OURS if not (html / name).exists()] == []
    assert (html / "index.json").exists()


def test_without_the_dot_asv_loads_nothing(small):
    """The reason for the dot: without it asv publishes, says nothing, and none of our pages appears."""
    path = small.root / "asv.conf.json"
    path.write_text(path.read_text().replace('[".hybrid', '["hybrid'))
    html = small.publish()
    assert (html / "index.html").exists()
    assert [name for name in OURS if (html / name).exists()] == []


def test_no_page_names_another_host_to_load_from(fleet):
    """Scripts, styles and icons of every page, asv's own among them, come out of the folder."""
    for path in (fleet.root / "html").glob("*.html"):
        for tag in re.findall(r"<(?:script|link|img)\b[^>]*>", path.read_text()):
            address = re.search(r'(?:src|href)="([^"]*)"', tag)
            if address is None:
                continue
            assert not address[1].startswith(("http:", "https:", "//")), (path.name, tag)
            assert (path.parent / address[1]).exists(), (path.name, tag)


def test_our_pages_forbid_scripts_that_are_not_files_of_the_folder(fleet):
    """Each of our pages has a content security policy with no unsafe source, and no script or style inside it."""
    for name in OURS[:4]:
        page = (fleet.root / "html" / name).read_text()
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy is not None
        assert "unsafe" not in policy[1]
        assert "script-src 'self'" in policy[1]
        assert "default-src 'none'" in policy[1]
        assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
        assert " style=" not in page
        assert not re.search(r"\son\w+=", page)


def test_asv_navigation_leads_to_our_pages_and_ours_to_asv(fleet):
    """asv's navigation bar gets our pages, and each of our pages a way back to asv's graphs."""
    html = fleet.root / "html"
    bar = re.search(r'<nav id="nav".*?</nav>', (html / "index.html").read_text(), re.DOTALL)
    assert bar is not None
    assert all(f'href="{name}"' in bar[0] for name in OURS[:4])
    assert all('href="index.html#/"' in (html / name).read_text() for name in OURS[:4])


def test_another_asv_page_is_named_not_broken():
    """An index.html we do not know is left as it is, and what could not be done is said."""
    text, problems = asv_site.amend('<head></head><script src="https://x.org/new.js"></script>', front=False)
    assert text == '<head></head><script src="https://x.org/new.js"></script>'
    assert len(problems) == 2
    assert "https://x.org/new.js" in problems[0]


def test_libraries_are_those_that_asv_names():
    """Where asv gives the hash of a library, ours is that very file, byte for byte."""
    page = (WWW / "index.html").read_text()
    compared = 0
    for tag in re.findall(r"<(?:script|link)\b[^>]*integrity[^>]*>", page):
        kind, _, digest = re.search(r'integrity="([^"]*)"', tag)[1].partition("-")
        local = re.search(r'"(dashboard/vendor/[^"]+)"', asv_site.amend(tag, front=False)[0])[1]
        if "flot/" in local or "stupid" in local:
            continue  # npm has no minified flot 0.8.3 and no stupidtable 1.0.1
        data = (asv_site.STATIC / local.removeprefix("dashboard/")).read_bytes()
        assert base64.b64encode(hashlib.new(kind, data).digest()).decode() == digest, local
        compared += 1
    assert compared == 5


def test_every_library_keeps_its_licence():
    """Each folder of another's code holds its licence, or a file that says it at its head."""
    for folder in (asv_site.STATIC / "vendor").iterdir():
        if folder.is_dir():
            names = [path.name for path in folder.iterdir()]
            heads = [path.read_text(errors="replace")[:400] for path in folder.glob("*.js")]
            assert any(name.startswith("LICENSE") for name in names) or "MIT license" in heads[0], folder.name


def test_charts_are_those_of_probe_plot():
    """charts.js is what report/charts.py gives today; after a change: python -m ...report.dashboard.specs."""
    assert specs.TARGET.read_text() == specs.render()


def test_markup_in_names_units_and_messages_is_text(asv_project):
    """A benchmark, unit, machine or commit message that holds markup reaches no page as markup."""
    evil = "<img src=x onerror=alert(1)>"
    project = asv_project(12, name=evil, subjects={6: f"{evil} </script><script>alert(2)</script>"})
    project.machine("box", cpu=evil)
    project.benchmark(f"suite.track_{evil}", unit="\"'><b>GB/s")
    for at in range(12):
        project.result("box", at, {f"suite.track_{evil}": 10.0 if at < 6 else 5.0 + at / 100})
    html = project.publish()
    for name in OURS[:4]:
        assert "<img" not in (html / name).read_text()
    events = project.data("events")["events"]
    assert any(evil in event["benchmark"] for event in events)  # whole, for textContent to show
    assert evil in ET.parse(html / "events.xml").findtext(f"{ATOM}title")


def test_no_static_script_builds_markup_out_of_text():
    """Our scripts make elements, never HTML out of strings, so data cannot become markup."""
    for path in asv_site.STATIC.glob("*.js"):
        if path.name == "charts.js":
            continue
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        )


@pytest.mark.parametrize(
    ("url", "kept_as"),
    [
        ("https://x.org/c/", "https://x.org/c/"),
        ("http://x.org", "http://x.org"),
        ("#", None),
        ("javascript:alert(1)", None),
        (None, None),
        ("//x.org", None),
    ],
)
def test_only_web_addresses_become_links(url, kept_as):
    """asv's default `#` and anything that is not http(s) is no address of a commit."""
    assert web(url) == kept_as


def test_graph_link_has_asv_form():
    """A link into asv's graph names machine, parameters as asv writes them, and the commit."""
    entry = {"param_names": ["device", "mib"], "params": [["'cpu'", "'cuda'"], ["12.5", "64.0"]]}
    graphs = Graphs({"reads.time_read": entry}, ["a", "b"])
    link = graphs.link("reads.time_read", "a", [("device", "cuda"), ("mib", "64.0")], "abc")
    assert link == "index.html#reads.time_read?machine=a&p-device=%27cuda%27&p-mib=64.0&commits=abc"
    assert graphs.link("reads.time_read", "a", [("mib", "64")]) == "index.html#reads.time_read?machine=a&p-mib=64.0"
    assert graphs.link("reads.time_read", "a", [("device", "tpu")]) is None
    assert graphs.link("gone.time_it", "a") is None


def test_commit_has_short_hash_and_address():
    """A commit is shown short and linked by the project's show_commit_url; without one it is only shown."""
    assert Project("p", commit_url="https://x.org/c/").commit("a" * 40) == {
        "short": "a" * 8,
        "url": "https://x.org/c/" + "a" * 40,
    }
    assert Project("p").commit("a" * 40) == {"short": "a" * 8, "url": None}
    assert Project("p").commit(None) is None


def test_figures_page_has_the_superseded_value_with_factor_and_reason(fleet):
    """A superseded record stays on the page, with the factor and the reason of the one that corrects it."""
    figure = next(
        one for one in fleet.data("figures")["figures"] if one["machine"] == "laptop" and len(one["records"]) == 2
    )
    now, before = figure["records"]
    assert (now["number"], now["unit"].strip(), now["kind"], now["current"]) == ("5.6", "GB/s", "measured", True)
    assert (before["text"], before["kind"], before["current"]) == ("11.41 GB/s", "upper bound", False)
    assert now["factor"] == "x0.491"
    assert "A copy has no kernel" in now["reason"]
    assert [check["closes"] for check in figure["checks"]] == [True]


def test_figure_with_a_benchmark_shows_its_history_and_graph(fleet):
    """A figure tied to a benchmark has the values measured by its method, and a link to asv's graph of them."""
    figure = next(one for one in fleet.data("figures")["figures"] if one["machine"] == "tower")
    series = fleet.data(figure["chunk"])[figure["key"]]
    assert len(series["points"]) == 40
    assert series["unit"] == "ms"
    assert "p-strategy=%27in_place%27" in figure["graph"]


def test_events_tell_what_happened(fleet):
    """The planted changes are on the time line as what they were, with the control arm and the fact that changed."""
    events = fleet.data("events")["events"]
    kinds = {(event["machine"], event["benchmark"] or event["title"], event["kind"]) for event in events}
    assert ("tower", "load.time_import", "regression") in kinds
    assert ("tower", "reads.Seconds.time_read", "improvement") in kinds
    assert ("tower", "reads.Seconds.time_read", "environment") in kinds
    assert ("laptop", "Weights read in place from mapped host memory", "correction") in kinds
    event = next(one for one in events if one["kind"] == "environment" and one["benchmark"].startswith("reads"))
    evidence = fleet.data(event["chunk"])[event["id"]]
    assert any(arm["moved"] == "moved" for arm in evidence["arms"])
    assert {"16", "8"} <= {word for fact in evidence["facts"] for word in (fact["before"], fact["after"])}
    assert event["date"].startswith("2026-04-01")
    assert fleet.data("commits")[evidence["commits"][-1]] == "Change 31"


def test_events_come_newest_first_with_ids_of_their_own(fleet):
    """The time line is sorted, and no two events share the id that links and the feed rest on."""
    events = fleet.data("events")["events"]
    assert [event["date"] for event in events] == sorted((event["date"] for event in events), reverse=True)
    assert len({event["id"] for event in events}) == len(events)


def test_sweeps_hold_all_strategies_and_limits(fleet):
    """A sweep has every strategy and the copy at every size, in GB/s, with link and cache as they were then."""
    index = fleet.data("sweeps")["sweeps"]
    assert len(index) == 40 + 15
    newest = index[0]
    content = fleet.data(newest["chunk"])[newest["key"]]
    found = {(point["arm"], point["packed_mib"]): point for point in content["points"]}
    assert len(found) == 4 * 3
    assert found["in place", 256.0]["gbs"] == pytest.approx(25.5, rel=0.02)
    assert found["in place", 256.0]["low"] < found["in place", 256.0]["gbs"] < found["in place", 256.0]["high"]
    assert found["copy", 64.0]["gbs"] == pytest.approx(27.75, rel=0.02)
    assert {limit["label"] for limit in content["limits"]} == {"link, PCIe 5 x8", "L2 60.0 MiB"}


def test_machines_say_when_facts_changed_and_when_they_last_reported(fleet):
    """Facts as they are now, each change with its date, and the last report as a date for the page to count from."""
    machines = {one["name"]: one for one in fleet.data("machines")["machines"]}
    assert machines["tower"]["last"].startswith("2026-04-09")
    assert machines["rack <b>"]["last"].startswith("2026-03-29")
    assert ["System", "Linux 6.8"] in machines["tower"]["facts"]
    assert ["Memory", "32.0 GiB"] in machines["tower"]["facts"]
    changes = {(one["fact"], one["before"], one["after"], one["date"][:10]) for one in machines["tower"]["changes"]}
    assert changes == {
        ("System", "Linux 6.1", "Linux 6.8", "2026-04-01"),
        ("Link width (cuda)", "16 lanes", "8 lanes", "2026-04-01"),
    }
    assert machines["rack <b>"]["changes"] == []


def test_feed_is_valid_and_keeps_its_ids(fleet):
    """The feed has what Atom demands of each entry, and a second publish gives every event the same id."""
    path = fleet.root / "html" / "events.xml"
    feed = ET.parse(path).getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert len(entries) == len(fleet.data("events")["events"])
    for entry in [feed, *entries]:
        assert entry.findtext(f"{ATOM}id")
        assert entry.findtext(f"{ATOM}title")
        datetime.datetime.fromisoformat(entry.findtext(f"{ATOM}updated"))
    before = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(before)) == len(before)
    fleet.publish()
    assert [entry.findtext(f"{ATOM}id") for entry in ET.parse(path).getroot().findall(f"{ATOM}entry")] == before


def test_empty_history_says_what_to_do(asv_project):
    """With no results and no figures every page has its words for that, and the front page stays asv's."""
    project = asv_project(1)
    html = project.publish()
    for name, rows in (("figures", "figures"), ("events", "events"), ("sweeps", "sweeps"), ("machines", "machines")):
        data = project.data(name)
        assert data[rows] == []
        assert len(data["empty"]) > 40
        assert data["example"]
    assert "front.js" not in (html / "index.html").read_text()


def test_figures_without_a_record_say_how_to_state_one(small):
    """Figures that are declared and not stated yet: the page names the command that states the first."""
    (small.root / "figures.toml").write_text(
        'schema = 1\n[figures.cold]\ntitle = "Cold"\nunit = "GB/s"\ndirection = "higher"\n'
    )
    small.publish()
    assert "figures correct cold --machine box --from-history" in small.data("figures")["example"]


def test_figures_are_the_front_page(fleet):
    """Where there are figures, asv's page leads to them unless its address asks for a view of its own."""
    page = (fleet.root / "html" / "index.html").read_text()
    assert page.index("dashboard/front.js") < page.index("jquery")


def test_no_page_is_heavy_before_its_data(fleet):
    """Document, styles, scripts and chart library of a page together stay under 1.5 MB."""
    html = fleet.root / "html"
    charts = ["vendor/vega/vega.min.js", "vendor/vega-interpreter/vega-interpreter.min.js", "charts.js"]
    for name in OURS[:4]:
        page = (html / name).read_text()
        loaded = [*re.findall(r'(?:src|href)="(dashboard/[^"]+)"', page), *(f"dashboard/{one}" for one in charts)]
        assert sum((html / one).stat().st_size for one in loaded) + len(page) < 1.5e6


def test_unreadable_results_are_counted_and_named(small):
    """A result file that cannot be read is left out, named by asv's output and counted on the pages."""
    (small.root / "results" / "box" / "deadbeef-virtualenv-py3.11.json").write_text("{")
    done = small.asv("publish", "--no-pull")
    assert "deadbeef" in done.stdout + done.stderr
    assert "1 file could not be read" in (small.root / "html" / "figures.html").read_text()


def test_broken_figures_stop_the_publish_with_one_line(small):
    """A figures.toml that is not valid is no reason to publish pages without it: asv ends with the place and reason."""
    (small.root / "figures.toml").write_text("schema = 1\n[figures.x\n")
    done = small.asv("publish", "--no-pull", check=False)
    assert done.returncode != 0
    assert "figures.toml" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_git_is_not_asked_for_every_file_and_tag(asv_project, tmp_path):
    """Results on a commit outside the branches, with many tags: our pages add one question to git, not one a tag."""
    project = asv_project(3)
    repo = project.root / "repo"
    git = f"git -C {repo} "
    os.system(git + f"branch side {project.commits[1]} && {git} symbolic-ref HEAD refs/heads/side && "
              + git + "-c user.name=A -c user.email=a@example.org commit -q --allow-empty -m side")  # fmt: skip
    project.commits.append(os.popen(git + "rev-parse side").read().strip())
    for number in range(12):
        os.system(git + f"tag v{number} {project.commits[number % 3]}")
    project.machine("box")
    project.benchmark("suite.time_it")
    for at in range(4):
        project.result("box", at, {"suite.time_it": 0.1})
    log = tmp_path / "calls"
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    real = os.popen("command -v git").read().strip()
    shim.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    shim.chmod(0o755)
    calls = {}
    path = project.root / "asv.conf.json"
    for switched_on in (False, True):
        config = json.loads(path.read_text())
        path.write_text(
            json.dumps({**config, "plugins": [".hybrid_kernels.report.dashboard.plugin"] if switched_on else []})
        )
        log.write_text("")
        os.environ["PATH"], before = f"{shim.parent}:{os.environ['PATH']}", os.environ["PATH"]
        try:
            project.asv("publish", "--no-pull")
        finally:
            os.environ["PATH"] = before
        calls[switched_on] = len(log.read_text().splitlines())
    assert calls[True] - calls[False] <= 2


# --- kept pages ---


def pages_of(project, when=datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)):
    return kept.pages(kept.Source(project.root / "results", Project("p"), project.root / "figures.toml"), when)


@pytest.fixture
def counted(monkeypatch):
    """How often the pages were built anew."""
    calls = []
    real = build.build
    monkeypatch.setattr(build, "build", lambda *arguments: calls.append(1) or real(*arguments))
    return calls


def test_unchanged_history_is_not_judged_again(small, counted):
    """A second publish of the same results takes the pages as kept; only the moment in them is new."""
    small.save()
    first = pages_of(small)
    second = pages_of(small, datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC))
    assert len(counted) == 1
    assert b"2026-05-01 00:00 UTC" in first.files["figures.html"]
    assert b"2026-06-01 00:00 UTC" in second.files["figures.html"]
    assert first.files.keys() == second.files.keys()


def test_anything_that_changes_is_built_again(small, counted):
    """A new result, a changed benchmarks.json or a figures.toml is never answered with old pages."""
    small.save()
    pages_of(small)
    small.result("box", 1, {"suite.time_it": 0.3})
    pages_of(small)
    (small.root / "figures.toml").write_text("schema = 1\n")
    pages_of(small)
    small.benchmark("suite.time_it", version="2")
    small.save()
    pages_of(small)
    assert len(counted) == 4


def test_damaged_kept_pages_are_built_again(small, counted, cache_folder):
    """A cut or foreign file in the cache folder is replaced; one that cannot be written is no error."""
    small.save()
    pages_of(small)
    (place,) = (cache_folder / "pages").iterdir()
    place.write_bytes(place.read_bytes()[:100])
    pages_of(small)
    place.unlink()
    place.parent.rmdir()
    place.parent.write_text("in the way")
    pages_of(small)
    assert len(counted) == 3


# --- the head start ---


def test_pages_are_built_without_what_takes_long_to_import(fleet, tmp_path):
    """Neither pandas nor altair nor scipy stands between a history and its pages."""
    code = (
        "import pathlib, sys; from hybrid_kernels.report.dashboard import kept, links\n"
        "root = pathlib.Path(sys.argv[1]); project = links.Project('p')\n"
        "kept.refresh(kept.Source(root / 'results', project, root / 'figures.toml'))\n"
        "print(*sorted({'pandas', 'pyarrow', 'altair', 'scipy'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "HYBRID_KERNELS_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", code, str(fleet.root)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


@pytest.fixture
def source(small):
    small.save()
    return kept.Source(small.root / "results", Project("p"), small.root / "figures.toml")


def test_head_start_has_the_pages_ready(source, counted):
    """The process that starts early builds and keeps the pages, so that asv's process builds nothing."""
    headstart.start(source)
    headstart.finish()
    assert kept.is_kept(source)
    kept.pages(source, datetime.datetime.now(datetime.UTC))
    assert counted == []


def test_head_start_lets_asv_go_first(source):
    """The process that builds the pages gives way where asv itself needs all processors."""
    headstart.start(source)
    process = headstart._running
    assert process is not None
    while process.poll() is None:
        if os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0):
            break
    else:
        pytest.fail("it ended before it gave way")
    headstart.finish()


def test_failed_head_start_changes_nothing(source, counted):
    """When the early process fails, asv's own builds the pages, or says what is wrong."""
    source.figures.write_text("schema = 1\nbroken")
    headstart.start(source)
    headstart.finish()
    with pytest.raises(BadInput, match=r"figures\.toml"):
        kept.pages(source, datetime.datetime.now(datetime.UTC))
    assert counted == [1]


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["publish"], True),
        (["--config", "elsewhere/asv.conf.json", "publish", "--no-pull"], True),
        (["--config=elsewhere/asv.conf.json", "gh-pages"], True),
        (["run", "HEAD^!"], False),
        (["publish", "--config", "broken.json"], False),
    ],
)
def test_only_a_publish_starts_early(small, monkeypatch, arguments, starts):
    """asv loads the plugin on every command: those that publish start the pages early, others do nothing."""
    started = []
    monkeypatch.setattr(headstart, "start", started.append)
    monkeypatch.setattr(sys, "argv", ["asv", *arguments])
    monkeypatch.chdir(small.root)
    (small.root / "broken.json").write_text("{")
    plugin.setup()
    assert [one.results for one in started] == ([Path("results")] if starts else [])


# --- publish: beside, then swapped ---


@pytest.fixture
def quick(monkeypatch):
    """Publishing without asv: a site of two files, for the tests of where it goes."""

    def run(conf, pull):
        site = Path(conf.html_dir)
        site.mkdir()
        for name in ("index.html", "info.json"):
            (site / name).write_text("new")

    monkeypatch.setattr(publishing, "_run", run)


def test_publish_swaps_the_site_in(small):
    """The published folder is the old site, then the new one; nothing is left beside it, its mode stays."""
    config = small.root / "asv.conf.json"
    small.save()
    site = publishing.publish(config)
    assert site == small.root / "html"
    (site / "mark").write_text("old")
    site.chmod(0o750)
    publishing.publish(config)
    assert not (site / "mark").exists()
    assert (site / "figures.html").exists()
    assert stat.S_IMODE(site.stat().st_mode) == 0o750
    assert sorted(path.name for path in small.root.iterdir() if path.name.startswith(".")) == []


def test_publish_adds_the_plugin_where_the_project_does_not_name_it(small):
    """`hybrid-kernels publish` brings our pages to an asv project that has not switched them on."""
    path = small.root / "asv.conf.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "plugins": []}))
    small.save()
    assert (publishing.publish(path) / "figures.html").exists()


def test_failed_publish_leaves_the_old_site(small):
    """When publishing fails half way, what readers see is the old site, whole."""
    config = small.root / "asv.conf.json"
    small.save()
    site = publishing.publish(config)
    before = {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    (small.root / "figures.toml").write_text("schema = 1\nbroken")
    with pytest.raises(BadInput, match=r"figures\.toml"):
        publishing.publish(config)
    assert {path.relative_to(site): path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    assert [path.name for path in small.root.iterdir() if path.name.startswith(".")] == []


def test_readers_never_miss_the_site_during_a_swap(tmp_path):
    """A reader that looks without pause finds one whole site or the other at every moment."""
    site = tmp_path / "html"
    site.mkdir()
    (site / "page").write_text("0")
    missing, done = [], threading.Event()

    def read():
        while not done.is_set():
            try:
                (site / "page").read_text()
            except OSError as error:
                missing.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        new = tmp_path / "new"
        new.mkdir()
        (new / "page").write_text(str(number))
        publishing._swap(new, site)
        assert (site / "page").read_text() == str(number)
        (new / "page").unlink()
        new.rmdir()
    done.set()
    reader.join()
    assert missing == []


def test_swap_without_the_system_call_rolls_back(tmp_path, monkeypatch):
    """Where two folders cannot change places in one step, two renames do it, and a failed second one is undone."""
    monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    site, new = tmp_path / "html", tmp_path / "staging" / "site"
    site.mkdir()
    new.mkdir(parents=True)
    (site / "page").write_text("old")
    (new / "page").write_text("new")
    rename, calls = os.rename, []

    def fail_second(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_second)
    with pytest.raises(OSError, match="No space"):
        publishing._swap(new, site)
    assert (site / "page").read_text() == "old"
    publishing._swap(new, site)
    assert (site / "page").read_text() == "new"


def test_publish_refuses_a_folder_that_is_no_site(small, quick, tmp_path):
    """A folder with other files would be removed, so it is refused; so is a file, and a place in no folder."""
    config = small.root / "asv.conf.json"
    small.save()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="no published site"):
        publishing.publish(config, mine)
    assert (mine / "thesis.txt").read_text() == "years of work"
    with pytest.raises(BadInput, match="is a file"):
        publishing.publish(config, mine / "thesis.txt")
    with pytest.raises(BadInput, match="stands in no folder"):
        publishing.publish(config, tmp_path / "a" / "b")
    with pytest.raises(BadInput, match="no such file"):
        publishing.publish(tmp_path / "asv.conf.json")


def test_second_publish_at_once_is_told_so(small, quick):
    """Two publishes into one folder: the second ends with that said, and the first is not disturbed."""
    small.save()
    with publishing._staging(small.root / "html"), pytest.raises(BadInput, match="another publish"):
        publishing.publish(small.root / "asv.conf.json")
    assert (publishing.publish(small.root / "asv.conf.json") / "index.html").exists()


def test_leftovers_of_a_killed_publish_are_removed(small, quick):
    """What a killed publish left beside the site goes with the next one."""
    small.save()
    left = small.root / ".html.publishing" / "site"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    publishing.publish(small.root / "asv.conf.json")
    assert not left.parent.exists()


def test_publish_follows_a_link_to_the_site(small, quick, tmp_path):
    """Where the site is a symbolic link, the folder it names is swapped and the link stays."""
    small.save()
    (tmp_path / "real").mkdir()
    (small.root / "html").symlink_to(tmp_path / "real")
    publishing.publish(small.root / "asv.conf.json")
    assert (small.root / "html").is_symlink()
    assert (tmp_path / "real" / "index.html").exists()


def test_configuration_that_cannot_be_used_is_named(small, tmp_path):
    """Broken JSON, no repository named, nothing measured: one error each that names the configuration."""
    config = small.root / "asv.conf.json"
    with pytest.raises(BadInput, match=r"asv\.conf\.json: .*benchmarks\.json"):
        publishing.publish(config)
    good = config.read_text()
    config.write_text("{")
    with pytest.raises(BadInput, match="is not JSON"):
        publishing.publish(config)
    config.write_text(json.dumps({**json.loads(good), "repo": ""}))
    with pytest.raises(BadInput, match="No repo specified"):
        publishing.publish(config)


def test_git_that_fails_is_told_with_the_configuration(small):
    """A branch that the repository lacks ends in an error of the project's settings, not in a traceback."""
    small.save()
    config = small.root / "asv.conf.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "branches": ["gone"]}))
    with pytest.raises(HybridKernelsError, match=r"asv\.conf\.json"):
        publishing.publish(config)
    assert not (small.root / "html").exists()


def test_place_that_cannot_be_written_is_named(small, quick, monkeypatch):
    """When the system refuses the swap, the folder is named with the system's reason."""
    small.save()

    def refuse(source, target):
        raise PermissionError(13, "Permission denied", os.fspath(target))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(BadInput, match=r"html: cannot be written \(Permission denied\)"):
        publishing.publish(small.root / "asv.conf.json")


def test_exchange_says_where_it_cannot_be_done(tmp_path, monkeypatch):
    """Two folders change places in one call; a missing one is an error, not a silent no."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "mark").write_text("")
    other.mkdir()
    files.exchange(one, other)
    assert (other / "mark").exists()
    with pytest.raises(FileNotFoundError):
        files.exchange(one, tmp_path / "gone")
    monkeypatch.setattr(files.ctypes, "CDLL", lambda *_, **__: object())  # a system without the call
    files.exchange(one, other)
    assert (one / "mark").exists()


def test_history_with_a_thousand_points_is_thinned_to_its_last():
    """A long history is drawn with evenly spaced points, the newest always among them."""
    thinned = points.thinned(list(range(1000)), 60)
    assert len(thinned) == 60
    assert thinned[-1] == 999
    assert thinned == sorted(thinned)
    assert points.thinned([1, 2], 60) == [1, 2]


def test_commit_messages_come_where_there_is_a_repository(small):
    """Subjects of those commits that git knows; none, and no error, where there is no repository at hand."""
    assert json.loads(commits.subjects(object(), ["a" * 40]).split(b", ", 1)[1][:-3]) == {}
    repo = SimpleNamespace(_path=small.root / "repo")
    told = json.loads(commits.subjects(repo, [*small.commits, "f" * 40]).split(b", ", 1)[1][:-3])
    assert told == dict(zip(small.commits, ["Change 0", "Change 1"], strict=True))
    assert b"{}" in commits.subjects(SimpleNamespace(_path=small.root / "gone"), small.commits)


def test_sweep_takes_the_facts_last_read_before_it(asv_project):
    """Where link and cache were not read at a commit, its sweep has them as last read, or as first read after."""
    project = asv_project(4)
    project.machine("box", ram="131961788")
    project.benchmark("reads.time_read", params=(("device", ["cuda"]), ("strategy", ["in_place"]), ("mib", [64.0])))
    project.benchmark("machine.Device.track_link_width", "lanes", params=(("device", ["cuda"]),))
    project.benchmark("machine.Device.track_link_generation", "generation", params=(("device", ["cuda"]),))
    for at in range(4):
        project.result("box", at, {"reads.time_read": [0.001]})
    for at, width in ((1, 16.0), (3, 8.0)):
        facts = {"machine.Device.track_link_width": [width], "machine.Device.track_link_generation": [4.0]}
        project.result("box", at, facts)
    project.publish()
    index = project.data("sweeps")["sweeps"]
    limits = [project.data(one["chunk"])[one["key"]]["limits"][0]["label"] for one in index]
    assert limits == ["link, PCIe 4 x8", "link, PCIe 4 x16", "link, PCIe 4 x16", "link, PCIe 4 x16"]  # newest first
    (machine,) = project.data("machines")["machines"]
    assert ["Memory", "126 GiB"] in machine["facts"]  # given in KiB


def test_sweep_of_other_parameters_is_left_out(asv_project):
    """A benchmark that is a sweep today and once had other parameters does not stop the pages."""
    project = asv_project(4)
    project.machine("box")
    for at, params in enumerate([[("size", ["big"])], [("strategy", ["in_place"]), ("mib", [64.0])]]):
        project.benchmark("reads.time_read", params=params)
        project.result("box", at, {"reads.time_read": [0.001]})
    project.publish()
    (sweep,) = project.data("sweeps")["sweeps"]
    assert project.commits[1].startswith(sweep["commit"]["short"])


def test_change_of_a_figure_is_told_once(asv_project):
    """A step that the history shows and a record states is one event, also when the record is of a later commit."""
    project = asv_project(12)
    project.machine("box")
    project.benchmark("reads.track_it", "GB/s", higher_is_better=True)
    for at in range(12):
        project.result("box", at, {"reads.track_it": (5.0 if at < 6 else 10.0) + at / 1000})
    method = '{ benchmark = "reads.track_it", version = "1" }'
    (project.root / "figures.toml").write_text(
        'schema = 1\n[figures.cold]\ntitle = "Cold"\nunit = "GB/s"\ndirection = "higher"\n'
        '[[figures.cold.records]]\nid = 1\ndate = 2026-03-03\nmachine = "box"\nvalue = 5\nkind = "measured"\n'
        f"method = {method}\n"
        '[[figures.cold.records]]\nid = 2\ndate = 2026-03-12\nmachine = "box"\nvalue = 10\nkind = "measured"\n'
        f'method = {method}\ncorrects = 1\nchange = "improvement"\nreason = "new"\ncommit = "{project.commits[11]}"\n'
    )
    project.publish()
    events = project.data("events")["events"]
    assert [event["title"] for event in events if event["kind"] == "improvement"] == ["Cold"]
