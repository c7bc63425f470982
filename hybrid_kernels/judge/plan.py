"""Plans: which tensors of a model stay resident, how the rest is read, and the step time that a sweep predicts for it.

The prediction has no free parameter. Serial: the sum over tensors of the time that the sweep measured for a pass of
that shape and strategy. Overlapped: the copies of cold tensors run one after the other on their own stream, each as
soon as a buffer of the ring is free; a pass waits for the pass before it and for its own copy (`simulate`).
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize

from hybrid_kernels.errors import BadInput
from hybrid_kernels.records import WALK_RING, Choice, Plan, Tensor, ring_buffers
from hybrid_kernels.units import GB, format_bytes

if TYPE_CHECKING:
    import pandas as pd

SCHEDULES = ("serial", "overlapped")
COPIES = ("copy_h2d", "copy_direct", "copy")
"""Baselines that move weights ahead, best first: the copy engine's of a GPU, the direct read of the CPU device."""

Span = tuple[float, float, float]
"""Seconds: median, low, high."""


def formula(resident_bytes: float, cold_bytes: float, resident_gbs: float, cold_gbs: float) -> tuple[float, float]:
    """Step seconds (serial, overlapped) from four published numbers: the sum and the longer of the two reads.

    The bracket in which every schedule of one step falls when nothing but bandwidth counts.
    """
    resident, cold = resident_bytes / (resident_gbs * GB), cold_bytes / (cold_gbs * GB)
    return resident + cold, max(resident, cold)


@dataclass(frozen=True)
class Costs:
    """What one machine was measured to take, by strategy: {label: [(n, k, packed bytes, median, low, high)]}."""

    device: str
    machine: str
    points: Mapping[str, Sequence[tuple[int, int, int, float, float, float]]]

    @classmethod
    def of(cls, frame: pd.DataFrame, machine: str = "", form: str | None = None) -> Costs:
        """From the rows of a sweep (`measure.sweep` or a `--json` file). BadInput when it lacks what a plan needs."""
        if frame.empty or not {"strategy", "form", "seconds", "packed_bytes"} <= set(frame.columns):
            raise BadInput("sweep: no rows of a sweep in it; make one with hybrid-kernels probe --json FILE")
        try:
            form = form or ("graph" if "graph" in set(frame["form"]) else "eager")
            points = _points(frame.to_dict("records"), form)
        except (KeyError, TypeError, ValueError) as error:
            what = f"a row is not a reading ({error})"
            raise BadInput(f"sweep: {what}; make one with hybrid-kernels probe --json FILE") from error
        for needed in ("resident", "in_place"):
            if needed not in points:
                raise BadInput(f"sweep: it has no {needed} rows of form {form}; measure it again with this version")
        device = str(frame["device"].iloc[0]) if "device" in frame.columns else "unknown"
        return cls(device, machine, {name: sorted(rows, key=lambda r: r[2]) for name, rows in points.items()})

    def seconds(self, strategy: str, tensor: Tensor) -> Span:
        """Seconds of one pass over `tensor`: measured at its shape, or interpolated between the sizes measured."""
        rows = self.points[strategy]
        for n, k, _, *span in rows:
            if (n, k) == (tensor.n, tensor.k):
                return span[0], span[1], span[2]
        sizes, mids, lows, highs = np.array([row[2:] for row in rows], dtype=float).T
        mid = _at(sizes, mids, tensor.packed_bytes)
        # Ends of the interval as shares of the median: lines through them of their own would cross beyond the sizes.
        low, high = (float(np.interp(tensor.packed_bytes, sizes, ends / mids)) for ends in (lows, highs))
        return mid, mid * low, mid * high

    @property
    def copy(self) -> str:
        """The baseline that weights run ahead with on this device."""
        for name in COPIES:
            if name in self.points:
                return name
        raise BadInput("sweep: it has no copy rows, so nothing can run ahead; measure it again with this version")

    @property
    def cold_strategies(self) -> tuple[str, ...]:
        return tuple(name for name in ("in_place", "staged") if name in self.points)


