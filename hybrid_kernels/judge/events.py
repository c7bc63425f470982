"""What each change of a history was: the world, or only what we know of it.

Every level change and every version boundary of every series, and every change of method of a figure, becomes one event
with its evidence: the points beside it, the control arms, the facts before and after. A verdict belongs to a machine.

The rules, in the order in which they are tried:

- Version changed: never a regression by itself. With the superseded method measured again at or after the boundary it
  is a correction if that method kept its level, else confounded (world x method). Not measured again: unverified,
  unless the ledger states a flaw of the old method; then it is a correction on record.
- A control arm itself moved, or one moved along with the series and accounts for at least half of the change:
  environment. One moved and accounts for less: confounded.
- A recorded fact changed at the same boundary and no control arm was measured on both sides: unverified. So is a level
  that changed together with the number of calls a sample, unless the levels beside it contradict that.
- Otherwise the direction decides: improvement or regression; undone when the series returns to the level before.
  Without a direction it is a change and nothing more.
"""

from __future__ import annotations

import copy
import datetime
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_kernels import records, units
from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import directions, folders, store
from hybrid_kernels.judge import figure_series, ledger, moves, series, short
from hybrid_kernels.judge.figure_series import Stretch
from hybrid_kernels.judge.ledger import Ledger, Method
from hybrid_kernels.judge.series import Point, Series

if TYPE_CHECKING:
    import pandas as pd

KINDS = (
    "regression", "improvement", "undone", "change", "correction", "environment", "confounded", "unverified",
    *ledger.KINDS,
)  # fmt: skip
"""The last four are first statements of a figure: what was known of it to begin with."""

VERDICTS = ("regression", "improvement", "change")  # of the code, rather than of the machine or the method
HALF = 0.5  # a control arm accounts for a change when it moved by at least this part of it, on the log scale
KEPT = 0.1  # a superseded method with few points kept its level when it lies within this part of it,
KEPT_SHARE = 0.25  # or moved by less than this part of the whole change, on the log scale
MOST_POINTS = 10  # points of evidence kept on each side
# What a fact changes by without being another: clocks, temperatures and powers drift, and an operating system keeps a
# little more or less of the memory for itself at each start. Other facts change when they differ.
DRIFT = {**dict.fromkeys(("MHz", "Hz", "C", "W", "%"), 0.05), **dict.fromkeys(("bytes", "KiB", "MiB", "GiB"), 0.01)}


@dataclass(frozen=True)
class ControlArm:
    """A benchmark that the change cannot touch, before and after. `ratio` is after / before, in `low`..`high`."""

    benchmark: str
    cell: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    moved: bool
    commit_before: str
    commit_after: str


