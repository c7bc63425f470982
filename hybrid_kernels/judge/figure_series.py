"""A figure in the history: by which method its value was known from which commit on.

A figure lists its methods from the least to the most trusted. On a machine it is known by a method from the first
commit at which that one was measured there, until a more trusted one was, so a change of method needs no hand-written
event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybrid_kernels.judge import series
from hybrid_kernels.judge.arithmetic import Interval
from hybrid_kernels.judge.ledger import Figure, Ledger, Method
from hybrid_kernels.judge.series import Series


@dataclass(frozen=True, eq=False)
class Part:
    """What a figure was known by from rank `since` to before rank `until`: a method, and its values."""

    method: Method
    series: Series
    since: int
    until: float
    computed: bool  # over several cells, by the method's statistic


@dataclass(frozen=True, eq=False)
class Stretch:
    """A figure on one machine in one environment: its parts in order."""

    figure: Figure
    machine: str
    env: str
    parts: tuple[Part, ...]


def methods(figure: Figure, ledger: Ledger, machine: str) -> tuple[Method, ...]:
    """The benchmark methods of `figure`, from the least to the most trusted.

    Those that the figure lists; without a list those of its records on `machine`, where each correcting record's method
    supersedes the one before, for the record's reason.
    """
    if figure.methods:
        return tuple(m for name in figure.methods if (m := ledger.methods[name]).benchmark is not None)
    found: list[Method] = []
    for record in figure.chain(machine):
        method = record.method
        if method.benchmark is None:
            continue
        name = method.name or f"record {record.id}"
        if found and _selects(found[-1]) == _selects(method):
            continue
        supersedes = found[-1].name if found else None
        found.append(replace(method, name=name, kind=record.kind, supersedes=supersedes, reason=record.reason))
    return tuple(found)


def _selects(method: Method) -> tuple[str | None, str | None, frozenset[tuple[str, tuple[str, ...]]]]:
    return method.benchmark, method.version, frozenset(method.params.items())


def values(
    all_series: Iterable[Series], figure: Figure, method: Method, machine: str, env: str
) -> tuple[Series, bool] | None:
    """The values of `figure` by `method`, and whether they were computed over several cells; None: there are none."""
    cells = series.matching(all_series, method.benchmark, {**figure.params, **method.params}, machine, env)
    parts = [part for cell in cells if (part := cell.of_version(method.version)) is not None]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0], False
    return _over_cells(parts, method), True


def cells_at(all_series: Iterable[Series], figure: Figure, method: Method, like: Series, rank: int) -> list[float]:
    """The values of every cell of `figure` by `method` at the commit of this rank, where `like` was measured."""
    cells = series.matching(all_series, method.benchmark, {**figure.params, **method.params}, like.machine, like.env)
    parts = [part for cell in cells if (part := cell.of_version(method.version)) is not None]
    return [float(part.values[i]) for part in parts for i in np.flatnonzero(part.order == rank)]


def _over_cells(parts: Sequence[Series], method: Method) -> Series:
    """One value a commit: `method.statistic` of the cells measured at it (the middle of a range)."""
    by_rank: dict[int, list[tuple[Series, int]]] = {}
    for part in parts:
        for index, rank in enumerate(part.order.tolist()):
            by_rank.setdefault(rank, []).append((part, index))
    ranks = sorted(by_rank)
    merged, points = [], []
    for rank in ranks:
        of_rank = by_rank[rank]
        column = [float(part.values[index]) for part, index in of_rank]
        value = statistic(column, method.statistic)
        first = of_rank[0][0].points[of_rank[0][1]]
        merged.append(value)
        points.append(replace(first, value=value, ci_low=None, ci_high=None))
    one = parts[0]
    fixed = {k: v for k, v in one.params.items() if all(p.params.get(k) == v for p in parts)}
    cell = ", ".join([*(f"{k}={v}" for k, v in fixed.items()), f"{method.statistic} of {len(parts)} cells"])
    gaps = np.full(len(ranks), math.nan)
    return replace(
        one, cell=cell, params=fixed, order=np.array(ranks, dtype=np.int64), values=np.array(merged), ci_low=gaps,
        ci_high=gaps, points=tuple(points),
    )  # fmt: skip


def statistic(column: Sequence[float], name: str) -> float:
    """One value out of those of several cells; that of a range is its middle."""
    if name == "range":
        return Interval(min(column), max(column)).middle
    if name == "min":
        return min(column)
    return max(column) if name == "max" else float(np.median(column))


def stretches(all_series: Sequence[Series], ledger: Ledger) -> list[Stretch]:
    """Every figure on every machine and environment that has values of one of its methods."""
    places = list(dict.fromkeys((s.machine, s.env) for s in all_series))
    found = []
    for figure in ledger.figures.values():
        for machine, env in places:
            parts = _parts(all_series, figure, ledger, machine, env)
            if parts:
                found.append(Stretch(figure, machine, env, parts))
    return found


def _parts(all_series: Sequence[Series], figure: Figure, ledger: Ledger, machine: str, env: str) -> tuple[Part, ...]:
    known = []
    for method in methods(figure, ledger, machine):
        measured = values(all_series, figure, method, machine, env)
        if measured is not None:
            known.append((method, *measured))
    parts: list[Part] = []
    until = math.inf
    for method, measured_, computed in reversed(known):  # from the most trusted: it holds from its first commit on
        since = int(measured_.order[0])
        if since < until:
            parts.append(Part(method, measured_, since, until, computed))
            until = since
    return tuple(reversed(parts))
