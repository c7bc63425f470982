"""Odd but real content of public asv histories: all of it is read, and what cannot be is said."""

from __future__ import annotations

import hashlib
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import store


def value_of(frame, **where):
    """The only value of the rows that `where` describes."""
    for column, wanted in where.items():
        frame = frame[frame[column] == wanted]
    assert len(frame) == 1
    return frame["value"].iloc[0]


def test_one_parameter_failed(results):
    """One failed parameter (null, statistics null or absent) is one failed cell and one value."""
    name = "suite.time_it"
    results.define(name, params=[["False", "True"]], param_names=["fast"])
    results.commit(1, {name: [[None, 1.97e-7], [["False", "True"]], "1", None, None, None, None]})
    results.commit(2, {name: [[None, 1.98e-7], [["False", "True"]]]})

    frame = store.load(results.root).frame

    assert frame["status"].tolist() == ["failed", "ok"] * 2
    assert frame["cell"].tolist() == ["fast=False", "fast=True"] * 2
    assert frame["value"].dropna().tolist() == [1.97e-7, 1.98e-7]
    assert frame["version"].isna().tolist() == [False, False, True, True]


def test_cosmetic_edit(results):
    """After a new version all points are kept, the earlier ones marked as such."""
    results.define("suite.time_it", version="B")
    for number in range(7):
        row = [[1.00 if number < 5 else 1.01], [], "A" if number < 5 else "B"]
        results.commit(number, {"suite.time_it": row})

    frame = store.load(results.root).frame

    assert frame["value"].tolist() == [1.0] * 5 + [1.01] * 2
    assert frame["is_current_version"].tolist() == [False] * 5 + [True] * 2


def test_cut_file(results):
    """A file cut off in the middle gives its complete results, marked as partial; those beside it are intact."""
    names = [f"suite.time_{at}" for at in range(6)]
    for name in names:
        results.define(name)
    results.commit(1, dict.fromkeys(names, 0.5))
    path = results.commit(2, {name: [[0.25], [], "1", None, None, [0.2], [0.3]] for name in names})
    text = path.read_text()
    path.write_text(text[: text.index("suite.time_3") + 20])

    loaded = store.load(results.root)

    assert loaded.skipped == []
    assert loaded.frame["value"].tolist() == [0.5] * 6 + [0.25] * 3
    assert loaded.files["partial"].tolist() == [False, True]
    assert [note.file for note in loaded.notes] == [str(path)]
    assert "3 complete results" in loaded.notes[0].text


def test_every_cut(results):
    """Wherever a file is cut, reading goes on, and no value is changed by the cut."""
    names = [f"suite.time_{at}" for at in range(3)]
    path = results.commit(1, {name: [[0.125], [], "1"] for name in names})
    results.commit(2, dict.fromkeys(names, 0.5))
    text = path.read_text()
    for length in range(0, len(text) - 1, 23):
        path.write_text(text[:length])

        loaded = store.load(results.root, cache=False)

        read = loaded.frame[loaded.frame["file"] == str(path)]
        assert set(read["value"]) <= {0.125}
        assert bool(len(read)) != bool(loaded.skipped)
        assert len(loaded.frame) - len(read) == 3


def test_interrupted_run(results):
    """A file that lacks benchmarks measured before and still defined is marked as partial, its results are kept."""
    for at in range(6):
        results.define(f"suite.time_{at}")
    results.commit(1, {f"suite.time_{at}": 0.5 for at in range(6)})
    results.commit(2, {f"suite.time_{at}": 0.5 for at in range(3)})

    loaded = store.load(results.root)

    assert len(loaded.frame) == 9
    assert loaded.files["partial"].tolist() == [False, True]


def test_bare_nan_and_infinity(results):
    """NaN (asv's mark of a skipped benchmark) and Infinity, which strict parsers refuse, are told apart."""
    results.commit(1, {"suite.track_a": 1.0})
    text = '[[NaN, Infinity, -Infinity, 2.5, 0, null], [["1", "2", "3", "4", "5", "6"]], "1", null, null, [NaN]]'
    path = results.commit(2, {"suite.track_b": 0.0})
    path.write_text(path.read_text().replace('[[0.0], [], "1"]', text))

    frame = store.load(results.root).frame.query("benchmark == 'suite.track_b'")

    assert frame["status"].tolist() == ["skipped", "infinite", "infinite", "ok", "ok", "failed"]
    assert frame["value"].tolist()[1:5] == [np.inf, -np.inf, 2.5, 0.0]


