"""The summary of a night: one list of lines, as text for a terminal or a mail and as Markdown to be posted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_kernels.records import Night
from hybrid_kernels.report import event_tables, markdown, tables
from hybrid_kernels.units import counted

if TYPE_CHECKING:
    from hybrid_kernels.judge.events import Event


def headline(night: Night, events: Sequence[Event], problems: Sequence[str]) -> str:
    """One line that is true: what was measured, and what needs somebody."""
    if night.idle is not None:
        return f"{night.machine}: nothing measured ({night.idle})"
    parts = [f"{counted(len(night.measured), 'commit')} measured" if night.measured else "no commit was due"]
    if events:
        parts.append(counted(len(events), "event"))
    if problems:
        parts.append(f"{counted(len(problems), 'check')} failed")
    if night.marks:
        parts.append(f"{counted(len(night.marks), 'suite')} went wrong")
    if night.interrupted:
        parts.append("interrupted")
    if night.left:
        parts.append(f"{counted(len(night.left), 'commit')} left for the next night")
    return f"{night.machine}: {', '.join(parts)}"


def lines(night: Night, problems: Sequence[str], more: Sequence[str]) -> list[str]:
    """Everything but headline and events, a line each."""
    found = [f"measured {commit[:10]}" for commit in night.measured]
    found += [f"{mark.commit[:10]} {mark.suite or 'all suites'}: {mark.what}" for mark in night.marks]
    found += [f"left for the next night: {commit[:10]}" for commit in night.left]
    found += [f"the machine changed: {name} was {before}, is {now}" for name, before, now in night.changed]
    found += [f"check failed: {problem}" for problem in problems]
    return [*found, *more]


def text(night: Night, events: Sequence[Event], problems: Sequence[str], more: Sequence[str] = ()) -> str:
    """The summary for a terminal or a mail."""
    out = [headline(night, events, problems), *(f"- {line}" for line in lines(night, problems, more))]
    if events:
        out += ["", tables.as_text(event_tables.events_table(events)).rstrip()]
    return "\n".join(out) + "\n"


def as_markdown(night: Night, events: Sequence[Event], problems: Sequence[str], more: Sequence[str] = ()) -> str:
    """The summary as GitHub-flavoured Markdown; whatever comes from results or commits shows as text."""
    out = [f"### {markdown.text(headline(night, events, problems), code=False)}", ""]
    out += [f"- {markdown.text(line, code=False)}" for line in lines(night, problems, more)]
    if events:
        out += ["", event_tables.markdown(events).rstrip()]
    return "\n".join(out) + "\n"
