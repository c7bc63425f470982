"""The loop against a laboratory that answers at once, and asv's own processes in a small project of two commits."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import importers
from hybrid_kernels.judge import verdict
from hybrid_kernels.measure import diffs, rounds
from hybrid_kernels.records import Sampled

ENVIRONMENT = Path(__file__).with_name("checkout_environment.py")


class Instant:
    """A laboratory with planned values: `value(side, cell, round)`; it notes what was asked of it, in order."""

    def __init__(self, value=lambda side, cell, number: 1.0, cells=("a.time_x", "b.time_y"), plan=None):
        self.cells = [rounds.Cell(name, None, "", ("base", "head")) for name in cells]
        self.plan = {"base": "aaa", "head": "bbb"} if plan is None else plan
        self.value, self.asked = value, []

    def measure(self, side, cell, round_number):
        self.asked.append((round_number, cell.benchmark, side))
        value = self.value(side, cell.benchmark, round_number)
        return Sampled(side, round_number, cell.benchmark, "", (value,), "seconds", -1, "1")


class After:
    """A stopping rule that is content after so many rounds."""

    looks = (2, 4, 6, 8)

    def __init__(self, enough):
        self.enough, self.asked = enough, []

    def __call__(self, samples):
        done = max(sample.round for sample in samples)
        self.asked.append(done)
        return [] if done >= self.enough else ["a.time_x"]


def test_sides_alternate_and_lie_back_to_back(tmp_path):
    """Each cell's two sides run one after the other, and the side that goes first changes with the round."""
    lab = Instant()
    rounds.measure(lab, tmp_path, rounds=2)

    assert lab.asked == [
        (1, "a.time_x", "base"), (1, "a.time_x", "head"), (1, "b.time_y", "base"), (1, "b.time_y", "head"),
        (2, "a.time_x", "head"), (2, "a.time_x", "base"), (2, "b.time_y", "head"), (2, "b.time_y", "base"),
    ]  # fmt: skip


def test_the_stopping_rule_is_asked_at_its_looks_only(tmp_path):
    """A rule that is content after 6 rounds ends the run there; its last look ends it in any case."""
    rule = After(6)
    assert rounds.measure(Instant(), tmp_path / "a", stop=rule).rounds == 6
    assert rule.asked == [2, 4, 6]
    assert rounds.measure(Instant(), tmp_path / "b", stop=After(99)).rounds == 8


def test_the_judges_own_rule_ends_a_run(tmp_path):
    """Values that never vary are settled at the first look, four rounds."""
    assert rounds.measure(Instant(), tmp_path, stop=verdict.Settled()).rounds == 4


def test_a_second_run_goes_on_where_the_first_ended(tmp_path):
    """Kept rounds are counted and not measured again, and give the same samples."""
    first = rounds.measure(Instant(), tmp_path, rounds=3)
    lab = Instant()
    second = rounds.measure(lab, tmp_path, rounds=5)

    assert {number for number, _, _ in lab.asked} == {4, 5}
    assert (second.rounds, second.resumed) == (5, 3)
    assert second.samples[: len(first.samples)] == first.samples
    assert importers.kept([tmp_path])[0] == list(second.samples)


def test_rounds_of_another_comparison_are_never_mixed_in(tmp_path):
    """A folder that holds another pair of commits is refused by name and left as it was."""
    rounds.measure(Instant(), tmp_path, rounds=1)
    before = sorted(path.read_text() for path in tmp_path.iterdir())

    with pytest.raises(BadInput, match="another comparison \\(head differ\\)"):
        rounds.measure(Instant(plan={"base": "aaa", "head": "ccc"}), tmp_path, rounds=2)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == before


def test_a_look_before_the_end_is_remembered(tmp_path):
    """Rounds that a stopping rule once ended count as looked at, however many are asked for later."""
    assert rounds.measure(Instant(), tmp_path / "a", rounds=2).sequential is False
    assert rounds.measure(Instant(), tmp_path / "b", stop=After(2)).sequential is True
    assert rounds.measure(Instant(), tmp_path / "b", rounds=3).sequential is True
    assert rounds.measure(Instant(), tmp_path / "a", stop=After(4)).sequential is True
    assert json.loads((tmp_path / "a" / "plan.json").read_text())["sequential"] is True


def test_interrupting_keeps_the_finished_rounds(tmp_path):
    """Ctrl-C in the third round leaves two whole ones, judged as such, and a folder that can be resumed."""

    def value(side, cell, number):
        if (side, cell, number) == ("head", "b.time_y", 3):
            raise KeyboardInterrupt
        return 1.0

    kept = rounds.measure(Instant(value), tmp_path, rounds=8)

    assert (kept.rounds, kept.interrupted) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "round-001.json", "round-002.json"]
    assert rounds.measure(Instant(), tmp_path, rounds=4).resumed == 2


