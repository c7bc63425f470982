"""Walk: one decode step over every projection of a model, each weight read once, by the strategy its plan gives it."""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Closing, Device, Placed
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.layout.models import Model, Projection
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import sampling
from hybrid_kernels.measure.sweep import Beside, check_reps
from hybrid_kernels.records import WALK_RING, Tensor, Walk
from hybrid_kernels.units import GB, format_bytes

REPS = 11
MAKERS = 8
"""Threads at most that make random weights while others are placed."""
GAIN_SPREAD = math.sqrt(42.5 * 7 / 3 * 2.0**-16)
"""Standard deviation of a random weight: codes and zero points uniform on 0..15 (variance 2 x 255/12 = 42.5) times a
scale whose square averages 7/3 x 2^-16 (uniform from 2^-8 to 2^-7)."""

Progress = Callable[[int, int, str], None]


def tensors_of(model: Model, block: int = 32, *, lm_head: bool = True) -> list[Tensor]:
    """The model's projections in walk order as records, for a plan."""
    return [
        Tensor(p.name, p.n, p.k, p.packed_bytes(block), p.total_bytes(block))
        for p in model.projections(lm_head=lm_head)
    ]


def weights_of(projection: Projection | Tensor, block: int, seed: int) -> Int4Weights:
    """Random weights [n, k] of a projection, scaled so that a walk keeps its activations near 1 over any depth."""
    own = zlib.crc32(f"{seed}/{projection.name}".encode())
    weights = Int4Weights.random(n=projection.n, k=projection.k, block=block, seed=own)
    gain = 1 / (GAIN_SPREAD * math.sqrt(projection.k))
    return dataclasses.replace(weights, scales=(weights.scales * np.float32(gain)).astype(np.float16))


def start_of(tensors: Sequence[Tensor], seed: int = 0) -> npt.NDArray[np.float32]:
    """Activations that a walk starts from: float32 [largest n or k], standard normal, representable in fp16."""
    width = max(max(t.n, t.k) for t in tensors)
    values = np.random.default_rng([seed, width]).standard_normal(width)
    return values.astype(np.float16).astype(np.float32)


def check(
    device: Device,
    tensors: Sequence[Tensor],
    splits: Sequence[Sequence[str]] = (),
    *,
    reps: int = REPS,
    ring: int = WALK_RING,
    budget_bytes: int | None = None,
) -> None:
    """BadInput when a walk of `tensors` cannot be had, before any work: arguments out of range, a budget larger than
    the device has free, or a split (a strategy for each tensor) whose bytes do not fit, naming both numbers."""
    check_reps(reps)
    if ring < 2:
        raise BadInput(f"ring: {ring} buffers cannot overlap; use 2 or more")
    free = device.free_bytes("resident")
    if budget_bytes is not None and budget_bytes > free:
        raise BadInput(
            f"budget: {format_bytes(budget_bytes)} is more than device {device.name} has free, {format_bytes(free)}; "
            "give less"
        )
    for strategies in splits:
        if len(strategies) != len(tensors):
            raise BadInput(f"plan: {len(strategies)} tensors, the model has {len(tensors)}; make a plan for it")
        _check_room(device, [(t.packed_bytes, strategy) for t, strategy in zip(tensors, strategies, strict=True)])


def _check_room(device: Device, wanted: Sequence[tuple[int, str]]) -> None:
    """BadInput when (packed bytes, strategy) of `wanted` do not fit together in the memory of their tiers."""
    for strategy in dict.fromkeys(strategy for _, strategy in wanted):
        if strategy not in device.strategies:
            raise BadInput(
                f"strategy: {strategy!r} is not one of {', '.join(device.strategies)} (device {device.name})"
            )
    for tier, own in (("resident", True), ("in_place", False)):
        needed = sum(nbytes for nbytes, strategy in wanted if (strategy == "resident") is own)
        free = device.free_bytes(tier) if needed else 0
        if needed > free:
            raise BadInput(
                f"model: {format_bytes(needed)} of its weights are needed {tier.replace('_', ' ')}, "
                f"{format_bytes(free)} are free; choose a smaller model or another resident fraction"
            )