def test_schema_1(results):
    """Schema 1, which asv refuses: numbers, lists and objects, lists shorter than the grid, no `version`."""
    content = {
        "commit_hash": "ab" * 20,
        "date": 1_500_000_000_000,
        "params": {"machine": "box"},
        "python": "2.7",
        "requirements": {},
        "results": {
            "suite.time_plain": 0.25,
            "suite.time_failed": None,
            "suite.time_list": {"result": [1.0, 2.0], "params": [["'a'", "'b'", "'c'"]]},
            "suite.time_stats": {
                "result": [3.0],
                "params": [],
                "stats": [{"ci_99": [2.9, 3.1], "q_25": 2.95, "q_75": 3.05, "number": 4, "repeat": 5}],
                "samples": [[3.0, 2.9]],
            },
        },
        "profiles": {},
        "benchmark_version": {"suite.time_plain": "v1"},
    }
    results.write("box/abababab-env.json", content)

    loaded = store.load(results.root, samples=True)

    frame = loaded.frame.set_index(["benchmark", "cell"])
    assert frame["value"].dropna().tolist() == [0.25, 1.0, 2.0, 3.0]
    assert frame["status"].tolist() == ["ok", "failed", "ok", "ok", "missing", "ok"]
    assert frame.loc[("suite.time_plain", ""), "version"] == "v1"
    stats = frame.loc[("suite.time_stats", "")]
    assert (stats.ci_low, stats.ci_high, stats.q25, stats.q75) == (2.9, 3.1, 2.95, 3.05)
    assert (stats["number"], stats["repeat"], stats["n"], stats["samples"]) == (4, 5, 5, [3.0, 2.9])
    assert loaded.files["schema"].tolist() == [1]
    assert set(loaded.frame["env"]) == {""}


def test_agrees_with_asv(results):
    """What asv itself writes and reads back is what the store reads, cell by cell, statistics and samples included."""
    from asv.results import Results, iter_results

    rng = np.random.default_rng(0)
    benchmark = {"name": "suite.time_grid", "version": "7", "params": [["1", "2"], ["'x'", "'y'", "'z'"]]}
    written = Results({"machine": "box"}, {}, "c" * 40, 1_700_000_000_000, "3.11", "env", {"A": "1"})

    result = SimpleNamespace(
        result=[None, 1.0, float("nan"), 4.0, 5.0, 6.0],
        samples=[None, *(rng.normal(1, 0.1, 9).tolist() for _ in range(5))],
        number=[None, 3, 3, 3, 3, 3],
        stderr="",
        errcode=0,
        profile=None,
    )
    written.add_result(benchmark, result, record_samples=True)
    written.save(str(results.root))
    (read,) = iter_results(str(results.root))

    frame = store.load(results.root, samples=True).frame

    stats = read.get_result_stats("suite.time_grid", benchmark["params"])
    values = read.get_result_value("suite.time_grid", benchmark["params"])
    samples = read.get_result_samples("suite.time_grid", benchmark["params"])
    assert frame["status"].tolist() == ["failed", "ok", "skipped", "ok", "ok", "ok"]
    for row, value, stat, sample in zip(frame.itertuples(), values, stats, samples, strict=True):
        if not stat:
            continue
        assert row.value == value
        assert (row.ci_low, row.ci_high, row.q25, row.q75) == (
            stat["ci_99_a"], stat["ci_99_b"], stat["q_25"], stat["q_75"],
        )  # fmt: skip
        assert (row.number, row.repeat, row.n) == (stat["number"], stat["repeat"], 9)
        assert row.samples == sample


def test_file_names_and_several_files(results):
    """`<time>_<hash>-<env>.json`, two files of one commit and environment, and an environment hashed for its length."""
    results.commit(3, {"suite.time_a": 1.0})
    content = json.loads((results.root / "box" / f"{3:08x}-py3.11.json").read_text())
    results.write(f"box/1700000000_{3:08x}-py3.11.json", content | {"results": {"suite.time_a": [[1.5], [], "1"]}})
    long = "env-" + hashlib.md5(b"x" * 200).hexdigest()
    results.write(f"box/{3:08x}-{long}.json", content | {"env_name": "x" * 200})

    frame = store.load(results.root).frame

    assert sorted(frame["value"]) == [1.0, 1.0, 1.5]
    assert sorted(frame.groupby("env", observed=True).size()) == [1, 2]
    assert frame["order"].nunique() == 1


