"""The time line of events and its feed: what the judge found in the history, and what the ledger says of it."""

from __future__ import annotations

import datetime
import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hybrid_kernels import units
from hybrid_kernels.judge import events as judged
from hybrid_kernels.judge import ledger as books
from hybrid_kernels.judge.events import Event
from hybrid_kernels.judge.ledger import Ledger
from hybrid_kernels.report.dashboard import points
from hybrid_kernels.report.dashboard.gather import Content, factor_text
from hybrid_kernels.report.dashboard.links import Graphs, Project

EVENTS_A_CHUNK = 50
FEED_ENTRIES = 100

_NEVER = "1970-01-01T00:00:00Z"  # a feed must give a date
_ATOM = "http://www.w3.org/2005/Atom"


def timeline(history: judged.History, project: Project, graphs: Graphs) -> Content:
    """Every event, newest first: its line on the page, and its evidence in chunks."""
    titles = {name: figure.title for name, figure in history.ledger.figures.items()}
    found = [_of_event(event, titles, project, graphs) for event in history.events()]
    told = {(figure, event.machine, event.kind) for event in history.events() for figure in event.figures}
    found += _of_records(history.ledger, project, told)
    found.sort(key=lambda pair: (pair[0]["date"], pair[0]["id"]), reverse=True)
    lines: list[dict[str, Any]] = []
    chunks: dict[str, dict[str, Any]] = {}
    for at, (line, evidence) in enumerate(found):
        chunk = f"events-{at // EVENTS_A_CHUNK}"
        lines.append({**line, "chunk": chunk})
        chunks.setdefault(chunk, {})[line["id"]] = evidence
    empty = (
        "An event appears when a series changes its level or its version. Measure at least two commits on one machine "
        "and publish again."
    )
    return Content({"events": lines, "empty": empty, "example": "asv run HEAD~10..HEAD"}, chunks)


def _id(*parts: str | None) -> str:
    return _sha256(*parts)[:12]


def _sha256(*parts: str | None) -> str:
    return hashlib.sha256("\0".join(part or "" for part in parts).encode()).hexdigest()


def _of_event(
    event: Event, titles: Mapping[str, str], project: Project, graphs: Graphs
) -> tuple[dict[str, Any], dict[str, Any]]:
    statement = event.kind in books.KINDS
    before = "" if event.before is None else units.format_value(event.before, event.unit)
    line = {
        "id": _id(event.kind, event.machine, event.env, event.benchmark, event.cell, event.commit),
        "kind": "first statement" if statement else event.kind,
        "machine": event.machine,
        "title": "; ".join(titles.get(name, name) for name in event.figures),
        "benchmark": event.benchmark,
        "cell": event.cell,
        "date": _iso(event.date),
        "month": _month(event.date),
        "commit": project.commit(event.commit),
        "before": before,
        "after": units.format_value(event.after, event.unit),
        "factor": factor_text(event.factor),
        "undone": event.undone_by is not None,
    }
    beside = [(point, False) for point in event.points_before] + [(point, True) for point in event.points_after]
    divisor, unit = points.scale((point for point, _ in beside), event.unit)
    names = (
        points.method_text(event.method_before, event.version_before),
        points.method_text(event.method, event.version),
    )
    words = event.reason[:1].upper() + event.reason[1:]
    evidence = {
        "words": words if words.endswith(".") else words + ".",
        "notes": [note[:1].upper() + note[1:] for note in event.notes],
        "status": f"{event.kind}" if statement else "",
        "factorInterval": _interval(event.factor_low, event.factor_high),
        "worldFactor": factor_text(event.world_factor),
        "methodFactor": factor_text(event.method_factor),
        "versionBefore": "" if event.before is None else event.method_before or names[0],
        "versionAfter": event.method or names[1],
        "commitBefore": project.commit(event.commit_before),
        "undoneBy": project.commit(event.undone_by),
        "undoes": project.commit(event.undoes),
        "figures": list(event.figures),
        "commits": [commit for commit in (event.commit_before, event.commit) if commit],
        "environment": event.env,
        "arms": [_arm(arm) for arm in event.controls],
        "facts": [{"name": fact.name, "before": fact.before, "after": fact.after} for fact in event.facts],
        "graph": graphs.link(event.benchmark, event.machine, _params(event.cell), event.commit),
        "unit": unit or "value",
        "points": [points.point(point, names[after], divisor, project) for point, after in beside],
        "levels": _levels(event, names, divisor),
        "marks": [],
    }
    return line, evidence


def _params(cell: str) -> list[tuple[str, str]]:
    pairs = []
    for part in cell.split(", ") if cell else ():
        name, _, value = part.partition("=")
        pairs.append((name, value))
    return pairs


