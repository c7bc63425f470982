"""From the history and the ledger to what each page shows: plain data, texts formatted, nothing left to work out.

A page's data is an object; `chunks` are the parts that a page loads when they are asked for, by name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybrid_kernels import units
from hybrid_kernels.history.store import StoredHistory
from hybrid_kernels.judge import events as judged
from hybrid_kernels.judge import ledger as books
from hybrid_kernels.judge.ledger import Ledger
from hybrid_kernels.report import sweeps
from hybrid_kernels.report.dashboard import points
from hybrid_kernels.report.dashboard.links import Graphs, Project

SILENT_DAYS = 7
"""Days without a report after which a machine counts as silent: a nightly run has then failed a week long."""

SWEEPS_A_CHUNK = 40


@dataclass(frozen=True)
class Content:
    """What one page shows, and its parts that are loaded on demand, by chunk name."""

    page: dict[str, Any]
    chunks: dict[str, dict[str, Any]] = field(default_factory=dict)


def factor_text(factor: float | None) -> str:
    """A ratio as the pages print it: `x0.491`; empty where there is none."""
    return "" if factor is None else f"x{units.significant(factor)}"


# --- figures ---


def figures(history: judged.History, project: Project, graphs: Graphs) -> Content:
    """Every figure on every machine: its records, newest first, its cross-checks and the history of its methods."""
    ledger = history.ledger
    measured = points.histories(history, project)
    chunks: dict[str, dict[str, Any]] = {}
    closures = ledger.closures()
    shown = []
    for figure in ledger.figures.values():
        for machine in figure.machines():
            chain = figure.chain(machine)
            rows = [books.row(figure, record) for record in chain]
            records = [_record(row, project) for row in rows]
            text = (
                books.number(chain[-1].value) if chain[-1].value is not None else figure.format(chain[-1], unit=False)
            )
            records[-1]["number"] = text
            records[-1]["unit"] = books.unit_suffix(figure.unit)
            key = f"{figure.id}.{machine}"
            values, chunk, words = [row["value"] for row in rows], None, "values published"
            if (series := measured.get((figure.id, machine))) is not None:
                chunk = f"figure-{len(chunks)}"
                chunks[chunk] = {key: {name: series[name] for name in ("points", "levels", "marks", "unit")}}
                values, words = series["spark"], "values measured"
            method = chain[-1].method
            graph = None
            if method.benchmark is not None:
                params = [(name, items[0]) for name, items in {**figure.params, **method.params}.items()]
                graph = graphs.link(method.benchmark, machine, params)
            shown.append(
                {
                    "key": key,
                    "id": figure.id,
                    "title": figure.title,
                    "sizes": figure.sizes or "",
                    "machine": machine,
                    "records": records[::-1],
                    "checks": [
                        {"closes": one.closes, "text": _closure(one)}
                        for one in closures
                        if one.check.figure == figure.id and one.check.machine == machine
                    ],
                    "spark": values,
                    "sparkWords": f"{len(values)} {words}, now {rows[-1]['text']}",
                    "graph": graph,
                    "chunk": chunk,
                }
            )
    empty = (
        "A figure is a number that people size designs with. Write the first one into figures.toml beside "
        "asv.conf.json, then publish again; docs/figures.md describes the file."
    )
    example = _EXAMPLE
    if ledger.figures:  # declared, and none of them stated yet
        empty = (
            "figures.toml declares figures and states none yet. Take a first value from the history, with its reason:"
        )
        machine = min(history.stored.machines, default="NAME")
        command = f"hybrid-kernels figures correct {next(iter(ledger.figures))} --machine {shlex.quote(machine)}"
        example = f'{command} --from-history --reason "first measured"'
    return Content({"figures": shown, "empty": empty, "example": example}, chunks)


_EXAMPLE = """schema = 1

[figures.read_bandwidth]
title = "Weights read in place"
unit = "GB/s"
direction = "higher"

