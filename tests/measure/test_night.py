"""Nights with a real asv on a small project: interrupted, cut, hanging, full and busy; nothing finished is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.measure import night as nights
from hybrid_kernels.records import Night

RUN = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()", "nightly"]
ENVIRONMENT = Path(__file__).with_name("checkout_environment.py")
SUITE = 'import time\n\n\ndef track_{name}():\n    {body}\n\n\ntrack_{name}.unit = "GB/s"\ntrack_{name}.version = "1"\n'


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.invalid"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


class Small:
    """An asv project in a repository of its own, run with the interpreter of the tests, nothing built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "benchmarks").mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        (folder / "benchmarks/__init__.py").touch()
        for name in ("alpha", "beta"):
            self.suite(name, "return 5.0")
        (folder / "asv.conf.json").write_text(
            json.dumps(
                {
                    "version": 1, "project": "small", "repo": ".", "branches": ["main"],
                    "environment_type": "checkout", "plugins": [".checkout_environment"],
                    "benchmark_dir": "benchmarks", "pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"],
                }
            )
        )  # fmt: skip
        (folder / "checkout_environment.py").write_text(ENVIRONMENT.read_text())
        (folder / ".gitignore").write_text("results/\nenv/\n.night/\n")
        git(folder, "add", "-A")
        self.commit("first")

    def suite(self, name: str, body: str) -> None:
        (self.folder / f"benchmarks/{name}.py").write_text(SUITE.format(name=name, body=body))

    def commit(self, message: str) -> str:
        git(self.folder, "commit", "-q", "--allow-empty", "-am", message)
        return git(self.folder, "rev-parse", "HEAD")

    @property
    def project(self) -> nights.Project:
        return nights.Project(self.folder / "asv.conf.json", "main", "box")

    def run(self, **more) -> Night:
        return nights.run(self.project, busy_now=lambda: None, **more)

    def results(self) -> dict[str, set[str]]:
        """{file: names of benchmarks with a value}; every file must parse."""
        found = {}
        for path in (self.folder / "results/box").glob("*.json"):
            if path.name != "machine.json":
                data = json.loads(path.read_text())
                found[path.name] = {name for name, row in data["results"].items() if row[0] != [None]}
        return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder in which asv knows the machine `box`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    machine = {
        "version": 1,
        "box": {"machine": "box", "os": "Linux", "arch": "x", "cpu": "c", "num_cpu": "2", "ram": "1"},
    }
    (tmp_path / "home/.asv-machine.json").write_text(json.dumps(machine))


@pytest.fixture
def small(tmp_path: Path, home: None) -> Small:
    """The project, with asv kept from building environments: it measures with this interpreter."""
    return Small(tmp_path / "project")


def test_new_commits_are_measured_once_and_resumed_never(small: Small) -> None:
    """The first night measures the newest commit, the second nothing, a third what came since."""
    first = small.run()
    assert len(first.measured) == 1, first
    assert first.marks == ()
    (values,) = small.results().values()
    assert values == {"alpha.track_alpha", "beta.track_beta"}
    again = small.run()
    assert again.measured == ()
    assert again.moved == 0
    head = small.commit("second")
    assert small.run().measured == (head,)
    assert len(small.results()) == 2


