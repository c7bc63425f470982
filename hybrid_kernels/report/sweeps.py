"""The points of a sweep and the limits around them, as `charts` draws them, from readings or out of a history."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_kernels import records, units
from hybrid_kernels.history.frames import Rows
from hybrid_kernels.history.store import StoredHistory

ARMS = {"resident": "resident", "in_place": "in place", "staged": "staged"}
BOUNDS = {
    "copy": "copy",
    "copy_h2d": "copy to device",
    "copy_d2d": "copy in device",
    "stream_resident": "stream, resident",
    "stream_in_place": "stream, in place",
    "copy_direct": "copy past the cache",
}
ORDER = [*ARMS.values(), *BOUNDS.values()]

SIZE, ARM_PARAMS = "mib", ("strategy", "kind")

# PCI Express base specifications 1.0 to 6.0: transfers a second and lane, and the share of them that carries data
# (8b/10b, then 128b/130b, then 236 bytes of each 256-byte flit).
_LANE_GBS = {1: 2.5 * 0.8 / 8, 2: 5 * 0.8 / 8, 3: 8 * 128 / 130 / 8, 4: 16 * 128 / 130 / 8, 5: 32 * 128 / 130 / 8,
             6: 64 * 236 / 256 / 8}  # fmt: skip


def link_limit(facts: Any) -> float | None:
    """GB/s that the PCI Express link of `facts` (Facts or a mapping) carries at most; None where there is no link."""
    generation, width = fact(facts, "link_generation"), fact(facts, "link_width")
    if not generation or not width or int(generation) not in _LANE_GBS:
        return None
    return _LANE_GBS[int(generation)] * int(width)


def fact(facts: Any, name: str) -> Any:
    """Fact `name` of Facts or of a mapping; None where it is not known."""
    return facts.get(name) if isinstance(facts, Mapping) else getattr(facts, name, None)


def limits_of(facts: Any, ceilings: Mapping[str, float] | None = None, series: str = "") -> list[dict[str, Any]]:
    """The lines that no measurement of the sweep crosses: rows of `label` with `gbs` (level) or `packed_mib` (place).

    facts: Facts or a mapping, for the link and the device's cache. ceilings: more levels, GB/s by label.
    """
    rows: list[dict[str, Any]] = []
    if (link := link_limit(facts)) is not None:
        label = f"link, PCIe {fact(facts, 'link_generation')} x{fact(facts, 'link_width')}"
        rows.append({"label": label, "gbs": link, "packed_mib": None})
    rows += [{"label": name, "gbs": float(level), "packed_mib": None} for name, level in (ceilings or {}).items()]
    if cache := fact(facts, "cache_bytes"):
        label = f"{'L2' if fact(facts, 'device') == 'cuda' else 'L3'} {units.format_bytes(cache)}"
        rows.append({"label": label, "gbs": None, "packed_mib": cache / units.MIB})
    return [{**row, "label": f"{row['label']} ({series})" if series else row["label"]} for row in rows]


def points(readings: Iterable[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """Rows of a sweep as the chart takes them: arm, role, series, state, packed_mib, gbs and its interval, and words.

    `series` names what is laid over (default the machine). State: `cold`, `cached` (the bytes fit the device's cache,
    so no memory was read) or `warned`. Rows without a number are left out: nothing can be drawn of them.
    """
    rows = []
    for row in readings:
        size, level = float(row["packed_mib"]), float(row["gbs"])
        if not (math.isfinite(size) and math.isfinite(level) and size > 0 and level > 0):
            continue
        strategy, warnings = str(row["strategy"]), _words(row.get("warnings"))
        low, high = (float(row.get(name, math.nan)) for name in ("gbs_low", "gbs_high"))
        rows.append(
            {
                "arm": ARMS.get(strategy) or BOUNDS.get(strategy) or strategy,
                "role": "bound" if strategy in BOUNDS else "arm",
                "series": str(row.get("series") or row.get("machine") or ""),
                "form": str(row.get("form") or ""),
                "state": "warned" if warnings else "cold" if row.get("cold", True) else "cached",
                "packed_mib": size,
                "gbs": level,
                "low": low if math.isfinite(low) else level,
                "high": high if math.isfinite(high) else level,
                "n": records.plain(row.get("samples")),
                "note": ", ".join(warnings),
            }
        )
    return rows


def _words(value: Any) -> list[str]:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    return [value] if isinstance(value, str) and value else [str(word) for word in value]


@dataclass(frozen=True)
class Sweep:
    """One sweep: rows for `sweep_description`, and the facts of the machine at that commit as texts."""

    machine: str
    device: str
    commit: str
    date: np.datetime64  # UTC
    points: list[dict[str, Any]]
    limits: list[dict[str, Any]]
    facts: list[tuple[str, str]]


def in_history(history: StoredHistory) -> Iterator[Sweep]:
    """Every sweep in `history`, newest commit first.

    A sweep is made of the benchmarks that have the parameters `mib` and `strategy` or `kind`, in seconds per pass or in
    GB/s. Where a point was measured both ways the seconds count, because they come with an interval.
    """
    names = [name for name, one in history.benchmarks.items() if _is_sweep(one.param_names)]
    if not names:
        return
    known = _known(history)
    readings = _readings(history.rows, names)
    for (order, machine, device, commit), group in reversed(
        [(key, list(group)) for key, group in itertools.groupby(readings, key=lambda row: row["sweep"])]
    ):
        own = list({row["point"]: row for row in group}.values())
        facts = {"device": device, **_facts_at(order, known.get((machine, device), []))}
        found = points(own)
        for point in found:
            point["text"] = units.format_gbs(point["gbs"])
            if point["high"] > point["low"]:
                point["text"] += f" [{units.format_gbs(point['low'])}, {units.format_gbs(point['high'])}]"
        if found:
            yield Sweep(machine, device, commit, own[-1]["date"], found, limits_of(facts), _texts(facts))


def _is_sweep(param_names: Collection[str]) -> bool:
    return SIZE in param_names and any(arm in param_names for arm in ARM_PARAMS)


def _readings(rows: Rows, names: Collection[str]) -> list[dict[str, Any]]:
    """What was read of these benchmarks, as `points` takes it, by sweep, point and whether it was timed.

    `sweep` is (rank, machine, device, commit), `point` the arm and size in it.
    """
    seconds, rate = rows.unit.among({"seconds", "s"}), rows.unit.among({"GB/s"})
    wanted = rows.benchmark.among(names) & rows.status.among({"ok"}) & (rows.value > 0) & (seconds | rate)
    # A benchmark may have had other parameters once.
    at = np.array([one for one in np.flatnonzero(wanted) if _is_sweep([name for name, _ in rows.params[one]])], np.intp)
    timed, params = seconds[at], [dict(pairs) for pairs in rows.params[at]]
    sizes = np.array([_number(one[SIZE]) for one in params])
    nbytes = sizes * units.MIB / units.GB
    with np.errstate(divide="ignore", invalid="ignore"):
        gbs, low, high = (
            np.where(timed, nbytes / taken[at], per_second[at]).tolist()
            for per_second, taken in (
                (rows.value, rows.value),
                (rows.ci_low, rows.ci_high),
                (rows.ci_high, rows.ci_low),
            )
        )
    columns = zip(
        rows.order[at].tolist(), rows.machine.tolist(at), rows.commit.tolist(at), rows.date[at], params, sizes.tolist(),
        rows.n[at].tolist(), gbs, low, high, timed.tolist(), strict=True,
    )  # fmt: skip
    found = []
    for order, machine, commit, date, own, size, samples, level, below, above, by_time in columns:
        if math.isnan(size):
            continue
        strategy = next(own[arm] for arm in ARM_PARAMS if arm in own)
        found.append(
            {
                "sweep": (order, machine, own.get("device", ""), commit),
                "point": (strategy, size),
                "timed": by_time,
                "date": date,
                "strategy": strategy,
                "machine": machine,
                "packed_mib": size,
                "gbs": level,
                "gbs_low": below,
                "gbs_high": above,
                "samples": samples,
            }
        )
    return sorted(found, key=lambda row: (row["sweep"], row["point"], row["timed"]))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


_FACTS = {
    "track_link_generation": "link_generation",
    "track_link_width": "link_width",
    "track_cache_bytes": "cache_bytes",
}


def _known(history: StoredHistory) -> dict[tuple[str, str], list[tuple[int, str, int]]]:
    """Link and cache of each (machine, device): (rank of the commit, fact, value), from the suites that keep them."""
    names = {name: fact for name in history.benchmarks if (fact := _FACTS.get(name.rpartition(".")[2]))}
    found: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
    rows = history.rows
    at = np.flatnonzero(rows.benchmark.among(names.keys()) & rows.status.among({"ok"}))
    texts = (words.tolist(at) for words in (rows.machine, rows.benchmark))
    others = (column[at].tolist() for column in (rows.order, rows.params, rows.value))
    for machine, benchmark, order, params, value in zip(*texts, *others, strict=True):
        place = found.setdefault((machine, dict(params).get("device", "")), [])
        place.append((order, names[benchmark], int(value)))
    return {place: sorted(facts) for place, facts in found.items()}


def _facts_at(order: int, known: list[tuple[int, str, int]]) -> dict[str, int]:
    """Each fact as it was last read up to the commit, or as it was first read after it."""
    later = {name: value for at, name, value in reversed(known) if at > order}
    return {**later, **{name: value for at, name, value in known if at <= order}}


def _texts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    texts = []
    if (limit := link_limit(facts)) is not None:
        link = f"PCIe {facts['link_generation']} x{facts['link_width']}, {units.format_gbs(limit)} GB/s at most"
        texts.append(("Link", link))
    if cache := facts.get("cache_bytes"):
        texts.append(("Cache", units.format_bytes(cache)))
    return texts