def test_time_is_not_overrun_by_a_round_that_would_not_fit(tmp_path):
    """With 10 seconds and rounds of 4, the third is not begun; the first always is."""
    now = [0.0]

    def value(side, cell, number):
        now[0] += 1.0
        return 1.0

    kept = rounds.measure(Instant(value), tmp_path / "a", rounds=9, time_limit=10.0, clock=lambda: now[0])
    assert (kept.rounds, kept.out_of_time) == (2, True)
    assert rounds.measure(Instant(value), tmp_path / "b", rounds=9, time_limit=0.0, clock=lambda: now[0]).rounds == 1


def test_a_cell_of_one_side_is_measured_there_only(tmp_path):
    """What the head adds runs on the head alone."""
    lab = Instant()
    lab.cells[0] = dataclasses.replace(lab.cells[0], sides=("head",))
    rounds.measure(lab, tmp_path, rounds=1)

    assert (1, "a.time_x", "base") not in lab.asked
    assert (1, "a.time_x", "head") in lab.asked


def test_what_skips_itself_is_asked_once(tmp_path):
    """A benchmark for an absent device costs one process a side, not one a round; a failing one is tried again."""

    class Skipping(Instant):
        def measure(self, side, cell, round_number):
            sampled = super().measure(side, cell, round_number)
            if cell.benchmark == "a.time_x":
                return dataclasses.replace(sampled, samples=())
            return dataclasses.replace(sampled, samples=(), error="no") if cell.benchmark == "c.time_z" else sampled

    lab = Skipping(cells=("a.time_x", "b.time_y", "c.time_z"))
    rounds.measure(lab, tmp_path, rounds=3)

    assert [number for number, name, _ in lab.asked if name == "a.time_x"] == [1, 1]
    assert len([1 for _, name, _ in lab.asked if name == "c.time_z"]) == 6


# --- what a change can reach

TREE = (
    "pkg/__init__.py", "pkg/core.py", "pkg/tests/test_core.py", "benchmarks/reads.py", "README.md", "setup.py",
    "src/lib.c",
)  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "modules", "expected"),
    [
        (["README.md", "docs/how.py", ".github/workflows/ci.yml", "LICENSE"], ["pkg.core"], True),
        (["tests/test_x.py"], ["pkg.core"], True),
        (["pkg/tests/test_core.py"], ["pkg.core"], True),
        (["pkg/tests/test_core.py"], ["pkg.tests.helpers"], False),
        (["pkg/core.py"], ["pkg"], False),
        (["pkg/README.md"], ["pkg"], False),
        (["setup.py"], ["pkg"], False),
        (["src/lib.c"], ["pkg"], False),
        (["requirements.txt"], ["pkg"], False),
        (["benchmarks/README.md"], ["pkg"], False),
        (["README.md", "pkg/core.py"], ["pkg"], False),
        ([], ["pkg"], True),
    ],
)
def test_what_a_change_can_reach(paths, modules, expected):
    """Documentation and tests reach nothing that is measured; in doubt, a file does."""
    assert diffs.out_of_reach(paths, TREE, "benchmarks", modules) is expected


# --- asv

SUITE = """
import pkg

class Sums:
    params = [[20000], ["plain"]]
    param_names = ["n", "kind"]
    repeat, number, warmup_time = 2, 5, 0
    version = "1"

    def setup(self, n, kind):
        self.values = list(range(n))

    def time_sum(self, n, kind):
        pkg.total(self.values)

def track_rate():
    return pkg.RATE
track_rate.unit = "GB/s"
track_rate.version = "%(rate)s"

def track_cost():
    return pkg.COST
track_cost.unit = "ms"
track_cost.version = "1"

def track_fails():
    raise ValueError("no such kernel")

def time_skips():
    pass
def refuse():
    raise NotImplementedError
time_skips.setup = refuse
%(more)s
"""
CONTROLS = """
def time_loop():
    sum(range(3000))
time_loop.repeat, time_loop.number, time_loop.warmup_time, time_loop.version = 2, 1, 0, "1"

def setup_cache():
    return 7
def track_cached(value):
    return value
track_cached.setup_cache = setup_cache
track_cached.version = "1"
"""


