"""The CPU device: weights in anonymous memory, or in a file mapping whose pages are evicted before each pass.

It needs no accelerator, so the whole harness runs, and is tested, anywhere. Its numbers are real and its own.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Arm, BesideArm, Closing, Device, Placed
from hybrid_kernels.devices.evicted import EvictedMapping, filesystem, free_scratch, scratch_folder
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.kernels import cpu as kernels
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.records import WALK_RING
from hybrid_kernels.units import format_bytes

if TYPE_CHECKING:
    from hybrid_kernels.devices.cpu_walk import CpuWalkArm

COLD_CACHES = 4
"""Buffers that are rotated over hold at least this many last-level caches, so that no pass finds its bytes there."""

HUGE_PAGE = 2 * 2**20
"""Bytes of the huge pages of x86-64 and, with small pages of 4 KiB, of aarch64."""

PIECES = {"resident": 256 * 2**20, "in_place": 128 * 2**20}
"""Bytes that one call of a kernel reads at most, by tier: Python hears Ctrl-C between calls. No smaller pass is cut."""
COPY_PIECE = 64 * 2**20

_DEFAULT_CACHE = 32 * 2**20  # where the kernel does not list one


def last_level_cache() -> int:
    """Bytes of the largest cache of the first core this process may use; a usual size where none is listed."""
    core = min(os.sched_getaffinity(0))
    sizes = []
    for path in Path(f"/sys/devices/system/cpu/cpu{core}/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text.endswith("K"):
            sizes.append(int(text[:-1]) * 1024)
    return max(sizes, default=_DEFAULT_CACHE)


def _untouched(nbytes: int) -> npt.NDArray[np.uint8]:
    """uint8 [nbytes] in page-aligned anonymous memory of its own, huge pages asked for.

    What could fill a huge page begins at one, with room for a whole one at its end: whether two buffers of one size get
    huge pages must not be chance, since reads from a disk into small pages took up to twice as long.
    """
    room = 2 * HUGE_PAGE if nbytes >= HUGE_PAGE // 2 else 0
    area = mmap.mmap(-1, max(nbytes, 1) + room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared: small pages only
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(area, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE if room else 0
    return whole[start : start + nbytes]


def fill(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy `source` into `target`, both C-contiguous and of one shape, piece by piece: first touches of gigabytes take
    seconds, and Python hears Ctrl-C between calls only."""
    into, values = target.reshape(-1), source.reshape(-1)
    for part in pieces(len(into), into.nbytes, COPY_PIECE):
        into[part] = values[part]