@dataclass(frozen=True)
class FactChange:
    """A recorded fact of the machine that differs between the two sides of a boundary."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Event:
    """One change, what it was and why it is thought so.

    `commit` is the first with the new value, `commit_before` the last measured with the old one; `before` and `after`
    are levels, `factor` = after / before where the two may be compared. Of a confounded event `world_factor` and
    `method_factor` multiply to `factor`. A first statement of a figure has no side before.
    """

    kind: str
    machine: str
    env: str
    benchmark: str
    cell: str
    commit: str
    date: datetime.datetime | None
    commit_before: str | None
    version: str | None
    version_before: str | None
    before: float | None
    after: float
    unit: str
    direction: int
    reason: str
    factor: float | None = None
    factor_low: float | None = None
    factor_high: float | None = None
    world_factor: float | None = None
    method_factor: float | None = None
    method_before: str | None = None
    method: str | None = None
    figures: tuple[str, ...] = ()
    undone_by: str | None = None  # commit at which the level came back
    undoes: str | None = None  # commit of the event whose level this one takes back
    notes: tuple[str, ...] = ()
    points_before: tuple[Point, ...] = ()
    points_after: tuple[Point, ...] = ()
    controls: tuple[ControlArm, ...] = ()
    facts: tuple[FactChange, ...] = ()
    order: int = 0  # rank of `commit` in the history

    @property
    def name(self) -> str:
        """`benchmark (cell)`, for people."""
        return f"{self.benchmark} ({self.cell})" if self.cell else self.benchmark


class History:
    """An asv history and what its changes were.

    Parameters
    ----------
    results
        A results folder of asv, a folder above several, or a list of such folders.
    figures
        The ledger, or its file. None: `figures.toml` beside the (first) results folder, or here if that is an
        address, where there is one.

    Raises
    ------
    BadInput
        `results` is no folder, or the ledger is not valid.
    """

    def __init__(
        self, results: store.Results = "results", figures: str | os.PathLike[str] | Ledger | None = None
    ) -> None:
        self.results = [results] if isinstance(results, str | os.PathLike) else list(results)
        self.stored = store.load(results)
        if figures is None:
            beside = folders.beside(self.results[0]) / "figures.toml"
            self.ledger = ledger.load(beside) if beside.is_file() else ledger.empty(beside)
        else:
            self.ledger = figures if isinstance(figures, Ledger) else ledger.load(figures)

    def as_of(self, commit: str) -> History:
        """The same history as it was when `commit` (or its beginning) had been measured; the frame stays whole.

        BadInput when no value is of that commit, or of several.
        """
        ranks = {
            name: rank for s in self.series for name, rank in zip(s.column("commit"), s.order.tolist(), strict=True)
        }
        found = [name for name in ranks if name.startswith(commit)]
        if len(found) != 1:
            what = "no value is of it" if not found else f"it could be {' or '.join(name[:12] for name in found)}"
            raise BadInput(f"commit {commit!r}: {what}; `hybrid-kernels history --format csv` has the commits measured")
        then = copy.copy(self)
        then.__dict__.pop("_events", None)
        then.__dict__["series"] = tuple(part for s in self.series if (part := s.until(ranks[found[0]])) is not None)
        return then

    def frame(self) -> pd.DataFrame:
        """Every value of every version; columns as in `history.store.StoredHistory.frame`."""
        return self.stored.frame

    @property
    def skipped(self) -> list[store.Skipped]:
        """Files that could not be read, with the reason."""
        return self.stored.skipped

    @cached_property
    def controls(self) -> frozenset[str]:
        """Benchmarks that no change of the code can touch: by the ledger's patterns, or by an attribute `control`."""
        return frozenset(
            name
            for name, known in self.stored.benchmarks.items()
            if series.named(name, self.ledger.controls) or (known.entry or {}).get("control") is True
        )

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """All series with at least one value."""
        return tuple(series.with_noise(series.from_rows(self.stored.rows), self.controls))

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        return _Judge(self).all()

    def events(self, benchmark: str | None = None, machine: str | Sequence[str] | None = None) -> tuple[Event, ...]:
        """Every event in commit order, of the benchmarks and machines that the filters of `store.load` let through.

        Evidence is always taken from the whole history. BadInput, naming near ones, for a filter that matches nothing.
        """
        if benchmark is None and machine is None:
            return self._events
        wanted = self.stored.narrowed(benchmark, machine)
        there = wanted.series_names()
        judged = self._events if "_events" in self.__dict__ else self._around(wanted)._events
        return tuple(event for event in judged if (event.machine, event.benchmark, event.cell) in there)

    def _around(self, wanted: store.StoredHistory) -> History:
        """The history of `wanted` with all that its judgement looks up: control arms, facts, what figures rest on.

        A history of millions of values is so judged in the time that the wanted ones take.
        """
        if "series" in self.__dict__:
            return self
        methods = [m for figure in self.ledger.figures.values() for m in (*(r.method for r in figure.records),
                   *(self.ledger.methods[name] for name in figure.methods))]  # fmt: skip
        names = {name for _, name, _ in wanted.series_names()} | self.controls
        names |= {name for name in self.stored.benchmarks if series.named(name, self.ledger.facts)}
        names |= {method.benchmark for method in methods if method.benchmark is not None}
        pattern = rf"^(?:{'|'.join(map(re.escape, sorted(names)))})$"
        around = copy.copy(self)
        around.stored = self.stored.narrowed(pattern)  # of every machine: ranks are those among all commits
        return around

    def statements(self, figure: str, machine: str) -> tuple[Event, ...]:
        """What `figure` was on `machine`, first statement and every change of it. BadInput for an unknown figure."""
        self.ledger.figure(figure)
        return tuple(event for event in self._events if figure in event.figures and event.machine == machine)


def rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as plain JSON data, dates in ISO form."""
    return [records.plain(_dated(event)) for event in events]


def _dated(event: Event) -> dict[str, Any]:
    def text(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        if isinstance(value, tuple):
            return [text(item) for item in value]
        if hasattr(value, "__dataclass_fields__"):
            return {name: text(getattr(value, name)) for name in value.__dataclass_fields__}
        return value

    row: dict[str, Any] = text(event)
    return row


class _Judge:
    """Finds and judges the events of one history; keeps what many of them look up."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.ledger = history.ledger
        self.series = history.series
        self.controls: dict[str, list[Series]] = {}
        self.fact_series: dict[str, list[Series]] = {}
        for s in self.series:
            if self.is_fact(s):
                self.fact_series.setdefault(s.machine, []).append(s)
            elif self.is_control(s):
                self.controls.setdefault(s.machine, []).append(s)
        self.file_facts = cache(history.stored.facts)  # of a result file

    def is_control(self, s: Series) -> bool:
        return s.benchmark in self.history.controls

    def is_fact(self, s: Series) -> bool:
        return series.named(s.benchmark, self.ledger.facts)

    def all(self) -> tuple[Event, ...]:
        found = [event for s in self.series for event in self.of_series(s)]
        told = figure_series.stretches(self.series, self.ledger)
        of_figures = [event for stretch in told for event in self._of_figure(stretch)]
        # A figure whose method is another version of one benchmark tells that boundary itself, and better.
        taken = {(e.machine, e.env, e.benchmark, e.cell, e.commit) for e in of_figures}
        found = [e for e in found if (e.machine, e.env, e.benchmark, e.cell, e.commit) not in taken]
        found = [*self._with_figures(found, told), *of_figures]
        return tuple(sorted(found, key=lambda e: (e.order, e.machine, e.env, e.benchmark, e.cell, e.kind)))

    # ---- series

    def of_series(self, s: Series) -> list[Event]:
        if self.is_fact(s):
            return self._fact_events(s)
        found: list[Event] = []
        for before, after in zip((None, *s.runs[:-1]), s.runs, strict=True):
            if before is not None:
                found.append(self._boundary(s, before.levels[-1], after.levels[0]))
            steps_ = [self._step(s, old, new) for old, new in zip(after.levels[:-1], after.levels[1:], strict=True)]
            found += self._undone(s, after.levels, steps_)
        return found

    def _fact_events(self, s: Series) -> list[Event]:
        found = []
        for i in range(1, len(s.values)):
            if _differs(s, s.values[i - 1], s.values[i]):
                event = self._event(s, (i - 1, i), (i, i + 1), "environment", "a recorded fact of the machine changed")
                found.append(event)
        return found

    def _event(
        self, s: Series, old: tuple[int, int], new: tuple[int, int], kind: str, reason: str, **more: Any
    ) -> Event:
        last, first = s.points[old[1] - 1], s.points[new[0]]
        before, after = _level(s, old), _level(s, new)
        return Event(
            kind=kind,
            machine=s.machine,
            env=s.env,
            benchmark=s.benchmark,
            cell=s.cell,
            commit=first.commit,
            date=first.date,
            commit_before=last.commit,
            version=first.version,
            version_before=last.version,
            before=before,
            after=after,
            unit=s.unit,
            direction=s.direction,
            reason=reason,
            points_before=_last_points(s, old),
            points_after=s.points[new[0] : min(new[1], new[0] + MOST_POINTS)],
            order=int(s.order[new[0]]),
            **more,
        )

    def _step(self, s: Series, old: tuple[int, int], new: tuple[int, int]) -> Event:
        """The event of one level change within a version."""
        move = _compare(s, old, s, new)
        arms = self.arms(s, int(s.order[old[1] - 1]), int(s.order[new[0]]))
        facts = self.facts(s, old[1] - 1, new[0])
        notes, sampling = self._sampling(s, old, new)
        kind, reason, world = self._cause(s, old, new, arms, facts, sampling)
        if any(new[0] in run.unconfirmed for run in s.runs):
            notes.append("unconfirmed: one or two points beside a change of version, which may be outliers")
        if kind in VERDICTS and facts:
            notes.append(f"changed at the same boundary: {_listed(facts)}; not the cause, {_held(arms)}")
        if kind == "environment" and not facts:
            notes.append("no recorded fact says what changed")
        more: dict[str, Any] = {}
        if world is not None:
            more = {"world_factor": world, "method_factor": move.ratio / world}
        return self._event(
            s, old, new, kind, reason, **_factor(move), notes=tuple(notes), controls=arms, facts=facts, **more,
        )  # fmt: skip

    def _cause(
        self, s: Series, old: tuple[int, int], new: tuple[int, int],
        arms: Sequence[ControlArm], facts: Sequence[FactChange], sampling: str | None,
    ) -> tuple[str, str, float | None]:  # fmt: skip
        """(kind, reason, world factor when it is one of two) of a level change within a version."""
        if self.is_control(s):
            return "environment", "a control arm moved, which no change of the code can touch", None
        move = _compare(s, old, s, new)
        world = self._world(s, arms)
        if world is not None:
            known = move.ratio > 0 and move.ratio != 1
            share = math.log(world) / math.log(move.ratio) if known else math.inf  # levels without a ratio hide it
            moved = ", ".join(f"{arm.benchmark} ({_times(arm.ratio)})" for arm in arms if arm.moved)
            if share >= HALF:
                return "environment", f"the control arms moved too: {moved}", None
            return "confounded", f"control arms moved as well, but not by as much: {moved}", world
        steady = [arm for arm in arms if not arm.low <= move.ratio <= arm.high]  # too few points tell nothing
        if facts and not steady:
            text = f"{_listed(facts)} changed at the same boundary and no control arm tells whether the machine did"
            return "unverified", text, None
        if sampling is not None:
            return "unverified", sampling, None
        held = (
            f"; {len(arms)} control arm{'s' * (len(arms) != 1)} kept the level" if arms else "; no control arm measured"
        )
        if s.direction == 0:
            text = f"direction unknown: nothing says whether more {directions.quantity(s.unit)} is better{held}"
            return "change", text, None
        better = (_level(s, new) > _level(s, old)) == (s.direction > 0)
        return ("improvement" if better else "regression"), f"same version, another level{held}", None

    def _world(self, s: Series, arms: Sequence[ControlArm]) -> float | None:
        """By how much the moved arms say that the world changed, as a factor on `s`; None when none moved."""
        logs = []
        for arm in arms:
            if arm.moved and arm.ratio > 0:
                flipped = self._direction(arm) * s.direction < 0
                logs.append(-math.log(arm.ratio) if flipped else math.log(arm.ratio))
        return math.exp(min(float(np.median(logs)), moves.MOST)) if logs else None

    def _direction(self, arm: ControlArm) -> int:
        known = self.history.stored.benchmarks.get(arm.benchmark)
        return known.direction if known is not None else 0

    def _undone(self, s: Series, levels: Sequence[tuple[int, int]], found: Sequence[Event]) -> list[Event]:
        """The events of one version, those that take an earlier one back marked, and that one too."""
        events = list(found)
        for later in range(1, len(events)):
            for earlier in range(later - 1, -1, -1):
                first = events[earlier]
                if first.undone_by is not None or first.kind not in VERDICTS or events[later].kind not in VERDICTS:
                    continue
                if _returns(s, levels[earlier], levels[earlier + 1], levels[later], levels[later + 1]):
                    events[earlier] = replace(first, undone_by=events[later].commit)
                    events[later] = replace(
                        events[later],
                        kind="undone",
                        undoes=first.commit,
                        reason=f"back at the level before the {first.kind} at {first.commit[:8]}",
                    )
                    break
        return events

    def _sampling(self, s: Series, old: tuple[int, int], new: tuple[int, int]) -> tuple[list[str], str | None]:
        """What to say of number and repeat when they changed at a step, and which change may be the cause of it.

        asv's version covers neither. Repeat only decides how many samples there are, so it is never the cause.
        """
        last, first = s.points[old[1] - 1], s.points[new[0]]
        notes: list[str] = []
        cause = None
        for name in ("number", "repeat"):
            a, b = getattr(last, name), getattr(first, name)
            if a == b or not a or not b:
                continue
            text = f"{name} changed from {a} to {b} at the same boundary (a sampling parameter; no part of the version)"
            column = s.column(name)
            before, after = column[old[0] : old[1]], column[new[0] : new[1]]
            if name == "repeat":
                notes.append(text)
            elif b in before or a in after:
                notes.append(f"{text}: not the cause, the levels beside it do not follow it")
            elif s.unit == "seconds" and _follows(a * _level(s, old), b * _level(s, new), b):
                notes.append(f"{text}: asv chooses it from the duration, so it follows the level")
            else:
                cause = f"{text}: it may be the cause; measure both commits with the same"
        return notes, cause

    # ---- versions and methods

    def _boundary(self, s: Series, old: tuple[int, int], new: tuple[int, int]) -> Event:
        """The event of a version boundary of one benchmark."""
        before, after = (self._method(s, s.points[index].version) for index in (old[1] - 1, new[0]))
        linked = before is not None and after is not None and after.supersedes == before.name
        again = self._measured_again(s, before) if linked and before is not None else None
        return self._method_change(s, old, s, new, before, after, again, linked=linked)

    def _measured_again(self, s: Series, method: Method) -> Series | None:
        """The series under which `method` is still measured in the cell of `s`; None when there is not exactly one."""
        if method.again is None:
            return None
        for params in ({**_cell_of(s), **method.again.params}, method.again.params):
            cells = series.matching(self.series, method.again.benchmark, params, s.machine, s.env)
            found = [part for cell in cells if (part := cell.of_version(method.again.version)) is not None]
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def _method(self, s: Series, version: str | None) -> Method | None:
        if version is None:
            return None
        return self.ledger.method_of(s.benchmark, version, lambda method: s.fits(method.params))

    def _method_change(
        self, a: Series, old: tuple[int, int], b: Series, new: tuple[int, int],
        before: Method | None, after: Method | None, again: Series | None, *, linked: bool, why: str | None = None,
    ) -> Event:  # fmt: skip
        """From level `old` of `a`, by one method, to `new` of `b`, by another; `again`: the old method's series."""
        o_old, o_new = int(a.order[old[1] - 1]), int(b.order[new[0]])
        arm = self._again(a, old, again, o_old, o_new) if again is not None else None
        facts = self.facts_between(a, old[1] - 1, b, new[0])
        arms = self.arms(b, o_old, o_new)
        why = why or (after.reason if after is not None else None)
        names = {"method_before": _named(before, a, old), "method": _named(after, b, new)}
        move = _compare(a, old, b, new)
        known = _factor(move)
        notes, sampling = self._sampling(a, old, new) if a is b else ([], None)
        notes += [sampling] if sampling is not None else []
        if a.unit != b.unit:
            notes.append(f"{a.unit or 'no unit'} before, {b.unit or 'no unit'} after: no factor between them")
            known = {}
        if arm is not None:
            rest = tuple(c for c in arms if (c.benchmark, c.cell) != (arm.benchmark, arm.cell))
            more: dict[str, Any] = {"controls": (arm, *rest), "facts": facts, "notes": tuple(notes), **names, **known}
            if not _moved_with(arm, move.ratio):
                reason = why or "the superseded method, measured again, still gives its old value"
                event = self._event(b, new, new, "correction", reason, **more)
            else:
                text = f"method and world changed together: the old method, measured again, moved {_times(arm.ratio)}"
                if not arm.moved:
                    notes.append("the old method has too few points to tell its move from noise; measure it again")
                more["notes"] = tuple(notes)
                event = self._event(
                    b,
                    new,
                    new,
                    "confounded",
                    text,
                    **more,
                    world_factor=arm.ratio,
                    method_factor=move.ratio / arm.ratio,
                )
        elif linked and before is not None and before.flaw is not None:
            world = self._world(b, arms)
            more = {"controls": arms, "facts": facts, **names, **known}
            if world is not None:
                text = f"method and world changed together: {before.flaw}; control arms moved {_times(world)}"
                event = self._event(
                    b, new, new, "confounded", text, **more, notes=tuple(notes),
                    world_factor=world, method_factor=move.ratio / world,
                )  # fmt: skip
            else:
                notes.append(f"on record: {before.flaw}; the old method was not measured again")
                event = self._event(b, new, new, "correction", why or before.flaw, **more, notes=tuple(notes))
        else:
            declared = "" if linked else "; figures.toml links no method to the one before"
            text = f"the method changed and the old one was not measured again{declared}"
            more = {"controls": arms, "facts": facts, "notes": tuple(notes), **names}
            event = self._event(b, new, new, "unverified", text, **more)
        last = a.points[old[1] - 1]
        return replace(
            event,
            commit_before=last.commit,
            version_before=last.version,
            before=_level(a, old),
            points_before=_last_points(a, old),
        )

    def _again(self, a: Series, old: tuple[int, int], again: Series, o_old: int, o_new: int) -> ControlArm | None:
        """The superseded method as a control arm: its level up to the boundary against the one from it on."""
        after = next((level for run in again.runs if (level := run.level_at(o_new, before=False))), None)
        if after is None:
            return None
        before = next((level for run in reversed(again.runs) if (level := run.level_at(o_old, before=True))), None)
        if before is not None:
            return _arm(again, before, again, after)
        return _arm(a, old, again, after)  # under this name it was first measured at the boundary

    # ---- figures

    def _of_figure(self, stretch: Stretch) -> list[Event]:
        """First statement and changes of method of one figure on one machine in one environment."""
        found: list[Event] = []
        first = stretch.parts[0]
        begin, end = first.series.runs[0].levels[0]
        start = begin, min(end, int(np.searchsorted(first.series.order, first.until)))
        begun = self._event(first.series, start, start, first.method.kind, f"first known of {stretch.figure.id}")
        found.append(
            replace(
                begun,
                before=None,
                commit_before=None,
                version_before=None,
                points_before=(),
                method=first.method.describe(),
                figures=(stretch.figure.id,),
            )
        )
        for old, new in zip(stretch.parts[:-1], stretch.parts[1:], strict=True):
            run = next(run for run in reversed(old.series.runs) if run.series.order[run.start] < new.since)
            before = run.level_at(new.since - 1, before=True)
            after = new.series.runs[0].levels[0]
            assert before is not None  # the run begins before the switch
            linked = new.method.supersedes is not None and new.method.supersedes == old.method.name
            again = old.series if linked and old.method.again is None else self._measured_again(old.series, old.method)
            event = self._method_change(
                old.series, before, new.series, after, old.method, new.method, again if linked else None, linked=linked
            )
            found.append(replace(event, figures=(stretch.figure.id,), unit=stretch.figure.unit))
        for part in stretch.parts:
            if part.computed:  # a value over several cells has steps of its own
                found += [
                    replace(event, figures=(stretch.figure.id,))
                    for event in self.of_series(part.series)
                    if part.since <= event.order < part.until
                ]
        return found

    def _with_figures(self, found: Sequence[Event], told: Sequence[Stretch]) -> list[Event]:
        """The events of series, each with the figures that it is a change of."""
        ids: dict[tuple[str, str, str, str], list[tuple[int, float, str]]] = {}
        for stretch in told:
            for part in stretch.parts:
                if not part.computed:
                    key = (part.series.machine, part.series.env, part.series.benchmark, part.series.cell)
                    ids.setdefault(key, []).append((part.since, part.until, stretch.figure.id))
        return [
            replace(
                event,
                figures=tuple(
                    name
                    for since, until, name in ids.get((event.machine, event.env, event.benchmark, event.cell), ())
                    if since < event.order < until
                ),
            )
            for event in found
        ]

    # ---- evidence

    def arms(self, s: Series, o_old: int, o_new: int) -> tuple[ControlArm, ...]:
        """The control arms of the machine on both sides of a boundary: those whose parameters do not contradict `s`."""
        found = []
        for c in self.controls.get(s.machine, ()):
            if c.env != s.env or (c.benchmark, c.cell) == (s.benchmark, s.cell):
                continue
            if any(name in s.params and s.params[name] != value for name, value in c.params.items()):
                continue
            for run in c.runs:
                before, after = run.level_at(o_old, before=True), run.level_at(o_new, before=False)
                if before is not None and after is not None:
                    found.append(_arm(c, before, c, after))
                    break
        return tuple(found)

    def facts(self, s: Series, last: int, first: int) -> tuple[FactChange, ...]:
        return self.facts_between(s, last, s, first)

    def facts_between(self, a: Series, last: int, b: Series, first: int) -> tuple[FactChange, ...]:
        """Facts that differ between two points: those in their result files and those stored as series."""
        found: list[FactChange] = []
        one = self.file_facts(a.points[last].file)
        other = self.file_facts(b.points[first].file)
        found += [
            FactChange(name, str(one[name]), str(other[name]))
            for name in one.keys() & other.keys()
            if not _alike(one[name], other[name])
        ]
        o_old, o_new = int(a.order[last]), int(b.order[first])
        for f in self.fact_series.get(b.machine, ()):
            if f.env != b.env or any(name in b.params and b.params[name] != value for name, value in f.params.items()):
                continue
            i = int(np.searchsorted(f.order, o_old, side="right")) - 1
            j = int(np.searchsorted(f.order, o_new, side="left"))
            if 0 <= i < j < len(f.values) and _differs(f, f.values[i], f.values[j]):
                found.append(FactChange(f.name, _plain(f.values[i]), _plain(f.values[j])))
        return tuple(sorted(found, key=lambda change: change.name))


