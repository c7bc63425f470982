"""What a device offers: tiers to place weights in, one GEMV, and arms to time.

An *arm* is one thing that is timed: reading weights by a strategy, a copy, a streaming read. It owns everything that
must stay outside the timed region (evicting pages, enqueueing, replaying a graph) and returns device-clock seconds, so
that sampling needs to know nothing about devices and a fake device makes it exact in tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.records import WALK_RING


class Closing(ABC):
    """Something that took memory or handles: closed once, on every way out, exceptions and Ctrl-C included."""

    @abstractmethod
    def close(self) -> None:
        """Give back everything that was taken. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Arm(Closing):
    """One thing to time.

    `label` is the strategy or baseline (`resident`, `in_place`, `staged`, `copy`, ...), `form` is `eager` or `graph`;
    `pass_bytes` are the bytes that its bandwidth is counted over (packed bytes for a read), `total_bytes` all the
    bytes that one pass moves; `copies` distinct buffers are rotated over, pass by pass.
    """

    label: str
    form: str = "eager"
    pass_bytes: int
    total_bytes: int
    copies: int = 1
    variant: str | None = None
    device_bytes: int = 0
    captures: int = 0
    fallbacks: int = 0
    dispatch_seconds: float | None = None

    def __init__(self) -> None:
        self._elapsed = 0.0

    @abstractmethod
    def _time(self, passes: int) -> float:
        """Do `passes` passes, each on the next buffer, and return device-clock seconds for all of them."""

    def run(self, passes: int = 1) -> float:
        """Do `passes` passes (at least 1); return their seconds on the device's clock, and advance `clock`."""
        seconds = self._time(passes)
        self._elapsed += seconds
        return seconds

    def clock(self) -> float:
        """Seconds this arm has spent inside timed regions so far: what asv takes as a benchmark's `timer`."""
        return self._elapsed

    def output(self) -> npt.NDArray[np.float32] | None:
        """float32 [n] of the last pass, read back from the device; None for arms that compute nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Access:
    """A way to read memory, with nothing computed: one knob at a time, to explain a rate.

    `request_bytes` are the neighbouring bytes that one request of a warp covers; `coalesced` requests follow each
    other, `scattered` ones are strewn over the buffer. `offset` bytes lie between a 128-byte line and the first byte.
    `blocks` of `threads` threads, each with `loads_in_flight` loads outstanding, bound the bytes in flight; None:
    enough blocks to fill the device.
    """

    pattern: Literal["coalesced", "scattered"]
    request_bytes: int
    loads_in_flight: int = 8
    offset: int = 0
    blocks: int | None = None
    threads: int = 1024


class Placed(Closing):
    """Weights that lie in a tier, in `copies` distinct buffers with the same bytes."""

    strategy: str
    n: int
    k: int
    block: int
    packed_bytes: int
    total_bytes: int
    copies: int


class BesideArm(Arm):
    """Copies a walk's cold weights while its passes run, neither waiting for the other. Its time is that of the copies;
    `pass_slowdowns` holds, for each pass of the arm, how much longer products took than alone just before."""

    label = "walk_beside"

    def __init__(self) -> None:
        super().__init__()
        self.pass_slowdowns: list[float] = []


SCHEDULES = ("serial", "overlapped")
"""How a walk reads what is not resident: where it lies, one pass after the other, or copied ahead on its own stream."""


def walk_width(steps: Sequence[Placed], schedule: str, ring: int) -> int:
    """Elements that a walk's activations need: the largest n or k of `steps`. BadInput names what a walk cannot be."""
    if schedule not in SCHEDULES:
        raise BadInput(f"schedule: {schedule!r} is not one of {', '.join(SCHEDULES)}")
    if not steps:
        raise BadInput("steps: none given; a walk needs at least one placed matrix")
    if ring < 2:
        raise BadInput(f"ring: {ring} buffers cannot overlap; use 2 or more")
    return max(max(step.n, step.k) for step in steps)


