"""The CUDA device: weights resident in device memory, or read in place from host memory mapped into the GPU.

PyCUDA gives context, memory, modules, events and streams; `cuda_driver` the few calls that it lacks. The context is the
primary one, so that other libraries in the process may share it, and belongs to the thread that opened the device.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import importlib.metadata
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices import cuda_driver, cuda_kernels
from hybrid_kernels.devices.base import Access, Closing, Device, Placed
from hybrid_kernels.devices.cuda_arms import AccessArm, CopyArm, StreamArm
from hybrid_kernels.devices.cuda_gemv import ReadArm
from hybrid_kernels.devices.cuda_memory import (
    PAGE,
    SEGMENT_BYTES,
    WEIGHT_ALIGNMENT,
    DeviceBuffer,
    MappedPages,
    host_pages,
    is_file_mapping,
    stride,
)
from hybrid_kernels.devices.cuda_staged import RING, StagedArm
from hybrid_kernels.devices.cuda_walk import WalkArm, WalkCopyArm
from hybrid_kernels.errors import BadInput, ConditionNotMet, DeviceFailure, DeviceUnavailable
from hybrid_kernels.kernels import checksum, launch
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.records import WALK_RING
from hybrid_kernels.units import GB, format_bytes

DEFAULT_VARIANT = "wide"
"""The GEMV that is timed unless another is asked for: 128 bytes a request. `narrow` is what many engines run."""
COLD_FACTOR = 3
"""Distinct bytes that a rotation covers, in L2 sizes."""
GATE_OPERATIONS = 384
"""Entries put on a stream before its gate opens at the latest: a launch queue that is full blocks the host."""
GATE_LIMIT_NS = 2_000_000_000
GATE_TRIES = 3
PCI_DEVICES = Path("/sys/bus/pci/devices")
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: no implicit waiting for the default stream."""


