"""A walk on the CPU device: one decode step's projections in order, cold weights read where they lie or run ahead."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Arm, BesideArm, walk_width
from hybrid_kernels.devices.cpu import CpuPlaced, whole_pages
from hybrid_kernels.errors import BadInput
from hybrid_kernels.kernels import cpu as kernels
from hybrid_kernels.records import ring_buffers


class CpuWalkArm(Arm):
    """One pass is a walk. Cold weights are evicted before it, outside the timed region.

    Overlapped: a thread of its own reads each cold matrix from the disk (direct reads, so the page cache and the
    processor take little part) into the next free buffer of the ring, ahead of the step that needs it.
    """

    label = "walk"

    def __init__(
        self,
        steps: Sequence[CpuPlaced],
        x: npt.ArrayLike,
        schedule: str,
        *,
        ring: int,
        mode: kernels.Mode,
        threads: int,
        variant: str,
    ) -> None:
        super().__init__()
        width = walk_width(steps, schedule, ring)
        self.start = np.ascontiguousarray(x, np.float32)
        if self.start.shape != (width,):
            raise BadInput(f"x: shape {self.start.shape} must be [{width}], the largest n or k of the steps")
        self.steps, self.overlapped = list(steps), schedule == "overlapped"
        self.mode, self.threads, self.kernel = mode, threads, variant
        self.variant = f"{mode}/{variant}"
        self.pass_bytes = sum(step.packed_bytes for step in steps)
        self.total_bytes = sum(step.total_bytes for step in steps)
        self.buffers = [self.start.copy(), self.start[::-1].copy()]
        self.cold = [step for step in self.steps if step.mappings]
        self.ring: list[npt.NDArray[np.uint8]] = []
        if self.overlapped and self.cold:
            self.ring = [whole_pages(size) for size in ring_buffers([step.packed_bytes for step in self.cold], ring)]
            self.device_bytes = sum(buffer.nbytes for buffer in self.ring)

    def _time(self, passes: int) -> float:
        return sum(self._walk() for _ in range(passes))

    def _walk(self) -> float:
        for step in self.cold:
            step.evict(0)
        self.buffers[0][:], self.buffers[1][:] = self.start, self.start[::-1]
        begin = time.perf_counter()
        if self.ring:
            self._overlapped()
        else:
            for index, step in enumerate(self.steps):
                self._multiply(index, step, step.packed(0))
        return time.perf_counter() - begin

    def _overlapped(self) -> None:
        free, ready = threading.Semaphore(len(self.ring)), threading.Semaphore(0)
        stop, failed = threading.Event(), list[BaseException]()

        def ahead() -> None:
            try:
                for index, step in enumerate(self.cold):
                    free.acquire()
                    if stop.is_set():
                        return
                    step.mappings[0].read_direct(self.ring[index % len(self.ring)])
                    ready.release()
            except BaseException as error:
                failed.append(error)
                ready.release()

        reader = threading.Thread(target=ahead, name="weights ahead", daemon=True)
        reader.start()
        try:
            moved = 0
            for index, step in enumerate(self.steps):
                if not step.mappings:
                    self._multiply(index, step, step.packed(0))
                    continue
                ready.acquire()
                if failed:
                    raise failed[0]
                self._multiply(index, step, self._staged(moved))
                free.release()
                moved += 1
        finally:
            stop.set()
            free.release()
            reader.join()

    def _staged(self, number: int) -> npt.NDArray[np.uint8]:
        """Where cold matrix `number` of the walk stands once it was read."""
        step = self.cold[number]
        return self.ring[number % len(self.ring)][: step.packed_bytes].reshape(step.packed(0).shape)

    def _multiply(self, index: int, step: CpuPlaced, packed: npt.NDArray[np.uint8]) -> None:
        source, target = self.buffers[index % 2], self.buffers[(index + 1) % 2]
        kernels.gemv(
            packed, step.scales[0], step.zero_points[0], source[: step.k],
            block=step.block, mode=self.mode, threads=self.threads, variant=self.kernel, out=target[: step.n],
        )  # fmt: skip

    def output(self) -> npt.NDArray[np.float32]:
        return np.concatenate(self.buffers)

    def close(self) -> None:
        self.ring, self.steps, self.cold = [], [], []


class CpuWalkCopyArm(Arm):
    """One pass reads the cold weights of a walk from the disk into a ring like the walk's, one after the other.

    Not into one buffer: that one stays in the cache, and a read into it was up to half as long again as fast.
    """

    label = "walk_copy"

    def __init__(self, steps: Sequence[CpuPlaced], ring: int) -> None:
        super().__init__()
        if not steps or not all(step.mappings for step in steps):
            raise BadInput("steps: a copy ahead reads files; give matrices placed in_place")
        self.steps = list(steps)
        self.pass_bytes = self.total_bytes = sum(step.packed_bytes for step in steps)
        self.ring = [whole_pages(size) for size in ring_buffers([step.packed_bytes for step in steps], ring)]
        self.device_bytes = sum(buffer.nbytes for buffer in self.ring)

    def _time(self, passes: int) -> float:
        seconds = 0.0
        for _ in range(passes):
            for step in self.steps:
                step.evict(0)
            begin = time.perf_counter()
            for number, step in enumerate(self.steps):
                step.mappings[0].read_direct(self.ring[number % len(self.ring)])
            seconds += time.perf_counter() - begin
        return seconds

    def close(self) -> None:
        self.ring, self.steps = [], []


class CpuWalkBesideArm(BesideArm):
    """The reader and the products of an overlapped walk at the same time, without the order between them.

    Each product is timed alone first. Then the reader reads all cold weights over and over until the products of one
    walk are done, and products go on until the reader is: both are busy all along.
    """

    def __init__(self, walk: CpuWalkArm) -> None:
        super().__init__()
        self.walk = walk
        self.pass_bytes = self.total_bytes = sum(step.packed_bytes for step in walk.cold)

    def _time(self, passes: int) -> float:
        return sum(self._both() for _ in range(passes))

    def _both(self) -> float:
        walk = self.walk
        moved = itertools.count()
        packed = [walk._staged(next(moved)) if step.mappings else step.packed(0) for step in walk.steps]
        alone = []
        for index, step in enumerate(walk.steps):
            begin = time.perf_counter()
            walk._multiply(index, step, packed[index])
            alone.append(time.perf_counter() - begin)
        for step in walk.cold:
            step.evict(0)
        walked, rounds, failed = threading.Event(), list[float](), list[BaseException]()

        def ahead() -> None:
            try:
                while not walked.is_set() or not rounds:
                    begin = time.perf_counter()
                    for number, step in enumerate(walk.cold):
                        step.mappings[0].read_direct(walk.ring[number % len(walk.ring)])
                    rounds.append(time.perf_counter() - begin)
            except BaseException as error:
                failed.append(error)

        reader = threading.Thread(target=ahead, name="weights ahead", daemon=True)
        begin, expected = time.perf_counter(), 0.0
        reader.start()
        try:
            for index in itertools.cycle(range(len(walk.steps))):
                walk._multiply(index, walk.steps[index], packed[index])
                expected += alone[index]
                if index == len(walk.steps) - 1:
                    walked.set()
                if walked.is_set() and not reader.is_alive():
                    break
        finally:
            walked.set()
            reader.join()
        if failed:
            raise failed[0]
        self.pass_slowdowns.append((time.perf_counter() - begin) / expected)
        return sum(rounds) / len(rounds)

    def close(self) -> None:
        self.walk.close()