[[figures.read_bandwidth.records]]
id = 1
date = 2026-01-31
machine = "NAME"
value = 5.6
kind = "measured"
method = { source = "how it was measured" }"""


def _record(row: Mapping[str, Any], project: Project) -> dict[str, Any]:
    words = "of the value before" + (f", a {row['change']}" if row["change"] and row["change"] != "correction" else "")
    return {
        "text": row["text"],
        "number": row["text"],
        "unit": "",
        "kind": row["kind"],
        "date": row["date"],
        "current": row["status"] == "current",
        "method": row["method"],
        "conditions": "; ".join(filter(None, [row["conditions"], *row["warnings"]])),
        "evidence": ", ".join(row["evidence"]),
        "commit": project.commit(row["commit"]),
        "reason": row["reason"] or "",
        "factor": factor_text(row["factor"]),
        "factorWords": words,
    }


def _closure(one: books.Closure) -> str:
    if one.problem or one.published is None or one.computed is None:
        return f"{one.check.title}: {one.problem or 'not computed'}"
    computed = f"{units.significant(one.computed.low)} to {units.significant(one.computed.high)}"
    if one.computed.low == one.computed.high:
        computed = units.significant(one.computed.low)
    note = f" {one.check.note}" if one.check.note else ""
    return (
        f"{one.check.title}: {one.check.expression} = {computed}{books.unit_suffix(one.unit)}, "
        f"allowed within a factor of {units.significant(one.check.factor, 2)}.{note}"
    )


# --- machines ---

_NAMES = {"cpu": "Processor", "num_cpu": "Cores", "ram": "Memory", "os": "System", "arch": "Architecture"}


def machines(
    history: StoredHistory, ledger: Ledger, project: Project, latest_sweeps: Mapping[str, str] | None = None
) -> Content:
    """Facts of every machine, when they changed, and when it last reported."""
    found = []
    rows = history.rows
    changes = _fact_changes(history, ledger)
    for name, facts in sorted(history.machines.items()):
        own = [report for report in history.reports if report.machine == name]
        measured = rows.machine.among({name})
        first, last = _span(rows.started[measured])
        if last is None:  # files that do not say when they were measured: the commits' dates
            first, last = _span(np.array([report.date for report in own], "datetime64[ms]"))
        current = {**facts, **(_machine_facts(own[-1].facts, facts) if own else {})}
        series = [change for change in changes if change["machine"] == name]
        found.append(
            {
                "name": name,
                "first": first,
                "last": last,
                "lastCommit": project.commit(own[-1].commit) if own else None,
                "records": f"{np.count_nonzero(measured):,}",
                "commits": f"{len({report.commit for report in own}):,}",
                "facts": _without_repeats(
                    [
                        (_NAMES.get(key, key), _fact_text(key, value))
                        for key, value in current.items()
                        if key not in ("machine", "version") and value not in ("", None)
                    ]
                    + [(change["fact"], change["after"]) for change in _latest(history, ledger, name)]
                ),
                "changes": series[::-1],
                "sweep": (latest_sweeps or {}).get(name),
            }
        )  # fmt: skip
    empty = "Run the benchmarks once on a machine and publish again; a machine appears here with its first result file."
    return Content(
        {"machines": found, "silentDays": SILENT_DAYS, "empty": empty, "example": "asv machine --yes\nasv run"}
    )


def _without_repeats(facts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of facts of one name, the last: what a suite measured, over what asv was once told."""
    return list(dict(facts).items())