class Device(Closing):
    """A place that multiplies. `name` is `cpu` or `cuda`."""

    name: str
    strategies: tuple[str, ...]  # how a pass can get its weights here
    baselines: tuple[str, ...]  # copies without a kernel; the first is always `copy`, out of the next tier
    forms: tuple[str, ...] = ("eager",)
    request_bytes: int | None = None  # of weights that one request of its GEMV covers; None: no access patterns here
    drifts: bool = False  # whether its speeds change within minutes, with what else the machine does
    sweep_buffers: int = 3  # of a size, as many as its packed bytes stand in resident memory while it is swept
    pci_bus_id: str | None = None  # of a device behind a PCIe link, by which its link and clocks can be read

    @abstractmethod
    def place(self, weights: Int4Weights, strategy: str, *, copies: int = 1) -> Placed:
        """Put `weights` where `strategy` reads them, in `copies` distinct buffers.

        BadInput for a strategy the device lacks or bytes that do not fit, naming both numbers; DeviceFailure with the
        vendor's code when the device refuses; ConditionNotMet when a condition that was constructed does not hold.
        """

    @abstractmethod
    def gemv(self, placed: Placed, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """y = W x for float x [k]; returns float32 [n]. The kernel that the arms time. BadInput on a wrong shape."""

    @abstractmethod
    def read_arm(self, placed: Placed, x: npt.ArrayLike, form: str = "eager") -> Arm:
        """The arm that reads `placed` once a pass. Closing it leaves `placed` alone."""

    @abstractmethod
    def baseline_arm(self, placed: Placed, kind: str) -> Arm:
        """A plain copy (one of `baselines`) of the packed bytes, out of the memory that `placed` (in place) lies in."""

    @abstractmethod
    def stream_arm(self, placed: Placed, form: str = "eager") -> Arm:
        """A streaming read of the packed bytes with nothing computed: the ceiling of any kernel on that tier."""

    def access_arm(self, placed: Placed, access: Access) -> Arm:
        """Reads the packed bytes in a pattern. BadInput for a pattern, or on a device, without a kernel for it."""
        raise BadInput(f"device {self.name} has no access patterns to sweep; use cuda")

    def walk_arm(
        self,
        steps: Sequence[Placed],
        x: npt.ArrayLike,
        schedule: str = "serial",
        form: str = "eager",
        *,
        ring: int = WALK_RING,
    ) -> Arm:
        """The arm whose one pass is a walk: every placement of `steps` read once, in order.

        Two activation buffers of m elements (m: the largest n or k) start as `x` (float [m]) and `x` reversed. Step i
        reads the first k of one and writes its n results to the first n of the other, then they change places: each
        activation comes from the projection before it, as in a decode step, with no kernel between. `output()` is both
        buffers, float32 [2 m]. `schedule` `serial`: one pass after the other. `overlapped`: the weights of steps that
        are not resident are copied ahead, on their own stream, into a ring of `ring` buffers; only weights run ahead.
        BadInput for a schedule that does not exist or a device without walks.
        """
        raise BadInput(f"walk: device {self.name} has no walks; use cpu or cuda")

    def walk_copy_arm(self, steps: Sequence[Placed], form: str = "eager", *, ring: int = WALK_RING) -> Arm:
        """The arm whose one pass copies the weights of `steps` (all in place) ahead, one after the other, and no more,
        into a ring like the walk's: the floor of an overlapped walk over the same pages.
        """
        raise BadInput(f"walk: device {self.name} has no walks; use cpu or cuda")

    def walk_beside_arm(self, steps: Sequence[Placed], x: npt.ArrayLike, *, ring: int = WALK_RING) -> BesideArm | None:
        """The arm that tells what copies ahead and products take from each other; None where a copy engine moves the
        weights and the processors have no part in it."""
        return None

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Fields of records.Facts that the device knows; measure/facts.py adds the host's and those under load."""

    @abstractmethod
    def free_bytes(self, strategy: str) -> int:
        """Bytes that can still be placed for `strategy` without pushing anything out."""

    @abstractmethod
    def cold_copies(self, nbytes: int, strategy: str = "resident") -> int:
        """Distinct buffers of `nbytes` to rotate over so that no pass finds its bytes in the cache."""

    def is_cold(self, nbytes: int, strategy: str, copies: int) -> bool:
        """Whether reads rotating over so many buffers of `nbytes` bytes cannot find them in the device's cache."""
        return copies >= self.cold_copies(nbytes, strategy)

    @abstractmethod
    def limit_gbs(self, tier: str) -> float | None:
        """Physical limit in GB/s of `resident` or `in_place` reads, more is implausible; None: unknown."""
