"""Host memory mapped into a real GPU: read where it lies, all of it right, refused with CUDA's name, given back."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.devices.cuda_memory import MappedPages, host_pages
from hybrid_kernels.errors import BadInput, DeviceFailure
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import facts
from hybrid_kernels.units import GIB, MIB


def x_of(k):
    """float16 activations [k]."""
    return np.random.default_rng(0).standard_normal(k).astype(np.float16)


def child(code, **more):
    """A Python process that runs `code`, its output read as text."""
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


HOLD = """
import sys, time
from hybrid_kernels.devices import open_device
from hybrid_kernels.layout.weights import Int4Weights
with open_device("cuda") as device:
    weights = Int4Weights.random(n=26215, k=5120, block=32, seed=0)  # 64 MiB packed
    with device.place(weights, "in_place", copies=4) as placed, device.baseline_arm(placed, "copy") as arm:
        print("ready", flush=True)
        while True:
            arm.run(4)
"""


def test_a_file_mapping_is_read_in_place(device, tmp_path):
    """Weights in a read-only file mapping, as in a model file, are registered as they lie and read to the same bits."""
    weights = Int4Weights.random(n=5120, k=5120, block=32, seed=4)
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(48) + weights.packed.tobytes())
    lies = np.memmap(path, np.uint8, "r", offset=48, shape=weights.packed.shape)
    mapped = Int4Weights(lies, weights.scales, weights.zero_points, weights.n, weights.k, weights.block)
    with device.place(weights, "resident") as placed:
        resident = device.gemv(placed, x_of(5120))
    with device.place(mapped, "in_place") as placed:
        assert placed.host[0].ctypes.data == lies.ctypes.data
        assert device.gemv(placed, x_of(5120)).tobytes() == resident.tobytes()


def test_segments_are_one_range_for_the_gpu(device):
    """A matrix that spans several registrations is read to the same bits as from one."""
    weights = Int4Weights.random(n=4096, k=5120, block=32, seed=4)
    with CudaDevice(segment_bytes=MIB) as small, small.place(weights, "in_place", copies=2) as placed:
        assert placed.segments == 20
        segmented = small.gemv(placed, x_of(5120))
    with device.place(weights, "resident") as placed:
        assert device.gemv(placed, x_of(5120)).tobytes() == segmented.tobytes()


def test_a_refused_registration_has_cudas_name(device):
    """Pages that are registered already are refused by name, and stay registered for their owner."""
    pages = host_pages(MIB)
    with MappedPages(pages) as first:
        with pytest.raises(DeviceFailure, match="CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED") as caught:
            MappedPages(pages)
        assert caught.value.code == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
        assert first.pointer


def test_six_gib_of_mapped_bytes_stay_right(device):
    """More distinct mapped bytes than some platforms hold right, read in one sequence, twice: not a stale bit."""
    base = Int4Weights.random(n=104858, k=5120, block=32, seed=9)  # 256 MiB packed
    x, placed, resident = x_of(5120), [], []
    try:
        for i in range(24):
            weights = Int4Weights.from_arrays(base.packed ^ np.uint8(i), base.scales, base.zero_points)
            with device.place(weights, "resident") as once:
                resident.append(device.gemv(once, x).tobytes())
            placed.append(device.place(weights, "in_place"))
            del weights
        assert len(set(resident)) == 24
        assert sum(p.packed_bytes for p in placed) >= 6 * GIB
        for _ in range(2):
            assert [device.gemv(p, x).tobytes() for p in placed] == resident
    finally:
        for p in placed:
            p.close()


def test_a_kill_leaves_no_registered_memory(device):
    """kill -9 in the middle of copies: host and device memory come back."""
    weights = Int4Weights.random(n=512, k=512, block=32, seed=0)
    with device.place(weights, "in_place"):
        pass  # whatever the driver keeps after a first registration is kept now
    host, free = facts.memory("MemAvailable"), device.free_bytes("resident")
    process = child(HOLD)
    assert process.stdout.readline() == "ready\n"
    assert device.free_bytes("resident") < free
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    until = time.monotonic() + 20
    while time.monotonic() < until and (
        device.free_bytes("resident") < free or facts.memory("MemAvailable") < host - 512 * MIB
    ):
        time.sleep(0.2)

    assert device.free_bytes("resident") >= free
    assert facts.memory("MemAvailable") >= host - 512 * MIB


@pytest.mark.parametrize("way", ["interrupt", "exception", "forgotten"])
def test_every_way_out_leaves_the_context(way):
    """Ctrl-C, an exception and a device that nobody closes: the process ends in order, not by an abort."""
    code = {
        "interrupt": HOLD,
        "exception": HOLD.replace('print("ready", flush=True)', 'raise ValueError("planned")'),
        "forgotten": HOLD.split("with open_device")[0] + 'device = open_device("cuda")\n',
    }[way]
    process = child(code)
    if way == "interrupt":
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)

    assert process.returncode == {"interrupt": -signal.SIGINT, "exception": 1, "forgotten": 0}[way], said
    assert "PyCUDA" not in said


def test_two_processes_at_once_get_the_same_bits():
    """Two processes with mapped weights on one GPU: both right, and equal."""
    code = """
import hashlib, numpy as np
from hybrid_kernels.devices import open_device
from hybrid_kernels.layout.weights import Int4Weights
x = np.random.default_rng(0).standard_normal(5120).astype(np.float16)
digest = hashlib.sha256()
with open_device("cuda") as device:
    weights = Int4Weights.random(n=26215, k=5120, block=32, seed=0)  # 64 MiB packed
    for strategy in ("resident", "in_place", "staged"):
        with device.place(weights, strategy, copies=4) as placed, device.read_arm(placed, x, "graph") as arm:
            for _ in range(5):
                arm.run(8)
                digest.update(arm.output().tobytes())
print(digest.hexdigest())
"""
    both = [child(code), child(code)]
    ends = [(*process.communicate(timeout=200), process.returncode) for process in both]

    assert [code for _, _, code in ends] == [0, 0], ends
    assert len({out for out, _, _ in ends}) == 1


def test_out_of_memory_is_one_line(device):
    """Sizes beyond GPU or host are refused in one line that names both numbers; the command line ends with 2."""
    weights = Int4Weights.random(n=5120, k=5120, block=32, seed=0)
    with pytest.raises(BadInput, match=r"resident: .* need .* of device memory, and .* are free"):
        device.place(weights, "resident", copies=2**20)
    program = "from hybrid_kernels.cli import main; main()"
    command = [sys.executable, "-c", program, "probe", "--device", "cuda", "--sizes", "99999999"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"}, check=False)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_device_memory_that_runs_out_has_cudas_name(device, monkeypatch):
    """When the driver itself refuses, the error carries CUDA's name, and nothing stays taken."""
    weights = Int4Weights.random(n=5120, k=5120, block=32, seed=0)
    free = device.free_bytes("resident")
    monkeypatch.setattr(device, "free_bytes", lambda strategy: 2**62)
    with pytest.raises(DeviceFailure, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        device.place(weights, "resident", copies=2**16)
    monkeypatch.undo()

    assert caught.value.code == "CUDA_ERROR_OUT_OF_MEMORY"
    assert device.free_bytes("resident") >= free
