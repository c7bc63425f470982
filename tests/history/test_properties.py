"""Random histories: what is written is what is read."""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_kernels.history import store

VALUES = st.one_of(
    st.none(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(10**6), 10**6),
)
WORDS = st.sampled_from(["1", "64", "'a'", "'b'", "None", "True"])


@st.composite
def histories(draw):
    """Files of some commits: for each benchmark its axes, its values and its version."""
    files = []
    for number in range(draw(st.integers(1, 4))):
        results = {}
        for name in draw(st.sets(st.sampled_from(["s.time_a", "s.track_b", "s.mem_c"]), max_size=3)):
            axes = draw(st.lists(st.lists(WORDS, min_size=1, max_size=3, unique=True), max_size=2))
            size = math.prod(map(len, axes))
            values = draw(st.lists(VALUES, min_size=size, max_size=size))
            results[name] = (axes, values, draw(st.sampled_from(["1", "2", None])))
        files.append((number, draw(st.sampled_from(["box", "other"])), results))
    return files


def bare(word: str) -> str:
    """A parameter as the frame shows it: a text without its quotes."""
    return word.strip("'")


@settings(max_examples=40)
@given(histories(), st.booleans())
def test_what_is_written_is_read(files, twice):
    """Every value of every random history comes back under its commit, machine, benchmark, cell and version."""
    expected = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, machine, results in files:
            commit = f"{number:040x}"
            rows = {name: [values, axes, version] for name, (axes, values, version) in results.items()}
            content = {
                "commit_hash": commit, "env_name": "e", "date": number, "params": {"machine": machine}, "python": "3",
                "requirements": {}, "env_vars": {}, "result_columns": ["result", "params", "version"], "results": rows,
                "durations": {}, "version": 2,
            }  # fmt: skip
            path = Path(folder) / machine / f"{commit[:8]}{number}-e.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(content))
            (path.parent / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
            for name, (axes, values, version) in results.items():
                for cell, value in zip(itertools.product(*axes), values, strict=True):
                    expected[commit, machine, name, tuple(map(bare, cell)), version] = value

        loaded = store.load(folder)
        frame = store.load(folder).frame if twice else loaded.frame

    assert loaded.skipped == []
    found = {}
    for row in frame.itertuples():
        version = None if isinstance(row.version, float) else row.version
        key = (row.commit, row.machine, row.benchmark, tuple(value for _, value in row.params), version)
        assert key not in found
        found[key] = row
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        row = found[key]
        if value is None:
            assert (row.status, math.isnan(row.value)) == ("failed", True)
        elif math.isnan(value):
            assert (row.status, math.isnan(row.value)) == ("skipped", True)
        else:
            assert row.value == value
            assert row.status == ("infinite" if math.isinf(value) else "ok")


@settings(max_examples=40)
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 200))
def test_any_bytes(noise, at, length):
    """Whatever bytes stand in a result file, it is read or skipped with a reason, and the one beside it is read."""
    good = {"commit_hash": "a" * 40, "env_name": "e", "date": 1, "params": {"machine": "m"}, "python": "3",
            "requirements": {}, "env_vars": {}, "result_columns": ["result", "params", "version"],
            "results": {"s.time_a": [[1.5], [], "1"]}, "durations": {}, "version": 2}  # fmt: skip
    text = json.dumps(good).encode()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m").mkdir()
        (Path(folder) / "m/machine.json").write_text('{"machine": "m", "version": 1}')
        (Path(folder) / "m/aaaaaaaa-e.json").write_bytes(text)
        (Path(folder) / "m/bbbbbbbb-e.json").write_bytes(text[:at] + noise + text[at + length :])

        loaded = store.load(folder, cache=False)
        frame = loaded.frame

    assert 1.5 in set(frame[frame["file"].astype(str).str.endswith("aaaaaaaa-e.json")]["value"])
    read = frame["file"].astype(str).str.endswith("bbbbbbbb-e.json").any()
    assert read or loaded.skipped or (loaded.files["rows"] == 0).any()
