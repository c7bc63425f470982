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

CONTROL_NAMES = r"^(controls|copies)\."
"""Benchmarks that no change to a project touches, by name; an attribute `control = True` of one says the same."""


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
    in_place_capacity_bytes: int | None = None  # packed bytes read in place in one step that were seen to stay right
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


@dataclass(frozen=True)
class Sampled:
    """What one process measured: one benchmark cell, on one side of a comparison, in one round.

    The raw material of every verdict, whoever measured it. `samples` are in `unit`; empty when nothing was measured,
    and `error` then says why (None: the benchmark skipped itself). `run` tells apart rounds taken in separate sittings.
    """

    side: str  # "base" or "head"
    round: int  # from 1
    benchmark: str
    cell: str  # "device=cpu, mib=64"; empty without parameters
    samples: tuple[float, ...]
    unit: str
    direction: int  # -1 lower is better, +1 higher is better, 0 unknown
    version: str | None = None
    control: bool = False
    error: str | None = None
    run: str = ""
    number: int | None = None  # calls that each sample is the mean of


@dataclass(frozen=True)
class Verdict:
    """What a comparison says of one benchmark cell. Ratios are head over base minus 1, of the values as measured.

    `verdict` is slower, faster, same, unsettled, unadjudicable, added, removed or method changed; of a control arm,
    held or moved. `ci_low` and `ci_high` are the 95 % interval of `change` for this row alone; `called_low` and
    `called_high` the wider one, corrected for the number of rows and looks, that must exclude zero for a call.
    """

    name: str
    base: float | None  # geometric mean over the rounds of each round's median
    head: float | None
    change: float | None
    ci_low: float | None
    ci_high: float | None
    rounds: int
    verdict: str
    reason: str = ""
    unit: str = ""
    direction: int = 0
    benchmark: str = ""
    cell: str = ""
    threshold: float | None = None  # relative change below which the two sides are the same
    learned_from: int = 0  # A/A rounds the threshold was learned from; 0: the documented default
    noise: float | None = None  # standard deviation of the log-ratio of one round
    lacking: int | None = None  # rounds more that would settle it, for an unsettled row; None: not foreseeable
    called_low: float | None = None
    called_high: float | None = None
    version_base: str | None = None
    version_head: str | None = None
    control: bool = False
    harness: str = ""  # what the other harness said of its own run, word for word in its terms


@dataclass(frozen=True)
class Comparison:
    """A whole comparison as handed to the reports: rows, control arms, and all that limits what they mean."""

    base: str
    head: str
    rows: tuple[Verdict, ...]
    controls: tuple[Verdict, ...]
    rounds: int  # finished on both sides
    runs: int  # separate sittings judged together
    level: float  # probability of any false call among all rows that this look may spend
    spread: Mapping[str, float] | None = None  # of all changes, when there is one run a side: the noise as it is
    untouched: bool = False  # the diff touches nothing that the benchmarks import
    touched: tuple[str, ...] = ()  # changed files, when known
    interrupted: bool = False
    skipped: tuple[tuple[str, str], ...] = ()  # benchmark cells that measured nothing on either side, and why
    unselected: tuple[str, ...] = ()  # benchmark cells that the filter left out
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tensor:
    """One weight matrix [n, k] of a model, as far as a plan needs to know it."""

    name: str
    n: int
    k: int
    packed_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Choice:
    """What a plan does with one tensor, and the seconds that it expects of its pass."""

    tensor: Tensor
    strategy: str  # resident, in_place or staged
    seconds: float


WALK_RING = 3
"""Buffers that weights run ahead into."""


def ring_buffers(cold_bytes: Sequence[int], ring: int) -> list[int]:
    """Bytes of each buffer of a ring that holds matrices of `cold_bytes`, in walk order, turn by turn."""
    return [max(cold_bytes[slot::ring]) for slot in range(min(ring, len(cold_bytes)))]


