"""A GPU that is not there: the calls of PyCUDA and cuda-bindings that the CUDA device makes, over host memory.

It is stricter than a real one. Work on a stream runs as late as it may, and the streams in an adversarial order, so a
missing wait shows as wrong bits. Every address that a kernel or a copy touches must lie in memory that is allocated or
registered at that moment. The clock is made up: a fixed time per byte, so timings are exact.
"""

from __future__ import annotations

import bisect
import ctypes
import enum
import struct
import types
import weakref

import numpy as np

from hybrid_kernels.kernels import checksum

SECONDS_PER_BYTE = 1e-9


class CUresult(enum.IntEnum):
    """A few of the driver's results."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_PERMITTED = 800
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905


class Error(Exception):
    """PyCUDA's base error: its text is all that it carries."""


def error(call, text):
    return Error(f"{call} failed: {text}")


class FakeGpu:
    """State of the made-up GPU, and knobs that make it fail on purpose."""

    def __init__(self, memory=2**30):
        self.memory = memory
        self.allocated = {}  # address: array
        self.registered = {}  # address: bytes
        self.offset = 0  # device pointers of registered memory lie this far from the host's addresses
        self.gap_after = None  # the segment after this address is mapped somewhere else
        self.refuse = lambda address, nbytes: None  # a CUresult makes the registration fail
        self.refuse_capture = False
        self.stale = None  # called with each gemv's and checksum's bytes
        self.streams = []
        self.contexts = []
        self.clock = 0.0
        self.log = []
        self.executables = 0
        self.graphs = 0
        self.early = 0  # graphs whose kernels may start early

    def range_of(self, address):
        for start, array in self.allocated.items():
            if start <= address < start + array.nbytes:
                return array, address - start
        starts = sorted(self.registered)
        at = bisect.bisect_right(starts, address - self.offset) - 1
        if at >= 0 and address - self.offset < starts[at] + self.registered[starts[at]]:
            return None, None
        raise AssertionError(f"illegal address {address:#x}")

    def view(self, address, nbytes):
        """Bytes at a device address; every page of them must be mapped or allocated."""
        if nbytes == 0:
            return np.zeros(0, np.uint8)
        array, skip = self.range_of(address)
        if array is not None:
            assert skip + nbytes <= array.nbytes, "beyond an allocation"
            return array[skip : skip + nbytes]
        for page in (*range(address, address + nbytes, 4096), address + nbytes - 1):
            self.range_of(page)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address - self.offset))

    def used(self):
        return sum(array.nbytes for array in self.allocated.values())

    def flush(self):
        """Run what is enqueued, each stream as far as it can come before the next one starts."""
        moved = True
        while moved:
            moved = False
            for stream in reversed(self.streams):
                while stream.queue and stream.queue[0].ready():
                    stream.queue.pop(0).run()
                    moved = True
        assert not any(stream.queue for stream in self.streams), "streams wait for each other"

    def spend(self, nbytes):
        self.clock += nbytes * SECONDS_PER_BYTE


class Work:
    """One entry of a stream: what it does, and whether it may be done yet."""

    def __init__(self, run, ready=lambda: True):
        self.run, self.ready = run, ready


def build(gpu):
    """(pycuda.driver, cuda.bindings.driver) as modules over `gpu`."""
    return _pycuda(gpu), _bindings(gpu)


