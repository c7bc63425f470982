"""Sweep sizes: at each one, every way to read the weights beside its ceilings, interleaved in one run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Arm, Device, Placed
from hybrid_kernels.errors import BadInput, ConditionNotMet, DeviceFailure
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import BLOCKS, Int4Weights
from hybrid_kernels.measure import facts, sampling
from hybrid_kernels.records import Reading
from hybrid_kernels.units import MIB, format_bytes, gbs

if TYPE_CHECKING:
    import pandas as pd

SIZES_MIB = (12.5, 64.0, 128.0, 256.0, 384.0)
"""Default sizes in MiB of packed bytes: the smallest is one 5120 x 5120 projection, and fits many caches."""
K = 5120
REPS = 11
COPIES_LIMIT = 64
"""Distinct buffers at most: small sizes on a large cache would otherwise take the whole memory."""
CEILING_SLACK = 1.15
"""A read faster than the streaming read of the same bytes by more than this is implausible."""

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what is being done): counts of samples."""


def sweep(
    device: Device,
    sizes_mib: Iterable[float] = SIZES_MIB,
    *,
    k: int = K,
    block: int = 32,
    reps: int = REPS,
    seed: int = 0,
    forms: Sequence[str] | None = None,
    progress: Progress | None = None,
    on_rows: Callable[[list[Reading]], None] | None = None,
) -> pd.DataFrame:
    """Measure every strategy and baseline of `device` at each size (MiB of packed bytes, at depth `k`).

    Returns a pandas DataFrame, one row a size, strategy and form: the fields of records.Reading (times in seconds per
    pass) with `device`, `packed_mib`, and `gbs`, `gbs_low`, `gbs_high` (packed GB/s of the median and its 95 %
    interval) and `total_gbs`. `on_rows` is handed the rows of each size as soon as that size is done.

    BadInput when an argument is out of range or a size does not fit, before anything is measured; ConditionNotMet when
    the kernel's output is wrong, since the time of a wrong product means nothing.
    """
    shapes = [(n, k) for n in check(device, sizes_mib, k=k, block=block, reps=reps)]
    return sweep_shapes(
        device, shapes, block=block, reps=reps, seed=seed, forms=forms, progress=progress, on_rows=on_rows
    )


def sweep_shapes(
    device: Device,
    shapes: Sequence[tuple[int, int]],
    *,
    block: int = 32,
    reps: int = REPS,
    seed: int = 0,
    forms: Sequence[str] | None = None,
    progress: Progress | None = None,
    on_rows: Callable[[list[Reading]], None] | None = None,
) -> pd.DataFrame:
    """`sweep` over given matrices (n, k), such as the projections of one model: what its plan is made from."""
    check_reps(reps)
    forms = tuple(forms or device.forms)
    steps = _Steps(progress, total=(len(shapes) * _arms_a_size(device, forms) + 1) * reps)
    rows: list[Reading] = []
    first: list[Reading] = []
    for n, k in shapes:
        steps.text = f"{format_bytes(n * -(-k // block) * block // 2)} packed"
        done = _measure_size(device, n, k=k, block=block, reps=reps, seed=seed, forms=forms, tick=steps.tick)
        rows += done
        first = first or done
        if on_rows is not None:
            on_rows(done)
    steps.text = "drift"
    drift = _drift(device, first[0], seed=seed, reps=reps, tick=steps.tick)
    rows = [dataclasses.replace(row, drift=drift) for row in mark_disorder(rows)]
    return frame(device.name, rows)