def _points(rows: Sequence[Mapping[Any, Any]], form: str) -> dict[str, list[tuple[int, int, int, float, float, float]]]:
    """Readings of `form` (and of the arms that have no forms) by strategy; a reading without a number is left out."""
    points: dict[str, list[tuple[int, int, int, float, float, float]]] = {}
    for row in rows:
        seconds = row["seconds"]
        wanted = row["form"] == form or row["strategy"] not in ("resident", "in_place", "staged")
        if not wanted or seconds is None or not math.isfinite(seconds):
            continue
        sizes = (int(row["n"]), int(row["k"]), int(row["packed_bytes"]))
        times = (float(seconds), float(row["seconds_low"]), float(row["seconds_high"]))
        if min(*sizes, *times) <= 0 or not math.isfinite(sum(times)):
            raise ValueError(f"sizes and times must be positive, found {sizes} and {times}")
        points.setdefault(str(row["strategy"]), []).append((*sizes, *times))
    return points


def _at(sizes: np.ndarray[Any, Any], times: np.ndarray[Any, Any], size: float) -> float:
    """Piecewise linear in bytes; outside, the line of the two nearest sizes, never below the rate of the edge."""
    if sizes[0] <= size <= sizes[-1]:
        return float(np.interp(size, sizes, times))
    edge = 0 if size < sizes[0] else -1
    others = np.flatnonzero(sizes != sizes[edge])  # shapes of the same bytes have no slope between them
    if len(others) == 0:
        return float(times[edge] * size / sizes[edge])
    near = others[0 if edge == 0 else -1]
    slope = max((times[near] - times[edge]) / (sizes[near] - sizes[edge]), 0.0)
    return float(max(times[edge] + slope * (size - sizes[edge]), times[edge] * min(size / sizes[edge], 1.0)))


