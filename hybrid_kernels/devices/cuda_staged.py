"""Staged reads: tiles copied into a small ring of device buffers while the kernel works on the tile before.

The copy engine reads host memory a little faster than any kernel can, so this is how the sequential copy's figure, an
upper bound, is reached by a real GEMV; it costs the ring's device memory and a launch a tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.devices.cuda_gemv import ReadArm
from hybrid_kernels.devices.cuda_memory import DeviceBuffer, stride
from hybrid_kernels.kernels import launch
from hybrid_kernels.units import MIB

if TYPE_CHECKING:
    from hybrid_kernels.devices.cuda import CudaDevice, CudaPlaced

RING = 3
"""Tiles in the ring: one that the kernel reads, one that the copy engine fills, one in hand so that neither waits."""
MOST_TILE_BYTES, LEAST_TILE_BYTES = 8 * MIB, 4 * MIB
TILES = 8
"""A matrix is cut into about so many tiles, between the two bounds.

Measured on an H200 (docs/method.md, "Staged reads"): starting a copy costs about 3 us whatever its size, so small tiles
lose; the first tile's copy and the last tile's product overlap nothing, so a few tiles must remain; and 8 MiB a slot
keep the ring at 24 MiB. A fourth slot brought nothing, nor did a second stream to copy on.
"""


def tile_rows(placed: CudaPlaced, tile_bytes: int | None) -> int:
    """Rows in a tile of about `tile_bytes` packed bytes (None: by the size of the matrix), a multiple of ROW_TILE."""
    row = placed.packed_bytes // placed.n
    wanted = tile_bytes or min(max(placed.packed_bytes // TILES, LEAST_TILE_BYTES), MOST_TILE_BYTES)
    return max(wanted // row // launch.ROW_TILE, 1) * launch.ROW_TILE


class StagedArm(ReadArm):
    """Copies a pass's tiles on one stream and multiplies each on another, the ring's slots handed over by events.

    A pass begins when the one before has ended, as in a decode step, where the next activation depends on it.
    """

    def __init__(
        self,
        device: CudaDevice,
        placed: CudaPlaced,
        x: npt.ArrayLike,
        form: str,
        variant: str,
        *,
        tile_bytes: int | None = None,
        ring: int = RING,
    ) -> None:
        rows = tile_rows(placed, tile_bytes)
        self._tiles = [(first, min(rows, placed.n - first)) for first in range(0, placed.n, rows)]
        self._slots = min(ring, len(self._tiles))
        self._row_bytes = placed.packed_bytes // placed.n
        self._slot_bytes = stride(self._tiles[0][1] * self._row_bytes)
        self.operations = 6 * len(self._tiles) + 2
        super().__init__(device, placed, x, form, variant)

    def _prepare(self) -> None:
        import pycuda.driver as cuda

        self._buffer = DeviceBuffer(self._slots * self._slot_bytes, self.label)
        self.device_bytes = self._buffer.nbytes
        self._copy = cuda.memcpy_dtod_async
        flags = cuda.event_flags.DISABLE_TIMING
        with cuda_driver.failing("staged: preparing the ring"):
            self._copying = cuda.Stream(1)  # CU_STREAM_NON_BLOCKING
            self._begun = cuda.Event(flags)
            self._filled = [cuda.Event(flags) for _ in range(self._slots)]
            self._emptied = [cuda.Event(flags) for _ in range(self._slots)]
        self._shapes = {rows: self._product.shape_of(rows) for _, rows in self._tiles}

    def _enqueue(self, index: int) -> None:
        multiplying, copying = self._device.stream, self._copying
        source = self._placed.packed_pointers[index]
        self._begun.record(multiplying)
        copying.wait_for_event(self._begun)
        for number, (first, rows) in enumerate(self._tiles):
            slot = number % self._slots
            pointer = self._buffer.pointer + slot * self._slot_bytes
            if number >= self._slots:
                copying.wait_for_event(self._emptied[slot])
            self._copy(pointer, source + first * self._row_bytes, rows * self._row_bytes, copying)
            self._filled[slot].record(copying)
            multiplying.wait_for_event(self._filled[slot])
            self._product.put_rows(multiplying, pointer, index, first, rows, self._shapes[rows])
            if number + self._slots < len(self._tiles):
                self._emptied[slot].record(multiplying)

    def close(self) -> None:
        super().close()
        self._copying = self._begun = None
        self._filled, self._emptied = [], []
        if hasattr(self, "_buffer"):
            self._buffer.close()