def _pycuda(gpu):
    cuda = types.ModuleType("pycuda.driver")
    cuda.Error = Error

    class Stream:
        def __init__(self, flags=0):
            assert gpu.contexts, "no context"
            self.queue, self.capture = [], None
            self.handle = 1000 + len(gpu.streams)
            gpu.streams.append(self)

        def put(self, work):
            (self.queue if self.capture is None else self.capture).append(work)

        def synchronize(self):
            assert self.capture is None, "synchronised while capturing"
            gpu.flush()

        def wait_for_event(self, event):
            if event.capture is not None:
                self.capture = event.capture
                return
            if self.capture is not None:
                raise error("cuStreamWaitEvent", "dependency created on uncaptured work in another stream")
            seen = event.records
            self.put(Work(lambda: None, lambda: event.done >= seen))

    class Event:
        def __init__(self, flags=0):
            self.records = self.done = 0
            self.capture, self.time = None, None

        def record(self, stream):
            self.capture = stream.capture
            if stream.capture is None:
                self.records += 1
            stream.put(Work(self._happen))
            return self

        def _happen(self):
            self.done, self.time = self.done + 1, gpu.clock

        def query(self):
            return self.done >= self.records

        def synchronize(self):
            gpu.flush()
            return self

        def time_since(self, start):
            assert self.query()
            assert start.query()
            return (self.time - start.time) * 1e3

    class Allocation:
        def __init__(self, nbytes):
            if gpu.used() + nbytes > gpu.memory:
                raise error("cuMemAlloc", "out of memory")
            raw = np.random.default_rng(0).integers(0, 256, nbytes + 256, dtype=np.uint8)
            skip = -raw.ctypes.data % 256
            self.array = raw[skip : skip + nbytes]
            self.address = self.array.ctypes.data
            gpu.allocated[self.address] = self.array

        def __int__(self):
            return self.address

        def free(self):
            gpu.flush()
            del gpu.allocated[self.address]

    class Context:
        def push(self):
            gpu.contexts.append(self)

        @staticmethod
        def pop():
            gpu.contexts.pop()

        def detach(self):
            gpu.log.append("detached")

        @staticmethod
        def synchronize():
            gpu.flush()

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        @staticmethod
        def count():
            return 1

        def name(self):
            return "Made-up GPU"

        def pci_bus_id(self):
            return "0000:00:00.0"

        def compute_capability(self):
            return (9, 0)

        def total_memory(self):
            return gpu.memory

        def get_attribute(self, name):
            return {"MULTIPROCESSOR_COUNT": 4, "L2_CACHE_SIZE": 2**16, "MEMORY_CLOCK_RATE": 1000000}.get(name, 512)

        def retain_primary_context(self):
            return Context()

    def copy(target, source, nbytes, stream):
        def run():
            gpu.view(int(target), nbytes)[:] = source()
            gpu.spend(nbytes)

        stream.put(Work(run))

    def now(run):
        assert gpu.contexts, "no context"
        gpu.flush()
        run()

    def raw(array):
        return np.frombuffer(memoryview(np.ascontiguousarray(array)).cast("B"), np.uint8)

    def memcpy_dtoh(target, source):
        now(lambda: target.reshape(-1).view(np.uint8).__setitem__(slice(None), gpu.view(int(source), target.nbytes)))

    def memset_d8_async(target, value, nbytes, stream):
        stream.put(Work(lambda: gpu.view(int(target), nbytes).fill(value)))

    class Function:
        def __init__(self, name):
            self.name = name

        def prepare(self, arguments):
            self.format = "".join(arguments)
            return self

        def set_attribute(self, attribute, value):
            gpu.log.append((self.name, attribute, value))

        def prepared_async_call(self, grid, block, stream, *arguments, shared_size=0):
            struct.pack(self.format, *arguments)
            assert all(isinstance(v, int) and v >= 1 for v in (*grid, *block))
            assert np.prod(block) <= 1024
            stream.put(Work(lambda: run_kernel(gpu, self.name, grid, block, arguments)))

    class Module:
        def get_function(self, name):
            return Function(name)

    class Pagelocked:
        """As pagelocked_zeros gives: an array whose base knows its device pointer."""

        def __init__(self, shape, dtype, mem_flags=0):
            assert mem_flags == 2
            self.array = np.zeros(shape, dtype)
            address = self.array.ctypes.data
            gpu.registered[address] = self.array.nbytes
            self.base = types.SimpleNamespace(get_device_pointer=lambda: address + gpu.offset)
            weakref.finalize(self, gpu.registered.pop, address)

        def __setitem__(self, key, value):
            self.array[key] = value

    cuda.init = lambda: None
    cuda.get_driver_version = lambda: 13000
    cuda.mem_get_info = lambda: (gpu.memory - gpu.used(), gpu.memory)
    cuda.Stream, cuda.Event, cuda.Device, cuda.Context = Stream, Event, Device, Context
    cuda.mem_alloc = Allocation
    cuda.memcpy_htod = lambda target, array: now(
        lambda: gpu.view(int(target), array.nbytes).__setitem__(slice(None), raw(array))
    )
    cuda.memcpy_dtod = lambda target, source, nbytes: now(
        lambda: gpu.view(int(target), nbytes).__setitem__(slice(None), gpu.view(int(source), nbytes))
    )
    cuda.memcpy_dtoh = memcpy_dtoh
    cuda.memcpy_dtod_async = lambda target, source, nbytes, stream: copy(
        target, lambda: gpu.view(int(source), nbytes), nbytes, stream
    )
    cuda.memcpy_htod_async = lambda target, array, stream: copy(target, lambda: raw(array), array.nbytes, stream)
    cuda.memset_d8_async = memset_d8_async
    cuda.module_from_buffer = lambda code: Module()
    cuda.pagelocked_zeros = Pagelocked
    names = ("MULTIPROCESSOR_COUNT", "L2_CACHE_SIZE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH")
    cuda.device_attribute = types.SimpleNamespace(**{name: name for name in names})
    cuda.function_attribute = types.SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="MAX_DYNAMIC_SHARED_SIZE_BYTES")
    cuda.event_flags = types.SimpleNamespace(DISABLE_TIMING=2)
    cuda.host_alloc_flags = types.SimpleNamespace(DEVICEMAP=2)
    return cuda


