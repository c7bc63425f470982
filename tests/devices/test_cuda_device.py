"""The CUDA device over a made-up GPU: what is placed, copied, captured and given back."""

import numpy as np
import pytest

from hybrid_kernels.devices import cuda
from hybrid_kernels.devices.base import Access
from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.errors import BadInput, ConditionNotMet, DeviceFailure
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import facts, sampling
from hybrid_kernels.measure.sweep import sweep, with_units
from hybrid_kernels.records import plain
from hybrid_kernels.report.tables import console, sweep_table, sweep_words


@pytest.fixture
def device(gpu):
    with CudaDevice(segment_bytes=8192) as device:
        yield device


@pytest.fixture
def weights():
    return Int4Weights.random(n=48, k=256, block=32, seed=3)


def test_in_place_is_registered_in_segments_and_given_back(gpu, device, weights):
    """Copies in anonymous pages, each on a page of its own, in as many registrations as segments are needed."""
    with device.place(weights, "in_place", copies=3) as placed:
        assert placed.segments == 3  # 3 copies of 6 KiB, on two pages each
        assert [bytes(host) for host in placed.host] == [weights.packed.tobytes()] * 3
        assert placed.total_bytes == weights.total_bytes

    assert sum(size for size in gpu.registered.values() if size >= 4096) == 0


def test_a_file_mapping_is_read_where_it_lies(gpu, device, weights, tmp_path):
    """A read-only mapping is registered itself: no copy of it in anonymous memory."""
    path = tmp_path / "packed"
    path.write_bytes(bytes(64) + weights.packed.tobytes())
    lies = np.memmap(path, np.uint8, "r", offset=64, shape=weights.packed.shape)
    mapped = Int4Weights(lies, weights.scales, weights.zero_points, weights.n, weights.k, weights.block)

    with device.place(mapped, "in_place") as placed:
        assert placed.packed_pointers == [lies.ctypes.data]


def test_a_misaligned_file_mapping_is_bad_input(gpu, device, weights, tmp_path):
    """Bytes that a lane cannot load 16 at once are refused by name, before anything is registered."""
    path = tmp_path / "packed"
    path.write_bytes(bytes(8) + weights.packed.tobytes())
    lies = np.memmap(path, np.uint8, "r", offset=8, shape=weights.packed.shape)
    mapped = Int4Weights(lies, weights.scales, weights.zero_points, weights.n, weights.k, weights.block)

    with pytest.raises(BadInput, match="packed: begins 8 bytes past a multiple of 16"):
        device.place(mapped, "in_place")


def test_a_refused_registration_is_an_error_never_a_slow_number(gpu, device, weights):
    """The error of the driver comes out by its name, and nothing is placed some other way."""
    import fake_cuda

    gpu.refuse = lambda address, nbytes: fake_cuda.CUresult.CUDA_ERROR_NOT_PERMITTED

    with pytest.raises(DeviceFailure, match="CUDA_ERROR_NOT_PERMITTED") as caught:
        device.place(weights, "in_place")

    assert caught.value.code == "CUDA_ERROR_NOT_PERMITTED"


def test_a_stale_page_is_found_before_it_becomes_a_number(gpu, device, weights):
    """When the GPU reads other bytes than the host holds, placing fails."""

    def stale(seen):
        seen[4096:] = 0
        return seen

    gpu.stale = stale

    with pytest.raises(ConditionNotMet, match=r"buffer 1 of 1 .*stale"):
        device.place(weights, "in_place")


def test_out_of_memory_names_both_numbers(gpu, device, weights):
    """Weights that do not fit are refused before any work."""
    gpu.memory = gpu.used() + 10_000

    with pytest.raises(BadInput, match=r"2 x 6.00 KiB of weights need 12.0 KiB of device memory, and 9.77"):
        device.place(weights, "resident", copies=2)


