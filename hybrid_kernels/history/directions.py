"""Which way is better: from what a benchmark declares, else from its type, else from its unit, else unknown.

+1 higher is better, -1 lower is better, 0 unknown. Unknown is an answer: of such a series a change is reported, but
never as better or worse. The unit tables are closed lists on purpose; asv's default unit for `track_` benchmarks is
"unit", and a tracker that took every unknown unit as "less is better" has reported gains as regressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

HIGHER, LOWER, UNKNOWN = 1, -1, 0

# How asv itself tells a benchmark's type from its name (asv_runner.benchmarks), with the unit it then records.
_TYPE_OF_NAME = (
    (re.compile(r"(time_.+|Time[A-Z_].+)"), "time", "seconds"),
    (re.compile(r"(timeraw_.+|Timeraw[A-Z_].+)"), "time", "seconds"),
    (re.compile(r"(peakmem_.+|PeakMem[A-Z_].+)"), "peakmemory", "bytes"),
    (re.compile(r"(mem_.+|Mem[A-Z_].+)"), "memory", "bytes"),
    (re.compile(r"(track_.+|Track[A-Z_].+)"), "track", ""),
)
_LOWER_TYPES = frozenset({"time", "timeraw", "memory", "peakmemory"})

_TIME = "s|sec|secs|second|seconds|ms|msec|millisecond|milliseconds|us|usec|microsecond|microseconds|ns|nanosecond|"
_TIME += "nanoseconds|min|minute|minutes|h|hour|hours"
_MEMORY = "b|byte|bytes|kb|mb|gb|tb|kib|mib|gib|tib|kilobytes|megabytes|gigabytes"
_AMOUNT = re.compile(rf"{_TIME}|{_MEMORY}")  # a time taken or a memory used: less is better
_COST = re.compile(rf"(?:{_TIME}|cycles|{_MEMORY})(?:/|per)[a-z]+")  # seconds a step, bytes a row
# Something done in each unit of time: GB/s, tok/s, particles / second, frames per second.
_RATE = re.compile(r"[^/]+(?:/|per)(?:s|sec|second|ms|us|ns|min|minute|h|hour)")
_FLOPS = re.compile(r"[kmgtpe]?flops+")  # flop/s is a rate already; "flopss" is met in public histories
_NAMED_HIGHER = frozenset({"fps", "speedup", "speed-up", "qps", "rps", "iops", "mips"})
_NAMED_LOWER = frozenset({"slowdown", "latency"})


def type_of(name: str) -> tuple[str, str]:
    """(type, unit) that asv gives a benchmark of this name; ("", "") where its name follows none of asv's forms.

    For benchmarks that a history holds and its `benchmarks.json` no longer does. asv looks at the last part of the
    dotted name.
    """
    last = name.rpartition(".")[2]
    for pattern, kind, unit in _TYPE_OF_NAME:
        if pattern.fullmatch(last):
            return kind, unit
    return "", ""


def of(definition: Mapping[str, Any] | None, name: str) -> int:
    """The direction of benchmark `name`, whose entry in `benchmarks.json` is `definition` (None when it has none).

    In this order: the attribute `higher_is_better` where it is true or false; time and memory types, lower; the unit.
    """
    definition = definition or {}
    declared = definition.get("higher_is_better")
    if isinstance(declared, bool):
        return HIGHER if declared else LOWER
    kind = str(definition.get("type") or type_of(name)[0])
    if kind in _LOWER_TYPES:
        return LOWER
    return of_unit(str(definition.get("unit") or ""))


@cache
def of_unit(unit: str) -> int:
    """The direction that a unit implies, 0 where it implies none ("unit", "%", "ratio", "count", an empty one).

    A label with its unit in brackets, such as "runtime (s)", has the direction of that unit.
    """
    inner = re.search(r"[(\[]\s*([^)\]]+?)\s*[)\]]\s*$", unit)
    if inner is not None:
        return of_unit(inner[1])
    text = re.sub(r"\s+", "", unit.strip().lower().replace("µ", "u").replace("μ", "u"))
    if not text:
        return UNKNOWN
    if text in _NAMED_HIGHER or _FLOPS.fullmatch(text):
        return HIGHER
    if text in _NAMED_LOWER or _AMOUNT.fullmatch(text):
        return LOWER
    if _RATE.fullmatch(text):
        before = re.split(r"/|per", text, maxsplit=1)[0]
        return UNKNOWN if re.fullmatch(_TIME, before) else HIGHER  # seconds a second: of what, nobody can tell
    if _COST.fullmatch(text):
        return LOWER
    return UNKNOWN


def quantity(unit: str) -> str:
    """What there is more or less of, for a sentence; asv's placeholder "unit" says nothing."""
    return unit if unit not in ("", "unit") else "of it"