def test_two_roots(results, tmp_path):
    """Two roots below one folder are both read, each with its own definitions; so are two roots named one by one."""
    results.define("suite.track_x", type="track", unit="GB/s")
    results.commit(1, {"suite.track_x": 5.0})
    other = type(results)(tmp_path / "old/results", machine="elder")
    other.define("suite.track_x", type="track", unit="unit", version="0")
    other.commit(0, {"suite.track_x": [[4.0], [], "0"]})

    both = store.load([results.root, other.root]).frame
    above = store.load(tmp_path).frame

    assert both["direction"].tolist() == [0, 1]
    assert both["unit"].tolist() == ["unit", "GB/s"]
    assert both["is_current_version"].tolist() == [True, True]
    assert above["value"].tolist() == [4.0, 5.0]


def test_machine_names(results):
    """A file that names another machine than its folder is counted under the name it gives, and that is noted."""
    results.commit(1, {"suite.time_a": 1.0}, params={"machine": "boxer"})
    results.commit(2, {"suite.time_a": 2.0}, params={})
    results.write(f"bare/{3:08x}-env.json", {"commit_hash": "3" * 40, "results": {"suite.time_a": 3.0}})

    loaded = store.load(results.root)

    machines = loaded.frame.set_index("value")["machine"].astype(str).to_dict()
    assert machines == {1.0: "boxer", 2.0: "box", 3.0: "bare"}
    assert ["boxer" in note.text and "box" in note.text for note in loaded.notes] == [True]
    assert loaded.machines == {"box": {"machine": "box", "cpu": "some cpu"}, "boxer": {}, "bare": {}}


def test_benchmark_renamed_or_gone(results):
    """A benchmark that benchmarks.json no longer has keeps its points; they are of no current version."""
    results.define("suite.time_new")
    results.commit(1, {"suite.time_old": 1.0})
    results.commit(2, {"suite.time_new": 1.0})

    frame = store.load(results.root).frame

    assert frame["is_current_version"].tolist() == [False, True]
    assert frame["direction"].tolist() == [-1, -1]


def test_parameters_that_changed(results):
    """Parameters that benchmarks.json no longer has keep their points, under the names of today where they fit."""
    name = "suite.time_p"
    results.define(name, params=[["64", "'64'"], ["1"]], param_names=["size", "threads"])
    results.commit(1, {name: [[1.0], [["'small'"]], "1"]})
    results.commit(2, {name: [[2.0, 3.0], [["64", "'64'"], ["1"]], "1"]})

    frame = store.load(results.root).frame

    assert frame["cell"].tolist() == ["p1=small", "size=64, threads=1", "size='64', threads=1"]
    assert frame["params"].iloc[1] == (("size", "64"), ("threads", "1"))


def test_values_beyond_the_grid(results):
    """A list longer than its parameter grid loses none of its values."""
    results.commit(1, {"suite.time_a": [[1.0, 2.0, 3.0], [["x"]], "1", None, None, [0.5, 1.5, 2.5]]})

    frame = store.load(results.root).frame

    assert frame["value"].tolist() == [1.0, 2.0, 3.0]
    assert frame["ci_low"].tolist() == [0.5, 1.5, 2.5]
    assert frame["cell"].nunique() == 3


def test_null_records_and_empty_results(results):
    """A null record is one failed cell; an empty file is read, and has no rows."""
    results.commit(1, {"suite.time_a": None})
    results.commit(2, {})

    loaded = store.load(results.root)

    assert loaded.frame["status"].tolist() == ["failed"]
    assert loaded.files["rows"].tolist() == [1, 0]
    assert loaded.skipped == []


def test_other_columns(results):
    """Rows are read by the names of their columns, whatever the order; a column that asv lacks is noted."""
    columns = ["version", "result", "params", "stats_own"]
    path = results.commit(1, {"suite.time_a": ["9", [1.5], [], [7]]}, result_columns=columns)

    loaded = store.load(results.root)

    assert value_of(loaded.frame, version="9") == 1.5
    assert [(note.file, "stats_own" in note.text) for note in loaded.notes] == [(str(path), True)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"{", "is not JSON"),
        (b"[1, 2]", "holds no asv results"),
        (b'{"commit_hash": "abc"}', "holds no asv results"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"results": {}}', "names no commit"),
    ],
)
def test_unreadable(results, content, reason):
    """What cannot be read is skipped with its file and reason, again on the second load, and nothing else is lost."""
    results.commit(1, {"suite.time_a": 1.0})
    path = results.root / "box/odd.json"
    path.write_bytes(content)

    for _ in range(2):
        loaded = store.load(results.root)

        assert [one.file for one in loaded.skipped] == [str(path)]
        assert reason in loaded.skipped[0].reason
        assert loaded.frame["value"].tolist() == [1.0]


