"""The GEMV's arms over a made-up GPU: right rows, right pointers, both forms, nothing unwritten."""

import numpy as np
import pytest

from hybrid_kernels.devices import cuda_arms, open_device
from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import Int4Weights


@pytest.fixture
def device(gpu):
    with CudaDevice() as device:
        yield device


def activation(k, seed=0):
    return np.random.default_rng(seed).standard_normal(k).astype(np.float16)


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize(("n", "k", "block"), [(48, 256, 32), (1, 1, 16), (13, 150, 64), (33, 129, 128)])
def test_every_strategy_multiplies(device, n, k, block, zero_points):
    """Odd shapes, any block, with and without zero points: near the reference, and alike bit by bit."""
    weights = Int4Weights.random(n=n, k=k, block=block, seed=1, zero_points=zero_points)
    x = activation(k)
    outputs = []
    for strategy in device.strategies:
        with device.place(weights, strategy, copies=2) as placed:
            outputs.append(device.gemv(placed, x))

    assert np.linalg.norm(outputs[0] - reference.gemv(weights, x)) <= 2e-3 * np.linalg.norm(outputs[0])
    assert len({y.tobytes() for y in outputs}) == 1
    assert outputs[0].dtype == np.float32


@pytest.mark.parametrize("form", ["eager", "graph"])
def test_arms_rotate_over_the_buffers_and_say_what_ran(device, form):
    """A pass takes the time of its packed bytes, counts packed and total bytes, and names the variant that ran."""
    weights = Int4Weights.random(n=48, k=256, block=32, seed=3)
    with device.place(weights, "in_place", copies=3) as placed, device.read_arm(placed, activation(256), form) as arm:
        seconds = arm.run(7)
        assert seconds == pytest.approx(7 * weights.packed_bytes * 1e-9)
        assert (arm.pass_bytes, arm.total_bytes, arm.copies) == (weights.packed_bytes, weights.total_bytes, 3)
        assert (arm.label, arm.form, arm.variant) == ("in_place", form, device.variant)
        assert (arm.captures > 0) == (form == "graph")
        assert arm.fallbacks == 0
        assert np.isfinite(arm.output()).all()


def test_a_row_that_nobody_wrote_is_nan(device, monkeypatch):
    """The output is poisoned before each batch, so a stale result of an earlier one cannot pass for new."""
    weights = Int4Weights.random(n=48, k=256, block=32, seed=3)
    with device.place(weights, "resident") as placed, device.read_arm(placed, activation(256)) as arm:
        arm.run(1)
        monkeypatch.setattr(arm, "_enqueue", lambda index: None)
        arm.run(1)
        assert np.isnan(arm.output()).all()


def test_a_replay_that_differs_is_refused(device, monkeypatch):
    """An arm whose replayed graph gives other bits than the eager pass is never timed."""
    monkeypatch.setattr(cuda_arms.Graph, "replay", lambda self: None)
    weights = Int4Weights.random(n=48, k=256, block=32, seed=3)
    with device.place(weights, "resident") as placed, pytest.raises(ConditionNotMet, match="other bits"):
        device.read_arm(placed, activation(256), "graph")


@pytest.mark.parametrize(
    "x", [np.zeros(255), np.zeros((1, 256)), np.full(256, 70000.0), np.full(256, np.nan), np.array(["a"] * 256)]
)
def test_a_wrong_activation_is_named(device, x):
    """Wrong lengths, values beyond float16 and things that are no numbers are refused as `x`."""
    weights = Int4Weights.random(n=8, k=256, block=32, seed=3)
    with device.place(weights, "resident") as placed, pytest.raises(BadInput, match=r"^x: "):
        device.gemv(placed, x)


def test_the_variant_is_chosen_by_name(gpu):
    """A variant that has no kernel is refused, and the one asked for is the one that runs."""
    with pytest.raises(BadInput, match="variant: 'broad'"):
        CudaDevice(variant="broad")
    weights = Int4Weights.random(n=8, k=256, block=32, seed=3)
    with open_device("cuda", variant="narrow") as device, device.place(weights, "resident") as placed:
        assert device.facts()["variant"] == device.read_arm(placed, activation(256)).variant == "narrow"
