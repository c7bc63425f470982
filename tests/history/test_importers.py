"""Folders and files of other harnesses, with the odd content that real ones have, judged as our own rounds are."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from hybrid_kernels.errors import BadInput, NothingMeasured
from hybrid_kernels.history import importers
from hybrid_kernels.judge import verdict

DOCS_ONLY = Path(__file__).with_name("docs_only_pr_comparison.csv")


def estimate(point, low=None, high=None):
    low, high = point if low is None else low, point if high is None else high
    interval = {"confidence_level": 0.95, "lower_bound": low, "upper_bound": high}
    return {"confidence_interval": interval, "point_estimate": point, "standard_error": 0.0}


def criterion(root, name, ns=None, *, baseline="new", slope=True, change=None, full_id=None, samples=None):
    """One case as criterion leaves it: `<root>/<name>/<baseline>/*.json` and, if given, `change/estimates.json`."""
    case = root.joinpath(*[part.replace(" ", "_") for part in name.split("/")])
    if ns is not None:
        folder = case / baseline
        folder.mkdir(parents=True, exist_ok=True)
        estimates = {"mean": estimate(ns), "median": estimate(ns), "slope": estimate(ns) if slope else None}
        (folder / "estimates.json").write_text(json.dumps(estimates))
        (folder / "benchmark.json").write_text(json.dumps({"group_id": name.split("/")[0], "full_id": full_id or name}))
        if samples:
            data = {"sampling_mode": "Linear", "iters": [float(k) for k in range(1, len(samples) + 1)]}
            data["times"] = [value * k for value, k in zip(samples, data["iters"], strict=True)]
            (folder / "sample.json").write_text(json.dumps(data))
    if change is not None:
        (case / "change").mkdir(parents=True, exist_ok=True)
        data = {"mean": estimate(*change), "median": estimate(*change)}
        (case / "change" / "estimates.json").write_text(json.dumps(data))
    (case / "report").mkdir(parents=True, exist_ok=True)


def compare(harness, base, head, **options):
    listed = [[path] if isinstance(path, Path) else path for path in (base, head)]
    left, right, why = importers.read(harness, *listed)
    frame = importers.frame([*left.samples, *right.samples])
    result = verdict.judge(frame, incomparable=why, harness=right.intervals, **options)
    return result, [*left.warnings, *right.warnings]


def words(result):
    return {row.name: row.verdict for row in result.rows}


# --- criterion


def test_59_rows_of_a_documentation_change_call_nothing(tmp_path):
    """The comparison that flagged 15 of 59 benchmarks: from one run a side, 0 are called slower or faster."""
    with DOCS_ONLY.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        criterion(tmp_path / "a", row["scenario"], float(row["base_ns"]), slope=False)
        criterion(tmp_path / "b", row["scenario"], float(row["head_ns"]))
    result, _ = compare("criterion", tmp_path / "a", tmp_path / "b")

    assert len(result.rows) == len(rows) == 59
    assert set(words(result).values()) == {"unadjudicable"}
    assert result.spread["most"] == pytest.approx(1.161, abs=0.01)
    assert result.spread["high"] > 0.5  # 95 of 100 rows of equal code lie under this: the noise as it is


@pytest.mark.parametrize(
    ("change", "said", "trusted"),
    [
        ((0.0330, -0.0306, 0.0296), "no regression", "unadjudicable"),
        ((0.0400, 0.0198, 0.0606), "regression", "slower"),
        ((-0.0500, -0.0700, -0.0300), "improvement", "faster"),
        ((0.0010, -0.0020, 0.0040), "no regression", "same"),
        ((0.0200, 0.0150, 0.0250), "regression", "same"),
    ],
)
def test_an_interval_of_criterion_is_shown_and_decides_only_when_asked(tmp_path, change, said, trusted):
    """rustbgpd issue 566: criterion's own interval is quoted in its terms; it covers one process a side, so the row
    stays unadjudicable unless the caller says to trust it, and even then only beyond the threshold."""
    criterion(tmp_path, "rib/insert", 1000.0, baseline="base")
    criterion(tmp_path, "rib/insert", 1000.0 * (1 + change[0]), change=change)
    (row,) = compare("criterion", tmp_path, tmp_path)[0].rows
    (asked,) = compare("criterion", tmp_path, tmp_path, trust_harness=True)[0].rows

    assert row.verdict == "unadjudicable"
    assert row.harness.split(":")[0] == said
    assert asked.verdict == trusted


def test_several_runs_a_side_are_rounds(tmp_path):
    """Four runs a side settle what one cannot, whatever criterion's interval of one pair says."""
    heads = []
    for k in range(4):
        criterion(tmp_path / f"a{k}", "rib/insert", 1000.0 + k)
        criterion(tmp_path / f"b{k}", "rib/insert", 1300.0 + 2 * k, change=(-0.3, -0.4, -0.2))
        heads.append(tmp_path / f"b{k}")
    result, _ = compare("criterion", [tmp_path / f"a{k}" for k in range(4)], heads, trust_harness=True)

    assert words(result) == {"rib/insert": "slower"}
    assert result.rows[0].rounds == 4