def _machine_facts(facts: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the machine among those of a result file, which also name the environment's requirements."""
    return {key: facts[key] for key in facts if key in known or key in _NAMES}


def _fact_text(key: str, value: Any) -> str:
    if key == "ram" and re.fullmatch(r"\d+", str(value)):
        # asv writes bytes; histories in KiB are met as well, and no machine that runs it has less than 1 GiB.
        return units.format_bytes(int(value) * (units.KIB if int(value) < units.GIB else 1))
    return str(value)


def _fact_changes(history: StoredHistory, ledger: Ledger) -> list[dict[str, Any]]:
    """Every change of a fact, by date: of those each result file repeats, and of those kept as series."""
    changes: list[dict[str, Any]] = []
    for name in dict.fromkeys(report.machine for report in history.reports):
        known = history.machines.get(name, {})
        before: dict[str, Any] = {}
        for report in history.reports:
            if report.machine != name:
                continue
            facts = _machine_facts(report.facts, known)
            now = {key: value for key, value in facts.items() if value not in ("", None)}
            for key, value in now.items():
                if key != "machine" and key in before and before[key] != value:
                    changes.append(_change(name, _NAMES.get(key, key), report.date, _fact_text(key, before[key]),
                                           _fact_text(key, value)))  # fmt: skip
            before.update(now)
    for series in _fact_series(history, ledger):
        unit, last = series.unit, None
        for value, date in zip(series.values, series.dates, strict=True):
            # Clocks breathe from one run to the next; the other facts are exact.
            if last is not None and abs(value - last) > (0.05 * last if unit == "MHz" else 0):
                texts = _series_text(last, unit), _series_text(value, unit)
                changes.append(_change(series.machine, series.fact, date, *texts))
            last = value
    return sorted(changes, key=lambda change: change["date"])


def _change(machine: str, fact: str, date: np.datetime64, before: str, after: str) -> dict[str, Any]:
    return {"machine": machine, "fact": fact, "date": _iso(date) or "", "before": before, "after": after}


@dataclass(frozen=True)
class _FactSeries:
    """A fact of a machine that is kept as a benchmark, in commit order."""

    machine: str
    fact: str
    unit: str
    values: list[float]
    dates: Sequence[np.datetime64]


def _fact_series(history: StoredHistory, ledger: Ledger) -> Iterable[_FactSeries]:
    names = [name for name in history.benchmarks if any(re.search(pattern, name) for pattern in ledger.facts)]
    if not names:
        return
    rows = history.rows
    places: dict[tuple[int, int, int], list[int]] = {}
    for at in np.flatnonzero(rows.benchmark.among(set(names)) & rows.status.among({"ok"})).tolist():
        key = int(rows.machine.codes[at]), int(rows.benchmark.codes[at]), int(rows.cell.codes[at])
        places.setdefault(key, []).append(at)
    for (machine, benchmark, cell), own in sorted(places.items()):
        fact = rows.benchmark.texts[benchmark].rpartition(".")[2].removeprefix("track_").removesuffix("_bytes")
        fact = fact.replace("_", " ").capitalize().replace("Sm ", "SM ")
        where = rows.cell.texts[cell].removeprefix("device=")
        yield _FactSeries(
            rows.machine.texts[machine], f"{fact} ({where})" if where else fact,
            rows.unit.texts[rows.unit.codes[own[0]]], rows.value[own].tolist(), list(rows.date[own]),
        )  # fmt: skip


def _latest(history: StoredHistory, ledger: Ledger, machine: str) -> list[dict[str, str]]:
    return [
        {"fact": series.fact, "after": _series_text(series.values[-1], series.unit)}
        for series in _fact_series(history, ledger)
        if series.machine == machine
    ]


def _series_text(value: float, unit: str) -> str:
    if unit == "release":  # 6.18.44 kept as 6018044
        whole = round(value)
        return f"{whole // 1_000_000}.{whole // 1000 % 1000}.{whole % 1000}"
    if unit == "bytes":
        return units.format_bytes(value)
    text = f"{value:,.0f}" if value == round(value) else units.significant(value, 4)
    return text if unit in ("generation", "release", "cores") else f"{text} {unit}".strip()


def _iso(date: np.datetime64) -> str | None:
    return None if np.isnat(date) else f"{date.astype('datetime64[s]')}Z"


def _span(dates: NDArray[np.datetime64]) -> tuple[str | None, str | None]:
    """The first and the last of some dates, None when there is none."""
    known = dates[~np.isnat(dates)]
    return (_iso(known.min()), _iso(known.max())) if len(known) else (None, None)


# --- sweeps ---


def sweep_pages(history: StoredHistory, project: Project) -> tuple[Content, dict[str, str]]:
    """Every sweep in the history, newest first, its points in chunks; and the key of each machine's newest sweep."""
    index: list[dict[str, Any]] = []
    chunks: dict[str, dict[str, Any]] = {}
    newest: dict[str, str] = {}
    for at, sweep in enumerate(sweeps.in_history(history)):
        name = f"sweeps-{at // SWEEPS_A_CHUNK}"
        key = f"{sweep.machine} {sweep.device} {sweep.commit[: project.hash_length]}"
        chunks.setdefault(name, {})[key] = {"points": sweep.points, "limits": sweep.limits}
        newest.setdefault(sweep.machine, key)
        index.append(
            {
                "key": key,
                "machine": sweep.machine,
                "device": sweep.device,
                "date": _iso(sweep.date) or "",
                "commit": project.commit(sweep.commit),
                "facts": sweep.facts,
                "chunk": name,
            }
        )
    empty = (
        "A sweep is a benchmark with the parameters `mib` (packed MiB) and `strategy` or `kind`, as the suites "
        "reads.py and copies.py have them. Run them and publish again."
    )
    return Content({"sweeps": index, "empty": empty, "example": 'asv run --bench "reads|copies"'}, chunks), newest
