"""The sweep of access patterns over a made-up GPU: every knob in both tiers, beside the GEMV."""

import math

import pytest

from hybrid_kernels.devices import open_device
from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.errors import BadInput
from hybrid_kernels.measure import accesses, sampling


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
