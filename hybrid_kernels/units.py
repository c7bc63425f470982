"""Parse, convert and format bytes, seconds and GB/s. The only place that rounds.

GB = 10^9 bytes, MiB = 2^20 bytes. Inside the package everything is in base units: bytes, seconds, bytes per second
are floats or integers without a prefix; only text carries one.
"""

from __future__ import annotations

import math
import re

from hybrid_kernels.errors import BadInput

KIB, MIB, GIB = 2**10, 2**20, 2**30
KB, MB, GB = 10**3, 10**6, 10**9

_BYTE_UNITS = {
    "": 1, "b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": 10**12, "kib": KIB, "mib": MIB, "gib": GIB, "tib": 2**40,
}  # fmt: skip
_SECOND_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ]*)\s*")


def _split(text: str, name: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise BadInput(f"{name}: {text!r} is not a number with a unit; write for example {example}")
    return float(match[1]), match[2].lower().replace("µ", "u")


def parse_bytes(text: str, name: str = "bytes") -> int:
    """Bytes from text such as `7.7GB` or `256 MiB`; a bare number is bytes. BadInput naming `name` otherwise."""
    value, unit = _split(text, name, "7.7GB or 256MiB")
    if unit not in _BYTE_UNITS:
        raise BadInput(f"{name}: unknown unit {unit!r} in {text!r}; use B, kB, MB, GB, KiB, MiB or GiB")
    nbytes = value * _BYTE_UNITS[unit]
    if nbytes < 0 or not math.isfinite(nbytes):
        raise BadInput(f"{name}: {text!r} must be a finite number of bytes, zero or more")
    return round(nbytes)


def parse_seconds(text: str, name: str = "seconds") -> float:
    """Seconds from text such as `20m`, `90s` or `1.5h`; a bare number is seconds. BadInput naming `name` otherwise."""
    value, unit = _split(text, name, "20m or 90s")
    if unit and unit not in _SECOND_UNITS:
        raise BadInput(f"{name}: unknown unit {unit!r} in {text!r}; use s, ms, us, m or h")
    seconds = value * _SECOND_UNITS.get(unit, 1.0)
    if seconds < 0 or not math.isfinite(seconds):
        raise BadInput(f"{name}: {text!r} must be a finite time, zero or more")
    return seconds


def gbs(nbytes: float, seconds: float) -> float:
    """Bandwidth in GB/s (10^9 bytes a second) of `nbytes` moved in `seconds`."""
    return nbytes / seconds / GB


def counted(count: int, noun: str) -> str:
    """`1 commit`, `2 commits`, `1,000 commits`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated; `-` when not finite.

    In exponent form only outside 1e-12 to 1e18, where nobody counts the zeros.
    """
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    if not 1e-12 <= abs(value) < 1e18:
        return f"{value:.{digits}g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def format_bytes(nbytes: float) -> str:
    """Binary prefix, three significant digits: `256 MiB`."""
    for size, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(nbytes) >= size:
            return f"{significant(nbytes / size)} {unit}"
    return f"{significant(nbytes)} B"


def format_seconds(seconds: float) -> str:
    """Three significant digits in the unit that fits: `8.4 us`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def format_gbs(value: float) -> str:
    """A bandwidth already in GB/s, three significant digits, no unit (columns carry it)."""
    return significant(value)


_BYTE_STEPS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
_SECOND_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_STEPS = dict.fromkeys(("s", "second", "seconds"), _SECOND_STEPS) | dict.fromkeys(("B", "byte", "bytes"), _BYTE_STEPS)


def scale(unit: str, magnitude: float) -> tuple[float, str]:
    """(divisor, unit to print) for values of about `magnitude` in a unit as asv stores it: seconds, bytes, or its own.

    Only seconds and bytes get a prefix; asv's placeholder `unit` prints as nothing.
    """
    steps = _STEPS.get(unit)
    if steps is None:
        return 1.0, "" if unit == "unit" else unit
    for size, text in steps:
        if abs(magnitude) >= size:
            return float(size), text
    return float(steps[-1][0]), steps[-1][1]


def format_value(value: float, unit: str) -> str:
    """A value in a unit as asv stores it, three significant digits: `8.40 us` for 8.4e-6 seconds.

    Numbers too small to be read with their zeros get an exponent; one that is not finite has no unit.
    """
    if not math.isfinite(value):
        return str(value)
    divisor, text = scale(unit, value)
    scaled = value / divisor
    digits = f"{scaled:.3g}" if scaled != 0 and abs(scaled) < 1e-3 else significant(scaled)
    return digits + (text if text in ("x", "%", "") else f" {text}")