def _cell_of(s: Series) -> dict[str, tuple[str, ...]]:
    return {name: (value,) for name, value in s.params.items()}


def _last_points(s: Series, part: tuple[int, int]) -> tuple[Point, ...]:
    return s.points[max(part[0], part[1] - MOST_POINTS) : part[1]]


def _level(s: Series, part: tuple[int, int]) -> float:
    return short.median(s.values[part[0] : part[1]])


def _compare(a: Series, old: tuple[int, int], b: Series, new: tuple[int, int]) -> moves.Move:
    one, other = slice(*old), slice(*new)
    return moves.compare(
        a.values[one], b.values[other], (a.ci_low[one], a.ci_high[one]), (b.ci_low[other], b.ci_high[other]),
        prior=None if a.noise is None or b.noise is None else max(a.noise, b.noise),
    )  # fmt: skip


def _factor(move: moves.Move) -> dict[str, float]:
    """The factor of an event and its range; nothing where the levels have no ratio."""
    if not math.isfinite(move.ratio):
        return {}
    return {"factor": move.ratio, "factor_low": move.low, "factor_high": move.high}


def _returns(
    s: Series, start: tuple[int, int], first: tuple[int, int], old: tuple[int, int], new: tuple[int, int]
) -> bool:
    """Whether `old` to `new` takes the change from `start` to `first` back: the other way, to about `start`."""
    there, back = _compare(s, start, s, first), _compare(s, old, s, new)
    left = _compare(s, start, s, new)
    if not all(move.ratio > 0 for move in (there, back, left)):
        return not left.moved
    a, b, rest = (math.log(move.ratio) for move in (there, back, left))
    return a * b < 0 and not left.moved and abs(rest) < HALF * abs(a)