def anonymous(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A copy of `data` in page-aligned anonymous memory of its own, huge pages asked for."""
    copy = _untouched(data.nbytes).reshape(data.shape)
    fill(copy, data)
    return copy


def whole_pages(nbytes: int) -> npt.NDArray[np.uint8]:
    """uint8 [nbytes rounded up to whole pages] in anonymous memory, every page touched."""
    area = _untouched(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
    fill(area, np.broadcast_to(np.uint8(0), area.shape))
    return area


class CpuPlaced(Placed):
    """Packed bytes in one of the CPU's tiers; scales (float32) and zero points are always resident.

    Every buffer has scales and zero points of its own, or those of small weights would be found in the cache.
    """

    def __init__(self, weights: Int4Weights, strategy: str, copies: int, folder: Path) -> None:
        self.strategy, self.copies = strategy, copies
        self.n, self.k, self.block = weights.n, weights.k, weights.block
        self.scales: list[npt.NDArray[np.float32]] = []
        self.zero_points: list[npt.NDArray[np.uint8] | None] = []
        self.buffers: list[npt.NDArray[np.uint8]] = []
        self.mappings: list[EvictedMapping] = []
        try:
            for _ in range(copies):
                self.scales.append(np.empty(weights.scales.shape, np.float32))
                fill(self.scales[-1], weights.scales)
                self.zero_points.append(None if weights.zero_points is None else np.empty_like(weights.zero_points))
                if (zeros := self.zero_points[-1]) is not None and weights.zero_points is not None:
                    fill(zeros, weights.zero_points)
                if strategy == "resident":
                    self.buffers.append(anonymous(weights.packed))
                else:
                    self.mappings.append(EvictedMapping(weights.packed, folder))
        except BaseException:
            self.close()
            raise
        self.packed_bytes = weights.packed_bytes
        self.total_bytes = weights.packed_bytes + self.scales[0].nbytes + weights.zero_point_bytes

    def packed(self, index: int) -> npt.NDArray[np.uint8]:
        """The packed bytes of buffer `index`, where they lie."""
        return self.mappings[index].array if self.mappings else self.buffers[index]

    def evict(self, index: int) -> None:
        """Push buffer `index` out of memory and assert that it is; nothing to do for resident weights."""
        if self.mappings:
            self.mappings[index].evict()

    def close(self) -> None:
        for mapping in self.mappings:
            mapping.close()
        self.mappings, self.buffers, self.scales, self.zero_points = [], [], [], []


class CpuArm(Arm):
    """Times `work(index of the next buffer)`, pass after pass, the buffers of a round evicted before it where needed.

    Evicted together and not one by one, as before a walk: a page that was freed a moment ago is still in the
    processor's cache when the next read fills it, and such passes took up to a tenth less.
    """

    def __init__(self, label: str, placed: CpuPlaced, work: Callable[[int], None], total_bytes: int) -> None:
        super().__init__()
        self.label, self.placed, self.work = label, placed, work
        self.pass_bytes, self.total_bytes, self.copies = placed.packed_bytes, total_bytes, placed.copies
        self.result: npt.NDArray[np.float32] | None = None
        self._next = 0

    def _time(self, passes: int) -> float:
        seconds = 0.0
        for first in range(0, passes, self.copies):
            indices = [(self._next + number) % self.copies for number in range(min(self.copies, passes - first))]
            self._next = (indices[-1] + 1) % self.copies
            for index in indices:
                self.placed.evict(index)
            start = time.perf_counter()
            for index in indices:
                self.work(index)
            seconds += time.perf_counter() - start
        return seconds

    def output(self) -> npt.NDArray[np.float32] | None:
        return None if self.result is None else self.result.copy()

    def close(self) -> None:
        self.work = _closed


def _closed(index: int) -> None:
    raise RuntimeError("this arm is closed")


def pieces(length: int, nbytes: int, most: int) -> list[slice]:
    """Slices of about `most` bytes that cover `length` rows of `nbytes` in all, one row or more each."""
    step = max(length * most // nbytes, 1)
    return [slice(start, start + step) for start in range(0, length, step)]


class CpuDevice(Device):
    """Reads weights on the processor with the compiled kernel.

    `mode` is `f32` (float activations) or `i8` (activations rounded to int8 a block); `variant` names a kernel
    variant (`auto`: the best this processor has); `threads` defaults to the cores this process may use; `scratch` is
    the folder of the evicted file (default: the system's temporary folder). BadInput for a value that cannot be used.
    """

    name = "cpu"
    strategies = ("resident", "in_place")
    baselines = ("copy", "copy_direct")
    drifts = True
    sweep_buffers = 5  # as made, as placed, the targets of two copies, and a quarter each of float32 scales

    def __init__(
        self,
        *,
        scratch: str | Path | None = None,
        threads: int | None = None,
        mode: kernels.Mode = "f32",
        variant: str = "auto",
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        if threads is not None and not 1 <= threads <= kernels.MAX_THREADS:
            raise BadInput(
                f"threads: {threads} is out of range; use 1 to {kernels.MAX_THREADS} (this process has {cores})"
            )
        self.threads = threads or cores
        self.mode = mode
        self.variant = kernels.chosen(mode, variant)
        self.scratch = scratch_folder(scratch)
        self.cache_bytes = last_level_cache()
        self._open: list[Closing] = []

    def place(self, weights: Int4Weights, strategy: str, *, copies: int = 1) -> CpuPlaced:
        if strategy not in self.strategies:
            raise BadInput(f"strategy: {strategy!r} is not one of {', '.join(self.strategies)} (device cpu)")
        if copies < 1:
            raise BadInput(f"copies: {copies} must be 1 or more")
        needed, free = weights.packed_bytes * copies, self.free_bytes(strategy)
        if needed > free:
            raise BadInput(
                f"weights: {format_bytes(needed)} are needed to place them {strategy}, {format_bytes(free)} are free"
            )
        placed = CpuPlaced(weights, strategy, copies, self.scratch)
        self._open.append(placed)
        return placed

    def gemv(self, placed: Placed, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        with self.read_arm(placed, x) as arm:
            arm.run(1)
            y = arm.output()
        assert y is not None
        if np.isnan(y).any():
            raise ConditionNotMet(
                "gemv: NaN in the output: an activation or scale is not finite, or a row was not written"
            )
        return y

    def read_arm(self, placed: Placed, x: npt.ArrayLike, form: str = "eager") -> CpuArm:
        mine = self._own(placed, form)
        activation = np.ascontiguousarray(x, np.float32)
        if activation.shape != (mine.k,):
            raise BadInput(f"x: shape {activation.shape} does not fit weights with k = {mine.k}; give a vector [k]")
        y = np.full(mine.n, np.nan, np.float32)  # poisoned: a row that is never written shows

        parts = pieces(mine.n, mine.packed_bytes, PIECES[mine.strategy])

        def work(index: int) -> None:
            packed, scales, zeros = mine.packed(index), mine.scales[index], mine.zero_points[index]
            for rows in parts:
                kernels.gemv(
                    packed[rows], scales[rows], None if zeros is None else zeros[rows], activation,
                    block=mine.block, mode=self.mode, threads=self.threads, variant=self.variant, out=y[rows],
                )  # fmt: skip

        arm = CpuArm(mine.strategy, mine, work, mine.total_bytes)
        arm.variant, arm.result = f"{self.mode}/{self.variant}", y
        return arm

    def baseline_arm(self, placed: Placed, kind: str, form: str = "eager") -> CpuArm:
        mine = self._own(placed, form)
        if kind not in self.baselines:
            raise BadInput(f"baseline: {kind!r} is not one of {', '.join(self.baselines)} (device cpu)")
        if kind == "copy_direct" and not mine.mappings:
            raise BadInput("placed: a direct copy reads a file; place the weights in_place")
        # A ring of targets like a walk's, as far as they are small: one alone would stay in the cache.
        targets = [whole_pages(mine.packed_bytes) for _ in range(min(WALK_RING, mine.copies))]
        parts = pieces(mine.packed_bytes, mine.packed_bytes, COPY_PIECE)

        def work(index: int) -> None:
            target, source = targets[index % len(targets)], mine.packed(index).reshape(-1)
            for part in parts:
                kernels.copy(target[: len(source)][part], source[part], threads=1)

        def direct(index: int) -> None:
            mine.mappings[index].read_direct(targets[index % len(targets)])

        return CpuArm(kind, mine, direct if kind == "copy_direct" else work, mine.packed_bytes)

    def walk_arm(
        self,
        steps: Sequence[Placed],
        x: npt.ArrayLike,
        schedule: str = "serial",
        form: str = "eager",
        *,
        ring: int = WALK_RING,
    ) -> CpuWalkArm:
        from hybrid_kernels.devices.cpu_walk import CpuWalkArm

        mine = [self._own(placed, form) for placed in steps]
        return CpuWalkArm(mine, x, schedule, ring=ring, mode=self.mode, threads=self.threads, variant=self.variant)

    def stream_arm(self, placed: Placed, form: str = "eager") -> CpuArm:
        mine = self._own(placed, form)

        parts = pieces(mine.n, mine.packed_bytes, PIECES[mine.strategy])

        def work(index: int) -> None:
            packed = mine.packed(index)
            for rows in parts:
                kernels.stream_read(packed[rows], threads=self.threads)

        return CpuArm(f"stream_{mine.strategy}", mine, work, mine.packed_bytes)

    def walk_copy_arm(self, steps: Sequence[Placed], form: str = "eager", *, ring: int = WALK_RING) -> Arm:
        from hybrid_kernels.devices.cpu_walk import CpuWalkCopyArm

        return CpuWalkCopyArm([self._own(placed, form) for placed in steps], ring)

    def walk_beside_arm(self, steps: Sequence[Placed], x: npt.ArrayLike, *, ring: int = WALK_RING) -> BesideArm:
        from hybrid_kernels.devices.cpu_walk import CpuWalkBesideArm

        walk = self.walk_arm(steps, x, "overlapped", ring=ring)
        return CpuWalkBesideArm(walk)

    def facts(self) -> dict[str, Any]:
        return {
            "cache_bytes": self.cache_bytes,
            "threads": self.threads,
            "variant": f"{self.mode}/{self.variant}",
            "scratch": filesystem(self.scratch),
        }

    def free_bytes(self, strategy: str) -> int:
        return free_scratch(self.scratch) if strategy == "in_place" else _available_memory()

    def cold_copies(self, nbytes: int, strategy: str = "resident") -> int:
        # As many in files: what stands behind a disk keeps what was just read, and gave it a quarter faster again.
        return max(math.ceil(COLD_CACHES * self.cache_bytes / nbytes), 1)

    def is_cold(self, nbytes: int, strategy: str, copies: int) -> bool:
        return strategy == "in_place" or super().is_cold(nbytes, strategy, copies)  # evicted before it is read

    def limit_gbs(self, tier: str) -> float | None:
        return None  # no interface tells what a memory bus or a disk can do; the streaming read is the ceiling

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def _own(self, placed: Placed, form: str) -> CpuPlaced:
        if form not in self.forms:
            raise BadInput(f"form: {form!r} does not exist on device cpu; use {', '.join(self.forms)}")
        if not isinstance(placed, CpuPlaced):
            raise BadInput("placed: these weights were placed on another device; place them on device cpu")
        return placed


def _available_memory() -> int:
    """Bytes that can be taken without swapping, a tenth kept for everybody else; a cgroup's limit counts too."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        if limit != "max":
            free = min(free, int(limit) - used)
    except (OSError, ValueError):
        pass
    return max(int(free * 0.9), 0)