def commit(root, **written):
    for name, text in written.items():
        path = root / name.replace("__", "/").replace("_py", ".py").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*run, "add", "-A"], check=True)
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    return subprocess.run([*run, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A git repository with an asv suite and four commits: first, slower with another suite, documentation, broken."""
    root = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-qb", "main", str(root)], check=True)
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "__init__.py").write_text("")
    (root / "checkout_environment.py").write_text(ENVIRONMENT.read_text())
    conf = {
        "version": 1, "project": "pkg", "repo": ".", "branches": ["main"], "environment_type": "checkout",
        "plugins": [".checkout_environment"], "env_dir": ".asv/env", "results_dir": ".asv/results",
        "pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"],
    }  # fmt: skip
    (root / "asv.conf.json").write_text(json.dumps(conf))
    (root / ".gitignore").write_text(".asv\n")
    commits = {}
    fast = "RATE, COST = 100.0, 2.0\ndef total(values):\n    return sum(values)\n"
    slow = "RATE, COST = 80.0, 3.0\ndef total(values):\n    return sum(sum(values) for _ in range(40))\n"
    commits["first"] = commit(
        root, pkg_py=fast, benchmarks__reads_py=SUITE % {"rate": "1", "more": "def track_old(): return 1"},
        benchmarks__controls_py=CONTROLS,
    )  # fmt: skip
    commits["slower"] = commit(
        root, pkg_py=slow, benchmarks__reads_py=SUITE % {"rate": "2", "more": "def track_new(): return 1"}
    )
    commits["documented"] = commit(root, README_md="words", docs__how_md="more words")
    commits["broken"] = commit(root, broken="")
    return root, commits


def test_two_commits_of_an_asv_project_end_to_end(project, tmp_path):
    """A planted slowdown is found by fresh processes of both commits; what each suite has is told apart."""
    root, commits = project
    config = root / "asv.conf.json"
    with rounds.AsvLaboratory(config, commits["first"], commits["slower"], benchmark=["Sums|track"]) as lab:
        kept = rounds.measure(lab, tmp_path / "kept", rounds=3)
    result = verdict.judge(importers.frame(kept.samples))
    words = {row.name: row.verdict for row in result.rows}

    assert words["reads.track_cost"] == "slower"
    timed = next(row for row in result.rows if row.name == "reads.Sums.time_sum(n=20000, kind=plain)")
    assert timed.change > 2  # forty times the work, on a machine as noisy as it may be
    assert (words["reads.track_rate"], words["reads.track_new"], words["reads.track_old"]) == (
        "method changed", "added", "removed",
    )  # fmt: skip
    assert words["reads.track_fails"] == "unadjudicable"
    assert "ValueError: no such kernel" in next(row.reason for row in result.rows if row.name == "reads.track_fails")
    assert {row.name for row in result.controls} == {"controls.time_loop", "controls.track_cached"}
    assert not lab.untouched
    assert "pkg.py" in lab.touched
    assert lab.unselected == ("reads.time_skips",)
    rows = json.loads((tmp_path / "kept" / "round-001.json").read_text())["rows"]
    assert all(len(row["samples"]) == 2 for row in rows if row["benchmark"] == "reads.Sums.time_sum")


def test_a_change_of_documentation_is_recognised(project):
    """Between the slower commit and the documented one, nothing that the benchmarks import differs."""
    root, commits = project
    with rounds.AsvLaboratory(root / "asv.conf.json", commits["slower"], "main~1", benchmark=["time_sum"]) as lab:
        assert lab.untouched
        assert lab.touched == ("README.md", "docs/how.md")
        assert [cell.benchmark for cell in lab.cells].count("reads.Sums.time_sum") == 1


@pytest.mark.parametrize(
    ("base", "options", "message"),
    [
        ("nowhere", {}, "commit 'nowhere': not found"),
        ("main", {}, "base .*: does not build: error: no such instruction"),
        ("main~1", {"benchmark": ["time_zzz"]}, "--benchmark: matches none of .* benchmarks"),
        ("main~1", {"benchmark": ["("]}, "--benchmark: '\\(' is not a regular expression"),
    ],
)
def test_what_cannot_be_used_is_named(project, base, options, message):
    """A commit, a build or a filter that cannot work is one sentence, not a traceback."""
    root, _ = project
    with pytest.raises(BadInput, match=message):
        rounds.AsvLaboratory(root / "asv.conf.json", base, "main~1", **options)


def test_a_build_command_that_is_not_there_is_named(project):
    """asv looks for it in the environment alone; what it says then is one sentence."""
    root, _ = project
    conf = json.loads((root / "asv.conf.json").read_text()) | {"build_command": ["no-such-tool {build_dir}"]}
    (root / ".asv").mkdir(exist_ok=True)
    other = root / "no-tool.json"
    other.write_text(json.dumps(conf | {"env_dir": str(root / ".asv" / "no-tool")}))
    with pytest.raises(BadInput, match=r"base .*: does not build: Could not find 'no-such-tool'"):
        rounds.AsvLaboratory(other, "main~1", "main~1")
    other.unlink()


def test_a_plugin_that_is_not_installed_is_named(project, tmp_path):
    """The configuration asks for it, so the message names both."""
    root, _ = project
    conf = json.loads((root / "asv.conf.json").read_text()) | {"plugins": [".no_such_plugin"]}
    (root / ".asv" / "other.json").parent.mkdir(exist_ok=True)
    (root / ".asv" / "other.json").write_text(json.dumps(conf))

    with pytest.raises(BadInput, match=r"--config: plugin \.no_such_plugin cannot be imported"):
        rounds.AsvLaboratory(root / ".asv" / "other.json", "main~1", "main~1")


def test_a_missing_configuration_is_named(tmp_path):
    """The option and the file are in the message."""
    with pytest.raises(BadInput, match=r"--config .*nothing\.json: no such file"):
        rounds.AsvLaboratory(tmp_path / "nothing.json", "a", "b")
