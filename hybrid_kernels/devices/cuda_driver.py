"""The driver calls that PyCUDA lacks, through cuda-bindings, and CUDA's own names for what fails.

Read-only host registration, stream capture and graphs: PyCUDA 2026.1 has no flag for the first and no call for the
others (its own `register_host_memory` must not be called: inducer/pycuda #459). Both libraries share the primary
context, and a PyCUDA stream's `handle` passes between them. Every function here needs that context to be current.

Addresses and device pointers are plain integers in bytes; handles are cuda-bindings objects that callers only pass on.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from hybrid_kernels.errors import DeviceFailure


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _values(what: str, name: str, *arguments: Any) -> list[Any]:
    """Call `name` of the driver; DeviceFailure with CUDA's name for the result unless it succeeded."""
    status, *values = getattr(_driver(), name)(*arguments)
    if int(status) != 0:
        code = str(getattr(status, "name", status))
        raise DeviceFailure(f"{what} failed with {code} ({name})", code)
    return list(values)


def _call(what: str, name: str, *arguments: Any) -> Any:
    """As `_values`, for calls that give one value or none."""
    values = _values(what, name, *arguments)
    return values[0] if values else None


def register(address: int, nbytes: int) -> None:
    """Page-lock `nbytes` of host memory from `address` on, read-only for the GPU, and map it into its address space.

    DeviceFailure with CUDA's name when the driver refuses.
    """
    driver = _driver()
    flags = driver.CU_MEMHOSTREGISTER_DEVICEMAP | driver.CU_MEMHOSTREGISTER_READ_ONLY
    _call(f"registering {nbytes} bytes of host memory", "cuMemHostRegister", address, nbytes, flags)


def device_pointer(address: int) -> int:
    """Where the GPU sees registered host memory that begins at `address`."""
    return int(_call("mapping registered host memory", "cuMemHostGetDevicePointer", address, 0))


def unregister(address: int) -> None:
    """Undo `register` of the range that begins at `address`."""
    _call("unregistering host memory", "cuMemHostUnregister", address)


def begin_capture(stream: int) -> None:
    """Record what is put on the stream with this handle (and on streams that wait for it) instead of running it."""
    driver = _driver()
    # Relaxed: objects that the garbage collector frees meanwhile must not spoil the capture.
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _call("beginning a capture", "cuStreamBeginCapture", driver.CUstream(stream), mode)


def end_capture(stream: int) -> Any:
    """The graph recorded since `begin_capture`. DeviceFailure when something put on the stream cannot be captured."""
    return _call("ending a capture", "cuStreamEndCapture", _driver().CUstream(stream))


def start_kernels_early(graph: Any) -> int:
    """Let every kernel of a recorded graph start before the kernel it depends on has ended; other edges stay.

    Returns the number of edges changed (CUDA C++ Programming Guide, "Programmatic Dependent Launch"). Only for kernels
    that wait by themselves before they touch what the kernel before may write, from compute capability 9.0 on.
    """
    driver = _driver()
    names = [f"cuGraph{name}" for name in ("GetEdges", "RemoveDependencies", "AddDependencies")]
    get, remove, add = [f"{name}_v2" if hasattr(driver, f"{name}_v2") else name for name in names]  # cuda-bindings 12
    what = "letting kernels of a graph start early"
    (*_, count) = _values(what, get, graph)
    if not count:
        return 0
    starts, ends, data, count = _values(what, get, graph, count)
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    kinds = {int(node): _call(what, "cuGraphNodeGetType", node) for node in (*starts[:count], *ends[:count])}
    edges = [
        (start, end, old)
        for start, end, old in zip(starts[:count], ends[:count], data[:count], strict=True)
        if kinds[int(start)] == kernel and kinds[int(end)] == kernel
    ]
    if not edges:
        return 0
    new = driver.CUgraphEdgeData()
    new.from_port = driver.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    new.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    from_, to, old = (list(column) for column in zip(*edges, strict=True))
    _call(what, remove, graph, from_, to, old, len(edges))
    _call(what, add, graph, from_, to, [new] * len(edges), len(edges))
    return len(edges)


def instantiate(graph: Any) -> Any:
    """An executable graph. The recorded one may be destroyed afterwards."""
    return _call("instantiating a graph", "cuGraphInstantiate", graph, 0)


def upload(executable: Any, stream: int) -> None:
    """Bring an executable graph to the device ahead of its first launch."""
    _call("uploading a graph", "cuGraphUpload", executable, _driver().CUstream(stream))


def launch(executable: Any, stream: Any) -> None:
    """Put an executable graph on a stream (a handle from `stream_handle`)."""
    status = _driver().cuGraphLaunch(executable, stream)[0]
    if int(status) != 0:
        raise DeviceFailure(f"launching a graph failed with {status.name} (cuGraphLaunch)", str(status.name))


def stream_handle(stream: int) -> Any:
    """A PyCUDA stream's handle as the object that `launch` takes: made once, since launches are counted in us."""
    return _driver().CUstream(stream)


def destroy_graph(graph: Any) -> None:
    """Free a recorded graph."""
    _call("destroying a graph", "cuGraphDestroy", graph)


def destroy_executable(executable: Any) -> None:
    """Free an executable graph; it must not be running."""
    _call("destroying an executable graph", "cuGraphExecDestroy", executable)


@functools.cache
def _names_by_text() -> dict[str, str]:
    driver = _driver()
    names = {}
    for code in driver.CUresult:
        status, text = driver.cuGetErrorString(code)
        if int(status) == 0 and text:
            names[text.decode()] = code.name
    return names


def code_of(error: BaseException) -> str | None:
    """CUDA's name for an error of PyCUDA, which carries only the driver's sentence; None when it is another one."""
    text = str(error).partition("failed: ")[2].partition(" - ")[0].strip()
    return _names_by_text().get(text)


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Turn an error of PyCUDA inside the block into a DeviceFailure that says `what` failed, with CUDA's name."""
    import pycuda.driver as cuda

    try:
        yield
    except cuda.Error as error:
        code = code_of(error)
        raise DeviceFailure(f"{what} failed with {code or 'an unnamed error'} ({error})", code) from error