def test_a_baseline_of_any_name_is_the_base(tmp_path):
    """lattice issue 545: folders {compare-base, new, change} and no `base` compare."""
    criterion(tmp_path, "matmul/small", 100.0, baseline="compare-base")
    criterion(tmp_path, "matmul/small", 150.0, change=(0.5, 0.4, 0.6))
    result, warnings = compare("criterion", tmp_path, tmp_path)

    assert (result.rows[0].base, result.rows[0].head) == pytest.approx((1e-7, 1.5e-7))
    assert warnings == []


def test_several_baselines_and_none_called_base_are_asked_about(tmp_path):
    """Which of two named baselines is meant cannot be guessed."""
    for name in ("main", "compare-base", "new"):
        criterion(tmp_path, "matmul/small", 100.0, baseline=name)

    with pytest.raises(BadInput, match=r"several baselines \(compare-base, main\).*give two folders"):
        compare("criterion", tmp_path, tmp_path)


def test_only_change_present_is_warned_of_by_name(tmp_path):
    """Criterion's opinion without the two measurements is no measurement, and is not passed over in silence."""
    criterion(tmp_path, "matmul/small", change=(0.5, 0.4, 0.6))
    criterion(tmp_path, "matmul/large", 100.0, baseline="base")
    criterion(tmp_path, "matmul/large", 100.0)
    result, warnings = compare("criterion", tmp_path, tmp_path)

    assert words(result) == {"matmul/large": "unadjudicable"}
    assert any("matmul/small" in text and "only `change`" in text for text in warnings)


def test_group_names_with_spaces_rows_that_vanish_and_null_slopes(tmp_path):
    """The name is criterion's own, not the folder's; a null slope falls back on the mean; one-sided rows are listed."""
    criterion(tmp_path / "a", "big group/with space/8", 100.0, slope=False)
    criterion(tmp_path / "b", "big group/with space/8", 110.0, slope=False)
    criterion(tmp_path / "a", "gone", 5.0)
    criterion(tmp_path / "b", "came", 5.0)
    result, _ = compare("criterion", tmp_path / "a", tmp_path / "b")

    assert words(result) == {"big group/with space/8": "unadjudicable", "gone": "removed", "came": "added"}


def test_raw_samples_are_used_where_criterion_kept_them(tmp_path):
    """Times over iterations, in seconds, outrank the estimate."""
    criterion(tmp_path / "a", "x", 999.0, samples=[100.0, 102.0, 101.0])
    criterion(tmp_path / "b", "x", 999.0, samples=[202.0, 202.0, 202.0])
    (row,) = compare("criterion", tmp_path / "a", tmp_path / "b")[0].rows

    assert (row.base, row.head) == pytest.approx((1.01e-7, 2.02e-7))


