"""Sweep sizes: at each one, every way to read the weights beside its ceilings, interleaved in one run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Arm, Closing, Device, Placed
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


class Matrix(Closing):
    """One matrix [n, k] of random weights, placed for each strategy of a device, and the arms that read and copy it.

    `arms` and `passes` (in one sample, by arm) are for `sampling.interleave`; `rows` makes readings of its samples.
    `baselines`: those of the device to open; `streams`: whether streaming reads are opened too; `seconds`: what a
    sample lasts at least. ConditionNotMet when the product is wrong; DeviceFailure when even the resident weights are
    refused.
    """

    def __init__(
        self,
        device: Device,
        n: int,
        k: int,
        *,
        block: int,
        seed: int,
        forms: Sequence[str],
        baselines: Sequence[str],
        streams: bool = True,
        seconds: float = sampling.BATCH_SECONDS,
    ) -> None:
        self.device, self.n, self.k, self.block, self.forms = device, n, k, block, forms
        self._stack = ExitStack()
        try:
            self._open(seed, baselines, streams, seconds)
        except BaseException:
            self.close()
            raise

    def _open(self, seed: int, baselines: Sequence[str], streams: bool, seconds: float) -> None:
        device, enter = self.device, self._stack.enter_context
        weights = Int4Weights.random(n=self.n, k=self.k, block=self.block, seed=seed)
        x = activation(self.k, seed)
        self.copies = {s: cold_copies(device, weights.packed_bytes, s) for s in device.strategies}
        self.cold = {s: device.is_cold(weights.packed_bytes, s, count) for s, count in self.copies.items()}
        placed: dict[str, Placed] = {}
        self.refused: dict[str, DeviceFailure] = {}
        for strategy in device.strategies:
            try:
                placed[strategy] = enter(device.place(weights, strategy, copies=self.copies[strategy]))
            except DeviceFailure as error:
                if strategy == "resident":  # what every other output is held against
                    raise
                self.refused[strategy] = error  # kept on its rows; nothing else is measured under its name
        self.reads = [enter(device.read_arm(p, x, form)) for p in placed.values() for form in self.forms]
        tier = placed.get("in_place")
        others = [enter(device.baseline_arm(tier, kind)) for kind in baselines if tier]
        if streams:
            streamed = [placed[s] for s in ("resident", "in_place") if s in placed]
            others += [enter(device.stream_arm(p, self.forms[-1])) for p in streamed]
        self.truth = device.gemv(placed["resident"], x)
        verify(weights, x, self.truth)
        self.arms: list[Arm] = [*self.reads, *others]
        self.passes = [sampling.batch_size(arm, seconds) for arm in self.arms]

    def rows(self, taken: Sequence[sampling.Samples]) -> list[Reading]:
        """Readings of samples of `arms`, and rows without a number for what the device refused."""
        identical: list[bool | None] = [_same_bits(arm.output(), self.truth) for arm in self.reads]
        identical += [None] * (len(self.arms) - len(self.reads))
        shape = {"n": self.n, "k": self.k, "block": self.block}
        rows = [
            _reading(arm, samples, same, cold=self.cold[_source(arm.label)], **shape)
            for arm, samples, same in zip(self.arms, taken, identical, strict=True)
        ]
        for strategy, failure in self.refused.items():
            lost = [(strategy, form) for form in self.forms]
            if strategy == "in_place":
                lost += [(label, "eager") for label in (*self.device.baselines, "stream_in_place")]
            whole = (self.reads[0].pass_bytes, self.reads[0].total_bytes)
            rows += [
                _unmeasured(label, form, failure, whole, copies=self.copies[strategy], **shape) for label, form in lost
            ]
        return rows

    def close(self) -> None:
        self._stack.close()


def _measure_size(
    device: Device, n: int, *, k: int, block: int, reps: int, seed: int, forms: Sequence[str], tick: Callable[[], None]
) -> list[Reading]:
    with Matrix(device, n, k, block=block, seed=seed, forms=forms, baselines=device.baselines) as matrix:
        sampling.ramp(matrix.arms[0], matrix.passes[0])
        with facts.watch(device) as seen:
            taken = sampling.interleave(matrix.arms, reps, matrix.passes, tick)
        rows = matrix.rows(taken)
    for text in facts.warnings(seen.fields()) if seen else ():
        rows = [_warn(row, text) for row in rows]
    return _mark_implausible(device, rows)


@dataclass(frozen=True)
class Round:
    """What was measured in one round beside a walk: passes of every shape, as a sweep's DataFrame has them; seconds of
    a copy of the walk's cold weights (None: none ran ahead); what copies and passes took from each other."""

    passes: pd.DataFrame
    copy_seconds: float | None
    slowdowns: tuple[float, float]


class Beside(Closing):
    """Arms of every pass that the prediction of a walk is made of, to be timed in turn with the walk.

    For a device whose speeds drift within minutes (`Device.drifts`): a sweep before the walk tells how fast the device
    was then. `rounds` are kept apart, so that a prediction is made for each: in a slow one all passes are slow, which a
    sum of medians does not know.
    """

    SECONDS = 4 * sampling.BATCH_SECONDS
    """A sample lasts at least this long: the first pass after another arm's is not what a pass takes in a walk."""

    def __init__(
        self,
        device: Device,
        shapes: Sequence[tuple[int, int]],
        copies: Sequence[str],
        *,
        block: int = 32,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.device = device
        self._stack = ExitStack()
        self._matrices: list[Matrix] = []
        self.rounds: list[Round] = []
        try:
            for done, (n, k) in enumerate(shapes, start=1):
                matrix = Matrix(
                    device, n, k, block=block, seed=seed, forms=device.forms, baselines=copies, streams=False,
                    seconds=self.SECONDS,
                )  # fmt: skip
                self._matrices.append(self._stack.enter_context(matrix))
                if progress is not None:
                    progress(done, len(shapes), "placing a sweep")
        except BaseException:
            self.close()
            raise
        self.arms = [arm for matrix in self._matrices for arm in matrix.arms]
        self.passes = [count for matrix in self._matrices for count in matrix.passes]

    def keep(
        self,
        taken: Sequence[sampling.Samples],
        copied: npt.NDArray[np.float64] | None = None,
        slowdowns: Sequence[tuple[float, float]] | None = None,
    ) -> None:
        """Samples of `arms`, in their order, and by round seconds of the copy [reps] and the slowdowns [reps]."""
        self.rounds = []
        for number in range(len(taken[0].seconds)):
            left = iter(taken)
            rows = []
            for matrix in self._matrices:
                own = itertools.islice(left, len(matrix.arms))
                rows += matrix.rows([sampling.Samples(one.seconds[number : number + 1], one.passes) for one in own])
            self.rounds.append(
                Round(
                    frame(self.device.name, rows),
                    None if copied is None else float(copied[number]),
                    (1.0, 1.0) if slowdowns is None else slowdowns[number],
                )
            )

    def close(self) -> None:
        self._stack.close()


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
