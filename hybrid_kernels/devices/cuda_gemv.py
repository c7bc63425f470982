"""The int4 GEMV on a GPU: one product bound to its activation and output, and the arms that read weights through it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.devices.base import Closing
from hybrid_kernels.devices.cuda_arms import CudaArm
from hybrid_kernels.devices.cuda_memory import DeviceBuffer
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.kernels import launch

if TYPE_CHECKING:
    from hybrid_kernels.devices.cuda import CudaDevice, CudaPlaced

POISON = 0xFF
"""Byte that an output is filled with before a batch: a float16 of such bytes is NaN, which no right product is."""


UNASKED_SHARED_BYTES = 48 * 1024
"""Dynamic shared memory that a kernel may have without asking for more (CUDA C++ Programming Guide)."""


def variant_of(chosen: launch.Launch) -> str:
    """The variant that a launch runs, read off its kernel's name: gemv_int4_wide2_b32_zp is `wide`."""
    found = re.match(r"gemv_int4_([a-z]+)", chosen.kernel)
    return found[1] if found else chosen.kernel


class Product(Closing):
    """y = W x with x and y in device memory, for the weights of `placed`: whole, or some rows of them at a time.

    x: float [k] that float16 holds; or None, with `pointers` to an activation and an output that the caller keeps.
    `variant` is read back from the kernel that is launched.
    BadInput for a wrong x; DeviceFailure or DeviceUnavailable when the kernel or its memory cannot be had.
    """

    def __init__(
        self,
        device: CudaDevice,
        placed: CudaPlaced,
        x: npt.ArrayLike | None,
        variant: str,
        *,
        pointers: tuple[int, int] = (0, 0),
    ) -> None:
        import pycuda.driver as cuda

        half = None if x is None else half_activation(x, placed.k)
        self._cuda, self._placed, self._variant, self._shape = cuda, placed, variant, device.shape
        self.launch = self.shape_of(placed.n)
        self.variant = variant_of(self.launch)
        self._buffers: list[DeviceBuffer] = []
        try:
            self._kernel: Any = device.kernels.function("gemv_int4.cu", self.launch.kernel, "PPPPPii")
            if self.launch.shared_bytes > UNASKED_SHARED_BYTES:
                with cuda_driver.failing(f"gemv: asking for {self.launch.shared_bytes} bytes of shared memory"):
                    attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                    self._kernel.set_attribute(attribute, self.launch.shared_bytes)
            self._x, self._y = pointers
            if half is not None:
                self._x, self._y = self._take(half.nbytes).pointer, self._take(2 * placed.n).pointer
                with cuda_driver.failing("gemv: uploading the activation"):
                    cuda.memcpy_htod(self._x, half)
        except BaseException:
            self.close()
            raise

    def _take(self, nbytes: int) -> DeviceBuffer:
        self._buffers.append(DeviceBuffer(nbytes, "gemv"))
        return self._buffers[-1]

    def shape_of(self, rows: int) -> launch.Launch:
        """The launch for `rows` of the matrix; rows of a tile are summed in the order of the whole."""
        placed = self._placed
        return launch.gemv(
            self._variant,
            n=placed.n,
            k=placed.k,
            block=placed.block,
            has_zero_points=placed.zero_pointers is not None,
            shape=self._shape,
            rows=rows,
        )

    def put(self, stream: Any, packed: int, index: int) -> None:
        """Put the product of all rows on a stream, with the packed bytes at the device pointer `packed`.

        index: the buffer whose scales and zero points are read.
        """
        self.put_rows(stream, packed, index, 0, self._placed.n, self.launch)

    def put_rows(self, stream: Any, packed: int, index: int, first: int, rows: int, shape: launch.Launch) -> None:
        """Put the product of `rows` rows from `first` on, whose packed bytes begin at `packed`, on a stream."""
        placed = self._placed
        blocks = -(-placed.k // placed.block)
        zeros = 0 if placed.zero_pointers is None else placed.zero_pointers[index] + first * -(-blocks // 2)
        self._kernel.prepared_async_call(
            shape.grid,
            shape.block,
            stream,
            packed,
            placed.scale_pointers[index] + first * blocks * 2,
            zeros,
            self._x,
            self._y + first * 2,
            rows,
            placed.k,
            shared_size=shape.shared_bytes,
        )

    def poison(self, stream: Any) -> None:
        """Put the filling of the output with NaN on a stream, so that a row that nobody wrote is seen."""
        self._cuda.memset_d8_async(self._y, POISON, 2 * self._placed.n, stream)

    def bits(self, stream: Any) -> npt.NDArray[np.float16]:
        """float16 [n] of the output as it is, once everything on the stream is done."""
        result = np.empty(self._placed.n, np.float16)
        with cuda_driver.failing("gemv: reading the output"):
            stream.synchronize()
            self._cuda.memcpy_dtoh(result, self._y)
        return result

    def close(self) -> None:
        while self._buffers:
            self._buffers.pop().close()


class ReadArm(CudaArm):
    """Reads the weights of `placed` once a pass, by the GEMV that an engine would run.

    In the form `graph`, an eager pass and a replay over the same poisoned output are compared bit by bit when the arm
    is made: ConditionNotMet when they differ.
    """

    def __init__(self, device: CudaDevice, placed: CudaPlaced, x: npt.ArrayLike, form: str, variant: str) -> None:
        super().__init__(device, placed.strategy, form, placed.copies)
        self.pass_bytes, self.total_bytes = placed.packed_bytes, placed.total_bytes
        self._placed = placed
        try:
            self._product = Product(device, placed, x, variant)
            self.variant = self._product.variant
            self._starts_early = self._product.launch.starts_early
            self._prepare()
            if form == "graph":
                self._compare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Take what a subclass needs before its first pass."""

    def _before(self) -> None:
        self._product.poison(self._device.stream)

    def _enqueue(self, index: int) -> None:
        self._product.put(self._device.stream, self._placed.packed_pointers[index], index)

    def _compare(self) -> None:
        graph = self._graph([0])
        if graph is None:  # counted as a fallback: every pass will be an eager one
            return
        outputs = []
        ways: tuple[Callable[[], None], ...] = (partial(self._enqueue, 0), graph.replay)
        for enqueue in ways:
            with cuda_driver.failing(f"{self.label}: comparing eager and replay"):
                self._before()
                enqueue()
            outputs.append(self._product.bits(self._device.stream).tobytes())
        if outputs[0] != outputs[1]:
            raise ConditionNotMet(
                f"{self.label}: a replayed graph gives other bits than the eager pass; nothing was timed"
            )

    def output(self) -> npt.NDArray[np.float32]:
        """float32 [n] of the last pass; NaN where it wrote nothing."""
        return self._product.bits(self._device.stream).astype(np.float32)

    def close(self) -> None:
        super().close()
        if hasattr(self, "_product"):
            self._product.close()


def half_activation(x: npt.ArrayLike, k: int) -> npt.NDArray[np.float16]:
    """`x` as float16 [k]. BadInput for another shape or kind, and for values that are not finite in float16."""
    values = np.asarray(x)
    if values.shape != (k,) or values.dtype.kind not in "fiu":
        raise BadInput(f"x: {values.dtype} array of shape {values.shape}; give {k} real numbers, one a column")
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise BadInput("x: holds values that are not finite in float16, which is what the GPU reads; scale them down")
    return half