def test_a_folder_without_criterion_estimates_is_nothing_measured(tmp_path):
    """An empty head is neither a pass nor a regression; a missing one and a broken file are bad input, by name."""
    criterion(tmp_path / "a", "x", 100.0)
    (tmp_path / "b").mkdir()

    with pytest.raises(NothingMeasured, match="head"):
        compare("criterion", tmp_path / "a", tmp_path / "b")
    with pytest.raises(BadInput, match="nowhere"):
        compare("criterion", tmp_path / "a", tmp_path / "nowhere")
    (tmp_path / "a" / "x" / "new" / "estimates.json").write_text('{"mean": ')
    with pytest.raises(BadInput, match=r"estimates\.json"):
        compare("criterion", tmp_path / "a", tmp_path / "a")


# --- pytest-benchmark


def pytest_file(path, medians, *, brand="Xeon", version="4.0.0", dirty=False, data=True, node="ci"):
    path.parent.mkdir(parents=True, exist_ok=True)
    cpu = {"arch": "X86_64", "count": 2} | ({"brand_raw": brand} if brand else {})
    benchmarks = [
        {"group": None, "name": name, "fullname": f"tests/test_x.py::{name}", "params": None,
         "stats": {"median": value, "mean": value, "rounds": 3} | ({"data": [value, value, value]} if data else {})}
        for name, value in medians.items()
    ]  # fmt: skip
    content = {
        "machine_info": {"node": node, "machine": "x86_64", "python_version": "3.11.7", "cpu": cpu},
        "commit_info": {"id": "0" * 40, "dirty": dirty},
        "benchmarks": benchmarks,
        "version": version,
    }
    path.write_text(json.dumps(content))
    return path


def test_pytest_benchmark_files_give_the_same_report(tmp_path):
    """Rows appear and vanish, medians without raw data are read, runs are rounds; a folder holds one run a file."""
    for k in range(4):
        pytest_file(tmp_path / "a" / f"000{k}_base.json", {"test_x": 1.0 + k / 1000, "test_gone": 1.0}, data=k % 2 == 0)
        pytest_file(tmp_path / "b" / f"000{k}_head.json", {"test_x": 1.5 + k / 900, "test_came": 1.0})
    result, warnings = compare("pytest-benchmark", tmp_path / "a", tmp_path / "b")

    assert words(result) == {
        "tests/test_x.py::test_x": "slower",
        "tests/test_x.py::test_gone": "removed",
        "tests/test_x.py::test_came": "added",
    }
    assert warnings == []


@pytest.mark.parametrize("difference", [{"brand": "EPYC"}, {"version": "5.1.0"}])
def test_another_cpu_or_version_makes_the_sides_incomparable(tmp_path, difference):
    """Identical code differs by 13 % between two CPU models (codspeed issue 520): no row is judged, and it says why."""
    a = [pytest_file(tmp_path / f"a{k}.json", {"test_x": 1.0}) for k in range(4)]
    b = [pytest_file(tmp_path / f"b{k}.json", {"test_x": 2.0}, **difference) for k in range(4)]
    result, _ = compare("pytest-benchmark", a, b)

    assert words(result) == {"tests/test_x.py::test_x": "unadjudicable"}
    assert "not comparable" in result.rows[0].reason
    assert all(value in result.rows[0].reason for value in difference.values())


def test_dirty_trees_and_nameless_cpus_are_warned_of_and_read(tmp_path):
    """`dirty: true` and a file without a CPU brand limit what a report means; neither stops it."""
    a = pytest_file(tmp_path / "a.json", {"test_x": 1.0}, brand=None)
    b = pytest_file(tmp_path / "b.json", {"test_x": 1.0}, dirty=True, node="other")
    result, warnings = compare("pytest-benchmark", a, b)

    assert len(result.rows) == 1
    assert any("names no CPU" in text for text in warnings)
    assert any("dirty" in text for text in warnings)
    assert any("host differs" in text for text in warnings)