def _arm(arm: judged.ControlArm) -> dict[str, str]:
    return {
        "name": f"{arm.benchmark} ({arm.cell})" if arm.cell else arm.benchmark,
        "before": units.format_value(arm.before, arm.unit),
        "after": units.format_value(arm.after, arm.unit),
        "factor": f"{factor_text(arm.ratio)} {_interval(arm.low, arm.high)}".strip(),
        "moved": "moved" if arm.moved else "kept its level",
    }


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"[{units.significant(low)}, {units.significant(high)}]"


def _levels(event: Event, names: tuple[str, str], divisor: float) -> list[dict[str, Any]]:
    levels = []
    for own, level, name in (
        (event.points_before, event.before, names[0]),
        (event.points_after, event.after, names[1]),
    ):
        dates = [date for point in own if (date := points.milliseconds(point)) is not None]
        if level is not None and dates:
            levels.append({"t0": min(dates), "t1": max(dates), "value": level / divisor, "method": name})
    return levels


def _of_records(
    ledger: Ledger, project: Project, told: set[tuple[str, str, str]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What changed between two records of a figure, unless the history tells it: an outside source has no series.

    A record names the commit it was taken from, which may come long after the change, so what the history has told of a
    figure is known by its kind.
    """
    for figure in ledger.figures.values():
        for record in figure.records:
            if record.corrects is None:
                continue
            old = figure.record(record.corrects)
            kind = record.change or "correction"
            if record.method.benchmark is not None and (figure.id, record.machine, kind) in told:
                continue
            date = datetime.datetime.combine(record.date, datetime.time(), datetime.UTC)
            line = {
                "id": _id(kind, record.machine, figure.id, str(record.id)),
                "kind": kind,
                "machine": record.machine,
                "title": figure.title,
                "benchmark": "",
                "cell": "",
                "date": _iso(date),
                "month": _month(date),
                "commit": project.commit(record.commit),
                "before": figure.format(old),
                "after": figure.format(record),
                "factor": factor_text(record.middle / old.middle if old.middle else None),
                "undone": False,
            }
            evidence = {
                "words": record.reason or "",
                "notes": [f"Recorded in {ledger.path.name}."],
                "versionBefore": f"{old.method.describe()} ({old.kind})",
                "versionAfter": f"{record.method.describe()} ({record.kind})",
                "commitBefore": project.commit(old.commit),
                "figures": [figure.id],
                "commits": [],
                "arms": [],
                "facts": [],
                "conditionsBefore": old.conditions,
                "conditionsAfter": record.conditions,
                "evidence": ", ".join(record.evidence),
                "points": [],
            }
            yield line, evidence


def _iso(date: datetime.datetime | None) -> str:
    return "" if date is None else date.strftime("%Y-%m-%dT%H:%M:%SZ")


def _month(date: datetime.datetime | None) -> str:
    return "No date" if date is None else date.strftime("%B %Y")


# --- feed ---


def feed(content: Content, project: Project) -> bytes:
    """The newest events as an Atom feed. An event keeps its id when its words or values change later."""
    ET.register_namespace("", _ATOM)
    root = ET.Element(f"{{{_ATOM}}}feed")
    owner = project.url or f"urn:hybrid-kernels:{project.name}"
    events: Sequence[Mapping[str, Any]] = content.page["events"]
    _text(root, "id", f"urn:sha256:{_sha256(owner, project.name, 'events')}")
    _text(root, "title", f"{project.name}: corrections, regressions and other events")
    _text(root, "updated", (events and events[0]["date"]) or _NEVER)
    author = ET.SubElement(root, f"{{{_ATOM}}}author")
    _text(author, "name", project.name)
    ET.SubElement(root, f"{{{_ATOM}}}link", {"href": "corrections.html"})
    ET.SubElement(root, f"{{{_ATOM}}}link", {"rel": "self", "href": "events.xml"})
    for event in events[:FEED_ENTRIES]:
        entry = ET.SubElement(root, f"{{{_ATOM}}}entry")
        name = event["title"] or f"{event['benchmark']} {event['cell']}".strip()
        change = f"{event['before']} to {event['after']}" if event["before"] else event["after"]
        evidence = content.chunks[event["chunk"]][event["id"]]
        _text(entry, "id", f"urn:sha256:{_sha256(owner, project.name, event['id'])}")
        _text(entry, "title", f"{event['kind']}: {name} on {event['machine']}, {change}")
        _text(entry, "updated", event["date"] or _NEVER)
        ET.SubElement(entry, f"{{{_ATOM}}}link", {"href": f"corrections.html#event={event['id']}"})
        factor = f" ({event['factor']})" if event["factor"] else ""
        _text(entry, "content", f"{change}{factor}. {evidence['words']}")
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _text(parent: ET.Element, tag: str, text: str) -> None:
    # XML 1.0 has no place for most control characters, not even escaped.
    clean = "".join(
        char if char in "\t\n" or (ord(char) >= 0x20 and char not in "\ufffe\uffff") else "\ufffd" for char in text
    )
    ET.SubElement(parent, f"{{{_ATOM}}}{tag}").text = clean.encode("utf-8", "replace").decode()
