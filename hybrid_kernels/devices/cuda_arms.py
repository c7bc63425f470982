"""What is timed on a GPU: copies and streaming reads, eager or replayed from a captured graph.

An arm puts whole batches on a stream behind a gate and reads the device's events (`CudaDevice.time_batch`), so neither
the host's dispatch nor a graph's capture stands inside a timed region.
"""

from __future__ import annotations

import contextlib
import statistics
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.devices.base import Access, Arm
from hybrid_kernels.devices.cuda_memory import DeviceBuffer, stride
from hybrid_kernels.errors import BadInput, DeviceFailure
from hybrid_kernels.kernels import launch

if TYPE_CHECKING:
    from hybrid_kernels.devices.cuda import CudaDevice, CudaPlaced

LINE = 128
"""Bytes of a cache line, and of the widest request that reaches a link."""
GATE_NODES = 1024
"""Nodes of one graph behind a closed gate. About 5000 blocked the host there (H200, driver 580)."""
GRAPHS_KEPT = 32
"""Captured graphs an arm keeps: one for each (first buffer, number of passes) it was asked for lately."""


class Graph:
    """Passes captured from a stream, ready to be replayed."""

    def __init__(self, enqueue: Callable[[], None], stream: Any, *, start_early: bool = False) -> None:
        handle = int(stream.handle)
        cuda_driver.begin_capture(handle)
        try:
            enqueue()
        except BaseException:
            with contextlib.suppress(DeviceFailure):  # only to leave capture mode; the first error is raised
                cuda_driver.destroy_graph(cuda_driver.end_capture(handle))
            raise
        graph = cuda_driver.end_capture(handle)
        try:
            if start_early:
                cuda_driver.start_kernels_early(graph)
            self._executable: Any = cuda_driver.instantiate(graph)
        finally:
            cuda_driver.destroy_graph(graph)
        self._stream = cuda_driver.stream_handle(handle)
        cuda_driver.upload(self._executable, handle)

    def replay(self) -> None:
        """Put all captured passes on the stream they were captured from."""
        cuda_driver.launch(self._executable, self._stream)

    def close(self) -> None:
        executable, self._executable = self._executable, None
        if executable is not None:
            cuda_driver.destroy_executable(executable)


class CudaArm(Arm):
    """One thing to time on a GPU. Subclasses say how one pass over buffer `index` is put on the device's stream."""

    operations = 1
    """Entries that one pass puts into the launch queue, which holds only so many."""
    _starts_early = False
    """Whether a graph may start each of its kernels before the last one has ended (`Launch.starts_early`)."""

    def __init__(self, device: CudaDevice, label: str, form: str, copies: int) -> None:
        super().__init__()
        if form not in device.forms:
            raise BadInput(f"form: {form!r} is not one of {', '.join(device.forms)}")
        self.label, self.form, self.copies = label, form, copies
        self._device = device
        self._next = 0
        self._graphs: OrderedDict[tuple[int, int], Graph] = OrderedDict()
        self._dispatch: deque[float] = deque(maxlen=64)
        device.adopt(self)

    @abstractmethod
    def _enqueue(self, index: int) -> None:
        """Put one pass over buffer `index` (0 .. copies - 1) on the device's stream."""

    def _before(self) -> None:
        """Put on the stream what every batch needs before it starts, outside the timed region."""

    def _time(self, passes: int) -> float:
        if passes < 1:
            raise BadInput(f"passes: {passes}; do at least 1")
        order = [(self._next + i) % self.copies for i in range(passes)]
        steps: list[Callable[[], None]] = [partial(self._enqueue, index) for index in order]
        graph = self._graph(order) if self.form == "graph" else None
        self._before()
        if graph is None:
            seconds, dispatch = self._device.time_batch(steps, self.operations)
        else:
            seconds, dispatch = self._device.time_batch([graph.replay], self.operations * passes, GATE_NODES)
        self._next = (self._next + passes) % self.copies
        self._dispatch.append(dispatch / passes)
        self.dispatch_seconds = statistics.median(self._dispatch)
        return seconds

    def _graph(self, order: list[int]) -> Graph | None:
        """The graph of these passes, captured now unless it was before; None, and counted, when it cannot be."""
        key = (order[0], len(order))
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]

        def enqueue() -> None:
            for index in order:
                self._enqueue(index)

        try:
            graph = Graph(enqueue, self._device.stream, start_early=self._starts_early)
        except DeviceFailure:
            self.fallbacks += 1
            return None
        self.captures += 1
        self._graphs[key] = graph
        if len(self._graphs) > GRAPHS_KEPT:
            self._graphs.popitem(last=False)[1].close()
        return graph

    def close(self) -> None:
        self._device.release(self)
        while self._graphs:
            self._graphs.popitem()[1].close()