def test_a_file_of_something_else_is_bad_input(tmp_path):
    """The message names the file and what was expected there."""
    other = tmp_path / "x.json"
    other.write_text("[1, 2]")

    with pytest.raises(BadInput, match=r"x\.json.*pytest-benchmark"):
        compare("pytest-benchmark", other, other)
    with pytest.raises(BadInput, match="--import: unknown harness 'hyperfine'"):
        compare("hyperfine", other, other)


def test_unequal_numbers_of_runs_are_said(tmp_path):
    """Runs are paired in order; one that has no partner is left out and named."""
    a = [pytest_file(tmp_path / f"a{k}.json", {"test_x": 1.0}) for k in range(3)]
    b = [pytest_file(tmp_path / f"b{k}.json", {"test_x": 1.0}) for k in range(2)]
    result, warnings = compare("pytest-benchmark", a, b)

    assert result.rows[0].rounds == 2
    assert any("base has 3 run(s) and head 2" in text for text in warnings)


# --- asv


def asv_file(root, commit, results, *, cpu="Xeon", python="3.11"):
    folder = root / "results" / "box"
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "samples"]
    content = {
        "version": 2, "commit_hash": commit, "env_name": "e", "date": 1, "python": python, "requirements": {},
        "params": {"machine": "box", "cpu": cpu, "arch": "x86_64", "os": "Linux"}, "env_vars": {},
        "result_columns": columns, "results": results, "durations": {},
    }  # fmt: skip
    path = folder / f"{commit[:8]}-e.json"
    path.write_text(json.dumps(content))  # NaN is written bare, as asv does
    definitions = {
        "version": 2,
        "a.track_rate": {"type": "track", "unit": "MFLOPS", "param_names": []},
        "a.time_x": {"type": "time", "unit": "seconds", "param_names": ["mib"]},
    }
    (root / "results" / "benchmarks.json").write_text(json.dumps(definitions))
    return path


def test_asv_files_are_read_with_units_directions_and_failed_cells(tmp_path):
    """asv issues 1617 and 1028: 100 to 80 MFLOPS is no gain, and one failed cell costs nothing but itself."""
    paths = {}
    for commit, rate, scale in (("a" * 40, 100.0, 1.0), ("b" * 40, 80.0, 1.0)):
        results = {
            "a.track_rate": [[rate], [], "v"],
            "a.time_x": [[None, 1.97e-7 * scale, float("nan")], [["'64'", "'128'", "'256'"]], "v", 1, 1, None, None],
        }
        paths[commit] = asv_file(tmp_path, commit, results)
    result, _ = compare("asv", paths["a" * 40], paths["b" * 40])
    rate = next(row for row in result.rows if row.name == "a.track_rate")

    assert (rate.direction, rate.change) == (1, pytest.approx(-0.2))
    assert {row.name for row in result.rows} == {"a.track_rate", "a.time_x(mib=128)", "a.time_x(mib=64)"}
    assert [name for name, _ in result.skipped] == ["a.time_x(mib=256)"]


def test_a_folder_without_asv_results_is_nothing_measured(tmp_path):
    """12 series against an empty folder, either way round, is neither a pass nor a regression (pybroker issue 287)."""
    full = asv_file(tmp_path, "a" * 40, {f"a.time_{k}": [[1.0], []] for k in range(12)})
    empty = asv_file(tmp_path / "empty", "b" * 40, {})
    (tmp_path / "none").mkdir()

    for other in (empty, tmp_path / "none"):
        with pytest.raises(NothingMeasured, match=r"head.*base \(base\) has 12 series"):
            compare("asv", full, other)
        with pytest.raises(NothingMeasured, match=r"base.*head \(head\) has 12 series"):
            compare("asv", other, full)