class Tensors(Closing):
    """A model's weights on a device, each placed in a tier when it is first asked for, and kept until closed."""

    def __init__(self, device: Device, tensors: Sequence[Tensor], block: int = 32, seed: int = 0) -> None:
        self.device, self.tensors, self.block, self.seed = device, list(tensors), block, seed
        self.start = start_of(tensors, seed)
        self._placed: dict[tuple[int, str], Placed] = {}
        self._truth: npt.NDArray[np.float32] | None = None

    def place(self, strategies: Sequence[str], progress: Progress | None = None) -> list[Placed]:
        """Every tensor where its strategy reads it."""
        if len(strategies) != len(self.tensors):
            raise BadInput(f"plan: {len(strategies)} tensors, the model has {len(self.tensors)}; make a plan for it")
        wanted = list(enumerate(strategies))
        missing = [key for key in wanted if key not in self._placed]
        _check_room(self.device, [(self.tensors[index].packed_bytes, strategy) for index, strategy in missing])
        for done, (key, weights) in enumerate(self._made(missing), start=1):
            self._placed[key] = self.device.place(weights, key[1])
            if progress is not None:
                progress(done, len(missing), "placing weights")
        return [self._placed[key] for key in wanted]

    def _made(self, keys: Sequence[tuple[int, str]]) -> Iterator[tuple[tuple[int, str], Int4Weights]]:
        """The weights of `keys`, made a few ahead by other threads while the caller places them."""
        workers = min(MAKERS, len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(workers) as pool:
            ahead: deque[tuple[tuple[int, str], Future[Int4Weights]]] = deque()
            for key in keys:
                ahead.append((key, pool.submit(weights_of, self.tensors[key[0]], self.block, self.seed)))
                if len(ahead) > workers:
                    first, made = ahead.popleft()
                    yield first, made.result()
            while ahead:
                first, made = ahead.popleft()
                yield first, made.result()

    def drop(self, strategy: str) -> None:
        """Give back everything placed for `strategy`."""
        for key in [key for key in self._placed if key[1] == strategy]:
            self._placed.pop(key).close()

    def truth(self, progress: Progress | None = None) -> npt.NDArray[np.float32]:
        """Both activation buffers after an all-resident serial walk, float32 [2 m], one product at a time.

        Computed once, by single products and not by a walk, so that it also checks how walks pass activations on; a
        tensor that is not placed resident is placed for its product alone, so a model larger than the device works.
        """
        if self._truth is None:
            buffers = [self.start.copy(), self.start[::-1].copy()]
            for index, tensor in enumerate(self.tensors):
                source, target = buffers[index % 2], buffers[(index + 1) % 2]
                placed = self._placed.get((index, "resident"))
                if placed is not None:
                    target[: tensor.n] = self.device.gemv(placed, source[: tensor.k])
                else:
                    with self.device.place(weights_of(tensor, self.block, self.seed), "resident") as alone:
                        target[: tensor.n] = self.device.gemv(alone, source[: tensor.k])
                if progress is not None:
                    progress(index + 1, len(self.tensors), "reference walk")
            self._truth = np.concatenate(buffers)
            if not np.isfinite(self._truth).all():
                raise ConditionNotMet("walk: the reference walk overflowed; nothing was timed")
        return self._truth

    def close(self) -> None:
        while self._placed:
            self._placed.popitem()[1].close()


def walk(
    pool: Tensors,
    model: str,
    strategies: Sequence[str],
    *,
    schedule: str = "serial",
    form: str | None = None,
    reps: int = REPS,
    ring: int = WALK_RING,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> Walk:
    """Measure the step: median seconds with a 95 % interval, after checking that its output is bit-identical.

    `strategies`: one for each tensor of `pool`, in walk order. `beside`: a sweep that is taken in turn with the step.
    BadInput when the strategies do not fit the device; DeviceFailure when it refuses memory. A walk whose output
    differs is timed and marked, never dropped silently.
    """
    check_reps(reps)
    device = pool.device
    form = form or ("graph" if "graph" in device.forms else "eager")
    steps = pool.place(strategies, progress)
    truth = pool.truth(progress)
    cold = [step for step, strategy in zip(steps, strategies, strict=True) if strategy != "resident"]
    with ExitStack() as stack:
        arm = stack.enter_context(device.walk_arm(steps, pool.start, schedule, form, ring=ring))
        arms = [arm]
        both = None
        if schedule == "overlapped" and cold:  # the ceiling of the same pages, in the same run
            arms.append(stack.enter_context(device.walk_copy_arm(cold, form, ring=ring)))
            both = device.walk_beside_arm(steps, pool.start, ring=ring)
            if both is not None:
                arms.append(stack.enter_context(both))
        parts, passes = (beside.arms, beside.passes) if beside is not None else ([], [])
        sampling.ramp(arm, 1)
        output = arm.output()
        identical = output is not None and output.tobytes() == truth.tobytes()
        tick = _ticker(progress, reps * (len(arms) + len(parts)), f"{schedule} walk")
        taken = sampling.interleave([*arms, *parts], reps, [*[1] * len(arms), *passes], tick)
        samples, copied = taken[0], taken[1 : len(arms)]
        slowed: list[tuple[float, float]] | None = None
        if both is not None:  # copies from one arm to the other, in the same round; passes within each turn
            ratios = copied[1].seconds / copied[0].seconds
            slowed = list(zip(ratios.tolist(), both.pass_slowdowns[-reps:], strict=True))
        if beside is not None:
            beside.keep(taken[len(arms) :], copied[0].seconds if copied else None, slowed)
        output = arm.output()
        identical = identical and output is not None and output.tobytes() == truth.tobytes()
        captures, fallbacks, ring_bytes = arm.captures, arm.fallbacks, arm.device_bytes
        slowdowns = (1.0, 1.0) if slowed is None else tuple(np.median(slowed, axis=0).tolist())
    low, high = samples.interval()
    by_tier = dict.fromkeys(("resident", "in_place", "staged"), 0)
    for tensor, strategy in zip(pool.tensors, strategies, strict=True):
        by_tier[strategy] += tensor.packed_bytes
    packed = sum(by_tier.values())
    meta = sum(t.total_bytes - t.packed_bytes for t in pool.tensors)
    moved = packed - by_tier["resident"]
    warnings = () if identical else ("outputs differ",)
    return Walk(
        model=model, device=device.name, schedule=schedule, form=form, resident_fraction=by_tier["resident"] / packed,
        resident_bytes=by_tier["resident"], in_place_bytes=by_tier["in_place"], staged_bytes=by_tier["staged"],
        samples=reps, seconds=samples.median, seconds_low=low, seconds_high=high, seconds_best=samples.best,
        tokens_per_second=1 / samples.median, link_gbs=moved / samples.median / GB,
        device_bytes=by_tier["resident"] + meta + ring_bytes, host_locked_bytes=moved if device.name == "cuda" else 0,
        outputs_identical=identical, captures=captures, fallbacks=fallbacks,
        copy_seconds=copied[0].median if copied else None, copy_slowdown=slowdowns[0], pass_slowdown=slowdowns[1],
        warnings=(*warnings, *(("fell back to eager",) if fallbacks else ())),
    )  # fmt: skip


def capacity(pool: Tensors, progress: Progress | None = None) -> tuple[int, bool]:
    """Grow the distinct bytes read in place in one step until outputs differ or the model is through.

    Returns (largest packed bytes that stayed right, whether the whole model did). A platform may return stale data
    beyond some amount with no error raised, so this is measured, and unknown means zero.
    """
    order = range(len(pool.tensors))
    truth = pool.truth(progress)
    right, count = 0, 1
    while True:
        strategies = ["in_place" if index < count else "resident" for index in order]
        with pool.device.walk_arm(pool.place(strategies), pool.start, "serial") as arm:
            for _ in range(3):
                arm.run(1)
                output = arm.output()
                if output is None or output.tobytes() != truth.tobytes():
                    return right, False
        right = sum(tensor.packed_bytes for tensor in pool.tensors[:count])
        if progress is not None:
            progress(count, len(pool.tensors), f"{format_bytes(right)} in place stayed right")
        if count == len(pool.tensors):
            return right, True
        count = min(count * 2, len(pool.tensors))


def _ticker(progress: Progress | None, total: int, text: str) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, text)

    return tick