def check(device: Device, sizes_mib: Iterable[float], *, k: int, block: int, reps: int) -> list[int]:
    """Rows N of each size, ascending as given; BadInput when an argument is out of range or does not fit."""
    if block not in BLOCKS:
        raise BadInput(f"block: {block} is not one of {', '.join(map(str, BLOCKS))}")
    if not 1 <= k <= 2**20:
        raise BadInput(f"k: {k} is out of range; use 1 to {2**20}")
    check_reps(reps)
    row_bytes = -(-k // block) * block // 2
    sizes = []
    for mib in sizes_mib:
        if not (math.isfinite(mib) and mib > 0):
            raise BadInput(f"sizes: {mib} is not a size; give positive MiB of packed bytes, such as 12.5,64")
        sizes.append(max(round(mib * MIB / row_bytes), 1))
    if not sizes:
        raise BadInput("sizes: none given; give MiB of packed bytes, such as 12.5,64")
    for n in sizes:
        nbytes = n * row_bytes
        for strategy in device.strategies:
            buffers = device.sweep_buffers if strategy == "resident" else 1
            needed, free = nbytes * buffers, device.free_bytes(strategy)
            if needed > free:
                raise BadInput(
                    f"sizes: {format_bytes(nbytes)} packed need {format_bytes(needed)} to be read "
                    f"{strategy.replace('_', ' ')}, "
                    f"{format_bytes(free)} are free; choose smaller sizes"
                )
    return sizes


def check_reps(reps: int) -> None:
    """BadInput when so many samples of an arm are not to be taken."""
    if not 3 <= reps <= 10_000:
        raise BadInput(f"reps: {reps} is out of range; use 3 to 10000")


def frame(device: str, rows: Sequence[Reading]) -> pd.DataFrame:
    """The rows as the DataFrame that `sweep` describes."""
    import pandas as pd

    columns = [field.name for field in dataclasses.fields(Reading)]
    table = pd.DataFrame([{name: getattr(row, name) for name in columns} for row in rows], columns=columns)
    table.insert(0, "device", device)
    table.insert(1, "packed_mib", table["packed_bytes"] / MIB)
    for name, seconds in (("gbs", "seconds"), ("gbs_low", "seconds_high"), ("gbs_high", "seconds_low")):
        table[name] = table["packed_bytes"] / table[seconds] / 1e9
    table["total_gbs"] = table["total_bytes"] / table["seconds"] / 1e9
    return table


class _Steps:
    """Counts samples for a progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done, self.text = progress, total, 0, ""

    def tick(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, self.text)


def _arms_a_size(device: Device, forms: Sequence[str]) -> int:
    return len(device.strategies) * len(forms) + len(device.baselines) + 2


def cold_copies(device: Device, nbytes: int, strategy: str = "resident") -> int:
    """Buffers to rotate over at `nbytes`: enough to be cold, fewer where memory or the limit does not allow it."""
    room = device.free_bytes(strategy) // nbytes - 2
    return max(min(device.cold_copies(nbytes, strategy), COPIES_LIMIT, room), 1)


def activation(k: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """float32 [k], standard normal, representable in fp16."""
    values = np.random.default_rng([seed, k]).standard_normal(k)
    return values.astype(np.float16).astype(np.float32)


def _measure_size(
    device: Device, n: int, *, k: int, block: int, reps: int, seed: int, forms: Sequence[str], tick: Callable[[], None]
) -> list[Reading]:
    weights = Int4Weights.random(n=n, k=k, block=block, seed=seed)
    x = activation(k, seed)
    copies = {strategy: cold_copies(device, weights.packed_bytes, strategy) for strategy in device.strategies}
    cold = {strategy: count >= device.cold_copies(weights.packed_bytes, strategy) for strategy, count in copies.items()}
    with ExitStack() as stack:
        placed: dict[str, Placed] = {}
        refused: dict[str, DeviceFailure] = {}
        for strategy in device.strategies:
            try:
                placed[strategy] = stack.enter_context(device.place(weights, strategy, copies=copies[strategy]))
            except DeviceFailure as error:
                if strategy == "resident":  # what every other output is held against
                    raise
                refused[strategy] = error  # kept on its rows; nothing else is measured under its name
        reads = [stack.enter_context(device.read_arm(p, x, form)) for p in placed.values() for form in forms]
        tier = placed.get("in_place")
        others = [stack.enter_context(device.baseline_arm(tier, kind)) for kind in device.baselines if tier]
        others += [
            stack.enter_context(device.stream_arm(placed[s], forms[-1]))
            for s in ("resident", "in_place")
            if s in placed
        ]
        truth = device.gemv(placed["resident"], x)
        verify(weights, x, truth)
        del weights
        arms: list[Arm] = [*reads, *others]
        passes = [sampling.batch_size(arm) for arm in arms]
        sampling.ramp(arms[0], passes[0])
        with facts.watch(device) as seen:
            taken = sampling.interleave(arms, reps, passes, tick)
        identical = [_same_bits(arm.output(), truth) for arm in reads] + [None] * len(others)
        rows = [
            _reading(arm, samples, same, n=n, k=k, block=block, cold=cold[_source(arm.label)])
            for arm, samples, same in zip(arms, taken, identical, strict=True)
        ]
        for strategy, failure in refused.items():
            lost = [(strategy, form) for form in forms]
            if strategy == "in_place":
                lost += [(label, "eager") for label in (*device.baselines, "stream_in_place")]
            whole = (reads[0].pass_bytes, reads[0].total_bytes)
            rows += [
                _unmeasured(label, form, failure, whole, n=n, k=k, block=block, copies=copies[strategy])
                for label, form in lost
            ]
    for text in facts.warnings(seen.fields()) if seen else ():
        rows = [_warn(row, text) for row in rows]
    return _mark_implausible(device, rows)


def _source(label: str) -> str:
    """The strategy whose buffers an arm of this label reads."""
    return label if label in ("resident", "staged") else "resident" if label == "stream_resident" else "in_place"


def _reading(
    arm: Arm, samples: sampling.Samples, identical: bool | None, *, n: int, k: int, block: int, cold: bool
) -> Reading:
    low, high = samples.interval()
    warnings = [] if identical in (True, None) else ["outputs differ"]
    if arm.fallbacks:
        warnings.append("fell back to eager")
    return Reading(
        strategy=arm.label, form=arm.form, n=n, k=k, block=block,
        packed_bytes=arm.pass_bytes, total_bytes=arm.total_bytes, copies=arm.copies, cold=cold,
        samples=len(samples.seconds), seconds=samples.median, seconds_low=low, seconds_high=high,
        seconds_best=samples.best, variant=arm.variant, outputs_identical=identical, device_bytes=arm.device_bytes,
        captures=arm.captures, fallbacks=arm.fallbacks, dispatch_seconds=arm.dispatch_seconds, warnings=tuple(warnings),
    )  # fmt: skip


def _unmeasured(
    label: str, form: str, error: DeviceFailure, whole: tuple[int, int], *, n: int, k: int, block: int, copies: int
) -> Reading:
    """The row of an arm that a failure took away: no number, and the vendor's name for why."""
    return Reading(
        strategy=label, form=form, n=n, k=k, block=block, packed_bytes=whole[0], total_bytes=whole[1], copies=copies,
        cold=True, samples=0, seconds=math.nan, seconds_low=math.nan, seconds_high=math.nan, seconds_best=math.nan,
        reason=f"{error.code}: {error}" if error.code else str(error),
    )  # fmt: skip


def verify(
    weights: Int4Weights, x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], tolerance: float = 2e-3
) -> None:
    """Check rows of `y` spread over the matrix against the float64 oracle: relative L2 error below `tolerance`.

    ConditionNotMet otherwise, with the error found.
    """
    rows = np.unique(np.linspace(0, weights.n - 1, min(weights.n, 128)).astype(int))
    part = Int4Weights(
        packed=np.ascontiguousarray(weights.packed[rows]),
        scales=np.ascontiguousarray(weights.scales[rows]),
        zero_points=None if weights.zero_points is None else np.ascontiguousarray(weights.zero_points[rows]),
        n=len(rows), k=weights.k, block=weights.block,
    )  # fmt: skip
    truth = reference.gemv(part, x)
    error = float(np.linalg.norm(y[rows] - truth) / np.linalg.norm(truth))
    if not error <= tolerance:
        raise ConditionNotMet(
            f"gemv: relative L2 error {error:.2g} against the float64 reference, {tolerance:g} allowed; "
            "nothing was timed, since the time of a wrong product means nothing"
        )


