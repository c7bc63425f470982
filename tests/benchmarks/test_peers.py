"""The comparison with other people's kernels: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from benchmarks import peers
from hybrid_kernels.errors import ConditionNotMet


def test_every_arm_is_measured_beside_its_peer(tmp_path, capsys, monkeypatch) -> None:
    """Both modes get a ratio to their own level of ONNX Runtime and to the streaming read, in the table and in JSON."""
    monkeypatch.setattr(peers, "SAMPLE_SECONDS", 1e-3)
    monkeypatch.setattr(peers, "REST_SECONDS", 1e-3)
    monkeypatch.setattr(peers.sampling, "ramp", lambda *a, **k: 0.0)
    monkeypatch.setattr(peers.cpu_device.CpuDevice, "cold_copies", lambda *a: 2)
    file = tmp_path / "peers.json"
    assert peers.main(["--sizes", "1", "--k", "512", "--reps", "3", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["arm"] for row in rows] == ["stream", "f32", "onnxruntime level 0", "i8", "onnxruntime level 4"]
    by_arm = {row["arm"]: row for row in rows}
    assert set(by_arm["f32"]["ratios"]) == {"onnxruntime level 0", "stream"}
    assert set(by_arm["i8"]["ratios"]) == {"onnxruntime level 4", "stream"}
    for row in rows:
        assert row["samples"] == 3
        assert row["copies"] == 2
        assert row["total_bytes"] == row["packed_bytes"] * 20.5 / 16
        assert row["gbs"] == pytest.approx(row["packed_bytes"] / row["seconds"] / 1e9)
        assert row["seconds_low"] <= row["seconds"] <= row["seconds_high"]
    table = [line for line in capsys.readouterr().out.splitlines() if re.match(r"\| 1 MiB \|", line)]
    assert len(table) == 5


def test_too_little_memory_to_rotate_is_said(monkeypatch) -> None:
    """With room for fewer buffers than a cold reading needs, every row carries the warning."""
    monkeypatch.setattr(peers.cpu_device.CpuDevice, "cold_copies", lambda *a: 1000)
    monkeypatch.setattr(peers.cpu_device.CpuDevice, "free_bytes", lambda *a: 20 << 20)
    contest = peers.cpu(1.0, 512, 1)
    assert contest.warnings[0].startswith("cached: memory allows ")
    assert contest.arms[0].copies < 1000


def test_a_peer_that_disagrees_is_not_timed() -> None:
    """Outputs are compared before anything is timed; a NaN is a disagreement."""
    y = np.ones(4, np.float32)
    peers.agree("f32", y, y, 1e-5)
    for off in (y * 1.001, np.full(4, np.nan, np.float32)):
        with pytest.raises(ConditionNotMet, match="nothing was timed"):
            peers.agree("f32", off, y, 1e-5)


@pytest.mark.parametrize("arguments", [["--sizes", "0"], ["--sizes", "a"], ["--reps", "0"], ["--threads", "0"]])
def test_bad_options_end_with_one_line(arguments, capsys) -> None:
    """Exit 2, one line that names the option, no traceback."""
    assert peers.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert arguments[0].strip("-") in error
