"""A walk on the GPU: one decode step's projections in order, cold weights read in place or copied ahead.

Overlapped, the copy engine fills a ring of device buffers on its own stream, each matrix as soon as the product that
last used the buffer is done; products wait for the product before them and for their own weights, nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.devices.base import walk_width
from hybrid_kernels.devices.cuda_arms import CudaArm
from hybrid_kernels.devices.cuda_gemv import Product, half_activation
from hybrid_kernels.devices.cuda_memory import DeviceBuffer, stride
from hybrid_kernels.errors import BadInput
from hybrid_kernels.records import ring_buffers

if TYPE_CHECKING:
    from hybrid_kernels.devices.cuda import CudaDevice, CudaPlaced


class WalkArm(CudaArm):
    """One pass is a walk over `steps`. `Device.walk_arm` says what activations and schedules are."""

    def __init__(
        self,
        device: CudaDevice,
        steps: Sequence[CudaPlaced],
        x: npt.ArrayLike,
        schedule: str,
        form: str,
        variant: str,
        *,
        ring: int,
    ) -> None:
        import pycuda.driver as cuda

        width = walk_width(steps, schedule, ring)
        start = half_activation(x, width)
        super().__init__(device, "walk", form, copies=1)
        self.pass_bytes = sum(step.packed_bytes for step in steps)
        self.total_bytes = sum(step.total_bytes for step in steps)
        self._cuda, self._steps = cuda, list(steps)
        self._ahead = [schedule == "overlapped" and bool(step.host) for step in steps]
        self._cold = [step for step, ahead in zip(steps, self._ahead, strict=True) if ahead]
        self._slots = min(ring, len(self._cold))
        self.operations = len(steps) + 5 * len(self._cold) + 2
        self._taken: list[DeviceBuffer] = []
        self._products: list[Product] = []
        try:
            bytes_each = stride(2 * width)
            self._initial, self._activations = self._take(2 * bytes_each), self._take(2 * bytes_each)
            both = np.zeros(bytes_each, np.float16)  # two buffers of half that many elements
            both[:width], both[bytes_each // 2 : bytes_each // 2 + width] = start, start[::-1]
            self._width, self._second = width, bytes_each
            with cuda_driver.failing("walk: uploading the activations"):
                cuda.memcpy_htod(self._initial.pointer, both)
            spots = (self._activations.pointer, self._activations.pointer + bytes_each)
            for index, step in enumerate(steps):
                source, target = spots[index % 2], spots[(index + 1) % 2]
                self._products.append(Product(device, step, None, variant, pointers=(source, target)))
            self.variant = self._products[0].variant
            self._starts_early = all(product.launch.starts_early for product in self._products)
            if self._slots:
                self._prepare_ring(cuda)
        except BaseException:
            self.close()
            raise

    def _take(self, nbytes: int) -> DeviceBuffer:
        self._taken.append(DeviceBuffer(nbytes, self.label))
        return self._taken[-1]

    def _prepare_ring(self, cuda: Any) -> None:
        sizes = [stride(size) for size in ring_buffers([step.packed_bytes for step in self._cold], self._slots)]
        self._ring = self._take(sum(sizes))
        self._buffers = [self._ring.pointer + start for start in itertools.accumulate(sizes[:-1], initial=0)]
        self.device_bytes = self._ring.nbytes
        flags = cuda.event_flags.DISABLE_TIMING
        with cuda_driver.failing("walk: preparing the ring"):
            self._copying = cuda.Stream(1)  # CU_STREAM_NON_BLOCKING
            self._begun = cuda.Event(flags)
            self._filled = [cuda.Event(flags) for _ in range(self._slots)]
            self._emptied = [cuda.Event(flags) for _ in range(self._slots)]

    def _before(self) -> None:
        both = 2 * self._second
        self._cuda.memcpy_dtod_async(self._activations.pointer, self._initial.pointer, both, self._device.stream)

    def _enqueue(self, index: int) -> None:
        stream, moved = self._device.stream, 0
        if self._slots:
            self._begun.record(stream)
            self._copying.wait_for_event(self._begun)
            for _ in range(self._slots):  # the first copies start with the step, whatever it begins with
                moved = self._copy_next(moved)
        used = 0
        for step, ahead, product in zip(self._steps, self._ahead, self._products, strict=True):
            if not ahead:
                product.put(stream, step.packed_pointers[0], 0)
                continue
            slot = used % self._slots
            stream.wait_for_event(self._filled[slot])
            product.put(stream, self._buffers[slot], 0)
            used += 1
            if moved < len(self._cold):
                self._emptied[slot].record(stream)
                self._copying.wait_for_event(self._emptied[slot])
                moved = self._copy_next(moved)

    def _copy_next(self, moved: int) -> int:
        """Put the copy of the next cold matrix on the copying stream; returns how many are under way by then."""
        step, slot = self._cold[moved], moved % self._slots
        self._cuda.memcpy_dtod_async(self._buffers[slot], step.packed_pointers[0], step.packed_bytes, self._copying)
        self._filled[slot].record(self._copying)
        return moved + 1

    def output(self) -> npt.NDArray[np.float32]:
        """float32 [2 width]: both activation buffers after the last walk."""
        both = np.empty(self._second, np.float16)
        with cuda_driver.failing("walk: reading the activations"):
            self._device.stream.synchronize()
            self._cuda.memcpy_dtoh(both, self._activations.pointer)
        second = self._second // 2
        return np.concatenate([both[: self._width], both[second : second + self._width]]).astype(np.float32)

    def close(self) -> None:
        super().close()
        self._copying = self._begun = None
        self._filled, self._emptied = [], []
        for product in getattr(self, "_products", []):
            product.close()
        while getattr(self, "_taken", []):
            self._taken.pop().close()


class WalkCopyArm(CudaArm):
    """One pass copies the cold weights of a walk into a ring like the walk's, one matrix after the other."""

    def __init__(self, device: CudaDevice, steps: Sequence[CudaPlaced], form: str, *, ring: int) -> None:
        import pycuda.driver as cuda

        if not steps or not all(step.host for step in steps):
            raise BadInput("steps: a copy ahead reads host memory; give matrices placed in_place")
        super().__init__(device, "walk_copy", form, copies=1)
        self.pass_bytes = self.total_bytes = sum(step.packed_bytes for step in steps)
        self._cuda, self._steps, self.operations = cuda, list(steps), len(steps)
        try:
            sizes = [stride(size) for size in ring_buffers([step.packed_bytes for step in steps], ring)]
            self._buffer = DeviceBuffer(sum(sizes), self.label)
        except BaseException:
            self.close()
            raise
        self.device_bytes = self._buffer.nbytes
        self._ring = [self._buffer.pointer + start for start in itertools.accumulate(sizes[:-1], initial=0)]

    def _enqueue(self, index: int) -> None:
        for step, target in zip(self._steps, itertools.cycle(self._ring), strict=False):
            self._cuda.memcpy_dtod_async(target, step.packed_pointers[0], step.packed_bytes, self._device.stream)

    def close(self) -> None:
        super().close()
        if hasattr(self, "_buffer"):
            self._buffer.close()
