"""Points of a series as the pages' chart of a history takes them (`charts.series_description`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hybrid_kernels import units
from hybrid_kernels.judge import figure_series
from hybrid_kernels.judge.events import History
from hybrid_kernels.judge.ledger import Method
from hybrid_kernels.judge.series import Point
from hybrid_kernels.report.dashboard.links import Project

MOST = 400
"""Points of one history that a page draws; of a longer one evenly spaced ones, and always the last."""

SPARK = 60


def point(point: Point, method: str, divisor: float, project: Project) -> dict[str, Any]:
    """One value with its interval, in the chart's unit (the stored one over `divisor`), and the commit it is of."""
    return {
        "t": milliseconds(point),
        "value": point.value / divisor,
        "low": None if point.ci_low is None else point.ci_low / divisor,
        "high": None if point.ci_high is None else point.ci_high / divisor,
        "method": method,
        "note": point.commit[: project.hash_length],
    }


def milliseconds(point: Point) -> int | None:
    """When the commit of a point was made, ms since 1970; None where the results do not say."""
    return None if point.date is None else round(point.date.timestamp() * 1000)


def scale(points: Iterable[Point], unit: str) -> tuple[float, str]:
    """(divisor, unit text) that all of `points` are printed with."""
    return units.scale(unit, max((abs(point.value) for point in points), default=1.0))


def method_text(name: str | None, version: str | None) -> str:
    """A method in a legend: the ledger's name for it (before a colon in `name`), else its version."""
    text = name.partition(": ")[0] if name else f"version {version}" if version else "no version given"
    return text if len(text) <= 60 else text[:57] + "..."


def thinned(found: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of a sequence, evenly spaced, the last one among them."""
    if len(found) <= most:
        return list(found)
    step = len(found) / most
    return [found[len(found) - 1 - int(at * step)] for at in range(most)][::-1]


def histories(history: History, project: Project) -> Mapping[tuple[str, str], dict[str, Any]]:
    """What each figure was on each machine, measured by its methods, by (figure, machine); the chart's data sets.

    A figure measured in several environments shows the one with the most values.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for stretch in figure_series.stretches(history.series, history.ledger):
        parts = [(part, _label(part.method)) for part in stretch.parts]
        every = [one for part, _ in parts for one in part.series.points]
        divisor, unit = scale(every, parts[0][0].series.unit)
        made = [point(one, label, divisor, project) for part, label in parts for one in part.series.points]
        current = [
            float(value)
            for part, _ in parts
            for value, order in zip(part.series.values, part.series.order, strict=True)
            if part.since <= order < part.until
        ]
        marks = [{"t": milliseconds(part.series.points[0]), "label": f"by {label}"} for part, label in parts[1:]]
        key = (stretch.figure.id, stretch.machine)
        if key in found and len(found[key]["points"]) >= len(made):
            continue
        found[key] = {
            "points": thinned(made, MOST),
            "levels": [],
            "marks": marks,
            "unit": unit or "value",
            "spark": thinned(current, SPARK),
        }
    return found


def _label(method: Method) -> str:
    return method_text(method.name or method.benchmark, method.version)