def test_a_full_device_fails_with_cudas_name(gpu, device, weights):
    """An allocation that the driver refuses carries CUDA's name for it, and takes nothing with it."""
    device.free_bytes = lambda strategy: 2**40
    gpu.memory = gpu.used() + 10_000

    with pytest.raises(DeviceFailure, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        device.place(weights, "resident", copies=2)

    assert caught.value.code == "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.parametrize("form", ["eager", "graph"])
@pytest.mark.parametrize("kind", ["copy", "copy_h2d", "copy_d2d"])
def test_copies_take_the_time_of_their_bytes(gpu, device, weights, kind, form):
    """Every baseline copies the packed bytes once a pass, in both forms, and the device's clock alone counts."""
    with device.place(weights, "in_place", copies=3) as placed, device.baseline_arm(placed, kind, form) as arm:
        assert arm.run(1) == pytest.approx(weights.packed_bytes * 1e-9)
        assert arm.run(7) == pytest.approx(7 * weights.packed_bytes * 1e-9)
        assert arm.clock() == pytest.approx(8 * weights.packed_bytes * 1e-9)
        assert arm.device_bytes >= weights.packed_bytes
        assert (arm.captures, arm.fallbacks) == ((0, 0) if form == "eager" else (2, 0))
        assert arm.dispatch_seconds > 0


def test_a_capture_that_fails_is_counted_and_runs_eagerly(gpu, device, weights):
    """A graph that cannot be captured is reported as a fallback; the work is done all the same."""
    gpu.refuse_capture = True
    with device.place(weights, "in_place") as placed, device.baseline_arm(placed, "copy", "graph") as arm:
        assert arm.run(2) == pytest.approx(2 * weights.packed_bytes * 1e-9)
        assert (arm.captures, arm.fallbacks) == (0, 1)


def test_graphs_are_kept_for_the_batches_asked_for_lately(gpu, device, weights):
    """The same batch from the same buffer is captured once; old graphs are destroyed, not hoarded."""
    with device.place(weights, "resident", copies=3) as placed, device.stream_arm(placed, "graph") as arm:
        for _ in range(5):
            arm.run(6)
        assert arm.captures == 1
        for passes in range(1, 20):
            arm.run(passes)
        assert gpu.executables <= 32


def test_stream_arms_read_every_copy(gpu, device, weights):
    """The ceiling of each tier carries the tier's name and counts the packed bytes."""
    for strategy in ("resident", "in_place"):
        with device.place(weights, strategy, copies=2) as placed, device.stream_arm(placed) as arm:
            assert arm.label == f"stream_{strategy}"
            assert arm.run(4) == pytest.approx(4 * weights.packed_bytes * 1e-9)


@pytest.mark.parametrize("pattern", ["coalesced", "scattered"])
@pytest.mark.parametrize("request_bytes", [32, 64, 128, 256])
def test_access_patterns_count_the_bytes_they_read(gpu, device, weights, pattern, request_bytes):
    """Each pattern is an arm over either tier; its bandwidth is counted over the bytes that it reads."""
    access = Access(pattern, request_bytes, loads_in_flight=4, blocks=2, threads=64)
    for strategy in ("resident", "in_place"):
        with device.place(weights, strategy) as placed, device.access_arm(placed, access) as arm:
            assert arm.run(2) > 0
            assert arm.pass_bytes <= weights.packed_bytes
            assert arm.bytes_in_flight == 2 * 64 * 4 * (request_bytes // 32 if pattern == "coalesced" else 4)


def test_an_access_off_the_line_stays_inside_the_buffer(gpu, device, weights):
    """An offset moves the start and shortens the read; one that no lane can load at is refused."""
    with device.place(weights, "resident") as placed:
        with device.access_arm(placed, Access("coalesced", 128, offset=4)) as arm:
            arm.run(1)
            assert arm.pass_bytes == weights.packed_bytes - 128
        for access in (Access("coalesced", 512, offset=4), Access("coalesced", 128, offset=128)):
            with pytest.raises(BadInput, match="offset"):
                device.access_arm(placed, access)
        with pytest.raises(BadInput, match="request_bytes"):
            device.access_arm(placed, Access("coalesced", 48))


def test_closing_the_device_gives_back_what_was_left_open(gpu, weights):
    """Placed weights and arms that nobody closed are closed with the device; the context is left."""
    device = CudaDevice()
    placed = device.place(weights, "in_place", copies=2)
    device.baseline_arm(placed, "copy_d2d", "graph").run(3)
    device.close()
    device.close()

    assert gpu.log == ["detached"]


def test_an_interrupt_in_a_batch_leaves_no_gate_closed(gpu, device, weights, monkeypatch):
    """Ctrl-C while a batch is enqueued opens the gate: the device must not spin until its limit."""
    with device.place(weights, "in_place") as placed, device.baseline_arm(placed, "copy") as arm:

        def interrupted(index):
            raise KeyboardInterrupt

        monkeypatch.setattr(arm, "_enqueue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            arm.run(1)


def test_bad_arguments_are_named(device, weights):
    """Strategy, copies, kind, form, passes and foreign placements are refused by name."""
    with pytest.raises(BadInput, match="strategy: 'here'"):
        device.place(weights, "here")
    with pytest.raises(BadInput, match="copies: 0"):
        device.place(weights, "resident", copies=0)
    with device.place(weights, "resident") as placed:
        with pytest.raises(BadInput, match="kind: 'move'"):
            device.baseline_arm(placed, "move")
        with pytest.raises(BadInput, match="placed: copy copies out of host memory"):
            device.baseline_arm(placed, "copy")
        with pytest.raises(BadInput, match="form: 'lazy'"):
            device.stream_arm(placed, "lazy")
        with device.stream_arm(placed) as arm, pytest.raises(BadInput, match="passes: 0"):
            arm.run(0)
    with pytest.raises(BadInput, match="not closed"):
        device.stream_arm(placed)
    for name in ("segment_bytes", "tile_bytes", "ring"):
        with pytest.raises(BadInput, match=f"{name}: 0 must be 1 or more"):
            CudaDevice(**{name: 0})
    with pytest.raises(BadInput, match="ordinal: there is no GPU 7"):
        CudaDevice(7)


def test_facts_say_what_the_driver_knows(device):
    """The facts of the device are fields of the record that travels with every number."""
    facts = device.facts()

    assert facts["device"] == "cuda"
    assert facts["compute_capability"] == "9.0"
    assert facts["versions"]["cuda"] == "13.0"


def test_a_rotation_is_cold(device):
    """The buffers of a rotation cover three times the L2, and one is enough for bytes beyond that."""
    assert device.cold_copies(2**16) == 3
    assert device.cold_copies(2**16 - 1) == 4
    assert device.cold_copies(2**20) == 1


def test_float32_scales_that_float16_cannot_hold_are_refused(device, weights):
    """Scales are read as float16 on the GPU: exact float32 ones are taken, others named."""
    exact = weights.scales.astype(np.float32)
    with device.place(Int4Weights.from_arrays(weights.packed, exact, weights.zero_points), "resident") as placed:
        assert placed.total_bytes == weights.total_bytes
    exact[0, 0] = 0.1
    with pytest.raises(BadInput, match="scales: float32"):
        device.place(Int4Weights.from_arrays(weights.packed, exact, weights.zero_points), "resident")


def test_a_sweep_keeps_a_refused_registration_on_its_rows(gpu, monkeypatch):
    """Where host memory cannot be registered, the rows hold CUDA's name, not a number."""
    import fake_cuda

    monkeypatch.setattr(sampling, "RAMP_FLOOR_SECONDS", 0.0)
    gpu.refuse = lambda address, nbytes: fake_cuda.CUresult.CUDA_ERROR_NOT_PERMITTED
    with CudaDevice() as device:
        frame = sweep(device, [0.05], k=512, reps=3)

    lost = frame[frame.reason.notna()]
    assert set(lost.strategy) == {"in_place", "staged", "copy", "copy_h2d", "copy_d2d", "stream_in_place"}
    assert lost.reason.str.startswith("CUDA_ERROR_NOT_PERMITTED: ").all()
    assert lost.gbs.isna().all()
    assert set(frame[frame.reason.isna()].strategy) == {"resident", "stream_resident"}
    out = console()
    with out.capture() as capture:
        out.print(sweep_table(frame))
    assert "in place: CUDA_ERROR_NOT_PERMITTED" in capture.get()
    assert "DIFFER" not in capture.get()
    assert all(row["seconds"] is None for row in plain(with_units(lost)))


@pytest.mark.parametrize("refused", [False, True])
def test_a_sweep_shows_captures_and_fallbacks(gpu, monkeypatch, refused):
    """Replayed rows say how many graphs were captured; one that ran eagerly instead is marked, never hidden."""
    monkeypatch.setattr(sampling, "RAMP_FLOOR_SECONDS", 0.0)
    monkeypatch.setattr(facts, "LOAD_SECONDS", 0.0)
    gpu.refuse_capture = refused
    with CudaDevice() as device:
        frame = sweep(device, [0.05], k=512, reps=3)
        (words,) = [line for line in sweep_words(frame, facts.collect(device)) if line.startswith("Graphs: ")]

    graphs = frame[frame.form == "graph"]
    assert (graphs.captures > 0).all() != refused
    assert (graphs.fallbacks > 0).all() == refused
    assert graphs.warnings.map(lambda names: "fell back to eager" in names).all() == refused
    assert words.startswith(f"Graphs: {graphs.captures.sum()} captured and replayed, {graphs.fallbacks.sum()} batches")


@pytest.mark.parametrize(
    ("speed", "width", "limit"),
    [
        ("32.0 GT/s PCIe", "16", 63.0),
        ("2.5 GT/s PCIe", "16", 4.0),
        ("16.0 GT/s PCIe", "8", 15.75),
        ("Unknown", "16", None),
        ("8.0 GT/s PCIe", "255", None),
    ],
)
def test_the_link_limit_is_what_the_lines_carry(monkeypatch, tmp_path, speed, width, limit):
    """Lanes times speed less the line code, in GB/s; unknown where a virtual machine hides the link."""
    folder = tmp_path / "0000:0a:00.0"
    folder.mkdir()
    (folder / "max_link_speed").write_text(speed + "\n")
    (folder / "max_link_width").write_text(width + "\n")
    monkeypatch.setattr(cuda, "PCI_DEVICES", tmp_path)

    found = cuda.link_limit_gbs("00000000:0A:00.0")

    assert found is None if limit is None else found == pytest.approx(limit, abs=0.02)
    assert cuda.link_limit_gbs("0000:0b:00.0") is None


def test_no_read_is_believed_beyond_the_memory(device):
    """The resident limit is two transfers a clock over the whole bus: 1 GHz and 512 bits carry 128 GB/s."""
    assert device.limit_gbs("resident") == pytest.approx(128.0)
    assert device.free_bytes("in_place") > 0
