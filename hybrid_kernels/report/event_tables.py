"""Events of a history as a terminal table and as Markdown. Nothing here judges."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hybrid_kernels.judge.events import Event
from hybrid_kernels.report.tables import rows_table
from hybrid_kernels.units import format_value, significant

COLUMNS = ("date", "commit", "machine", "event", "of", "change", "why")


def value_text(value: float | None, unit: str) -> str:
    """A value with its unit; `-` for none."""
    return "-" if value is None else format_value(value, unit)


def factor_text(event: Event) -> str:
    """After over before; of a confounded event world x method; `-` where the two may not be compared."""
    if event.factor is None or event.factor != event.factor:
        return "-"
    whole = f"x{significant(event.factor)}"
    if event.world_factor is None or event.method_factor is None:
        return whole
    return f"{whole} = world x{significant(event.world_factor)} x method x{significant(event.method_factor)}"


def why_text(event: Event) -> str:
    """The reason, what undid it, the facts that changed, and the notes, in one line."""
    parts = [event.reason]
    if event.undone_by is not None:
        parts.append(f"undone by {event.undone_by[:8]}")
    if event.facts and not any("changed at the same boundary" in text for text in (event.reason, *event.notes)):
        parts.append(", ".join(f"{fact.name} {fact.before} -> {fact.after}" for fact in event.facts))
    return "; ".join([*parts, *event.notes])


def change_text(event: Event) -> str:
    """`before -> after (factor)`; the value alone where there is none before."""
    if event.before is None:
        return value_text(event.after, event.unit)
    factor = factor_text(event)
    both = f"{value_text(event.before, event.unit)} -> {value_text(event.after, event.unit)}"
    return both if factor == "-" else f"{both} ({factor})"


def cells(event: Event) -> list[str]:
    """The texts of one row, in the order of COLUMNS."""
    return [
        event.date.date().isoformat() if event.date is not None else "-",
        event.commit[:8],
        event.machine,
        event.kind,
        f"{', '.join(event.figures)}: {event.name}" if event.figures else event.name,
        change_text(event),
        why_text(event),
    ]


def events_table(events: Sequence[Event]) -> Table:
    """A terminal table, one row an event, oldest first; without the machine where there is only one."""
    rows, columns = [cells(event) for event in events], list(COLUMNS)
    if len({event.machine for event in events}) == 1:
        rows = [row[:2] + row[3:] for row in rows]
        columns.remove("machine")
    return rows_table(columns, rows, left=COLUMNS)


def markdown(events: Sequence[Event]) -> str:
    """The same as a Markdown table."""
    head = ["| " + " | ".join(COLUMNS) + " |", "| " + " | ".join("---" for _ in COLUMNS) + " |"]
    lines = ["| " + " | ".join(_escaped(cell) for cell in cells(event)) + " |" for event in events]
    return "\n".join([*head, *lines]) + "\n"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