def _same_bits(y: npt.NDArray[np.float32] | None, truth: npt.NDArray[np.float32]) -> bool:
    return y is not None and y.tobytes() == truth.tobytes()


def _warn(row: Reading, text: str) -> Reading:
    return row if text in row.warnings else dataclasses.replace(row, warnings=(*row.warnings, text))


def _mark_implausible(device: Device, rows: list[Reading]) -> list[Reading]:
    """Mark rows above the physical limit of their tier, or above the streaming read of the resident bytes."""
    stream = max((gbs(r.packed_bytes, r.seconds) for r in rows if r.strategy == "stream_resident"), default=math.inf)
    marked = []
    for row in rows:
        tier = "resident" if row.strategy in ("resident", "stream_resident", "copy_d2d") else "in_place"
        limit = min(device.limit_gbs(tier) or math.inf, stream * CEILING_SLACK)
        marked.append(_warn(row, "implausible") if gbs(row.packed_bytes, row.seconds_high) > limit else row)
    return marked


def mark_disorder(rows: Sequence[Reading]) -> list[Reading]:
    """Mark cold rows of one arm whose times are not ordered by bytes, beyond their intervals: both of such a pair."""
    out = list(rows)
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            same = (a.strategy, a.form) == (b.strategy, b.form) and a.cold and b.cold
            if same and a.packed_bytes < b.packed_bytes and a.seconds_low > b.seconds_high:
                out[i], out[j] = _warn(out[i], "implausible"), _warn(out[j], "implausible")
    return out


def _drift(device: Device, point: Reading, *, seed: int, reps: int, tick: Callable[[], None]) -> float:
    """The first point measured again at the end: its median over the first one, minus 1."""
    weights = Int4Weights.random(n=point.n, k=point.k, block=point.block, seed=seed)
    x = activation(point.k, seed)
    with (
        device.place(weights, point.strategy, copies=point.copies) as placed,
        device.read_arm(placed, x, point.form) as arm,
    ):
        passes = sampling.batch_size(arm)
        sampling.ramp(arm, passes)
        (again,) = sampling.interleave([arm], reps, [passes], tick)
    return again.median / point.seconds - 1


def with_units(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The frame's rows as plain records for JSON; a number that could not be measured is null, with a `reason`."""
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
    for row in rows:
        if not math.isfinite(row["seconds"]) and not row["reason"]:
            row["reason"] = "not measured"
    return rows
