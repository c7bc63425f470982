"""The CPU device reads what it was given, from the tier it says, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hybrid_kernels.devices import cpu, evicted, open_device
from hybrid_kernels.devices.cpu import CpuDevice, last_level_cache
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import Int4Weights


@pytest.fixture
def weights() -> Int4Weights:
    return Int4Weights.random(n=300, k=416, block=32, seed=3)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(4).standard_normal(416).astype(np.float32)


@pytest.mark.parametrize("strategy", ["resident", "in_place"])
@pytest.mark.parametrize("mode", ["f32", "i8"])
def test_gemv_agrees_with_the_float64_reference(weights, x, strategy: str, mode: str) -> None:
    """Each tier and mode computes the product; int8 activations cost accuracy, float32 does not."""
    truth = reference.gemv(weights, x)
    with CpuDevice(mode=mode) as device, device.place(weights, strategy) as placed:
        y = device.gemv(placed, x)
    assert y.dtype == np.float32
    error = np.linalg.norm(y - truth) / np.linalg.norm(truth)
    assert error < (1e-5 if mode == "f32" else 2e-2)


def test_tiers_agree_bit_by_bit(weights, x) -> None:
    """Only the weight pointer differs between resident and in place."""
    with (
        CpuDevice() as device,
        device.place(weights, "resident", copies=2) as a,
        device.place(weights, "in_place") as b,
    ):
        assert device.gemv(a, x).tobytes() == device.gemv(b, x).tobytes()


def test_every_buffer_has_scales_of_its_own(weights) -> None:
    """A rotation over buffers that shared their scales would find those of small weights in the cache."""
    with CpuDevice() as device, device.place(weights, "resident", copies=3) as placed:
        for parts in (placed.scales, placed.zero_points):
            assert len({part.ctypes.data for part in parts}) == 3
            assert all(np.array_equal(part, parts[0]) for part in parts)


def test_total_bytes_are_those_that_a_pass_reads(weights, x) -> None:
    """300 rows of 13 blocks: 16 bytes of codes, a float32 scale, and 7 bytes of zero points a row."""
    with CpuDevice() as device, device.place(weights, "resident") as placed, device.read_arm(placed, x) as arm:
        assert arm.total_bytes == placed.total_bytes == 300 * (13 * 16 + 13 * 4 + 7)


@pytest.mark.parametrize("strategy", ["resident", "in_place"])
def test_a_pass_cut_into_pieces_is_the_same_pass(weights, x, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large passes are cut so that Ctrl-C is heard between calls; not a bit of the output or of the copy changes."""
    with CpuDevice() as device, device.place(weights, strategy) as placed:
        whole = device.gemv(placed, x)
        monkeypatch.setitem(cpu.PIECES, strategy, 7 * 13 * 16 + 5)
        monkeypatch.setattr(cpu, "COPY_PIECE", 1000)
        calls = []
        for name in ("gemv", "stream_read", "copy"):
            own = getattr(cpu.kernels, name)
            monkeypatch.setattr(cpu.kernels, name, lambda *a, own=own, **kw: (calls.append(own), own(*a, **kw))[1])
        assert device.gemv(placed, x).tobytes() == whole.tobytes()
        targets = []
        copied = cpu.kernels.copy
        monkeypatch.setattr(cpu.kernels, "copy", lambda to, of, **kw: (copied(to, of, **kw), targets.append(to.copy())))
        for arm in (device.stream_arm(placed), device.baseline_arm(placed, "copy")):
            with arm:
                arm.run(1)
        assert np.array_equal(np.concatenate(targets), weights.packed.reshape(-1))
        assert len(calls) == 43 + 43 + 63  # 300 rows by 7, twice; 62400 bytes by 1000


def test_what_is_placed_piece_by_piece_is_what_was_given(weights, x, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is filled in pieces, so that Ctrl-C is heard: not a byte of it is another one."""
    with CpuDevice() as device, device.place(weights, "resident") as whole:
        monkeypatch.setattr(cpu, "COPY_PIECE", 1000)
        with device.place(weights, "resident") as cut:
            assert np.array_equal(cut.buffers[0], whole.buffers[0])
            assert np.array_equal(cut.scales[0], weights.scales.astype(np.float32))
            assert np.array_equal(cut.zero_points[0], weights.zero_points)
        assert not cpu.whole_pages(9001).any()
        assert cpu.whole_pages(9001).nbytes == 12288


def test_in_place_starts_evicted_and_ends_in_memory() -> None:
    """Before a pass no page of the mapping is in memory (mincore), and reading brings them in."""
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8)
    with evicted.EvictedMapping(data, evicted.scratch_folder(None)) as mapping:
        assert mapping.resident_pages() == 0
        assert np.array_equal(mapping.array, data)
        assert mapping.resident_pages() == data.nbytes // os.sysconf("SC_PAGE_SIZE")
        mapping.evict()
        assert mapping.resident_pages() == 0


def test_a_failed_eviction_is_an_error_not_a_fast_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where eviction has no effect the mapping refuses."""
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    data = np.ones(1 << 20, np.uint8)
    with pytest.raises(ConditionNotMet, match="stayed in memory after eviction"):
        evicted.EvictedMapping(data, evicted.scratch_folder(None))


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no tmpfs at /dev/shm")
def test_tmpfs_is_refused() -> None:
    """Pages of tmpfs are memory; they cannot be evicted, and the message says so."""
    with pytest.raises(BadInput, match=r"/dev/shm.*tmpfs.*cannot be evicted"):
        CpuDevice(scratch="/dev/shm")


def test_too_little_space_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch, weights) -> None:
    """The space that is needed and the space that is free are named."""
    monkeypatch.setattr("hybrid_kernels.devices.cpu.free_scratch", lambda folder: 1024)
    with CpuDevice() as device, pytest.raises(BadInput, match=r"60.9 KiB are needed.*1.00 KiB are free"):
        device.place(weights, "in_place")


