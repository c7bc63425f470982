"""Walks on the real CPU device: every schedule and split gives the bits of the all-resident walk."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest

from hybrid_kernels.devices import cpu_walk, evicted
from hybrid_kernels.devices.cpu import CpuDevice
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.judge.plan import Costs, at_fraction, predict
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.models import Model
from hybrid_kernels.measure import sampling, sweep, walk

SMALL = Model("small", "none", 256, 512, 3, 4, 2, 64, 1024, False)


@pytest.fixture(autouse=True)
def _no_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "ramp", lambda arm, passes: arm.run(passes))


@pytest.fixture
def pool():
    with CpuDevice() as device, walk.Tensors(device, walk.tensors_of(SMALL)) as tensors:
        yield tensors


@pytest.mark.parametrize("schedule", ["serial", "overlapped"])
@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.0])
def test_every_split_and_schedule_gives_the_same_bits(pool, schedule: str, fraction: float) -> None:
    """Weights may run ahead or be read in place; the activations that come out are those of the resident walk."""
    row = walk.walk(pool, "small", at_fraction(pool.tensors, fraction), schedule=schedule, reps=3)
    assert row.outputs_identical
    assert row.warnings == ()
    assert row.resident_fraction == pytest.approx(fraction, abs=0.05)
    assert row.resident_bytes + row.in_place_bytes == sum(t.packed_bytes for t in pool.tensors)
    assert row.seconds_low <= row.seconds <= row.seconds_high


@pytest.mark.parametrize("schedule", ["serial", "overlapped"])
def test_a_sweep_is_taken_in_turn_with_the_step(pool, schedule: str) -> None:
    """A round of passes for every sample of the step, and with weights that run ahead a copy of them in each."""
    shapes = sorted({(tensor.n, tensor.k) for tensor in pool.tensors})
    strategies = at_fraction(pool.tensors, 0.5)
    with sweep.Beside(pool.device, shapes, ["copy_direct"]) as beside:
        row = walk.walk(pool, "small", strategies, schedule=schedule, reps=3, beside=beside)
    assert row.outputs_identical
    assert len(beside.rounds) == 3
    for one in beside.rounds:
        assert set(one.passes["strategy"]) == {"resident", "in_place", "copy_direct"}
        assert set(zip(one.passes["n"], one.passes["k"], strict=True)) == set(shapes)
        span, _ = predict(
            pool.tensors, strategies, Costs.of(one.passes), schedule, copy_seconds=one.copy_seconds,
            slowdowns=one.slowdowns,
        )  # fmt: skip
        assert span[0] > 0
        assert (one.copy_seconds is None) is (schedule == "serial")


def test_the_walk_is_the_chain_of_products(pool) -> None:
    """In float64, each projection fed by the one before it, gives the walk's activations."""
    buffers = [pool.start.astype(float), pool.start[::-1].astype(float)]
    for index, tensor in enumerate(pool.tensors):
        weights = walk.weights_of(tensor, pool.block, pool.seed)
        buffers[(index + 1) % 2][: tensor.n] = reference.gemv(weights, buffers[index % 2][: tensor.k])
    truth = np.concatenate(buffers)
    assert np.linalg.norm(pool.truth() - truth) / np.linalg.norm(truth) < 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_what_copies_and_passes_take_from_each_other(pool, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Planted: reads and products that sleep 2 ms each, under one lock or none. With the lock both take about twice as
    long together as alone, and both are found to; without it neither is."""
    lock = threading.Lock() if shared else contextlib.nullcontext()

    def slow(*_, **__) -> None:
        with lock:
            time.sleep(2e-3)
        time.sleep(1e-5)  # a lock is not handed over fairly: leave the other a moment to take it

    steps = pool.place(at_fraction(pool.tensors, 0.5))
    cold = [step for step in steps if step.mappings]
    with pool.device.walk_beside_arm(steps, pool.start) as beside, pool.device.walk_copy_arm(cold) as alone:
        monkeypatch.setattr(evicted.EvictedMapping, "read_direct", slow)
        monkeypatch.setattr(cpu_walk.kernels, "gemv", slow)
        copies = beside.run(5) / alone.run(5)
        passes = float(np.median(beside.pass_slowdowns))
    if shared:
        assert copies > 1.4
        assert passes > 1.4
    else:
        assert copies < 1.35
        assert passes < 1.35


def test_a_copy_that_fails_beside_passes_is_not_lost(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's error ends the arm, and no thread is left."""

    def broken(*_) -> None:
        raise ConditionNotMet("a direct read ended early")

    steps = pool.place(at_fraction(pool.tensors, 0.5))
    with pool.device.walk_beside_arm(steps, pool.start) as beside:
        monkeypatch.setattr(evicted.EvictedMapping, "read_direct", broken)
        with pytest.raises(ConditionNotMet, match="ended early"):
            beside.run(1)
    assert not [thread for thread in threading.enumerate() if thread.name == "weights ahead"]


def test_activations_stay_near_one(pool) -> None:
    """Twenty-two products deep, the scaled weights neither blow up nor fade."""
    assert 0.2 < np.sqrt(np.mean(pool.truth() ** 2)) < 5


def test_a_stale_weight_is_found(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of one placed tensor changed after placing: the walk says that its output differs."""
    strategies = ["resident"] * len(pool.tensors)
    placed = pool.place(strategies)
    pool.truth()
    placed[4].buffers[0][0, 0, 0] ^= 0x0F
    row = walk.walk(pool, "small", strategies, reps=3)
    assert row.outputs_identical is False
    assert row.warnings == ("outputs differ",)


def test_capacity_is_the_whole_model_here(pool) -> None:
    """Everything read in place in one step stays right on a file mapping."""
    assert walk.capacity(pool) == (sum(t.packed_bytes for t in pool.tensors), True)


def test_capacity_stops_where_outputs_differ(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform that returns stale bytes beyond the first four tensors has the bytes of four as its capacity."""
    real = pool.place

    def stale(strategies, progress=None):
        placed = real(strategies, progress)
        if strategies.count("in_place") > 4:
            pool.truth()[0] += 1  # as if what came back were another result
        return placed

    monkeypatch.setattr(pool, "place", stale)
    right, whole = walk.capacity(pool)
    assert not whole
    assert right == sum(t.packed_bytes for t in pool.tensors[:4])


def test_what_does_not_fit_is_named(pool) -> None:
    """A plan for another model, an unknown schedule, a ring of one, activations of another width."""
    with pytest.raises(BadInput, match="plan: 2 tensors"):
        pool.place(["resident"] * 2)
    placed = pool.place(["in_place"] * len(pool.tensors))
    for arguments, says in (
        ({"schedule": "both"}, "schedule"),
        ({"schedule": "overlapped", "ring": 1}, "ring"),
    ):
        with pytest.raises(BadInput, match=says):
            pool.device.walk_arm(placed, pool.start, **arguments)
    with pytest.raises(BadInput, match="x: shape"):
        pool.device.walk_arm(placed, pool.start[:-1])
    with pytest.raises(BadInput, match="steps"):
        pool.device.walk_arm([], pool.start)


def test_a_walk_that_cannot_be_had_is_refused_before_any_work(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budget above what is free, a split that does not fit a tier or a device, samples and rings out of range."""
    tensors, device = pool.tensors, pool.device
    packed = sum(t.packed_bytes for t in tensors)
    free = {"resident": packed - 1, "in_place": packed // 2}
    monkeypatch.setattr(device, "free_bytes", free.__getitem__)
    for splits, more, says in (
        ([], {"budget_bytes": packed}, "budget: .* more than device cpu has free"),
        ([["resident"] * len(tensors)], {}, "needed resident"),
        ([["in_place"] * len(tensors)], {}, "needed in place"),
        ([["staged"] * len(tensors)], {}, "strategy: 'staged'"),
        ([["resident"] * 2], {}, "plan: 2 tensors"),
        ([], {"reps": 2}, "reps"),
        ([], {"ring": 1}, "ring"),
    ):
        with pytest.raises(BadInput, match=says):
            walk.check(device, tensors, splits, **more)
    walk.check(device, tensors, [at_fraction(tensors, 0.75)], budget_bytes=packed - 1)
    with pytest.raises(BadInput, match="needed resident"):
        pool.place(["resident"] * len(tensors))
    assert not pool._placed


def test_a_failed_read_ahead_ends_the_walk(pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the thread that reads ahead comes out of the walk and does not hang it."""
    from hybrid_kernels.devices.evicted import EvictedMapping

    def broken(self, target):
        raise ConditionNotMet("scratch: gone")

    placed = pool.place(["in_place"] * len(pool.tensors))
    monkeypatch.setattr(EvictedMapping, "read_direct", broken)
    with pool.device.walk_arm(placed, pool.start, "overlapped") as arm, pytest.raises(ConditionNotMet, match="gone"):
        arm.run(1)