def run_kernel(gpu, name, grid, block, arguments):
    """What each kernel does, written plainly."""
    if name == "start_gate":
        flag, ticket, _ = arguments
        assert gpu.view(flag, 4).view(np.uint32)[0] >= ticket, "the gate was never opened"
    elif name == "checksum":
        data, nbytes, out = arguments
        seen = gpu.view(data, nbytes).copy()
        if gpu.stale is not None:
            seen = gpu.stale(seen)
        gpu.view(out, 16).view(np.uint64)[:] = checksum.host(seen)
    elif name == "stream_read" or name.startswith("access_"):
        data, nbytes, *offset, sink = arguments
        gpu.view(data + (offset[0] if offset else 0), nbytes)
        gpu.view(sink, 4 * grid[0])[:] = 1
        gpu.spend(nbytes)
    elif name.startswith("gemv_int4_"):
        *_, size, suffix = name.split("_")
        rows_a_block = block[1] if "narrow" in name else 8 * block[2]
        assert grid[0] * rows_a_block >= arguments[5] or "wide" in name, "rows without a thread"
        _gemv(gpu, int(size[1:]), suffix == "zp", *arguments)
    else:
        raise AssertionError(f"no kernel {name}")


def _gemv(gpu, block, has_zeros, packed, scales, zeros, x, y, n, k):
    blocks = -(-k // block)
    codes = gpu.view(packed, n * blocks * block // 2).reshape(n, -1)
    values = np.stack([codes & 15, codes >> 4], axis=-1).reshape(n, blocks, block).astype(np.float64)
    zero = np.full((n, blocks), 8.0)
    if has_zeros:
        row = gpu.view(zeros, n * -(-blocks // 2)).reshape(n, -1)
        zero = np.stack([row & 15, row >> 4], axis=-1).reshape(n, -1)[:, :blocks].astype(np.float64)
    scale = gpu.view(scales, 2 * n * blocks).view(np.float16).reshape(n, blocks).astype(np.float64)
    weights = ((values - zero[..., None]) * scale[..., None]).reshape(n, -1)[:, :k]
    activation = gpu.view(x, 2 * k).view(np.float16).astype(np.float64)
    gpu.view(y, 2 * n).view(np.float16)[:] = [float(np.dot(row, activation)) for row in weights]
    gpu.spend(n * blocks * block // 2)


def _bindings(gpu):
    driver = types.ModuleType("cuda.bindings.driver")
    driver.CUresult = CUresult
    driver.CU_MEMHOSTREGISTER_DEVICEMAP, driver.CU_MEMHOSTREGISTER_READ_ONLY = 2, 8
    driver.CUstreamCaptureMode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    driver.CUstream = int
    done = CUresult.CUDA_SUCCESS
    texts = {CUresult.CUDA_ERROR_OUT_OF_MEMORY: b"out of memory"}

    def stream(handle):
        return next(s for s in gpu.streams if s.handle == int(handle))

    def register(address, nbytes, flags):
        assert flags == 10, "not mapped read-only"
        assert gpu.contexts, "no context"
        assert address % 4096 == 0
        assert nbytes % 4096 == 0
        code = gpu.refuse(address, nbytes)
        if code is not None:
            return (code,)
        assert not any(a < address + nbytes and address < a + n for a, n in gpu.registered.items() if n >= 4096)
        gpu.registered[address] = nbytes
        return (done,)

    def device_pointer(address, flags):
        if address not in gpu.registered:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        gap = gpu.gap_after is not None and address > gpu.gap_after
        return done, address + gpu.offset + (4096 if gap else 0)

    def unregister(address):
        gpu.flush()
        if address not in gpu.registered:
            return (CUresult.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,)
        del gpu.registered[address]
        return (done,)

    def begin(handle, mode):
        stream(handle).capture = []
        return (done,)

    def end(handle):
        graph = stream(handle).capture
        for other in gpu.streams:
            if other.capture is graph:
                other.capture = None
        if gpu.refuse_capture:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, None
        gpu.graphs += 1
        return done, graph

    def instantiate(graph, flags):
        gpu.executables += 1
        return done, list(graph)

    def edges(graph, count=0):  # what is captured runs in its order here: an early start changes nothing
        gpu.early += 1
        return done, [], [], [], 0

    def launch(executable, handle):
        for work in executable:
            stream(handle).put(work)
        return (done,)

    def forget(name):
        def destroy(what):
            setattr(gpu, name, getattr(gpu, name) - 1)
            return (done,)

        return destroy

    driver.cuGetErrorString = lambda code: (done, texts.get(code, b"something else"))
    driver.cuMemHostRegister, driver.cuMemHostGetDevicePointer = register, device_pointer
    driver.cuMemHostUnregister = unregister
    driver.cuStreamBeginCapture, driver.cuStreamEndCapture = begin, end
    driver.cuGraphInstantiate, driver.cuGraphLaunch = instantiate, launch
    driver.cuGraphGetEdges = edges
    driver.cuGraphUpload = lambda executable, handle: (done,)
    driver.cuGraphDestroy, driver.cuGraphExecDestroy = forget("graphs"), forget("executables")
    return driver
