"""figures.toml, read: the numbers that people size designs with, and every dated statement of each.

A *figure* is one quantity; a *record* one statement of it on one machine; records of a machine form a chain in which
each names the one it corrects, so the current value is the end of the chain and nothing is ever edited away. A *method*
is a way to measure, tied to a benchmark and its version; `supersedes` links it to the one it replaces. A *cross-check*
computes a figure along another path, out of other figures.

Here the file is read and validated; `corrections.py` appends to it; `backing.py` compares it with the history.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import directions
from hybrid_kernels.judge import arithmetic
from hybrid_kernels.judge.arithmetic import Interval
from hybrid_kernels.records import CONTROL_NAMES

SCHEMA = 1
KINDS = ("upper bound", "lower bound", "estimate", "measured")
CHANGES = ("correction", "improvement", "regression", "environment")
DIRECTIONS = {"higher": 1, "lower": -1, "none": 0}
STATISTICS = ("median", "min", "max", "range")
DEFAULT_DOCUMENTS = ("README.md", "docs/**/*.md")
DEFAULT_CONTROLS = (CONTROL_NAMES,)
DEFAULT_FACTS = (r"^machine\.",)

_ID = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Method:
    """How a number comes about: a benchmark of the history, a named outside source, or arithmetic over figures.

    `params` narrows a benchmark's grid (name to one value or several); `statistic` says how several cells become one
    value. `kind` is what a value of this method is. `supersedes` names the method it replaces, `reason` says why, and
    `flaw` says of a method that its values are known to be wrong, measured again or not. `again` is where a method that
    was replaced under the same benchmark name is still measured.
    """

    name: str | None = None
    what: str | None = None
    kind: str = "measured"
    source: str | None = None
    expression: str | None = None
    benchmark: str | None = None
    version: str | None = None
    params: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statistic: str = "median"
    supersedes: str | None = None
    reason: str | None = None
    flaw: str | None = None
    again: Method | None = None
    line: int | None = None  # in figures.toml

    def describe(self) -> str:
        """One line for people: the benchmark with version and parameters, the source, or the arithmetic."""
        if self.benchmark:
            cell = ", ".join(f"{name}={'|'.join(values)}" for name, values in self.params.items())
            version = f" version {self.version}" if self.version else ""
            label = f"{self.name}: " if self.name else ""
            return f"{label}{self.benchmark}{f' ({cell})' if cell else ''}{version}, {self.statistic}"
        return self.source or self.expression or self.what or self.name or "not stated"


@dataclass(frozen=True)
class Record:
    """One dated statement of a figure on one machine. `low`..`high` is the stated range, `value` its headline."""

    id: int
    date: datetime.date
    machine: str
    value: float | None  # None: stated as a range only
    low: float
    high: float
    kind: str
    method: Method
    conditions: str | None = None
    commit: str | None = None
    evidence: tuple[str, ...] = ()
    corrects: int | None = None
    reason: str | None = None
    change: str | None = None  # what the step from the corrected record to this one was
    warnings: tuple[str, ...] = ()
    line: int | None = None  # in figures.toml

    @property
    def interval(self) -> Interval:
        """The stated range, for arithmetic."""
        return Interval(self.low, self.high)

    @property
    def middle(self) -> float:
        """The headline value, or the middle of a range."""
        return self.value if self.value is not None else self.interval.middle


@dataclass(frozen=True)
class Figure:
    """A quantity people size designs with. `direction` is +1 (higher is better), -1 or 0; `sizes` is what it is for."""

    id: str
    title: str
    unit: str
    direction: int
    sizes: str | None
    methods: tuple[str, ...]  # names, from the least to the most trusted
    params: Mapping[str, tuple[str, ...]]  # narrows every method's grid to this figure
    expression: str | None  # computed from other figures of the same machine
    records: tuple[Record, ...]
    line: int | None = None

    def machines(self) -> tuple[str, ...]:
        """Machines with a record, in order of first appearance."""
        return tuple(dict.fromkeys(record.machine for record in self.records))

    def chain(self, machine: str) -> tuple[Record, ...]:
        """The records of `machine`, oldest first; the last is current, the others are superseded."""
        return tuple(record for record in self.records if record.machine == machine)

    def current(self, machine: str) -> Record | None:
        """The record that holds now on `machine`; None when there is none."""
        chain = self.chain(machine)
        return chain[-1] if chain else None

    def record(self, number: int) -> Record:
        """The record with this id. BadInput when there is none."""
        for record in self.records:
            if record.id == number:
                return record
        known = ", ".join(str(record.id) for record in self.records) or "none"
        raise BadInput(f"figure {self.id!r} has no record {number}; it has: {known}")

    def superseded_by(self, record: Record) -> Record | None:
        """The record that corrects `record`; None while it is current."""
        return next((other for other in self.records if other.corrects == record.id), None)

    def format(self, record: Record, unit: bool = True) -> str:
        """The value as published: `5.6 GB/s`, `100 to 133 GB/s`, `9.7x`."""
        text = number(record.value) if record.value is not None else f"{number(record.low)} to {number(record.high)}"
        return text + unit_suffix(self.unit) if unit else text


@dataclass(frozen=True)
class CrossCheck:
    """`figure` computed along another path. It closes when the two agree within `factor`, either way."""

    id: str
    title: str
    figure: str
    machine: str
    expression: str
    factor: float
    note: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Closure:
    """A cross-check, evaluated. `ratio` is published over computed (middles); `closes` allows for the stated ranges."""

    check: CrossCheck
    published: Interval | None
    computed: Interval | None
    unit: str
    ratio: float | None
    closes: bool
    problem: str | None = None  # why it could not be evaluated


@dataclass(frozen=True)
class Ledger:
    """All of figures.toml. `controls` and `facts` are patterns of benchmark names, for judging events."""

    path: Path
    figures: Mapping[str, Figure]
    methods: Mapping[str, Method]
    checks: tuple[CrossCheck, ...]
    documents: tuple[str, ...] = DEFAULT_DOCUMENTS
    controls: tuple[str, ...] = DEFAULT_CONTROLS
    facts: tuple[str, ...] = DEFAULT_FACTS

    def figure(self, name: str) -> Figure:
        """The figure with this id. BadInput naming near ones otherwise."""
        if name in self.figures:
            return self.figures[name]
        raise BadInput(f"{self.path}: no figure {name!r}; {_near(name, self.figures)}")

    def machine(self, figure: Figure, machine: str | None) -> str:
        """`machine`, or the only one that `figure` has records of. BadInput when that is not one."""
        known = figure.machines()
        if machine is None:
            if len(known) == 1:
                return known[0]
            listed = ", ".join(known) or "none yet"
            raise BadInput(f"figure {figure.id!r}: say which machine (it has records of: {listed})")
        if machine not in known:
            raise BadInput(f"figure {figure.id!r} has no record of machine {machine!r}; {_near(machine, known)}")
        return machine

    def method_of(self, benchmark: str, version: str | None, fits: Callable[[Method], bool]) -> Method | None:
        """The declared method that measures `benchmark` in `version` in a cell that `fits`; None when there is none.

        A method that names no version is not an answer: it cannot say what another version measures.
        """
        for method in self.methods.values():
            if method.benchmark == benchmark and method.version == version and fits(method):
                return method
        return None

    def closures(self, figure: str | None = None) -> tuple[Closure, ...]:
        """Every cross-check (of `figure`), evaluated over the current records."""
        return tuple(self._close(check) for check in self.checks if figure in (None, check.figure))

    def _close(self, check: CrossCheck) -> Closure:
        figure = self.figures[check.figure]
        record = figure.current(check.machine)
        values = {
            other.id: current.interval
            for other in self.figures.values()
            if (current := other.current(check.machine)) is not None
        }
        if record is None:
            problem = f"figure {figure.id!r} has no record of machine {check.machine!r}"
            return Closure(check, None, None, figure.unit, None, False, problem)
        try:
            computed = arithmetic.evaluate(check.expression, values)
        except BadInput as error:
            return Closure(check, record.interval, None, figure.unit, None, False, str(error))
        ratio = record.middle / computed.middle if computed.middle else None
        closes = (
            computed.low > 0
            and record.low > 0
            and record.low <= computed.high * check.factor
            and computed.low <= record.high * check.factor
        )
        return Closure(check, record.interval, computed, figure.unit, ratio, closes)


def number(value: float) -> str:
    """A published number as text: the digits it was written with, no exponent, thousands separated."""
    text = f"{value:,.12f}".rstrip("0").rstrip(".")
    return text if float(text.replace(",", "")) == value else repr(value)


def impossible(value: float, unit: str) -> str | None:
    """Why nothing measured in `unit` can be `value`: rates and ratios lie above zero, times and amounts not below."""
    direction = directions.of_unit(unit)
    if value <= 0 and (direction == directions.HIGHER or unit == "x"):
        return f"{number(value)} {unit} cannot be: it lies above zero; check the sign and the unit"
    if value < 0 and direction == directions.LOWER:
        return f"{number(value)} {unit} cannot be below zero; check the sign"
    return None


def unit_suffix(unit: str) -> str:
    """What follows a number: ` GB/s`, and `x` for a ratio, without a space."""
    return unit if unit in ("x", "%") else f" {unit}"


_QUANTITY = re.compile(
    r"\s*(?P<low>[+-]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"(?:\s*(?:to|\.\.|-|–)\s*(?P<high>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?))?"
    r"\s*(?P<unit>\S.*?)?\s*"
)


def parse_quantity(text: str, figure: Figure) -> tuple[float | None, float, float]:
    """(value, low, high) from `5.6 GB/s` or `5.6 to 5.7 GB/s` (value None). BadInput unless the unit is `figure`'s."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise BadInput(f"--value: {text!r} is not a number with a unit; write for example '5.6 {figure.unit}'")
    if match["unit"] is None:
        raise BadInput(
            f"--value: {text!r} has no unit; figure {figure.id!r} is in {figure.unit}: '{text} {figure.unit}'"
        )
    if match["unit"] != figure.unit:
        raise BadInput(f"--value: unit {match['unit']!r} in {text!r}, but figure {figure.id!r} is in {figure.unit!r}")
    low = float(match["low"].replace(",", ""))
    if match["high"] is None:
        value, high = low, low
    else:
        value, high = None, float(match["high"].replace(",", ""))
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise BadInput(f"--value: {text!r} is not a finite number or an ascending range")
    if (reason := impossible(low, figure.unit)) is not None:
        raise BadInput(f"--value: {text!r}: {reason}")
    return value, low, high


