"""Plain data that crosses rows: what a measurement hands to everything after it, and the JSON it becomes.

A frozen dataclass here is a seam: the row that fills it and the row that reads it know nothing else of each other.
Units are base units and part of the name (bytes, seconds) except GB/s, which is the unit users think in.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1
"""Version of every `--json` document. Raised when a name or meaning changes, never for an added name."""


@dataclass(frozen=True)
class Facts:
    """What must be known to believe a number: the machine, the device, its link and clocks, the code that ran.

    None means that the fact could not be read here, or does not exist for the device.
    """

    device: str  # "cpu" or "cuda"
    device_name: str  # the processor's or the card's name
    machine: str  # host name
    os: str
    kernel: str  # operating system release
    arch: str
    cpu: str
    cores: int  # cores this process may use
    memory_bytes: int
    cache_bytes: int | None  # last-level cache of the device: L3 of a CPU, L2 of a GPU
    python: str
    version: str  # of hybrid_kernels
    commit: str | None  # of the checkout that ran, when it is one
    variant: str | None = None  # kernel variant that actually ran
    threads: int | None = None
    scratch: str | None = None  # kind of file system that holds the next tier of the CPU device
    driver: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    device_memory_bytes: int | None = None
    link_generation: int | None = None  # as read under load
    link_width: int | None = None
    link_generation_max: int | None = None  # of device and slot together
    link_width_max: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int | None = None  # on the device
    load_average: float | None = None  # of the host, one minute
    started_at: str | None = None  # ISO 8601, UTC
    versions: Mapping[str, str] = field(default_factory=dict)  # of the libraries that matter


@dataclass(frozen=True)
class Reading:
    """One arm at one size: the row of a sweep. Times are seconds per pass on the device's clock.

    `gbs` is packed bytes over the median time, and its interval is the interval of the median turned over.
    """

    strategy: str  # resident, in_place, staged, copy, copy_h2d, copy_d2d, stream_resident, stream_in_place
    form: str  # eager or graph
    n: int
    k: int
    block: int
    packed_bytes: int
    total_bytes: int  # with scales and zero points, where the arm reads them
    copies: int  # distinct buffers rotated over
    cold: bool  # False: the bytes fit the device's cache together, so this is a cached reading
    samples: int
    seconds: float  # median
    seconds_low: float
    seconds_high: float
    seconds_best: float
    drift: float | None = None  # last over first measurement of the first point, minus 1
    variant: str | None = None
    outputs_identical: bool | None = None  # against the resident arm, bit by bit
    device_bytes: int = 0  # device memory that the arm took beside the weights (staging ring)
    captures: int = 0
    fallbacks: int = 0
    dispatch_seconds: float | None = None  # host time to enqueue one pass
    warnings: tuple[str, ...] = ()  # implausible, throttled, shared device, downtrained link, ...
    reason: str | None = None  # why there is no number, when seconds is NaN


def plain(value: Any) -> Any:
    """`value` as plain JSON data: records become objects, numpy scalars numbers, NaN and infinities null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def document(facts: Any, rows: Sequence[Any], **more: Any) -> dict[str, Any]:
    """The one shape of every `--json` file: `schema`, `facts`, `rows`, and named extras."""
    return {"schema": SCHEMA, "facts": plain(facts), "rows": [plain(row) for row in rows], **plain(more)}