def test_a_full_disk_while_writing_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ENOSPC half way names the folder, and the file is gone."""

    def full(fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(BadInput, match="No space left"):
        evicted.EvictedMapping(np.ones(1 << 16, np.uint8), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"scratch": "/nonexistent"}, "scratch"),
        ({"threads": 0}, "threads"),
        ({"threads": 100000}, "threads"),
        ({"mode": "f64"}, "mode"),
        ({"variant": "mmx"}, "variant"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], names: str) -> None:
    """Each argument that cannot be used is named."""
    with pytest.raises(BadInput, match=names):
        CpuDevice(**arguments)


def test_wrong_strategy_shape_form_and_device_are_named(weights, x) -> None:
    """The four ways to ask for what is not there."""
    with CpuDevice() as device:
        with pytest.raises(BadInput, match="staged"):
            device.place(weights, "staged")
        with pytest.raises(BadInput, match="copies"):
            device.place(weights, "resident", copies=0)
        with device.place(weights, "resident") as placed:
            with pytest.raises(BadInput, match="x: shape"):
                device.gemv(placed, x[:-1])
            with pytest.raises(BadInput, match="form"):
                device.read_arm(placed, x, "graph")
            with pytest.raises(BadInput, match="baseline"):
                device.baseline_arm(placed, "copy_h2d")
    with pytest.raises(BadInput, match="device"):
        open_device("tpu")


def test_an_infinite_activation_is_not_a_result(weights, x) -> None:
    """NaN in the output, from the poison or from the input, never passes as a product."""
    x[0] = np.nan
    with (
        CpuDevice() as device,
        device.place(weights, "resident") as placed,
        pytest.raises(ConditionNotMet, match="NaN"),
    ):
        device.gemv(placed, x)


def test_rotation_covers_the_cache_four_times() -> None:
    """Small buffers are many, large ones are one, evicted ones are always one."""
    with CpuDevice() as device:
        assert device.cold_copies(1 << 20) * (1 << 20) >= 4 * last_level_cache()
        assert device.cold_copies(64 * last_level_cache()) == 1
        assert device.cold_copies(1 << 20, "in_place") == device.cold_copies(1 << 20)
        assert device.is_cold(1 << 20, "in_place", 1)  # evicted, however few
        assert not device.is_cold(1 << 20, "resident", 1)


def test_a_round_of_buffers_is_evicted_before_any_of_it_is_read(weights, x, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one by one: pages freed a moment ago are still in the cache when the next read fills them."""
    events: list[tuple[str, int]] = []
    with (
        CpuDevice() as device,
        device.place(weights, "in_place", copies=3) as placed,
        device.read_arm(placed, x) as arm,
    ):
        work = arm.work
        monkeypatch.setattr(placed, "evict", lambda index: events.append(("evict", index)))
        monkeypatch.setattr(arm, "work", lambda index: (events.append(("read", index)), work(index)))
        arm.run(4)
        arm.run(1)
    assert events == [
        *(("evict", 0), ("evict", 1), ("evict", 2), ("read", 0), ("read", 1), ("read", 2)),
        *(("evict", 0), ("read", 0)),
        *(("evict", 1), ("read", 1)),
    ]


def test_direct_copies_rotate_over_files_and_targets(weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was just read comes faster from what stands behind the disk, and one target alone stays in the cache."""
    read: list[tuple[int, int]] = []
    with CpuDevice() as device, device.place(weights, "in_place", copies=4) as placed:
        for number, mapping in enumerate(placed.mappings):
            monkeypatch.setattr(mapping, "read_direct", lambda to, at=number: read.append((at, to.ctypes.data)))
        with device.baseline_arm(placed, "copy_direct") as arm:
            arm.run(4)
    assert [source for source, _ in read] == [0, 1, 2, 3]
    assert len({target for _, target in read}) == 3


def test_the_clock_counts_passes_and_not_evictions(weights, x) -> None:
    """asv's timer: it advances by what `run` returned, and eviction lies outside."""
    with CpuDevice() as device, device.place(weights, "in_place") as placed, device.read_arm(placed, x) as arm:
        first = arm.run(2)
        second = arm.run(1)
        assert arm.clock() == pytest.approx(first + second)
        start = time.perf_counter()
        third = arm.run(1)
        assert third < time.perf_counter() - start


def test_a_kill_leaves_no_file_behind(tmp_path: Path) -> None:
    """kill -9 while weights are placed: the scratch folder is empty, since the file never had a name."""
    code = (
        "import sys, time; from hybrid_kernels.devices.cpu import CpuDevice;"
        "from hybrid_kernels.layout.weights import Int4Weights;"
        f"d = CpuDevice(scratch={str(tmp_path)!r});"
        "p = d.place(Int4Weights.random(n=512, k=512, block=32, seed=0), 'in_place');"
        "print('placed', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "placed"
        assert list(tmp_path.iterdir()) == []
        child.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
