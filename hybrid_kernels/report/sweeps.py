"""The points of a sweep and the limits around them, as `charts` draws them, from a frame or out of a history."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hybrid_kernels import records, units
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


def points(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a sweep as the chart takes them: arm, role, series, state, packed_mib, gbs and its interval, and words.

    `series` names what is laid over (default the machine). State: `cold`, `cached` (the bytes fit the device's cache,
    so no memory was read) or `warned`. Rows without a number are left out: nothing can be drawn of them.
    """
    rows = []
    for row in frame.to_dict("records"):
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
    date: pd.Timestamp
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
    frame = history.frame
    rows = frame[frame["benchmark"].isin(names) & (frame["status"] == "ok") & (frame["value"] > 0)]
    if rows.empty:
        return
    table = _table(rows)
    known = _known(history)
    keys = ["order", "machine", "device", "commit"]
    for (_, machine, device, commit), own in reversed(list(table.groupby(keys, sort=True, observed=True))):
        facts = {"device": device, **_facts_at(int(own["order"].iloc[0]), known.get((str(machine), str(device)), []))}
        found = points(own)
        for point in found:
            point["text"] = units.format_gbs(point["gbs"])
            if point["high"] > point["low"]:
                point["text"] += f" [{units.format_gbs(point['low'])}, {units.format_gbs(point['high'])}]"
        if found:
            date = own["date"].iloc[-1]
            yield Sweep(str(machine), str(device), str(commit), date, found, limits_of(facts), _texts(facts))


def _is_sweep(param_names: tuple[str, ...]) -> bool:
    return SIZE in param_names and any(arm in param_names for arm in ARM_PARAMS)


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a point, with the columns that `sweep_points` reads."""
    params = [dict(pairs) for pairs in rows["params"]]
    table = pd.DataFrame(
        {
            "order": rows["order"].to_numpy(),
            "machine": rows["machine"].astype(str).to_numpy(),
            "device": [one.get("device", "") for one in params],
            "commit": rows["commit"].astype(str).to_numpy(),
            "date": rows["date"].to_numpy(),
            "strategy": [next(one[arm] for arm in ARM_PARAMS if arm in one) for one in params],
            "packed_mib": [_number(one[SIZE]) for one in params],
            "samples": rows["n"].to_numpy(),
            "cold": True,
        }
    )
    seconds = rows["unit"].isin(["seconds", "s"]).to_numpy()
    nbytes = table["packed_mib"].to_numpy() * units.MIB / units.GB
    for name, low, high in (
        ("gbs", "value", "value"),
        ("gbs_low", "ci_low", "ci_high"),
        ("gbs_high", "ci_high", "ci_low"),
    ):
        per_second, taken = rows[low].to_numpy(float), rows[high].to_numpy(float)
        table[name] = [
            size / time if timed else rate
            for size, time, rate, timed in zip(nbytes, taken, per_second, seconds, strict=True)
        ]
    usable = seconds | (rows["unit"] == "GB/s").to_numpy()
    table = table.assign(timed=seconds)[usable & table["packed_mib"].notna()]
    point = ["order", "machine", "device", "commit", "strategy", "packed_mib"]
    table = table.sort_values([*point, "timed"], kind="stable")
    return table.drop_duplicates(point, keep="last")


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
    frame = history.frame
    rows = frame[frame["benchmark"].isin(list(names)) & (frame["status"] == "ok")]
    columns = (rows[name] for name in ("machine", "order", "benchmark", "params", "value"))
    for machine, order, benchmark, params, value in zip(*columns, strict=True):
        place = found.setdefault((machine, dict(params).get("device", "")), [])
        place.append((int(order), names[benchmark], int(value)))
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
