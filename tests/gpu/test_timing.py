"""Timing on a real GPU: facts read under load, arms in both forms, numbers inside what the hardware can do."""

import numpy as np
import pytest

from hybrid_kernels.devices.base import Access
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import facts
from hybrid_kernels.measure.sweep import sweep
from hybrid_kernels.units import gbs


@pytest.fixture(scope="module")
def weights():
    """64 MiB packed."""
    return Int4Weights.random(n=26215, k=5120, block=32, seed=0)


def test_copies_and_streams_run_in_both_forms_within_the_limits(device, weights):
    """Every baseline and ceiling, eager and replayed, stays below the limit of its tier where one is known."""
    with device.place(weights, "in_place", copies=3) as mapped, device.place(weights, "resident", copies=3) as own:
        for form in device.forms:
            arms = [device.baseline_arm(mapped, kind, form) for kind in device.baselines]
            arms += [device.stream_arm(mapped, form), device.stream_arm(own, form)]
            for arm in arms:
                with arm:
                    arm.run(6)
                    rate = gbs(6 * arm.pass_bytes, arm.run(6))
                    inside = arm.label in ("copy_d2d", "stream_resident")
                    limit = device.limit_gbs("resident" if inside else "in_place")
                    assert rate > 0
                    assert limit is None or rate < limit, (arm.label, rate, limit)
                    assert (arm.captures > 0, arm.fallbacks) == (form == "graph", 0)
                    assert arm.dispatch_seconds > 0


def test_link_and_clocks_are_read_while_a_copy_runs(device):
    """Under load the clocks are known, the link where NVML knows it; what marks rows follows from the facts."""
    found = facts.under_load(device)

    assert found.driver
    assert found.sm_clock_mhz
    if found.link_generation is not None:
        below = found.link_generation < found.link_generation_max or found.link_width < found.link_width_max
        assert ("downtrained link" in facts.warnings(vars(found))) == below


def test_wider_requests_are_not_slower_in_place(device, weights):
    """Requests of 128 bytes read mapped memory faster than those of 32: the penalty that narrow kernels pay."""
    rates = {}
    with device.place(weights, "in_place", copies=2) as placed:
        for width in (32, 128):
            with device.access_arm(placed, Access("coalesced", width)) as arm:
                arm.run(4)
                rates[width] = gbs(8 * arm.pass_bytes, arm.run(8))

    assert rates[128] > rates[32]


def test_a_sweep_holds_every_arm(device):
    """A short sweep: rows for each strategy in both forms, each baseline and each ceiling, outputs identical."""
    frame = sweep(device, [12.5], reps=3)

    arms = set(zip(frame.strategy, frame.form, strict=True))
    assert {(s, f) for s in device.strategies for f in device.forms} <= arms
    assert {("copy", "eager"), ("stream_in_place", device.forms[-1])} <= arms
    reads = frame[frame.strategy.isin(device.strategies)]
    assert reads.outputs_identical.all()
    assert np.isfinite(frame.gbs).all()
    assert (frame[frame.strategy == "staged"].device_bytes > 0).all()