def test_a_killed_night_keeps_what_was_finished_and_the_next_goes_on(small: Small) -> None:
    """kill -9 in the second suite: the first is in the history, whole; the next night measures the other only."""
    small.suite("beta", "time.sleep(60)")
    command = [*RUN, "--config", str(small.folder / "asv.conf.json"), "--machine", "box", "--idle-limit", "0"]
    child = subprocess.Popen(
        [sys.executable, "-c",
         "from hybrid_kernels.measure import night; night.busy = lambda: None;"
         "night.run.__kwdefaults__['busy_now'] = night.busy;"
         f"import sys; sys.argv = {['hybrid-kernels', *command[3:]]!r};"
         "from hybrid_kernels.cli import main; main()"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    state = small.folder / ".night/state.json"
    for _ in range(600):
        time.sleep(0.1)
        log = list((small.folder / ".night").glob("*-beta.log"))
        if state.exists() and log and "beta.track_beta" in log[0].read_text():
            break
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    subprocess.run(["pkill", "-9", "-f", str(small.folder / ".night")], check=False)
    (values,) = small.results().values()
    assert values == {"alpha.track_alpha"}
    small.suite("beta", "return 6.0")
    night = small.run()
    assert len(night.measured) == 1
    (values,) = small.results().values()
    assert values == {"alpha.track_alpha", "beta.track_beta"}


def test_a_cut_result_file_does_not_stop_a_commit(small: Small) -> None:
    """A file cut at byte 700 (asv refuses to run that commit then) is replaced by what is measured anew."""
    small.run()
    (name,) = small.results()
    path = small.folder / "results/box" / name
    path.write_bytes(path.read_bytes()[:700])
    (small.folder / ".night/state.json").unlink()
    state = nights.State(small.folder / ".night/state.json")
    state.done("box", git(small.folder, "rev-parse", "HEAD"))
    state.save()
    night = small.run()
    assert len(night.measured) == 1
    (values,) = small.results().values()
    assert len(values) == 2


def test_a_hanging_suite_is_ended_and_marked(small: Small) -> None:
    """A benchmark that never returns costs its suite the limit, and the night goes on."""
    small.suite("beta", "time.sleep(600)")
    night = small.run(suite_limit=12.0)
    assert [mark.suite for mark in night.marks] == ["beta"]
    assert "took longer than 12 s" in night.marks[0].what
    (values,) = small.results().values()
    assert "alpha.track_alpha" in values


def test_a_failing_benchmark_is_marked(small: Small) -> None:
    """An exception in one benchmark is named; the others are kept."""
    small.suite("beta", "raise ValueError('no')")
    night = small.run()
    assert [(mark.suite, mark.what) for mark in night.marks] == [("beta", "1 benchmark failed: beta.track_beta")]


def test_a_broken_build_marks_the_commit(small: Small) -> None:
    """A commit that cannot be built is marked once, and not tried suite by suite."""
    (small.folder / "broken").touch()
    git(small.folder, "add", "broken")
    small.commit("does not build")
    night = small.run()
    assert [(mark.suite, mark.what[:12]) for mark in night.marks] == [("", "build failed")]
    assert small.results() == {}
    assert small.run().marks == ()


def test_a_second_start_says_who_holds_the_night(small: Small) -> None:
    """The lock names its process and since when; the lock is free when its holder is gone."""
    path = small.folder / ".night/lock"
    with nights.lock(path):
        code = (
            "from pathlib import Path; from hybrid_kernels.measure.night import lock\n"
            f"with lock(Path({str(path)!r})): pass"
        )
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"process {os.getpid()} on" in got.stderr
        assert "since 20" in got.stderr
    with nights.lock(path):
        pass


def test_a_busy_machine_is_waited_for_and_then_left_alone() -> None:
    """Idle after two looks: waited. Busy to the end: the reason, with how long was waited."""
    looks = iter(["the host is busy: load 9", "the host is busy: load 9", None])
    assert nights.wait_idle(60, lambda: next(looks), lambda seconds: None) is None
    assert "after waiting 0 s" in str(nights.wait_idle(0, lambda: "GPU 0 is busy: 1 other processes on it"))


def test_a_busy_night_measures_nothing_and_says_why(small: Small) -> None:
    """The commits stay due."""
    night = nights.run(small.project, idle_limit=0.0, busy_now=lambda: "the host is busy: load 9")
    assert night.measured == ()
    assert len(night.left) == 1
    assert "busy" in str(night.idle)


def test_too_little_space_is_refused_before_anything(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both numbers are named."""
    monkeypatch.setattr(nights.shutil, "disk_usage", lambda path: nights.shutil._ntuple_diskusage(10, 9, 1024))
    with pytest.raises(nights.CouldNotRun, match=r"1\.00 KiB are free, 256 MiB are needed"):
        small.run()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 300 MiB, where mounting one is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here: needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up_marks_the_suite_and_keeps_the_rest(full_disk: Path, home: None) -> None:
    """The second of three suites fills the disk: what was finished before is whole, the summary says which suites were
    lost, nothing is half-written, and with room again the next night measures them."""
    small = Small(full_disk / "project")
    fill = f"open({str(full_disk / 'filler')!r}, 'wb').write(bytes(1 << 20) * 400)"
    small.suite("beta", f"try:\n        {fill}\n    except OSError:\n        pass\n    return 1.0")
    small.suite("gamma", "return 2.0")
    git(small.folder, "add", "-A")
    commit = small.commit("fills up")
    night = small.run()
    assert night.measured == ()
    lost = {mark.suite: mark.what for mark in night.marks if mark.commit == commit}
    assert lost, night
    assert "alpha" not in lost
    assert any("full" in what for what in lost.values()), lost
    kept = small.results()  # every file parses
    assert {"alpha.track_alpha"} <= set().union(*kept.values())
    for filler in full_disk.rglob("filler"):
        filler.unlink()
    small.suite("beta", "return 1.0")
    small.commit("room again")
    assert small.run().marks == ()


def test_what_changed_about_the_machine_is_told(small: Small) -> None:
    """A driver that moved between two nights is named with both values; the load is not."""
    small.run(facts={"driver": "580.1", "load_average": 0.1})
    small.commit("second")
    night = small.run(facts={"driver": "590.2", "load_average": 0.9})
    assert night.changed == (("driver", "580.1", "590.2"),)


def test_gaps_are_filled_from_the_middle(tmp_path: Path) -> None:
    """Of nine commits with the ends measured, the middle of the gap comes first, then of the larger half."""
    taken = [True, *[False] * 7, True]
    order = []
    for _ in range(3):
        place = nights._longest_gap(taken)
        assert place is not None
        order.append(place)
        taken[place] = True
    assert order[0] == 4
    assert set(order[1:]) == {2, 6}
    assert nights._longest_gap([True, True]) is None


def test_results_are_committed_to_a_branch_without_touching_the_checkout(small: Small, tmp_path: Path) -> None:
    """The branch holds the results and is pushed; the checkout stays where it was."""
    origin = tmp_path / "origin.git"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    git(small.folder, "remote", "add", "origin", str(origin))
    git(small.folder, "config", "user.name", "Test")
    git(small.folder, "config", "user.email", "test@example.invalid")
    (small.folder / ".gitignore").write_text("env/\n.night/\n")
    git(small.folder, "commit", "-qam", "keep results")
    night = small.run()
    before = git(small.folder, "rev-parse", "HEAD")
    assert nights.share(small.project, night, "results", push=True).startswith("committed and pushed")
    assert git(small.folder, "rev-parse", "HEAD") == before
    listed = git(origin, "ls-tree", "-r", "--name-only", "results")
    assert "results/box/" in listed
    assert nights.share(small.project, night, "results", push=True) == "no new results to commit"


def test_bad_projects_are_named(tmp_path: Path) -> None:
    """No configuration, a broken one, one without a repository, an unknown branch."""
    with pytest.raises(BadInput, match="no such file"):
        nights.Project(tmp_path / "x.json", "main")
    (tmp_path / "asv.conf.json").write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        nights.Project(tmp_path / "asv.conf.json", "main")
    (tmp_path / "asv.conf.json").write_text("{}")
    with pytest.raises(BadInput, match="names no repo"):
        nights.Project(tmp_path / "asv.conf.json", "main")
    git(tmp_path, "init", "-q")
    (tmp_path / "asv.conf.json").write_text('{"repo": "."}')
    with pytest.raises(BadInput, match="--branch"):
        nights.Project(tmp_path / "asv.conf.json", "nowhere").commits()


def test_the_command_tells_a_night_and_its_exit_code(small: Small, tmp_path: Path) -> None:
    """Fine is 0 with a summary in words and Markdown; a project that is not there is 2 with one line."""
    out = tmp_path / "summary.md"
    code = (
        "from hybrid_kernels.measure import night; night.run.__kwdefaults__['busy_now'] = lambda: None;"
        "import sys; sys.argv = ['hybrid-kernels', 'nightly', '--machine', 'box', '--summary', "
        f"{str(out)!r}, '--config', {str(small.folder / 'asv.conf.json')!r}];"
        "from hybrid_kernels.cli import main; main()"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("box: 1 commit measured")
    assert out.read_text().startswith("### box: 1 commit measured")
    got = subprocess.run([*RUN, "--config", "/nonexistent.json"], capture_output=True, text=True, check=False)
    assert got.returncode == 2
    assert len(got.stderr.strip().splitlines()) == 1