class CopyArm(CudaArm):
    """A plain copy of the packed bytes into device memory: no kernel, so an upper bound for one link.

    `copy` is cuMemcpyDtoD out of mapped host memory, `copy_h2d` cuMemcpyHtoD out of the same pages by their host
    address, `copy_d2d` cuMemcpyDtoD inside device memory (bytes counted once). Only the last one has to rotate over
    cold destinations: the others are bound by the link.
    """

    def __init__(self, device: CudaDevice, placed: CudaPlaced, kind: str, form: str) -> None:
        import pycuda.driver as cuda

        super().__init__(device, kind, form, placed.copies)
        self.pass_bytes = self.total_bytes = placed.packed_bytes
        self._cuda = cuda
        self._placed = placed
        self._buffers: list[DeviceBuffer] = []
        step = stride(placed.packed_bytes)
        try:
            count = placed.copies if kind == "copy_d2d" else 1
            self._to = self._take(step * count)
            self._step = step if kind == "copy_d2d" else 0
            self._from = list(placed.packed_pointers)
            if kind == "copy_d2d" and placed.host:
                inside = self._take(step * count)
                self._from = [inside.pointer + i * step for i in range(count)]
                with cuda_driver.failing(f"{kind}: filling device memory"):
                    for source, target in zip(placed.packed_pointers, self._from, strict=True):
                        cuda.memcpy_dtod(target, source, placed.packed_bytes)
        except BaseException:
            self.close()
            raise
        self.device_bytes = sum(buffer.nbytes for buffer in self._buffers)

    def _take(self, nbytes: int) -> DeviceBuffer:
        self._buffers.append(DeviceBuffer(nbytes, self.label))
        return self._buffers[-1]

    def _enqueue(self, index: int) -> None:
        target, stream = self._to.pointer + index * self._step, self._device.stream
        if self.label == "copy_h2d":
            self._cuda.memcpy_htod_async(target, self._placed.host[index], stream)
        else:
            self._cuda.memcpy_dtod_async(target, self._from[index], self._placed.packed_bytes, stream)

    def close(self) -> None:
        super().close()
        while self._buffers:
            self._buffers.pop().close()


class StreamArm(CudaArm):
    """Reads the packed bytes and computes nothing: the ceiling of any kernel on that tier."""

    def __init__(self, device: CudaDevice, placed: CudaPlaced, form: str) -> None:
        super().__init__(device, f"stream_{'in_place' if placed.host else 'resident'}", form, placed.copies)
        self.pass_bytes = self.total_bytes = placed.packed_bytes
        self._placed = placed
        try:
            self._launch = launch.stream(placed.packed_bytes, device.shape)
            self._sink = DeviceBuffer(4 * self._launch.grid[0], self.label)
            self._kernel = device.kernels.function("stream_read.cu", self._launch.kernel, "PQP")
        except BaseException:
            self.close()
            raise

    def _enqueue(self, index: int) -> None:
        self._kernel.prepared_async_call(
            self._launch.grid,
            self._launch.block,
            self._device.stream,
            self._placed.packed_pointers[index],
            self._placed.packed_bytes,
            self._sink.pointer,
        )

    def close(self) -> None:
        super().close()
        if hasattr(self, "_sink"):
            self._sink.close()


class AccessArm(CudaArm):
    """Reads the packed bytes in one pattern, nothing computed. `bytes_in_flight`: what its threads ask for at once."""

    def __init__(self, device: CudaDevice, placed: CudaPlaced, access: Access) -> None:
        tier = "in_place" if placed.host else "resident"
        super().__init__(device, f"access_{tier}", "eager", placed.copies)
        self._placed, self._offset = placed, access.offset
        # every pattern leaves out the same tail, so that all of them read the same number of bytes
        self._nbytes = (placed.packed_bytes - access.offset) // LINE * LINE
        try:
            if not 0 <= access.offset < LINE or self._nbytes < LINE:
                raise BadInput(f"offset: {access.offset} must be below {LINE}, and leave a {LINE}-byte line to read")
            self._launch = launch.access(
                request_bytes=access.request_bytes,
                loads_in_flight=access.loads_in_flight,
                nbytes=self._nbytes,
                shape=device.shape,
                pattern=access.pattern,
                blocks=access.blocks,
                threads=access.threads,
            )
            self._sink = DeviceBuffer(4 * self._launch.grid[0], self.label)
            self._kernel = device.kernels.function("stream_read.cu", self._launch.kernel, "PQIP")
        except BaseException:
            self.close()
            raise
        lane_bytes = access.request_bytes // launch.WARP if access.pattern == "coalesced" else 4
        if access.offset % lane_bytes:
            self.close()
            raise BadInput(f"offset: {access.offset} is not a multiple of the {lane_bytes} bytes that a lane loads")
        read = launch.scattered_bytes(self._nbytes, access.request_bytes)
        self.pass_bytes = self.total_bytes = read if access.pattern == "scattered" else self._nbytes
        self.bytes_in_flight = launch.bytes_in_flight(
            self._launch, lane_bytes=lane_bytes, loads_in_flight=access.loads_in_flight
        )

    def _enqueue(self, index: int) -> None:
        self._kernel.prepared_async_call(
            self._launch.grid,
            self._launch.block,
            self._device.stream,
            self._placed.packed_pointers[index],
            self._nbytes,
            self._offset,
            self._sink.pointer,
        )

    def close(self) -> None:
        super().close()
        if hasattr(self, "_sink"):
            self._sink.close()