def simulate(
    passes: Sequence[float],
    copies: Sequence[float | None],
    ring: int,
    slowdowns: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Step seconds of the overlapped schedule. `passes[i]` is the time of pass i once its weights are there,
    `copies[i]` the time of the copy that must end before it (None: resident), `ring` the buffers copied into.

    A copy starts when the copy before it has ended and the pass that last used its buffer has ended. While a copy and a
    pass run at once, the copy takes `slowdowns[0]` times as long and the pass `slowdowns[1]` times.
    """
    cold = [copy for copy in copies if copy is not None]
    now = 0.0
    current = copied = used = 0  # the pass, copies that have ended, passes over cold tensors that have ended
    work = passes[0] if passes else 0.0
    moving = cold[0] if cold else 0.0
    while current < len(passes):
        runs = copies[current] is None or used < copied
        moves = copied < len(cold) and copied - used < ring
        slow_copy, slow_pass = slowdowns if runs and moves else (1.0, 1.0)
        ends = [work * slow_pass if runs else math.inf, moving * slow_copy if moves else math.inf]
        passed = min(ends)
        now += passed
        # What ends is set to end: a remainder left by rounding would be a step of its own.
        if moves:
            moving = 0.0 if ends[1] == passed else moving - passed / slow_copy
        if runs:
            work = 0.0 if ends[0] == passed else work - passed / slow_pass
        if moves and ends[1] == passed:
            copied += 1
            moving = cold[copied] if copied < len(cold) else 0.0
        if runs and ends[0] == passed:
            used += copies[current] is not None
            current += 1
            work = passes[current] if current < len(passes) else 0.0
    return now


def predict(
    tensors: Sequence[Tensor],
    strategies: Sequence[str],
    costs: Costs,
    schedule: str,
    ring: int = WALK_RING,
    *,
    copy_seconds: float | None = None,
    slowdowns: tuple[float, float] = (1.0, 1.0),
) -> tuple[Span, tuple[float, ...]]:
    """Step seconds (median, low, high) of a walk that reads each tensor by its strategy, and those of each pass.

    `copy_seconds`: what copying the cold tensors one after the other was measured to take beside the walk. It holds
    what each copy costs besides its bytes (3 us on an H200, docs/plan.md); without it the sweep's copies are taken.
    `slowdowns` of a copy and of a pass while both run, as measured without the walk (`simulate`).
    """
    if schedule == "serial":
        spans = [costs.seconds(strategy, tensor) for tensor, strategy in zip(tensors, strategies, strict=True)]
        total = tuple(math.fsum(span[i] for span in spans) for i in range(3))
        return (total[0], total[1], total[2]), tuple(span[0] for span in spans)
    resident = [costs.seconds("resident", tensor) for tensor in tensors]
    copy = [
        None if strategy == "resident" else costs.seconds(costs.copy, tensor)
        for tensor, strategy in zip(tensors, strategies, strict=True)
    ]
    swept = math.fsum(c[0] for c in copy if c is not None)
    scale = copy_seconds / swept if copy_seconds is not None and swept else 1.0
    spans3 = [
        simulate([span[i] for span in resident], [None if c is None else c[i] * scale for c in copy], ring, slowdowns)
        for i in range(3)
    ]
    return (spans3[0], spans3[1], spans3[2]), tuple(span[0] for span in resident)


def floor(
    tensors: Sequence[Tensor], strategies: Sequence[str], costs: Costs, copy_seconds: float | None = None
) -> float:
    """max(copies of the cold tensors, resident passes of the resident ones): what no overlap can beat.

    `copy_seconds` as for `predict`.
    """
    pairs = list(zip(tensors, strategies, strict=True))
    cold = math.fsum(costs.seconds(costs.copy, tensor)[0] for tensor, strategy in pairs if strategy != "resident")
    warm = math.fsum(costs.seconds("resident", tensor)[0] for tensor, strategy in pairs if strategy == "resident")
    return max(cold if copy_seconds is None else copy_seconds, warm)


def device_bytes(tensors: Sequence[Tensor], strategies: Sequence[str], schedule: str, ring: int) -> int:
    """Device memory of a plan: scales and zero points of every tensor, packed bytes of resident ones, and the ring."""
    meta = sum(tensor.total_bytes - tensor.packed_bytes for tensor in tensors)
    pairs = list(zip(tensors, strategies, strict=True))
    held = sum(tensor.packed_bytes for tensor, strategy in pairs if strategy == "resident")
    cold = [tensor.packed_bytes for tensor, strategy in pairs if strategy != "resident"]
    return meta + held + (sum(ring_buffers(cold, ring)) if schedule == "overlapped" else 0)


def check_budget(model: str, tensors: Sequence[Tensor], budget_bytes: int | None, schedule: str, ring: int) -> None:
    """BadInput, naming both numbers, when `budget_bytes` of device memory (None: no limit) hold no plan at all."""
    if budget_bytes is None:
        return
    sizes = [tensor.packed_bytes for tensor in tensors]
    meta = sum(tensor.total_bytes - tensor.packed_bytes for tensor in tensors)
    if budget_bytes < meta + min(sizes):
        raise BadInput(
            f"budget: {format_bytes(budget_bytes)} is less than the {format_bytes(meta)} of scales and zero points and "
            f"one tensor of {format_bytes(min(sizes))}; give more"
        )
    if schedule == "serial":
        return
    need = min(device_bytes(tensors, strategies, schedule, ring) for strategies in _least_sets(tensors))
    if budget_bytes < need:
        raise BadInput(
            f"budget: {format_bytes(budget_bytes)} holds no {schedule} plan of {model} with a ring of {ring} buffers; "
            f"{format_bytes(need)} would"
        )


def _least_sets(tensors: Sequence[Tensor]) -> list[list[str]]:
    """Sets that take little device memory whatever the ring: all tensors up to one size cold, and none."""
    caps = {tensor.packed_bytes for tensor in tensors}
    return [["resident" if t.packed_bytes > cap else "in_place" for t in tensors] for cap in (0, *caps)]


def choose(
    model: str,
    tensors: Sequence[Tensor],
    costs: Costs,
    *,
    budget_bytes: int | None,
    schedule: str = "serial",
    block: int = 32,
    ring: int = WALK_RING,
    in_place_limit: float = math.inf,
    marginal: bool = True,
) -> Plan:
    """The plan with the least predicted step time within `budget_bytes` of device memory (None: no limit).

    Serial plans are optimal for the sweep's times (an integer program over tensor shapes and strategies); overlapped
    ones are the best of that set, of the simple rules, and of cold sets spread over the walk. Never worse than
    the best of the simple rules (`rules`). No more than `in_place_limit` packed bytes are read in place in one step: a
    platform may return stale data beyond its capacity (`walk --capacity`). BadInput for an unknown schedule, or a
    budget too small for the scales and zero points, or for what may not be read in place, naming both numbers.
    """
    if schedule not in SCHEDULES:
        raise BadInput(f"schedule: {schedule!r} is not one of {', '.join(SCHEDULES)}")
    if ring < 2:
        raise BadInput(f"ring: {ring} buffers cannot overlap; use 2 or more")
    check_budget(model, tensors, budget_bytes, schedule, ring)
    limit = math.inf if budget_bytes is None else budget_bytes

    def fits(strategies: Sequence[str]) -> bool:
        within = schedule == "overlapped" or _in_place_bytes(tensors, strategies) <= in_place_limit
        return within and device_bytes(tensors, strategies, schedule, ring) <= limit

    def cost(strategies: Sequence[str]) -> float:
        return predict(tensors, strategies, costs, schedule, ring)[0][0]

    cold = _cold_strategy(tensors, costs, schedule, in_place_limit)
    simple = {name: rule(tensors, cold, fits) for name, rule in _RULES.items()}
    candidates = [strategies for strategies in simple.values() if fits(strategies)]
    candidates += [s for s in _best_sets(tensors, costs, schedule, limit, ring, in_place_limit) if fits(s)]
    if schedule == "overlapped":
        candidates += [s for s in _least_sets(tensors) if fits(s)]
        candidates += [s for s in (_spread(tensors, c) for c in list(candidates)) if fits(s)]
    if not candidates:
        raise BadInput(
            f"capacity: {format_bytes(round(in_place_limit))} may be read in place in one step, too little for {model} "
            "in this budget; find how much stays right with hybrid-kernels walk --capacity, or give a larger budget"
        )
    best = min(candidates, key=cost)
    (seconds, low, high), each = predict(tensors, best, costs, schedule, ring)
    saved = None
    if marginal and budget_bytes is not None:
        more = choose(
            model, tensors, costs, budget_bytes=budget_bytes + GB, schedule=schedule, block=block, ring=ring,
            in_place_limit=in_place_limit, marginal=False,
        )  # fmt: skip
        saved = max(seconds - more.predicted_seconds, 0.0)
    packed = sum(tensor.packed_bytes for tensor in tensors)
    held = sum(t.packed_bytes for t, strategy in zip(tensors, best, strict=True) if strategy == "resident")
    return Plan(
        model=model, device=costs.device, machine=costs.machine, block=block, schedule=schedule,
        budget_bytes=budget_bytes, ring=ring, device_bytes=device_bytes(tensors, best, schedule, ring),
        resident_fraction=held / packed,
        choices=tuple(Choice(*row) for row in zip(tensors, best, each, strict=True)),
        predicted_seconds=seconds, predicted_low=low, predicted_high=high, floor_seconds=floor(tensors, best, costs),
        rules={name: cost(strategies) for name, strategies in simple.items() if fits(strategies)},
        saved_by_one_gb=saved,
    )  # fmt: skip


def at_fraction(tensors: Sequence[Tensor], fraction: float, cold: str = "in_place") -> list[str]:
    """Strategies with about `fraction` of the packed bytes resident, as few tensors cold as that takes.

    The largest tensors are cold first, since each copy ahead, and each wait for one, has a cost of its own, spread
    evenly and late over the walk (`_late`). A shape that stands alone (an output head) comes last, since nothing could
    run beside its copy. As near to the fraction as changing single tensors can bring it. BadInput when it is not from 0
    to 1.
    """
    if not 0 <= fraction <= 1:
        raise BadInput(f"fraction: {fraction} is not a share; use 0 to 1")
    sizes = [tensor.packed_bytes for tensor in tensors]
    wanted = (1 - fraction) * sum(sizes)
    alone = {size for size in sizes if sizes.count(size) == 1}
    ways = [_largest_cold(sizes, wanted, last=alone), _largest_cold(sizes, wanted, last=set())]
    misses = [abs(wanted - sum(itertools.compress(sizes, way))) for way in ways]
    best = ways[0] if misses[0] <= sum(sizes) / 200 else ways[misses.index(min(misses))]
    return [cold if is_cold else "resident" for is_cold in best]


def _largest_cold(sizes: Sequence[int], wanted: float, last: Collection[int]) -> list[bool]:
    """Which tensors are cold when about `wanted` bytes are, the largest first but for those of sizes in `last`."""
    cold, missing = [False] * len(sizes), wanted
    for size in sorted(set(sizes), key=lambda size: (size in last, -size)):
        rows = [index for index, own in enumerate(sizes) if own == size]
        count = min(int(missing / size + 1e-9), len(rows))
        for number in range(count):
            cold[rows[_late(number, count, len(rows))]] = True
        missing -= count * size
    while True:  # then change the one tensor that brings the bytes nearest, the middle of the walk first
        missing = wanted - sum(itertools.compress(sizes, cold))
        middle = len(sizes) / 2
        best = min(
            range(len(sizes)), key=lambda i: (abs(missing + (sizes[i] if cold[i] else -sizes[i])), abs(i - middle))
        )
        change = sizes[best] if cold[best] else -sizes[best]
        if abs(missing + change) >= abs(missing):
            return cold
        cold[best] = not cold[best]


def _late(number: int, count: int, length: int) -> int:
    """Place of the `number`-th of `count` cold tensors among `length` of a walk: the last of its equal share.

    Its copy has all passes of the share to hide in, and behind the last copy nothing waits. On an H200 a step with
    0.975 of Qwen2.5-14B resident took 3.42 ms so, and 3.67 with each in the middle of its share.
    """
    return (number + 1) * length // count - 1


Fits = Callable[[Sequence[str]], bool]


def _in_place_bytes(tensors: Sequence[Tensor], strategies: Sequence[str]) -> int:
    pairs = zip(tensors, strategies, strict=True)
    return sum(tensor.packed_bytes for tensor, strategy in pairs if strategy == "in_place")


def _cold_strategy(
    tensors: Sequence[Tensor], costs: Costs, schedule: str, in_place_limit: float
) -> Callable[[Tensor], str]:
    """How a cold tensor is read best: the fastest measured strategy of its shape; run ahead when overlapped. Staged
    where not all tensors may be read in place."""
    if schedule == "overlapped":
        return lambda tensor: "in_place"
    if "staged" in costs.points and in_place_limit < sum(tensor.packed_bytes for tensor in tensors):
        return lambda tensor: "staged"
    best: dict[tuple[int, int], str] = {}
    for tensor in tensors:
        if (tensor.n, tensor.k) not in best:
            times = {name: costs.seconds(name, tensor)[0] for name in costs.cold_strategies}
            best[tensor.n, tensor.k] = min(times, key=times.__getitem__)
    return lambda tensor: best[tensor.n, tensor.k]


def _greedy(tensors: Sequence[Tensor], order: Sequence[int], cold: Callable[[Tensor], str], fits: Fits) -> list[str]:
    strategies = [cold(tensor) for tensor in tensors]
    for index in order:
        trial = list(strategies)
        trial[index] = "resident"
        if fits(trial):
            strategies = trial
    return strategies


def _first_layers(tensors: Sequence[Tensor], cold: Callable[[Tensor], str], fits: Fits) -> list[str]:
    return _greedy(tensors, range(len(tensors)), cold, fits)


def _largest_first(tensors: Sequence[Tensor], cold: Callable[[Tensor], str], fits: Fits) -> list[str]:
    return _greedy(tensors, sorted(range(len(tensors)), key=lambda i: -tensors[i].packed_bytes), cold, fits)


def _uniform(tensors: Sequence[Tensor], cold: Callable[[Tensor], str], fits: Fits) -> list[str]:
    low, high = 0.0, 1.0
    best = [cold(tensor) for tensor in tensors]
    for _ in range(20):  # the largest fraction that fits
        middle = (low + high) / 2
        marks = at_fraction(tensors, middle)
        trial = ["resident" if mark == "resident" else cold(t) for mark, t in zip(marks, tensors, strict=True)]
        low, high, best = (middle, high, trial) if fits(trial) else (low, middle, best)
    full = ["resident"] * len(tensors)
    return full if fits(full) else best


_RULES: Mapping[str, Callable[[Sequence[Tensor], Callable[[Tensor], str], Fits], list[str]]] = {
    "first layers": _first_layers,
    "largest first": _largest_first,
    "uniform fraction": _uniform,
}


def _best_sets(
    tensors: Sequence[Tensor], costs: Costs, schedule: str, limit: float, ring: int, in_place_limit: float
) -> list[list[str]]:
    """Optimal resident sets as integer programs: how many tensors of each shape are read by each strategy.

    Serial: least sum of times. Overlapped: for each size that the ring's buffers may have, everything larger resident,
    once with the least sum of times and once with the fewest cold bytes.
    """
    shapes: dict[tuple[int, int], list[int]] = {}
    for index, tensor in enumerate(tensors):
        shapes.setdefault((tensor.n, tensor.k), []).append(index)
    members = list(shapes.values())
    first = [tensors[rows[0]] for rows in members]
    names = ["resident", *(costs.cold_strategies if schedule == "serial" else ("in_place",))]
    is_held = np.array([name == "resident" for _ in first for name in names])
    packed = np.array([tensor.packed_bytes for tensor in first for _ in names], dtype=float)
    per_shape = np.array([len(rows) for rows in members], dtype=float)
    counts = optimize.LinearConstraint(np.kron(np.eye(len(first)), np.ones(len(names))), per_shape, per_shape)
    times = np.array([costs.seconds(name, tensor)[0] for tensor in first for name in names])
    meta = sum(tensor.total_bytes - tensor.packed_bytes for tensor in tensors)
    goals = [(times, 0.0, np.inf)]
    if schedule == "overlapped":
        fewest = np.where(is_held, 0.0, packed)
        caps = sorted({tensor.packed_bytes for tensor in first})
        goals = [(goal, float(ring * cap), float(cap)) for cap in caps for goal in (times, fewest)]
    found = []
    for goal, buffers, cap in goals:
        room = limit - meta - buffers
        if room < 0:
            continue
        limits = [counts]
        if math.isfinite(room):
            limits.append(optimize.LinearConstraint(np.where(is_held, packed, 0.0) / GB, -np.inf, room / GB))
        if schedule == "serial" and math.isfinite(in_place_limit):
            read = np.array([name == "in_place" for _ in first for name in names])
            limits.append(optimize.LinearConstraint(np.where(read, packed, 0.0) / GB, -np.inf, in_place_limit / GB))
        most = np.where(~is_held & (packed > cap), 0.0, np.inf)
        answer = optimize.milp(
            goal / (np.abs(goal).max() or 1.0), constraints=limits, integrality=[1] * len(goal),
            bounds=optimize.Bounds(0, most), options={"time_limit": 5.0},
        )  # fmt: skip
        if answer.x is None:
            continue
        strategies = [""] * len(tensors)
        for number, rows in enumerate(members):
            take = np.round(answer.x[number * len(names) : (number + 1) * len(names)]).astype(int)
            labels = [name for name, count in zip(names, take, strict=True) for _ in range(count)]
            for index, label in zip(rows, labels, strict=True):
                strategies[index] = label
        found.append(strategies)
    return found


def _spread(tensors: Sequence[Tensor], strategies: Sequence[str]) -> list[str]:
    """The same counts of each shape, the cold ones of a shape spread evenly and late (`_late`)."""
    out = list(strategies)
    shapes: dict[tuple[int, int], list[int]] = {}
    for index, tensor in enumerate(tensors):
        shapes.setdefault((tensor.n, tensor.k), []).append(index)
    for rows in shapes.values():
        cold = [strategies[i] for i in rows if strategies[i] != "resident"]
        for i in rows:
            out[i] = "resident"
        for number, label in enumerate(cold):
            out[rows[_late(number, len(cold), len(rows))]] = label
    return out


def read_sweep(path: Path) -> pd.DataFrame:
    """The rows of a `probe --json` file as a frame. BadInput naming the file when it is none."""
    import pandas as pd

    rows = _read_json(path, "sweep").get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"sweep: {path} has no rows; make one with hybrid-kernels probe --json FILE")
    return pd.DataFrame(rows)


def read(path: Path) -> Plan:
    """The plan in a `plan --json` file. BadInput naming the file when it is none, or of a later schema."""
    return from_document(_read_json(path, "plan"), f"plan: {path}")


def _read_json(path: Path, what: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{what}: {path}: {error.strerror}; name an existing file") from error
    except ValueError as error:
        raise BadInput(f"{what}: {path} is not JSON ({error}); name a file written by --json") from error
    if not isinstance(data, dict):
        raise BadInput(f"{what}: {path} holds no JSON object; name a file written by --json")
    return data


READS = "reads.Seconds.time_read"
COPY = "copies.Seconds.time_copy"
HISTORY_K = 5120
"""Depth of the matrices that the suites read."""


def from_history(results: str | os.PathLike[str], machine: str, device: str) -> Costs:
    """Costs of `device` on `machine` from the newest asv results of the suites `reads` and `copies`.

    BadInput, naming the machines there are, when the history holds nothing for it.
    """
    from hybrid_kernels.history import store

    history = store.load(results)
    frame = history.frame
    machines = sorted(set(frame["machine"].astype(str)))
    here = frame[(frame["machine"].astype(str) == machine) & frame["value"].notna()]
    points: dict[str, dict[float, tuple[int, int, int, float, float, float]]] = {}
    for row in here.sort_values("order").to_dict("records"):
        if str(row["benchmark"]) not in (READS, COPY):
            continue
        params = {name: str(value).strip("'\"") for name, value in row["params"]}
        if params.get("device") != device:
            continue
        mib = float(params["mib"])
        packed = round(mib * 2**20 / (HISTORY_K // 2)) * (HISTORY_K // 2)
        spread = [row[name] if row[name] == row[name] else row["value"] for name in ("ci_low", "ci_high")]
        label = params.get("strategy") or params["kind"]
        points.setdefault(label, {})[mib] = (
            packed // (HISTORY_K // 2), HISTORY_K, packed, float(row["value"]), float(spread[0]), float(spread[1]),
        )  # fmt: skip
    if "resident" not in points or "in_place" not in points:
        raise BadInput(
            f"machine: {results} has no reads of device {device} on {machine!r}; machines there: "
            f"{', '.join(machines) or 'none'}"
        )
    return Costs(device, machine, {name: [rows[mib] for mib in sorted(rows)] for name, rows in points.items()})


def read_capacity(path: Path) -> int:
    """Packed bytes that `walk --capacity --json` found right in one step. BadInput naming the file when it has none."""
    facts = _read_json(path, "capacity").get("facts")
    found = facts.get("in_place_capacity_bytes") if isinstance(facts, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise BadInput(f"capacity: {path} says of no bytes that they stayed right; make it with walk --capacity --json")
    return found


def to_document(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON data (schema in docs/plan.md)."""
    from hybrid_kernels.records import document

    rows = [
        {
            "name": choice.tensor.name, "n": choice.tensor.n, "k": choice.tensor.k, "strategy": choice.strategy,
            "packed_bytes": choice.tensor.packed_bytes, "total_bytes": choice.tensor.total_bytes,
            "seconds": choice.seconds,
        }
        for choice in plan.choices
    ]  # fmt: skip
    head = {name: getattr(plan, name) for name in plan.__dataclass_fields__ if name != "choices"}
    return document({"machine": plan.machine, "device": plan.device}, rows, plan=head)


def from_document(data: Any, name: str = "plan") -> Plan:
    """The plan of a JSON document. BadInput naming `name` (the file) when it is none, or of a later schema."""
    from hybrid_kernels.records import SCHEMA

    try:
        if data["schema"] > SCHEMA:
            raise BadInput(f"{name}: schema {data['schema']} is newer than this version reads ({SCHEMA}); upgrade")
        choices = tuple(
            Choice(
                Tensor(row["name"], int(row["n"]), int(row["k"]), int(row["packed_bytes"]), int(row["total_bytes"])),
                str(row["strategy"]),
                float(row["seconds"]),
            )
            for row in data["rows"]
        )
        plan = Plan(choices=choices, **data["plan"])
        if not (isinstance(plan.model, str) and isinstance(plan.ring, int) and plan.schedule in SCHEDULES):
            raise ValueError(f"model {plan.model!r}, schedule {plan.schedule!r} and ring {plan.ring!r} name no walk")
        return plan
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{name}: not a plan ({error}); make one with hybrid-kernels plan --json FILE") from error
