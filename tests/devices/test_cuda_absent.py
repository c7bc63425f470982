"""Where CUDA cannot be used, one sentence says why and what to do."""

import ctypes
import sys
import types

import pytest

from hybrid_kernels.devices import cuda, cuda_kernels, open_device
from hybrid_kernels.errors import DeviceUnavailable


class Absent(Exception):
    """Stands for PyCUDA's base error."""


def pretend(monkeypatch, *, library=True, packages=True, count=1, fails=None, nvcc="/usr/bin/nvcc"):
    """A machine with a driver library, packages, GPUs and a compiler, or without one of them."""

    def load(name):
        if not library:
            raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(cuda_kernels, "nvcc", lambda: nvcc)

    def init():
        if fails:
            raise Absent(fails)

    driver = types.SimpleNamespace(init=init, Device=types.SimpleNamespace(count=lambda: count), Error=Absent)
    pycuda = types.ModuleType("pycuda")
    pycuda.driver = driver
    present = pycuda if packages else None
    for name, module in (("pycuda", present), ("pycuda.driver", driver if packages else None)):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("cuda", "cuda.bindings", "cuda.bindings.driver"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name) if packages else None)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"library": False}, "no NVIDIA driver here.*needs an NVIDIA GPU"),
        ({"packages": False}, r"PyCUDA or cuda-bindings cannot be imported.*pip install '\.\[cuda\]'"),
        ({"fails": "cuInit failed: no CUDA-capable device is detected"}, "does not start.*no CUDA-capable.*nvidia-smi"),
        ({"count": 0}, "shows no GPU.*CUDA_VISIBLE_DEVICES"),
        ({"nvcc": None}, "nvcc was not found.*pip install nvidia-cuda-nvcc"),
    ],
)
def test_each_absence_says_why_and_what_to_do(monkeypatch, machine, reason):
    """The first thing that is missing is named in one line, and opening the device fails with it."""
    pretend(monkeypatch, **machine)

    with pytest.raises(DeviceUnavailable, match=reason) as caught:
        open_device("cuda")

    assert "\n" not in str(caught.value)


def test_a_machine_with_everything_lacks_nothing(monkeypatch):
    """No reason is given where driver, packages, GPU and compiler are there."""
    pretend(monkeypatch)

    assert cuda.absent() is None