def absent() -> str | None:
    """Why CUDA cannot be used here and what to do, in one sentence; None when it can. Makes no context."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"no NVIDIA driver here ({library} was not found): it needs an NVIDIA GPU and its driver"
    try:
        importlib.import_module("cuda.bindings.driver")
        import pycuda.driver
    except ImportError as error:
        return f"PyCUDA or cuda-bindings cannot be imported ({error}): install them with pip install '.[cuda]'"
    try:
        pycuda.driver.init()
        count = pycuda.driver.Device.count()
    except pycuda.driver.Error as error:
        return f"the NVIDIA driver does not start ({error}): check it with nvidia-smi"
    if count == 0:
        return "the NVIDIA driver shows no GPU: check with nvidia-smi, and CUDA_VISIBLE_DEVICES if it is set"
    return None if cuda_kernels.nvcc() else cuda_kernels.NVCC_MISSING


class _Closable(Protocol):
    def close(self) -> None: ...


class CudaPlaced(Placed):
    """Weights in device memory, or in mapped host pages with their scales and zero points in device memory.

    `packed_pointers`, `scale_pointers`, `zero_pointers` (None: no zero points) hold one device pointer a copy; `host`
    one uint8 array a copy where the packed bytes lie in host memory, and nothing otherwise. `segments` counts the
    registrations. Before it is handed out, a checksum of every copy is taken by the GPU and compared with the host's.
    """

    def __init__(self, device: CudaDevice, weights: Int4Weights, strategy: str, copies: int) -> None:
        self.strategy, self.copies, self.weights = strategy, copies, weights
        self.n, self.k, self.block = weights.n, weights.k, weights.block
        self.packed_bytes = weights.packed_bytes
        self.host: list[npt.NDArray[np.uint8]] = []
        self.packed_pointers: list[int] = []
        self.scale_pointers: list[int] = []
        self.zero_pointers: list[int] | None = None
        self.segments = 0
        self._device = device
        self._taken: list[Closing] = []
        scales = _half_scales(weights)
        self.total_bytes = weights.packed_bytes + scales.nbytes + weights.zero_point_bytes
        device.adopt(self)
        try:
            if strategy == "resident":
                self.packed_pointers = self._upload(weights.packed, copies)
            else:
                self._map(weights, copies)
            self.scale_pointers = self._upload(scales, copies)
            if weights.zero_points is not None:
                self.zero_pointers = self._upload(weights.zero_points, copies)
            self._verify()
        except BaseException:
            with contextlib.suppress(DeviceFailure):  # the first error is the one to report
                self.close()
            raise

    def _upload(self, array: npt.NDArray[Any], copies: int) -> list[int]:
        """Device pointers of `copies` copies of `array`."""
        import pycuda.driver as cuda

        step = stride(array.nbytes)
        buffer = DeviceBuffer(step * copies, self.strategy)
        self._taken.append(buffer)
        pointers = [buffer.pointer + i * step for i in range(copies)]
        with cuda_driver.failing(f"{self.strategy}: filling device memory"):
            for i, pointer in enumerate(pointers):
                if i == 0:
                    cuda.memcpy_htod(pointer, array)
                else:
                    cuda.memcpy_dtod(pointer, pointers[0], array.nbytes)
        return pointers

    def _map(self, weights: Int4Weights, copies: int) -> None:
        """Map `weights.packed` as it lies when it is one file mapping; otherwise copies of it in anonymous pages."""
        packed = weights.packed.reshape(-1)
        if copies == 1 and is_file_mapping(packed):
            if packed.ctypes.data % WEIGHT_ALIGNMENT:
                raise BadInput(
                    f"packed: begins {packed.ctypes.data % WEIGHT_ALIGNMENT} bytes past a multiple of "
                    f"{WEIGHT_ALIGNMENT} in its file mapping, and a lane loads {WEIGHT_ALIGNMENT} bytes at once; write "
                    "the file with aligned tensors, or pass a copy in memory"
                )
            pages, step = packed, packed.nbytes
        else:
            step = -(-packed.nbytes // PAGE) * PAGE
            pages = host_pages(step * copies)
            for i in range(copies):
                pages[i * step : i * step + packed.nbytes] = packed
        mapped = MappedPages(pages, segment_bytes=self._device.segment_bytes)
        self._taken.append(mapped)
        self.segments = mapped.segments
        self.host = [pages[i * step : i * step + packed.nbytes] for i in range(copies)]
        self.packed_pointers = [mapped.pointer + i * step for i in range(copies)]

    def _verify(self) -> None:
        wanted = checksum.host(self.weights.packed)
        for i, pointer in enumerate(self.packed_pointers):
            seen = self._device.checksum(pointer, self.packed_bytes)
            if seen != wanted:
                raise ConditionNotMet(
                    f"{self.strategy}: the GPU reads other bytes than the host in buffer {i + 1} of {self.copies} "
                    f"(checksum {seen[0]:016x}, host {wanted[0]:016x}): stale or unmapped pages; nothing was timed"
                )

    def close(self) -> None:
        self._device.release(self)
        failure: DeviceFailure | None = None
        while self._taken:
            try:
                self._taken.pop().close()
            except DeviceFailure as error:
                failure = failure or error
        self.host, self.packed_pointers, self.scale_pointers, self.zero_pointers = [], [], [], None
        if failure is not None:
            raise failure


class CudaDevice(Device):
    """One NVIDIA GPU.

    ordinal: which, in the driver's order. variant: of the GEMV kernel. segment_bytes: host memory registered at once.
    tile_bytes, ring: packed bytes of a staged tile (None: by the size of the matrix), and tiles in the ring.
    DeviceUnavailable, saying why and what to do, when CUDA cannot be used here.
    """

    name = "cuda"
    strategies = ("resident", "in_place", "staged")
    baselines = ("copy", "copy_h2d", "copy_d2d")
    forms = ("eager", "graph")

    def __init__(
        self,
        ordinal: int = 0,
        *,
        variant: str = DEFAULT_VARIANT,
        segment_bytes: int = SEGMENT_BYTES,
        tile_bytes: int | None = None,
        ring: int = RING,
    ) -> None:
        if variant not in launch.VARIANTS:
            raise BadInput(f"variant: {variant!r} is not one of {', '.join(launch.VARIANTS)}")
        for name, value in (("segment_bytes", segment_bytes), ("tile_bytes", tile_bytes), ("ring", ring)):
            if value is not None and value < 1:
                raise BadInput(f"{name}: {value} must be 1 or more")
        if (reason := absent()) is not None:
            raise DeviceUnavailable(f"cuda: {reason}")
        import pycuda.driver as cuda

        if not 0 <= ordinal < cuda.Device.count():
            raise BadInput(f"ordinal: there is no GPU {ordinal}; this machine shows {cuda.Device.count()}, from 0 on")
        self.variant, self.segment_bytes = variant, segment_bytes
        self.tile_bytes, self.ring = tile_bytes, ring
        self._cuda: Any = cuda
        self._open: dict[int, _Closable] = {}
        self._context: Any = None
        with cuda_driver.failing("opening the GPU"):
            gpu = cuda.Device(ordinal)
            attribute = cuda.device_attribute
            self.device_name = str(gpu.name())
            self.pci_bus_id: str = str(gpu.pci_bus_id())
            self.compute_capability: tuple[int, int] = tuple(gpu.compute_capability())
            self.multiprocessors = int(gpu.get_attribute(attribute.MULTIPROCESSOR_COUNT))
            self.cache_bytes = int(gpu.get_attribute(attribute.L2_CACHE_SIZE))
            self._memory_khz = int(gpu.get_attribute(attribute.MEMORY_CLOCK_RATE))
            self._bus_bits = int(gpu.get_attribute(attribute.GLOBAL_MEMORY_BUS_WIDTH))
            self.memory_bytes = int(gpu.total_memory())
            context = gpu.retain_primary_context()
            context.push()
        self._context = context
        self.shape = launch.DeviceShape(self.multiprocessors, self.cache_bytes, self.compute_capability)
        usual = launch.gemv(variant, n=5120, k=5120, block=32, has_zero_points=True, shape=self.shape)
        self.request_bytes = usual.request_bytes
        atexit.register(self.close)
        try:
            self.kernels = cuda_kernels.Kernels(self.compute_capability)
            with cuda_driver.failing("preparing the GPU"):
                self.stream: Any = cuda.Stream(NON_BLOCKING)
                self._start, self._end = cuda.Event(), cuda.Event()
                flags = cuda.host_alloc_flags.DEVICEMAP
                self._gate: Any = cuda.pagelocked_zeros(1, np.uint32, mem_flags=flags)
                self._gate_pointer = int(self._gate.base.get_device_pointer())
            self._ticket = 0
            self._hold = self.kernels.function("support.cu", "start_gate", "PIQ")
            self._sums = DeviceBuffer(16, "checksum")
        except BaseException:
            with contextlib.suppress(DeviceFailure):  # the first error is the one to report
                self.close()
            raise

    def adopt(self, part: _Closable) -> None:
        """Close `part` with the device, unless it is released before."""
        self._open[id(part)] = part

    def release(self, part: _Closable) -> None:
        """Forget a part that is closing itself, once nothing on the device uses it any more."""
        if self._open.pop(id(part), None) is not None:
            with contextlib.suppress(self._cuda.Error):  # a broken context reads nothing any more
                self._cuda.Context.synchronize()

    def close(self) -> None:
        if self._context is None:
            return
        atexit.unregister(self.close)
        failure: DeviceFailure | None = None
        with contextlib.suppress(self._cuda.Error):  # what still runs must not read memory that is given back
            self._cuda.Context.synchronize()
        parts = [*reversed(list(self._open.values())), getattr(self, "_sums", None), getattr(self, "kernels", None)]
        for part in parts:
            try:
                if part is not None:
                    part.close()
            except DeviceFailure as error:
                failure = failure or error
        # PyCUDA frees these when they are forgotten, and that needs the context.
        self.stream = self._start = self._end = self._gate = self._hold = None
        context, self._context = self._context, None
        with cuda_driver.failing("leaving the context"):
            context.pop()
            context.detach()
        if failure is not None:
            raise failure

    def place(self, weights: Int4Weights, strategy: str, *, copies: int = 1) -> CudaPlaced:
        if strategy not in self.strategies:
            raise BadInput(f"strategy: {strategy!r} is not one of {', '.join(self.strategies)}")
        if copies < 1:
            raise BadInput(f"copies: {copies}; place at least 1")
        needed, free = copies * weights.packed_bytes, self.free_bytes(strategy)
        if needed > free:
            tier = "device" if strategy == "resident" else "host"
            raise BadInput(
                f"{strategy}: {copies} x {format_bytes(weights.packed_bytes)} of weights need {format_bytes(needed)} "
                f"of {tier} memory, and {format_bytes(free)} are free; use a smaller size or fewer buffers"
            )
        return CudaPlaced(self, weights, strategy, copies)

    def gemv(self, placed: Placed, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        with self.read_arm(placed, x) as arm:
            arm.run(1)
            return arm.output()

    def read_arm(self, placed: Placed, x: npt.ArrayLike, form: str = "eager") -> ReadArm:
        own = self._own(placed)
        if own.strategy == "staged":
            return StagedArm(self, own, x, form, self.variant, tile_bytes=self.tile_bytes, ring=self.ring)
        return ReadArm(self, own, x, form, self.variant)

    def baseline_arm(self, placed: Placed, kind: str, form: str = "eager") -> CopyArm:
        own = self._own(placed)
        if kind not in self.baselines:
            raise BadInput(f"kind: {kind!r} is not one of {', '.join(self.baselines)}")
        if kind != "copy_d2d" and not own.host:
            raise BadInput(f"placed: {kind} copies out of host memory; give weights placed in_place")
        return CopyArm(self, own, kind, form)

    def stream_arm(self, placed: Placed, form: str = "eager") -> StreamArm:
        return StreamArm(self, self._own(placed), form)

    def walk_arm(
        self,
        steps: Sequence[Placed],
        x: npt.ArrayLike,
        schedule: str = "serial",
        form: str = "eager",
        *,
        ring: int = WALK_RING,
    ) -> WalkArm:
        return WalkArm(self, [self._own(step) for step in steps], x, schedule, form, self.variant, ring=ring)

    def walk_copy_arm(self, steps: Sequence[Placed], form: str = "eager", *, ring: int = WALK_RING) -> WalkCopyArm:
        return WalkCopyArm(self, [self._own(step) for step in steps], form, ring=ring)

    def access_arm(self, placed: Placed, access: Access) -> AccessArm:
        return AccessArm(self, self._own(placed), access)

    def _own(self, placed: Placed) -> CudaPlaced:
        if not isinstance(placed, CudaPlaced) or not placed.packed_pointers:
            raise BadInput("placed: give weights that this device placed and that are not closed")
        return placed

    def time_batch(
        self, steps: Sequence[Callable[[], None]], operations: int, most: int = GATE_OPERATIONS
    ) -> tuple[float, float]:
        """Seconds on the device's clock for all `steps`, and the host's seconds to enqueue them.

        Each step puts `operations` entries on the stream. A gate holds the stream until all of them are enqueued (or
        `most`, as many as its queue surely holds), and the batch counts only if the device had not begun before.
        """
        for _ in range(GATE_TRIES):
            result = self._try_batch(steps, operations, most)
            if result is not None:
                return result
        raise ConditionNotMet(
            f"timing: the host took over {GATE_LIMIT_NS / 1e9:g} s to enqueue a batch, {GATE_TRIES} times; "
            "free the processor, or ask for fewer passes"
        )

    def _try_batch(self, steps: Sequence[Callable[[], None]], operations: int, most: int) -> tuple[float, float] | None:
        self._ticket += 1
        waiting, held = 0, True
        with cuda_driver.failing("timing a batch"):
            try:
                self._hold.prepared_async_call(
                    (1, 1), (1, 1, 1), self.stream, self._gate_pointer, self._ticket, GATE_LIMIT_NS
                )
                self._start.record(self.stream)
                begin = time.perf_counter()
                valid = True
                for step in steps:
                    waiting += operations
                    if held and waiting > most:
                        valid, held = not self._start.query(), False
                        self._gate[0] = self._ticket
                    step()
                dispatch = time.perf_counter() - begin
                self._end.record(self.stream)
                if held:
                    valid = not self._start.query()
            finally:
                self._gate[0] = self._ticket
            self._end.synchronize()
            return (self._end.time_since(self._start) * 1e-3, dispatch) if valid else None

    def checksum(self, pointer: int, nbytes: int) -> tuple[int, int]:
        """The GPU's own reading of `nbytes` at a device pointer; compare with `kernels.checksum.host`."""
        result = np.zeros(2, np.uint64)
        shape = launch.checksum(nbytes, self.shape)
        kernel = self.kernels.function("stream_read.cu", shape.kernel, "PQP")
        with cuda_driver.failing("taking a checksum"):
            self._cuda.memset_d8_async(self._sums.pointer, 0, self._sums.nbytes, self.stream)
            kernel.prepared_async_call(shape.grid, shape.block, self.stream, pointer, nbytes, self._sums.pointer)
            self.stream.synchronize()
            self._cuda.memcpy_dtoh(result, self._sums.pointer)
        return int(result[0]), int(result[1])

    def facts(self) -> dict[str, Any]:
        versions = {"cuda": "{}.{}".format(*divmod(self._cuda.get_driver_version() // 10, 100))}
        for package in ("pycuda", "cuda-bindings"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        if (compiler := cuda_kernels.nvcc()) is not None:
            versions["nvcc"] = cuda_kernels.nvcc_version(compiler)
        return {
            "device": self.name,
            "device_name": self.device_name,
            "variant": self.variant,
            "cache_bytes": self.cache_bytes,
            "compute_capability": "{}.{}".format(*self.compute_capability),
            "multiprocessors": self.multiprocessors,
            "device_memory_bytes": self.memory_bytes,
            "versions": versions,
        }

    def free_bytes(self, strategy: str) -> int:
        if strategy == "resident":
            with cuda_driver.failing("asking for free device memory"):
                return int(self._cuda.mem_get_info()[0])
        return _available_host_bytes()

    def cold_copies(self, nbytes: int, strategy: str = "resident") -> int:
        return max(1, -(-COLD_FACTOR * self.cache_bytes // nbytes))

    def limit_gbs(self, tier: str) -> float | None:
        if tier == "resident":  # two transfers a clock
            return 2 * self._memory_khz * 1e3 * self._bus_bits / 8 / GB or None
        return link_limit_gbs(self.pci_bus_id)


def _half_scales(weights: Int4Weights) -> npt.NDArray[np.float16]:
    """float16 scales; BadInput for float32 ones that float16 cannot hold exactly."""
    with np.errstate(over="ignore"):
        half = weights.scales.astype(np.float16, copy=False)
    if half.dtype != weights.scales.dtype and not np.array_equal(half.astype(np.float32), weights.scales):
        raise BadInput("scales: float32 values that float16 cannot hold, which is what the GPU reads; round them first")
    return half


def _available_host_bytes() -> int:
    """Host memory that can be taken without swapping (MemAvailable of /proc/meminfo; the largest integer elsewhere)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    return sys.maxsize


def link_limit_gbs(pci_bus_id: str) -> float | None:
    """What the PCIe link of a GPU can carry, after line coding, in GB/s: 128b/130b from 8 GT/s on, 8b/10b below.

    From Linux's sysfs; None elsewhere, or where a virtual machine hides it.
    """
    folder = PCI_DEVICES / pci_bus_id.lower()[-12:]
    try:
        speed = float((folder / "max_link_speed").read_text().split()[0])
        width = int((folder / "max_link_width").read_text())
    except (OSError, ValueError, IndexError):
        return None
    if speed <= 0 or not 1 <= width <= 32:
        return None
    return speed * width / 8 * (128 / 130 if speed >= 8 else 0.8)