def test_an_asv_folder_of_several_commits_is_asked_about(tmp_path):
    """A history is not a side: the message asks for one file."""
    for commit in ("a" * 40, "b" * 40):
        asv_file(tmp_path, commit, {"a.time_x": [[1.0], []]})

    with pytest.raises(BadInput, match="results of 2 commits; give the file"):
        compare("asv", tmp_path / "results", tmp_path / "results")


# --- content of another shape


def read_or_refused(file, read, *given):
    """What reading gives; None when `file` was refused by its name."""
    try:
        return read(*given)
    except BadInput as refused:
        if str(file) in str(refused):
            return None
        raise


JUNK = ("\ud800", None, True, -1, 10**400, "x", [], {}, [[1]], {"a": [None]}, float("nan"))


def with_junk(content):
    """Copies of `content` in which one value, of any depth, is something else."""
    yield from JUNK
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            for other in with_junk(content[key]):
                changed = dict(content) if isinstance(content, dict) else list(content)
                changed[key] = other
                yield changed


@pytest.mark.parametrize("name", ["estimates.json", "sample.json", "benchmark.json", "change"])
def test_any_value_of_a_criterion_file_may_be_something_else(tmp_path, name):
    """A file that another version wrote is read, left out with a warning, or refused by name; no traceback."""
    criterion(tmp_path, "good", 100.0)
    criterion(tmp_path, "odd", 100.0, samples=[100.0, 101.0], change=(0.1, 0.05, 0.15))
    odd = tmp_path / "odd" / "new" / name if name != "change" else tmp_path / "odd" / "change" / "estimates.json"
    for content in with_junk(json.loads(odd.read_text())):
        odd.write_text(json.dumps(content))
        read = read_or_refused(odd, importers.read, "criterion", [tmp_path], [tmp_path])
        if read is not None:
            assert {s.benchmark: s.samples for s in read[1].samples}["good"] == (pytest.approx(1e-7),)


def test_any_value_of_a_pytest_benchmark_file_may_be_something_else(tmp_path):
    """Entries without a name or a number are left out or failed, and the others keep their values."""
    path = tmp_path / "one.json"
    entry = {"fullname": "t.py::odd", "stats": {"data": [1.0, 2.0], "median": 1.5}}
    whole = {
        "machine_info": {"cpu": {"brand_raw": "C"}, "node": "h"}, "commit_info": {"dirty": True}, "version": "4",
        "benchmarks": [entry],
    }  # fmt: skip
    for content in with_junk(whole):
        if isinstance(content, dict) and isinstance(content.get("benchmarks"), list):
            content = {**content, "benchmarks": [*content["benchmarks"], {"name": "good", "stats": {"median": 3.0}}]}
        path.write_text(json.dumps(content))
        read = read_or_refused(path, importers.read, "pytest-benchmark", [path], [path])
        if read is not None:
            assert {s.benchmark: s.samples for s in read[0].samples}["good"] == (3.0,)


def test_any_value_of_an_asv_file_may_be_something_else(tmp_path):
    """Results of a shape that asv does not write are failed cells or left out, and the others keep their values."""
    results = {"a.time_x": [[1.0, 2.0], [["'64'", "'128'"]], "v", 1, 1, [0.9, 1.9], [[1.0], [2.0]]]}
    path = asv_file(tmp_path, "a" * 40, results)
    defined = tmp_path / "results" / "benchmarks.json"
    whole_columns = json.loads(path.read_text())["result_columns"]
    for file in (path, defined):
        whole = file.read_text()
        for content in with_junk(json.loads(whole)):
            if isinstance(content, dict) and isinstance(content.get("results"), dict):
                content = {**content, "results": {**content["results"], "a.time_good": [[3.0], []]}}
            file.write_text(json.dumps(content))
            read = read_or_refused(file, importers.read, "asv", [path], [path])
            if read is not None and file == path and content["result_columns"] == whole_columns:
                assert {s.benchmark: s.samples for s in read[0].samples}["a.time_good"] == (3.0,)
        file.write_text(whole)


