"""What comparisons of equal code leave behind: added to, never half-written, out of asv's way."""

import json

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import calibrations, store

KEY = ("a.time_x", "1")
ABOUT = {
    "environment": "py3.11",
    "commits": ["aaa", "aaa"],
    "date": "2026-01-01T00:00:00+00:00",
    "why": "the same commit",
}


def test_comparisons_add_up_by_benchmark_version_and_environment(tmp_path):
    """Rounds of two comparisons lie one after the other; another version or environment is another noise."""
    calibrations.append(tmp_path, "box", {KEY: [0.01, -0.02]}, **ABOUT)
    calibrations.append(tmp_path, "box", {KEY: [0.03], ("a.time_x", "2"): [0.5]}, **ABOUT)
    calibrations.append(tmp_path, "box", {KEY: [0.9]}, **(ABOUT | {"environment": "py3.12"}))

    assert calibrations.load(tmp_path, "box", "py3.11") == {KEY: [0.01, -0.02, 0.03], ("a.time_x", "2"): [0.5]}
    assert calibrations.load(tmp_path, "box")[KEY] == [0.01, -0.02, 0.03, 0.9]
    assert calibrations.load(tmp_path, "other") == {}


def test_a_broken_line_is_named_and_the_file_is_left_alone(tmp_path):
    """The message gives file and line; a file cut before its last newline still takes the next comparison whole."""
    path = calibrations.append(tmp_path, "box", {KEY: [0.01]}, **ABOUT)
    path.write_text(path.read_text().rstrip("\n"))
    calibrations.append(tmp_path, "box", {KEY: [0.02]}, **ABOUT)
    assert calibrations.load(tmp_path, "box")[KEY] == [0.01, 0.02]

    path.write_text(path.read_text() + '{"environment": ')
    with pytest.raises(BadInput, match=r"calibrations\.jsonl, line 3"):
        calibrations.load(tmp_path, "box")


def test_asv_and_our_own_reader_pass_over_the_file(tmp_path, kedro):
    """A history with calibrations in a machine's folder loads as it did, with nothing skipped for it."""
    import shutil

    results = tmp_path / "results"
    shutil.copytree(kedro, results)
    before = store.load(results)
    machine = next(iter(before.machines))
    calibrations.append(results, machine, {KEY: [0.01]}, **ABOUT)
    after = store.load(results)

    assert len(after.frame) == len(before.frame)
    assert [item.file for item in after.skipped] == [item.file for item in before.skipped]
    assert json.loads((results / machine / calibrations.NAME).read_text())["why"] == "the same commit"
