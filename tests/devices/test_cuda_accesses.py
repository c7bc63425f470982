"""The sweep of access patterns over a made-up GPU: every knob in both tiers, beside the GEMV."""

import functools
import json
import math

import pytest

from hybrid_kernels.cli.probe import probe
from hybrid_kernels.devices import open_device
from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.errors import BadInput
from hybrid_kernels.measure import accesses, facts, sampling


def test_every_access_is_a_row_in_both_tiers(gpu, monkeypatch):
    """The made-up GPU takes the same time for every byte, so a wider read brings nothing and every rate is 1 GB/s."""
    monkeypatch.setattr(sampling, "RAMP_FLOOR_SECONDS", 0.0)
    seen = []
    with CudaDevice() as device:
        found = accesses.explain(device, 0.125, k=512, reps=3, progress=lambda *at: seen.append(at))

    assert len(found.table) == 2 * (len(accesses.ACCESSES) + 1)
    assert found.table.gbs.tolist() == pytest.approx([1.0] * len(found.table))
    assert [(p.tier, p.variant) for p in found.placements] == [("resident", "wide"), ("in_place", "wide")]
    assert [done for done, _, _ in seen] == list(range(1, seen[-1][1] + 1))


def test_bad_arguments_are_named(gpu):
    """A size or a count out of range is refused by name."""
    with CudaDevice() as device:
        for size in (0, -1, math.nan):
            with pytest.raises(BadInput, match="size: "):
                accesses.explain(device, size)
        with pytest.raises(BadInput, match="reps: 2"):
            accesses.explain(device, 1, reps=2)


def test_a_device_without_patterns_says_so():
    """The CPU has nothing to sweep: one sentence names what to use."""
    with open_device("cpu") as device, pytest.raises(BadInput, match=r"explain: device cpu .* use it on cuda"):
        accesses.explain(device)


def test_probe_explains_on_the_command_line(gpu, monkeypatch, tmp_path, capsys):
    """`probe --explain` prints the accesses and the words below them, and keeps both in the JSON."""
    monkeypatch.setattr(sampling, "RAMP_FLOOR_SECONDS", 0.0)
    monkeypatch.setattr(facts, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(accesses, "explain", functools.partial(accesses.explain, size_mib=0.125))
    kept = tmp_path / "probe.json"

    probe(device="cuda", sizes="0.05", k=512, reps=3, explain=True, json=kept)

    said = capsys.readouterr().out
    assert "gemv wide" in said
    assert "A wider read would bring nothing more from mapped host memory" in said
    document = json.loads(kept.read_text())
    assert len(document["accesses"]) == 2 * (len(accesses.ACCESSES) + 1)
    assert [at["tier"] for at in document["placements"]] == ["resident", "in_place"]
    assert "NaN" not in kept.read_text()


def test_probe_on_a_device_without_patterns_is_bad_input():
    """`--explain` on the CPU is refused before anything is measured."""
    with pytest.raises(BadInput, match="use it on cuda"):
        probe(device="cpu", sizes="1", k=512, reps=3, explain=True)
