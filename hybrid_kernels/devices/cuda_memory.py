"""Host pages that a GPU reads where they lie, and device memory: both given back on every way out."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.devices.base import Closing
from hybrid_kernels.errors import ConditionNotMet, DeviceFailure
from hybrid_kernels.units import GIB

PAGE = mmap.PAGESIZE
SEGMENT_BYTES = GIB
"""Registered at once. One registration of more than 2 GiB fails on some hosts (Nerogar/OneTrainer #1082)."""
WEIGHT_ALIGNMENT = 16
"""Bytes that the first weight's address must be a multiple of: what the widest load of a lane asks for."""
BUFFER_ALIGNMENT = 256
"""Buffers in one allocation start at multiples of this: whole 128-byte lines, and what mem_alloc itself aligns to."""

Bytes = npt.NDArray[np.uint8]


class Registrar(Protocol):
    """The three calls of `cuda_driver` that map host memory. A fake in tests refuses them on purpose."""

    def register(self, address: int, nbytes: int) -> None: ...
    def device_pointer(self, address: int) -> int: ...
    def unregister(self, address: int) -> None: ...


class MappedPages(Closing):
    """The pages under `array` (uint8, C-contiguous, anonymous or a read-only file mapping), registered and mapped.

    They are registered in segments of `segment_bytes`, rounded up to whole pages. `pointer` is where the GPU sees the
    first byte of `array`; the segments must lie there one after the other, since one weight matrix may span several.

    DeviceFailure with CUDA's name when a segment is refused, ConditionNotMet when the segments are not contiguous for
    the GPU. Either way nothing stays registered: there is no other, slower way to read them behind this one's name.
    """

    def __init__(self, array: Bytes, *, segment_bytes: int = SEGMENT_BYTES, registrar: Registrar = cuda_driver) -> None:
        self.array = array
        self._registrar = registrar
        self._segments: list[int] = []
        address = array.ctypes.data
        first = address // PAGE * PAGE
        end = -(-(address + array.nbytes) // PAGE) * PAGE
        step = -(-segment_bytes // PAGE) * PAGE
        try:
            for start in range(first, end, step):
                self._register(start, min(step, end - start))
            pointers = [registrar.device_pointer(start) for start in self._segments]
            for start, pointer in zip(self._segments, pointers, strict=True):
                if pointer - pointers[0] != start - first:
                    raise ConditionNotMet(
                        f"in_place: {len(pointers)} registered segments are not contiguous in the GPU's address space; "
                        f"use a segment of at least {end - first} bytes"
                    )
        except BaseException:
            with contextlib.suppress(DeviceFailure):  # the first error is the one to report
                self.close()
            raise
        self.pointer = pointers[0] + (address - first)

    @property
    def segments(self) -> int:
        """Registrations that the pages are mapped by."""
        return len(self._segments)

    def _register(self, start: int, nbytes: int) -> None:
        self._segments.append(start)  # before the call: an interrupt right after it must still find what to undo
        try:
            self._registrar.register(start, nbytes)
        except DeviceFailure as error:
            self._segments.pop()
            raise DeviceFailure(
                f"in_place: {error}, after {len(self._segments)} segments of these pages; free host memory, raise the "
                "limit of locked memory (ulimit -l), or measure a smaller size",
                error.code,
            ) from error

    def close(self) -> None:
        """Unregister every segment; the first failure is raised after all were tried."""
        failure: DeviceFailure | None = None
        while self._segments:
            try:
                self._registrar.unregister(self._segments.pop())
            except DeviceFailure as error:
                if error.code != "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED":  # interrupted before the call took effect
                    failure = failure or error
        if failure is not None:
            raise failure


def host_pages(nbytes: int) -> Bytes:
    """uint8 [nbytes] of anonymous memory that begins on a page and shares none with anything else."""
    room = np.empty(-(-nbytes // PAGE) * PAGE + PAGE, np.uint8)
    skip = -room.ctypes.data % PAGE
    return room[skip : skip + nbytes]


def is_file_mapping(array: npt.NDArray[Any]) -> bool:
    """Whether `array` is a view of a file mapping (numpy.memmap or mmap), so of bytes as they lie in a file."""
    owner: Any = array
    while owner is not None:
        if isinstance(owner, np.memmap | mmap.mmap):
            return True
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return False


class DeviceBuffer(Closing):
    """`nbytes` of device memory. DeviceFailure with CUDA_ERROR_OUT_OF_MEMORY when there is not so much."""

    def __init__(self, nbytes: int, purpose: str) -> None:
        import pycuda.driver as cuda

        with cuda_driver.failing(f"{purpose}: taking {nbytes} bytes of device memory"):
            self._allocation: Any = cuda.mem_alloc(max(nbytes, 1))
        self.pointer = int(self._allocation)
        self.nbytes = nbytes

    def close(self) -> None:
        allocation, self._allocation = self._allocation, None
        if allocation is not None:
            allocation.free()


def stride(nbytes: int) -> int:
    """Bytes from the start of one buffer of `nbytes` to the next in one allocation."""
    return -(-nbytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