def _near(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "there are: " + (", ".join(known) or "none")


class _Reader:
    """Validates tables of one file; every complaint names the file, the line and the place."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.headers: dict[str, list[int]] = {}
        for index, line in enumerate(text.split("\n"), start=1):
            match = re.match(r"\s*\[{1,2}\s*([^\]]+?)\s*\]", line)
            if match:
                name = re.sub(r"\s*\.\s*", ".", match[1]).replace('"', "").replace("'", "")
                self.headers.setdefault(name, []).append(index)

    def line(self, name: str, nth: int = 0) -> int | None:
        lines = self.headers.get(name, [])
        return lines[nth] if nth < len(lines) else None

    def fail(self, where: str, line: int | None, what: str) -> BadInput:
        place = f"{self.path}:{line}" if line else f"{self.path}"
        return BadInput(f"{place}: {where}: {what}")

    def table(self, value: Any, where: str, line: int | None, known: Sequence[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(where, line, "must be a table")
        for key in value:
            if key not in known:
                raise self.fail(where, line, f"unknown key {key!r}; {_near(key, known)}")
        return value

    def text(
        self, table: Mapping[str, Any], key: str, where: str, line: int | None, required: bool = False
    ) -> str | None:
        value = table.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value.strip():
            state = "is missing" if value is None else f"is {value!r}"
            raise self.fail(where, line, f"{key!r} {state}; give a text")
        return value

    def choice(
        self, table: Mapping[str, Any], key: str, where: str, line: int | None, known: Iterable[str], default: str
    ) -> str:
        value = table.get(key, default)
        known = list(known)
        if value not in known:
            raise self.fail(where, line, f"{key!r} is {value!r}; use one of: {', '.join(known)}")
        return str(value)

    def texts(self, table: Mapping[str, Any], key: str, where: str, line: int | None) -> tuple[str, ...]:
        value = table.get(key, [])
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(where, line, f"{key!r} must be a text or a list of texts")
        return tuple(value)

    def params(self, table: Mapping[str, Any], where: str, line: int | None) -> dict[str, tuple[str, ...]]:
        value = table.get("params", {})
        if not isinstance(value, dict):
            raise self.fail(where, line, "'params' must be a table of parameter names and values")
        chosen: dict[str, tuple[str, ...]] = {}
        for name, items in value.items():
            listed = items if isinstance(items, list) else [items]
            if not listed or not all(isinstance(item, str | int | float) for item in listed):
                raise self.fail(where, line, f"parameter {name!r} must be one value or a list of values")
            chosen[name] = tuple(str(item) for item in listed)
        return chosen


_METHOD_KEYS = (
    "name", "what", "kind", "source", "expression", "benchmark", "version", "params", "statistic", "supersedes",
    "reason", "flaw", "again",
)  # fmt: skip
_FIGURE_KEYS = ("title", "unit", "direction", "sizes", "methods", "params", "expression", "records")
_RECORD_KEYS = (
    "id", "date", "machine", "value", "range", "kind", "method", "conditions", "commit", "evidence", "corrects",
    "reason", "change", "warnings",
)  # fmt: skip
_CHECK_KEYS = ("title", "figure", "machine", "expression", "factor", "note")


def _method(reader: _Reader, value: Any, where: str, line: int | None, name: str | None = None) -> Method:
    table = reader.table(value, where, line, _METHOD_KEYS)
    method = Method(
        name=name or reader.text(table, "name", where, line),
        what=reader.text(table, "what", where, line),
        kind=reader.choice(table, "kind", where, line, KINDS, "measured"),
        source=reader.text(table, "source", where, line),
        expression=reader.text(table, "expression", where, line),
        benchmark=reader.text(table, "benchmark", where, line),
        version=reader.text(table, "version", where, line),
        params=reader.params(table, where, line),
        statistic=reader.choice(table, "statistic", where, line, STATISTICS, "median"),
        supersedes=reader.text(table, "supersedes", where, line),
        reason=reader.text(table, "reason", where, line),
        flaw=reader.text(table, "flaw", where, line),
        again=_method(reader, table["again"], f"{where}, again", line) if "again" in table else None,
        line=line,
    )
    ways = [key for key in ("benchmark", "source", "expression") if getattr(method, key) is not None]
    if len(ways) != 1:
        have = " and ".join(ways) or "none of them"
        raise reader.fail(where, line, f"a method is a benchmark, a source or an expression; this has {have}")
    if method.expression is not None:
        _names(reader, method.expression, where, line)
    return method


def _names(reader: _Reader, expression: str, where: str, line: int | None) -> tuple[str, ...]:
    try:
        return arithmetic.names(expression)
    except BadInput as error:
        raise reader.fail(where, line, str(error)) from error


def _finite(reader: _Reader, value: Any, key: str, where: str, line: int | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise reader.fail(where, line, f"{key!r} is {value!r}; give a finite number")
    return float(value)


def _record(reader: _Reader, value: Any, figure: str, nth: int) -> Record:
    line = reader.line(f"figures.{figure}.records", nth)
    where = f"figure {figure!r}, record {nth + 1}"
    table = reader.table(value, where, line, _RECORD_KEYS)
    number_ = table.get("id")
    if isinstance(number_, bool) or not isinstance(number_, int) or number_ < 1:
        raise reader.fail(where, line, f"'id' is {number_!r}; give a whole number from 1 up")
    date = table.get("date")
    if isinstance(date, datetime.datetime) or not isinstance(date, datetime.date):
        raise reader.fail(where, line, f"'date' is {date!r}; write a date such as 2026-08-13, without quotes")
    if "value" not in table and "range" not in table:
        raise reader.fail(where, line, "'value' or 'range' is missing")
    headline = _finite(reader, table["value"], "value", where, line) if "value" in table else None
    if "range" in table:
        ends = table["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise reader.fail(where, line, f"'range' is {ends!r}; give two numbers, [low, high]")
        low, high = (_finite(reader, end, "range", where, line) for end in ends)
        if low > high or (headline is not None and not low <= headline <= high):
            raise reader.fail(where, line, f"'range' {ends!r} must ascend and hold the value")
    else:
        low = high = headline if headline is not None else math.nan
    corrects = table.get("corrects")
    reason = reader.text(table, "reason", where, line)
    if corrects is not None and reason is None:
        raise reader.fail(where, line, f"corrects record {corrects} without a 'reason'; say why it changed")
    if "method" not in table:
        raise reader.fail(where, line, "'method' is missing; a number without its method cannot be corrected")
    change = reader.choice(table, "change", where, line, CHANGES, "correction") if corrects is not None else None
    return Record(
        id=number_,
        date=date,
        machine=str(reader.text(table, "machine", where, line, required=True)),
        value=headline,
        low=low,
        high=high,
        kind=reader.choice(table, "kind", where, line, KINDS, ""),
        method=_method(reader, table["method"], f"{where}, method", line),
        conditions=reader.text(table, "conditions", where, line),
        commit=reader.text(table, "commit", where, line),
        evidence=reader.texts(table, "evidence", where, line),
        corrects=corrects,
        reason=reason,
        change=change,
        warnings=reader.texts(table, "warnings", where, line),
        line=line,
    )


def _figure(reader: _Reader, name: str, value: Any) -> Figure:
    line = reader.line(f"figures.{name}")
    where = f"figure {name!r}"
    if not _ID.fullmatch(name):
        raise reader.fail(where, line, "an id is lower-case letters, digits and _ (expressions name it)")
    table = reader.table(value, where, line, _FIGURE_KEYS)
    raw = table.get("records", [])
    if not isinstance(raw, list):
        raise reader.fail(where, line, f"records must be written as [[figures.{name}.records]]")
    records = tuple(_record(reader, item, name, nth) for nth, item in enumerate(raw))
    expression = reader.text(table, "expression", where, line)
    if expression is not None:
        _names(reader, expression, where, line)
    figure = Figure(
        id=name,
        title=str(reader.text(table, "title", where, line, required=True)),
        unit=str(reader.text(table, "unit", where, line, required=True)),
        direction=DIRECTIONS[reader.choice(table, "direction", where, line, DIRECTIONS, "none")],
        sizes=reader.text(table, "sizes", where, line),
        methods=reader.texts(table, "methods", where, line),
        params=reader.params(table, where, line),
        expression=expression,
        records=records,
        line=line,
    )
    _check_chain(reader, figure)
    return figure


def _check_chain(reader: _Reader, figure: Figure) -> None:
    last: dict[str, Record] = {}
    for nth, record in enumerate(figure.records):
        where = f"figure {figure.id!r}, record {record.id}"
        if (reason := impossible(record.low, figure.unit)) is not None:
            raise reader.fail(where, record.line, reason)
        if nth and record.id <= figure.records[nth - 1].id:
            raise reader.fail(where, record.line, "ids must ascend in the order of the file")
        before = last.get(record.machine)
        if before is None and record.corrects is not None:
            text = f"corrects record {record.corrects}, which is no earlier record of machine {record.machine!r}"
            raise reader.fail(where, record.line, text)
        if before is not None and record.corrects != before.id:
            text = f"must say `corrects = {before.id}`, the record of {record.machine!r} that held until then"
            raise reader.fail(where, record.line, text)
        if before is not None and record.date < before.date:
            text = f"is dated {record.date}, before record {before.id} ({before.date}), which it corrects"
            raise reader.fail(where, record.line, text)
        last[record.machine] = record


def parse(text: str, path: str | os.PathLike[str] = "figures.toml") -> Ledger:
    """The ledger in `text`. BadInput with file, line, what is wrong and what to do."""
    path = Path(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = f":{place[1]}" if place else ""
        raise BadInput(f"{path}{line}: not valid TOML: {error}; mend it by hand") from error
    reader = _Reader(path, text)
    top = reader.table(data, "top", 1, ("schema", "documents", "events", "methods", "figures", "cross-checks"))
    if top.get("schema") != SCHEMA:
        raise reader.fail("schema", 1, f"is {top.get('schema')!r}; this version reads `schema = {SCHEMA}`")
    events = reader.table(top.get("events", {}), "events", reader.line("events"), ("controls", "facts"))
    controls = reader.texts(events, "controls", "events", reader.line("events")) or DEFAULT_CONTROLS
    facts = reader.texts(events, "facts", "events", reader.line("events")) or DEFAULT_FACTS
    for pattern in (*controls, *facts):
        try:
            re.compile(pattern)
        except re.error as error:
            raise reader.fail("events", reader.line("events"), f"{pattern!r} is no pattern: {error}") from error
    methods = {
        name: _method(reader, value, f"method {name!r}", reader.line(f"methods.{name}"), name)
        for name, value in _tables(reader, top, "methods")
    }
    figures = {name: _figure(reader, name, value) for name, value in _tables(reader, top, "figures")}
    for name, method in methods.items():
        if method.supersedes is not None and method.supersedes not in methods:
            text_ = f"supersedes {method.supersedes!r}, which is no method; {_near(method.supersedes, methods)}"
            raise reader.fail(f"method {name!r}", reader.line(f"methods.{name}"), text_)
    for figure in figures.values():
        where = f"figure {figure.id!r}"
        for name in figure.methods:
            if name not in methods:
                raise reader.fail(where, figure.line, f"no method {name!r}; {_near(name, methods)}")
        for name in _names(reader, figure.expression, where, figure.line) if figure.expression else ():
            if name not in figures or name == figure.id:
                text_ = f"expression names {name!r}, which is no other figure; {_near(name, figures)}"
                raise reader.fail(where, figure.line, text_)
    checks = []
    for name, value in _tables(reader, top, "cross-checks"):
        line_, where = reader.line(f"cross-checks.{name}"), f"cross-check {name!r}"
        table = reader.table(value, where, line_, _CHECK_KEYS)
        target = str(reader.text(table, "figure", where, line_, required=True))
        expression = str(reader.text(table, "expression", where, line_, required=True))
        for needed in (target, *_names(reader, expression, where, line_)):
            if needed not in figures:
                raise reader.fail(where, line_, f"no figure {needed!r}; {_near(needed, figures)}")
        factor = _finite(reader, table.get("factor"), "factor", where, line_)
        if factor < 1:
            raise reader.fail(where, line_, f"'factor' is {factor:g}; it says how far apart the two may be, from 1 up")
        machine = str(reader.text(table, "machine", where, line_, required=True))
        title = reader.text(table, "title", where, line_) or name
        note = reader.text(table, "note", where, line_)
        checks.append(CrossCheck(name, title, target, machine, expression, factor, note, line_))
    documents = reader.texts(top, "documents", "documents", 1) or DEFAULT_DOCUMENTS
    for pattern in documents:
        if not pattern or Path(pattern).is_absolute():
            raise reader.fail("documents", 1, f"{pattern!r} must be a pattern below the folder of this file")
    return Ledger(path, figures, methods, tuple(checks), documents, controls, facts)


def _tables(reader: _Reader, top: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    value = top.get(key, {})
    if not isinstance(value, dict):
        raise reader.fail(key, reader.line(key), f"must be tables, [{key}.NAME]")
    yield from value.items()


def load(path: str | os.PathLike[str] = "figures.toml") -> Ledger:
    """The ledger in the file `path`. BadInput when it cannot be read or is not a valid ledger."""
    return parse(read_text(path), path)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of `path`, line ends kept. BadInput when it is missing or not UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file; run this where figures.toml lies, or name it with --file") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start})") from error


def empty(path: str | os.PathLike[str] = "figures.toml") -> Ledger:
    """A ledger without figures: what events are judged by where there is no figures.toml."""
    return Ledger(Path(path), {}, {}, ())


def row(figure: Figure, record: Record) -> dict[str, Any]:
    """One record as a flat row, for tables, pages and JSON. Dates are ISO; `method` is text, `method_*` its parts."""
    newer = figure.superseded_by(record)
    older = figure.record(record.corrects) if record.corrects is not None else None
    method = record.method
    return {
        "figure": figure.id,
        "title": figure.title,
        "machine": record.machine,
        "record": record.id,
        "date": record.date.isoformat(),
        "value": record.middle,
        "low": record.low,
        "high": record.high,
        "unit": figure.unit,
        "text": figure.format(record),
        "direction": figure.direction,
        "kind": record.kind,
        "sizes": figure.sizes,
        "method": method.describe(),
        "method_name": method.name,
        "method_benchmark": method.benchmark,
        "method_version": method.version,
        "method_params": {name: list(values) for name, values in method.params.items()},
        "method_statistic": method.statistic if method.benchmark else None,
        "method_source": method.source,
        "method_expression": method.expression,
        "conditions": record.conditions,
        "commit": record.commit,
        "evidence": list(record.evidence),
        "status": "current" if newer is None else "superseded",
        "corrects": record.corrects,
        "reason": record.reason,
        "change": record.change,
        "factor": record.middle / older.middle if older is not None and older.middle else None,
        "superseded_by": newer.id if newer is not None else None,
        "superseded_on": newer.date.isoformat() if newer is not None else None,
        "warnings": list(record.warnings),
    }


def figure_row(figure: Figure) -> dict[str, Any]:
    """What a figure is, without its records, as a flat row."""
    return {
        "id": figure.id,
        "title": figure.title,
        "unit": figure.unit,
        "direction": figure.direction,
        "sizes": figure.sizes,
        "methods": list(figure.methods),
        "params": {name: list(values) for name, values in figure.params.items()},
        "expression": figure.expression,
    }


def current(ledger: Ledger) -> list[tuple[Figure, Record]]:
    """Every figure with its current record on every machine."""
    return [(figure, figure.chain(machine)[-1]) for figure in ledger.figures.values() for machine in figure.machines()]


def current_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """The current record of every figure on every machine, as rows."""
    return [row(figure, record) for figure, record in current(ledger)]


def closure_row(closure: Closure) -> dict[str, Any]:
    """One evaluated cross-check as a flat row."""
    check = closure.check
    return {
        **{f.name: getattr(check, f.name) for f in dataclasses.fields(check)},
        "unit": closure.unit,
        "published_low": closure.published.low if closure.published else None,
        "published_high": closure.published.high if closure.published else None,
        "computed": closure.computed.middle if closure.computed else None,
        "computed_low": closure.computed.low if closure.computed else None,
        "computed_high": closure.computed.high if closure.computed else None,
        "ratio": closure.ratio,
        "closes": closure.closes,
        "problem": closure.problem,
    }
