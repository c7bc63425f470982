"""The driver calls behind cuda-bindings, against a driver that only remembers what it was asked."""

from __future__ import annotations

import enum
import types

import pytest

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.errors import DeviceFailure


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_SUPPORTED = 801


KINDS = {1: "memcpy", 2: "kernel", 3: "kernel", 4: "memcpy", 5: "kernel"}


@pytest.fixture(params=["", "_v2"])
def driver(request, monkeypatch):
    """A driver with one graph; its names as in cuda-bindings 13, and with the endings of 12."""
    edges = {(1, 2): None, (2, 3): None, (4, 5): None, (3, 5): None}
    made = types.SimpleNamespace(
        edges=edges,
        refuse=False,
        CUgraphNodeType=types.SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL="kernel"),
        CUgraphDependencyType=types.SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC=1),
        CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC=1,
        CUgraphEdgeData=types.SimpleNamespace,
        cuGraphNodeGetType=lambda node: (Result.CUDA_SUCCESS, KINDS[node]),
    )

    def get(graph, count=0):
        if not count:
            return Result.CUDA_SUCCESS, None, None, None, len(edges)
        starts, ends = zip(*edges, strict=True)
        return Result.CUDA_SUCCESS, [*starts], [*ends], [*edges.values()], len(edges)

    def remove(graph, starts, ends, data, count):
        for edge in zip(starts, ends, strict=True):
            assert edges.pop(edge) is None
        return (Result.CUDA_SUCCESS,)

    def add(graph, starts, ends, data, count):
        if made.refuse:
            return (Result.CUDA_ERROR_NOT_SUPPORTED,)
        edges.update({(a, b): (how.type, how.from_port) for a, b, how in zip(starts, ends, data, strict=True)})
        return (Result.CUDA_SUCCESS,)

    for name, call in (("GetEdges", get), ("RemoveDependencies", remove), ("AddDependencies", add)):
        setattr(made, f"cuGraph{name}{request.param}", call)
    monkeypatch.setattr(cuda_driver, "_driver", lambda: made)
    return made


def test_only_edges_between_kernels_let_the_next_start_early(driver) -> None:
    """A kernel still waits for the whole copy that brings its weights."""
    assert cuda_driver.start_kernels_early(object()) == 2
    assert driver.edges == {(1, 2): None, (4, 5): None, (2, 3): (1, 1), (3, 5): (1, 1)}


def test_a_graph_of_one_node_has_nothing_to_change(driver) -> None:
    """No edges, no calls."""
    driver.edges.clear()
    assert cuda_driver.start_kernels_early(object()) == 0


def test_a_driver_that_refuses_is_an_error_with_its_name(driver) -> None:
    """Not a graph that silently lost its order."""
    driver.refuse = True
    with pytest.raises(DeviceFailure, match="CUDA_ERROR_NOT_SUPPORTED") as caught:
        cuda_driver.start_kernels_early(object())
    assert caught.value.code == "CUDA_ERROR_NOT_SUPPORTED"