def test_an_asv_file_of_schema_1_keeps_its_versions(tmp_path):
    """Schema 1 writes versions beside the results: two of them are a change of method, not a ratio."""
    paths = []
    for version, value in (("one", 1.0), ("two", 2.0)):
        content = {
            "commit_hash": version * 8, "params": {"machine": "box"}, "version": 1, "date": 1,
            "results": {"a.time_x": value}, "benchmark_version": {"a.time_x": version},
        }  # fmt: skip
        paths.append(tmp_path / f"{version}.json")
        paths[-1].write_text(json.dumps(content))

    assert words(compare("asv", *paths)[0]) == {"a.time_x": "method changed"}


def test_control_arms_are_named_by_a_pattern(tmp_path):
    """A pattern that is none is bad input, which names the option."""
    path = asv_file(tmp_path, "a" * 40, {"a.time_x": [[1.0], []]})

    with pytest.raises(BadInput, match="--controls: '\\(\\[' is not a regular expression"):
        importers.read("asv", [path], [path], controls="([")


# --- kept rounds


def kept_folder(folder, ratios, base="aaa", head="bbb"):
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"schema": 1, "base": base, "head": head}))
    for number, ratio in enumerate(ratios, 1):
        rows = [
            {"side": side, "round": number, "benchmark": "a.time_x", "cell": "", "samples": [value, None],
             "unit": "seconds", "direction": -1, "version": "1", "control": False, "error": None, "a later field": 1}
            for side, value in (("base", 1.0), ("head", ratio))
        ]  # fmt: skip
        (folder / f"round-{number:03d}.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    return folder


def test_sittings_are_joined_and_told_apart(tmp_path):
    """Two sittings that disagree by far settle nothing, though each alone would call the row."""
    one = kept_folder(tmp_path / "one", [1.2, 1.21, 1.2, 1.21, 1.2, 1.21])
    other = kept_folder(tmp_path / "other", [0.8, 0.81, 0.8, 0.81, 0.8, 0.81])
    alone = verdict.judge(importers.frame(importers.kept([one])[0]))
    joined = verdict.judge(importers.frame(importers.kept([one, other])[0]))

    assert [row.verdict for row in alone.rows] == ["slower"]
    assert (joined.runs, [row.verdict for row in joined.rows]) == (2, ["unsettled"])


def test_kept_folders_of_other_commits_or_without_rounds_are_refused(tmp_path):
    """Joining different pairs would answer no question; an empty folder has nothing to judge."""
    one, other = kept_folder(tmp_path / "one", [1.0]), kept_folder(tmp_path / "other", [1.0], head="ccc")

    with pytest.raises(BadInput, match="different commits"):
        importers.kept([one, other])
    (one / "round-001.json").unlink()
    with pytest.raises(BadInput, match="no finished round"):
        importers.kept([one])


def test_directions_follow_the_unit_where_nothing_is_declared():
    """A record without a direction takes its unit's; one with an unknown unit keeps none."""
    from hybrid_kernels.records import Sampled

    sample = Sampled("base", 1, "a.track_x", "", (1.0,), "GB/s", 0)
    frame = importers.frame(
        [sample, dataclasses.replace(sample, unit="unit"), dataclasses.replace(sample, direction=-1)]
    )

    assert frame["direction"].tolist() == [1, 0, -1]


def test_any_value_of_a_kept_round_may_be_something_else(tmp_path):
    """A plan or round that something else wrote is refused by name, or judged with what it holds; no traceback."""
    folder = kept_folder(tmp_path / "one", [1.0])
    for file in (folder / "plan.json", folder / "round-001.json"):
        whole = file.read_text()
        for content in with_junk(json.loads(whole)):
            file.write_text(json.dumps(content))
            read = read_or_refused(file, importers.kept, [folder])
            if read is not None:
                assert all(isinstance(value, float) for sample in read[0] for value in sample.samples)
                assert isinstance(read[1][0]["base"], str)
        file.write_text(whole)
