"""Figures and their records as text for a terminal. Nothing here judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from hybrid_kernels.judge.events import Event
from hybrid_kernels.judge.ledger import Closure, Figure, Ledger, Record, number
from hybrid_kernels.report.event_tables import change_text
from hybrid_kernels.report.tables import rows_table
from hybrid_kernels.units import significant


def list_table(ledger: Ledger) -> Table:
    """The value of every figure on every machine now, one row each."""
    rows = []
    for figure in ledger.figures.values():
        for machine in figure.machines():
            chain = figure.chain(machine)
            record = chain[-1]
            was = figure.format(chain[-2]) if len(chain) > 1 else "-"
            rows.append(
                [figure.id, machine, figure.format(record), record.kind, record.date.isoformat(), was, figure.title]
            )
    columns = ("figure", "machine", "value", "kind", "since", "was", "what it is")
    return rows_table(columns, rows, left=("figure", "machine", "kind", "since", "what it is"))


def show_lines(
    figure: Figure, closures: Sequence[Closure], told: Mapping[str, Sequence[Event]], machine: str | None = None
) -> list[str]:
    """All that is known of a figure: value now and every record on each machine, cross-checks, and the history's view.

    `told` holds the events of the figure in the history, by machine; `machine` limits the lines to one.
    """
    lines = [f"{figure.id}: {figure.title}"]
    if figure.sizes:
        lines.append(f"sizes {figure.sizes}")
    if figure.expression:
        lines.append(f"= {figure.expression}")
    for name in figure.machines() if machine is None else (machine,):
        lines += ["", f"{name}"]
        for record in reversed(figure.chain(name)):
            lines += [f"  {line}" for line in _record_lines(figure, record)]
        lines += [f"  {line}" for closure in closures if closure.check.machine == name for line in _closure(closure)]
        events = told.get(name, ())
        if events:
            lines.append("  in the history:")
            lines += [f"    {_told(event)}" for event in events]
    return lines


def _record_lines(figure: Figure, record: Record) -> list[str]:
    newer = figure.superseded_by(record)
    stated = figure.format(record)
    if record.value is not None and record.low != record.high:
        stated += f" ({number(record.low)} to {number(record.high)})"
    state = "now" if newer is None else f"superseded {newer.date.isoformat()} by record {newer.id}"
    lines = [f"{stated}, {record.kind}, {record.date.isoformat()} (record {record.id}, {state})"]
    lines.append(f"  by {record.method.describe()}")
    details = (
        ("under", record.conditions),
        ("commit", record.commit),
        ("evidence", ", ".join(record.evidence) or None),
        ("warning", "; ".join(record.warnings) or None),
    )
    lines += [f"  {name} {text}" for name, text in details if text]
    if record.corrects is not None:
        older = figure.record(record.corrects)
        factor = f", x{significant(record.middle / older.middle)}" if older.middle else ""
        lines.append(f"  {record.change} of record {older.id} ({figure.format(older)}{factor}): {record.reason}")
    elif record.reason:
        lines.append(f"  because {record.reason}")
    return lines


def _closure(closure: Closure) -> list[str]:
    check = closure.check
    if closure.computed is None or closure.published is None or closure.ratio is None:
        return [f"cross-check cannot be made: {check.title}: {closure.problem}"]
    computed = closure.computed
    ends = " to ".join(dict.fromkeys(significant(end) for end in (computed.low, computed.high)))
    verdict = "closes" if closure.closes else "DOES NOT CLOSE"
    lines = [
        f"cross-check {verdict}: {check.title}: {check.expression} = {ends} {closure.unit}, "
        f"published over computed x{significant(closure.ratio)}, allowed {significant(check.factor)}"
    ]
    return [*lines, f"  {check.note}"] if check.note else lines


def _told(event: Event) -> str:
    day = event.date.date().isoformat() if event.date is not None else "-"
    return f"{day} {event.commit[:8]} {event.kind}: {change_text(event)}: {event.reason}"