@dataclass(frozen=True)
class Plan:
    """Which tensors of a model are resident and how the rest is read, with the step time that this predicts."""

    model: str
    device: str
    machine: str
    block: int
    schedule: str  # serial or overlapped
    budget_bytes: int | None  # device memory for weights, metadata and ring together; None: no limit
    ring: int  # buffers that weights run ahead into (overlapped)
    device_bytes: int  # what the plan takes of the budget
    resident_fraction: float  # of packed bytes
    choices: tuple[Choice, ...]  # in walk order
    predicted_seconds: float
    predicted_low: float
    predicted_high: float
    floor_seconds: float  # max(cold bytes / copy bandwidth, resident passes), which no schedule can beat
    rules: Mapping[str, float] = field(default_factory=dict)  # step time of simple rules on the same budget
    saved_by_one_gb: float | None = None  # seconds a step that one more GB of device memory would save


@dataclass(frozen=True)
class Walk:
    """One measured decode step over every projection: GEMV time alone, seconds on the device's clock."""

    model: str
    device: str
    schedule: str
    form: str
    resident_fraction: float  # of packed bytes
    resident_bytes: int  # packed
    in_place_bytes: int
    staged_bytes: int
    samples: int
    seconds: float  # median
    seconds_low: float
    seconds_high: float
    seconds_best: float
    tokens_per_second: float  # a ceiling: nothing but the GEMVs is in the step
    link_gbs: float  # cold packed bytes over the step time
    device_bytes: int  # packed weights, metadata and ring in the device
    host_locked_bytes: int
    outputs_identical: bool | None
    captures: int = 0
    fallbacks: int = 0
    copy_seconds: float | None = None  # sequential copy of the cold weights, same pages, same run (overlapped)
    copy_slowdown: float = 1.0  # of that copy while passes run, and of passes while it runs: measured with no order
    pass_slowdown: float = 1.0  # between the two, where they share processors
    predicted_seconds: float | None = None
    floor_seconds: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """A kernel on its tier's curve of request widths: what it gets, what its width allows, what the best width gets."""

    tier: str  # resident or in_place
    variant: str | None
    request_bytes: int  # neighbouring bytes that one request of the kernel covers
    gbs: float  # the kernel, packed bytes
    curve_gbs: float  # a plain read with requests of this width
    best_request_bytes: int
    best_gbs: float  # a plain read with the best width


@dataclass(frozen=True)
class Mark:
    """Something that went wrong with one suite of one commit; the night went on."""

    commit: str
    suite: str  # empty: the whole commit
    what: str


@dataclass(frozen=True)
class Night:
    """What one night did."""

    started: str  # ISO 8601, UTC
    machine: str
    measured: tuple[str, ...]  # commits whose every suite is done now
    left: tuple[str, ...]  # commits that the next night goes on with
    marks: tuple[Mark, ...]
    moved: int  # result files moved into the history
    changed: tuple[tuple[str, Any, Any], ...]  # facts: name, before, now
    idle: str | None = None  # why nothing was measured
    interrupted: bool = False


@dataclass(frozen=True)
class FleetMember:
    """A machine of a fleet as it is now."""

    machine: str
    worker: str  # address; empty: away
    state: str  # runs, done, away, missing
    at: tuple[str, str] | None  # commit and suite that it is at
    finished: int  # suites
    of: int


@dataclass(frozen=True)
class FleetRun:
    """What one run of a fleet did."""

    run: str
    members: tuple[FleetMember, ...]
    failed: tuple[tuple[str, str, str, str], ...]  # machine, commit, suite, what went wrong
    missing: tuple[tuple[str, str, str], ...]  # machine, commit, suite: the machine was away
    refused: tuple[tuple[str, str], ...]  # worker, reason
    gathered: int  # result files that are new or have changed
    interrupted: bool = False
    nothing: bool = False  # no suite has a benchmark of that name


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
