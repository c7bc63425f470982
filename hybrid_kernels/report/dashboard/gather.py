"""From the history and the ledger to what each page shows: plain data, texts formatted, nothing left to work out.

A page's data is an object; `chunks` are the parts that a page loads when they are asked for, by name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

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
    files, frame = history.files, history.frame
    started = frame.groupby("machine", observed=True)["started"].agg(["min", "max", "size"]) if len(frame) else None
    changes = _fact_changes(history, ledger)
    for name, facts in sorted(history.machines.items()):
        own = files[files["machine"] == name]
        first, last, records = None, None, 0
        if started is not None and name in started.index:
            first, last = (_iso(started.at[name, which]) for which in ("min", "max"))
            records = int(started["size"][name])
        if last is None and len(own):  # files that do not say when they were measured: the commits' dates
            first, last = _iso(own["date"].min()), _iso(own["date"].max())
        current = {**facts, **(_machine_facts(own.iloc[-1]["facts"], facts) if len(own) else {})}
        series = [change for change in changes if change["machine"] == name]
        found.append(
            {
                "name": name,
                "first": first,
                "last": last,
                "lastCommit": project.commit(own.iloc[-1]["commit"]) if len(own) else None,
                "records": f"{records:,}",
                "commits": f"{own['commit'].nunique():,}",
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
    for name, own in history.files.groupby("machine", sort=False):
        known = history.machines.get(str(name), {})
        before: dict[str, Any] = {}
        for facts, date in zip(own["facts"], own["date"], strict=True):
            now = {key: value for key, value in _machine_facts(facts, known).items() if value not in ("", None)}
            for key, value in now.items():
                if key != "machine" and key in before and before[key] != value:
                    changes.append(_change(str(name), _NAMES.get(key, key), date, _fact_text(key, before[key]),
                                           _fact_text(key, value)))  # fmt: skip
            before.update(now)
    for name, fact, series in _fact_series(history, ledger):
        unit, last = str(series["unit"].iloc[0]), None
        for value, date in zip(series["value"].to_numpy(float), series["date"], strict=True):
            # Clocks breathe from one run to the next; the other facts are exact.
            if last is not None and abs(value - last) > (0.05 * last if unit == "MHz" else 0):
                changes.append(_change(name, fact, date, _series_text(last, unit), _series_text(value, unit)))
            last = value
    return sorted(changes, key=lambda change: change["date"])


def _change(machine: str, fact: str, date: Any, before: str, after: str) -> dict[str, Any]:
    return {"machine": machine, "fact": fact, "date": _iso(date) or "", "before": before, "after": after}


def _fact_series(history: StoredHistory, ledger: Ledger) -> Iterable[tuple[str, str, pd.DataFrame]]:
    names = [name for name in history.benchmarks if any(re.search(pattern, name) for pattern in ledger.facts)]
    if not names:
        return
    frame = history.frame
    rows = frame[frame["benchmark"].isin(names) & (frame["status"] == "ok")]
    for (machine, benchmark, cell), series in rows.groupby(["machine", "benchmark", "cell"], observed=True, sort=True):
        fact = str(benchmark).rpartition(".")[2].removeprefix("track_").removesuffix("_bytes")
        fact = fact.replace("_", " ").capitalize().replace("Sm ", "SM ")
        cell = str(cell).removeprefix("device=")
        yield str(machine), f"{fact} ({cell})" if cell else fact, series


def _latest(history: StoredHistory, ledger: Ledger, machine: str) -> list[dict[str, str]]:
    return [
        {"fact": fact, "after": _series_text(float(series["value"].iloc[-1]), str(series["unit"].iloc[0]))}
        for name, fact, series in _fact_series(history, ledger)
        if name == machine
    ]


def _series_text(value: float, unit: str) -> str:
    if unit == "release":  # 6.18.44 kept as 6018044
        whole = round(value)
        return f"{whole // 1_000_000}.{whole // 1000 % 1000}.{whole % 1000}"
    if unit == "bytes":
        return units.format_bytes(value)
    text = f"{value:,.0f}" if value == round(value) else units.significant(value, 4)
    return text if unit in ("generation", "release", "cores") else f"{text} {unit}".strip()


def _iso(date: Any) -> str | None:
    return None if date is None or pd.isna(date) else date.strftime("%Y-%m-%dT%H:%M:%SZ")


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