def test_results_that_are_no_numbers(results):
    """Text among the results counts as failed and is noted; true and false are numbers; huge integers are infinite."""
    results.commit(1, {"suite.track_a": [["fast", 2, True, 10**400], [["1", "2", "3", "4"]], "1"]})

    loaded = store.load(results.root)

    assert loaded.frame["status"].tolist() == ["failed", "ok", "ok", "infinite"]
    assert "1 of 4 results are not numbers" in loaded.notes[0].text


def test_fields_of_another_kind(results):
    """Parameters, dates and definitions that are not what asv writes are passed over, and the values stay."""
    name = "suite.time_a"
    results.define(name, type=["time"], params=5, param_names=1.5, version=None)
    results.commit(1, {name: [[1.0], 5, "1"]}, date=1e300)
    results.commit(2, {name: [[2.0], {"a": 1}, "1"]}, date="yesterday")
    results.commit(3, {name: [[3.0], ["x", "y"], "1"]})

    loaded = store.load(results.root)

    assert sorted(loaded.frame["value"].dropna()) == [1.0, 2.0, 3.0]
    assert loaded.frame["date"].notna().sum() == 2
    assert loaded.files["date"].notna().sum() == 1


def test_no_definitions(results):
    """Without benchmarks.json the newest version of each series counts as the current one."""
    for number, version in enumerate("AAB"):
        results.commit(number, {"suite.time_a": [[1.0], [], version]})
        results.commit(number, {"suite.time_a": [[1.0], [], "A"]}, env="other")

    frame = store.load(results.root).frame

    assert frame[frame["env"] == "other"]["is_current_version"].tolist() == [True] * 3
    assert frame[frame["env"] == "py3.11"]["is_current_version"].tolist() == [False, False, True]


def test_broken_definitions(results):
    """A benchmarks.json or machine.json that cannot be read is skipped with its reason; the results stay."""
    results.commit(1, {"suite.time_a": 1.0})
    results.write("benchmarks.json", "{")
    results.write("box/machine.json", "[]")

    loaded = store.load(results.root)

    assert {one.file.rpartition("/")[2] for one in loaded.skipped} == {"benchmarks.json", "machine.json"}
    assert loaded.frame["machine"].tolist() == ["box"]


def test_missing_dates(results):
    """A commit without a date comes last, and its date is unknown."""
    results.commit(1, {"suite.time_a": 1.0}, date=None)
    results.commit(2, {"suite.time_a": 2.0})

    frame = store.load(results.root).frame

    assert frame["value"].tolist() == [2.0, 1.0]
    assert frame["date"].isna().tolist() == [False, True]


def test_results_names_no_folder(tmp_path):
    """A results folder that is none is named, with what to do."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BadInput, match="file is a file; name the results folder"):
        store.load(tmp_path / "file")
    with pytest.raises(BadInput, match="no folder given"):
        store.load([])


def test_text_that_no_file_can_hold(results):
    """Half a surrogate pair, which JSON can escape and UTF-8 cannot write, becomes a question mark everywhere."""
    half = "\ud800"
    results.define(f"suite.track_{half}", type="track", unit=f"G{half}", param_names=[f"n{half}"], params=[[half]])
    results.commit(1, {f"suite.track_{half}": [[0.5], [[f"'{half}'"]], f"v{half}"]})
    results.commit(2, {f"suite.track_{half}": [[0.25], [[f"'{half}'"]], "v"]})

    frame = store.load(results.root).frame

    assert frame["value"].tolist() == [0.5, 0.25]
    assert frame["benchmark"].tolist() == ["suite.track_?"] * 2
    assert frame["cell"].tolist() == ["n?=?"] * 2
    assert frame["version"].tolist() == ["v?", "v"]
    frame.drop(columns="params").to_csv().encode()


def test_a_file_whose_name_is_no_text(results):
    """It is told with escapes and left out; the others are read."""
    results.define("suite.time_it")
    results.commit(1, {"suite.time_it": 0.5})
    folder = os.fsencode(results.root / "box")
    with open(os.path.join(folder, b"00000002-\xff.json"), "w", encoding="utf-8") as file:
        file.write("{}")

    loaded = store.load(results.root)

    assert loaded.frame["value"].tolist() == [0.5]
    assert [(one.file.rpartition("/")[2], one.reason) for one in loaded.skipped] == [
        ("00000002-\\xff.json", "has a name that is not UTF-8 text")
    ]
