"""A made-up GPU for tests that need no real one."""

import importlib.util
import sys
from pathlib import Path

import pytest

from hybrid_kernels.devices import cuda, cuda_driver, cuda_kernels

_spec = importlib.util.spec_from_file_location("fake_cuda", Path(__file__).with_name("fake_cuda.py"))
fake_cuda = importlib.util.module_from_spec(_spec)
sys.modules["fake_cuda"] = fake_cuda
_spec.loader.exec_module(fake_cuda)


@pytest.fixture
def gpu(monkeypatch):
    """A made-up GPU behind PyCUDA's and cuda-bindings' names; afterwards nothing of it may be left in use."""
    gpu = fake_cuda.FakeGpu()
    pycuda_driver, bindings = fake_cuda.build(gpu)
    pycuda = type(sys)("pycuda")
    pycuda.driver = pycuda_driver
    parent, package = type(sys)("cuda"), type(sys)("cuda.bindings")
    parent.bindings, package.driver = package, bindings
    for name, module in {
        "pycuda": pycuda,
        "pycuda.driver": pycuda_driver,
        "cuda": parent,
        "cuda.bindings": package,
        "cuda.bindings.driver": bindings,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "absent", lambda: None)
    monkeypatch.setattr(cuda_kernels, "cubin", lambda source, architecture: source.read_bytes())
    cuda_driver._names_by_text.cache_clear()
    yield gpu
    cuda_driver._names_by_text.cache_clear()
    assert not gpu.registered, "host memory left registered"
    assert not gpu.allocated, "device memory left allocated"
    assert not gpu.contexts, "context left current"
    assert gpu.graphs == gpu.executables == 0, "graphs left alive"
