"""A fleet at work and what it did: a table of machines, and the words below it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hybrid_kernels.records import FleetMember, FleetRun
from hybrid_kernels.report import tables
from hybrid_kernels.units import counted

STATES = {"runs": "measures", "done": "done", "away": "away", "missing": "missing"}


def table(members: Sequence[FleetMember]) -> Table:
    """One row a machine: what it is at, how much of its work is done, and the worker that serves it."""
    rows = [
        [one.machine, STATES[one.state], " ".join(_at(one)), f"{one.finished} of {one.of}", one.worker]
        for one in sorted(members, key=lambda one: one.machine)
    ]
    columns = ["machine", "state", "commit and suite", "suites", "worker"]
    return tables.rows_table(columns, rows, left=("machine", "state", "commit and suite", "worker"))


def line(one: FleetMember) -> str:
    """The same of one machine as a line of text."""
    at = " ".join(_at(one))
    return f"{one.machine}: {STATES[one.state]}{f' {at}' if at else ''} ({one.finished} of {one.of} suites)"


def _at(one: FleetMember) -> tuple[str, ...]:
    return (one.at[0][:8], one.at[1]) if one.at is not None else ()


def summary(run: FleetRun) -> list[str]:
    """What a run did: its machines, then everything that is not as it should be, a line each."""
    lines = [line(one) for one in sorted(run.members, key=lambda one: one.machine)]
    lines += [f"failed: {machine} {commit[:8]} {suite}: {what}" for machine, commit, suite, what in run.failed]
    lines += [
        f"missing: {machine} {commit[:8]} {suite}: the machine went away" for machine, commit, suite in run.missing
    ]
    lines += [f"refused: {worker}: {reason}" for worker, reason in run.refused]
    if run.interrupted:
        lines.append("interrupted; what was finished is kept")
    lines.append(f"{counted(run.gathered, 'result file')} new or changed")
    return lines
