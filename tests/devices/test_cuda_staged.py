"""Staged reads over a made-up GPU with its streams in the worst order: no tile is read early or overwritten late."""

import numpy as np
import pytest

from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.layout.weights import Int4Weights


@pytest.mark.parametrize("form", ["eager", "graph"])
@pytest.mark.parametrize("ring", [1, 2, 3, 9])
@pytest.mark.parametrize("rows_a_tile", [8, 24, 400])
@pytest.mark.parametrize("copy_first", [False, True])
def test_staged_gives_the_bits_of_resident(gpu, monkeypatch, form, ring, rows_a_tile, copy_first):
    """Whatever the ring, the tiles and the order in which the streams come, each row is the resident one's."""
    weights = Int4Weights.random(n=133, k=256, block=32, seed=5)
    x = np.random.default_rng(1).standard_normal(256).astype(np.float16)
    with CudaDevice(tile_bytes=rows_a_tile * 128, ring=ring) as device:
        with device.place(weights, "resident") as placed:
            resident = device.gemv(placed, x)
        with device.place(weights, "staged", copies=2) as placed, device.read_arm(placed, x, form) as arm:
            if copy_first:
                gpu.streams.reverse()
            arm.run(5)
            assert arm.output().tobytes() == resident.tobytes()
            tiles = -(-133 // rows_a_tile)
            assert arm.device_bytes == min(ring, tiles) * min(rows_a_tile, 133) * 128 + _padding(rows_a_tile, ring)
            assert arm.fallbacks == 0


def _padding(rows_a_tile, ring):
    """Bytes that round each slot of the ring up to 256."""
    tiles = -(-133 // rows_a_tile)
    return min(ring, tiles) * (-min(rows_a_tile, 133) * 128 % 256)


def test_a_missing_hand_over_shows_as_wrong_bits(gpu, monkeypatch):
    """The made-up GPU is strict enough: without the events that hand slots over, the output is wrong."""
    weights = Int4Weights.random(n=133, k=256, block=32, seed=5)
    x = np.random.default_rng(1).standard_normal(256).astype(np.float16)
    with CudaDevice(tile_bytes=8 * 128, ring=2) as device:
        with device.place(weights, "resident") as placed:
            resident = device.gemv(placed, x)
        with device.place(weights, "staged") as placed, device.read_arm(placed, x) as arm:
            monkeypatch.setattr(arm._copying, "wait_for_event", lambda event: None)
            arm.run(1)
            assert arm.output().tobytes() != resident.tobytes()