def _arm(a: Series, old: tuple[int, int], b: Series, new: tuple[int, int]) -> ControlArm:
    move = _compare(a, old, b, new)
    return ControlArm(
        b.benchmark, b.cell, b.unit, _level(a, old), _level(b, new), move.ratio, move.low, move.high, move.moved,
        a.points[old[1] - 1].commit, b.points[new[0]].commit,
    )  # fmt: skip


def _differs(fact: Series, before: float, after: float) -> bool:
    drift = DRIFT.get(fact.unit, 0.0) * max(abs(before), abs(after))
    return bool(abs(after - before) > drift) if drift else bool(before != after)


def _alike(one: Any, other: Any) -> bool:
    """Equal, or numbers that differ by less than the memory that an operating system keeps for itself."""
    if one == other:
        return True
    try:
        a, b = float(one), float(other)
    except (TypeError, ValueError):
        return False
    return abs(a - b) < DRIFT["bytes"] * max(abs(a), abs(b))


def _follows(before: float, after: float, number: int) -> bool:
    """Whether `number` calls took as long as before (seconds a sample), or longer with the least number there is."""
    return before > 0 and (before / 2 < after < before * 2 or (number == 1 and after > before))


def _named(method: Method | None, s: Series, part: tuple[int, int]) -> str:
    if method is not None:
        return method.describe()
    return f"{s.benchmark} version {s.points[part[0]].version or 'not stated'}"


def _moved_with(arm: ControlArm, ratio: float) -> bool:
    """Whether the old method moved, or by so much of the whole change that "it kept its level" cannot be said."""
    if arm.moved or not (arm.ratio > 0 and ratio > 0):
        return arm.moved
    return abs(math.log(arm.ratio)) > max(math.log1p(KEPT), KEPT_SHARE * abs(math.log(ratio)))


def _held(arms: Sequence[ControlArm]) -> str:
    if not arms:
        return "the control arms have too few points to tell"
    names = sorted({arm.benchmark for arm in arms})
    return f"{', '.join(names)} kept {'its' if len(names) == 1 else 'their'} level"


def _listed(facts: Sequence[FactChange]) -> str:
    return ", ".join(f"{fact.name} {fact.before} -> {fact.after}" for fact in facts)


def _times(ratio: float) -> str:
    return f"x{units.significant(ratio)}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
