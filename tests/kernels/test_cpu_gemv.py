"""The compiled CPU kernel against ONNX Runtime's MatMulNBits, float64, and itself."""

from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.kernels import cpu
from hybrid_kernels.layout.weights import Int4Weights

SHAPES = [(1, 64), (1, 1), (3, 33), (7, 5120), (5, 2049), (130, 1000), (64, 512), (9, 4100)]
CASES = [(mode, variant) for mode in cpu.MODES for variant in cpu.variants(mode)]


def activation(k: int) -> np.ndarray:
    return np.random.default_rng(k).standard_normal(k, np.float32)


def run(weights: Int4Weights, x: np.ndarray, mode: str, variant: str = "auto", threads: int = 2) -> np.ndarray:
    scales = weights.scales.astype(np.float32)
    out = np.full(weights.n, np.nan, np.float32)
    return cpu.gemv(
        weights.packed,
        scales,
        weights.zero_points,
        x,
        block=weights.block,
        mode=mode,
        variant=variant,
        threads=threads,
        out=out,
    )


def onnx_runtime(weights: Int4Weights, x: np.ndarray, level: int) -> np.ndarray:
    """y of ONNX Runtime's MatMulNBits on the CPU, at an accuracy level."""
    inputs = {"B": weights.packed, "scales": weights.scales.astype(np.float32)}
    if weights.zero_points is not None:
        inputs["zero_points"] = weights.zero_points.reshape(-1)
    node = onnx.helper.make_node(
        "MatMulNBits",
        ["x", *inputs],
        ["y"],
        domain="com.microsoft",
        K=weights.k,
        N=weights.n,
        bits=4,
        block_size=weights.block,
        accuracy_level=level,
    )
    float_info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "gemv",
        [float_info("x", onnx.TensorProto.FLOAT, [1, weights.k])],
        [float_info("y", onnx.TensorProto.FLOAT, [1, weights.n])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in inputs.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x[None]})[0][0]


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("block", cpu.BLOCKS)
@pytest.mark.parametrize("variant", cpu.variants("f32"))
def test_float_mode_agrees_with_onnx_runtime_and_float64(variant: str, block: int, zero_points: bool) -> None:
    """Every float32 variant is within 1e-5 of the largest output of ONNX Runtime level 0 and of exact arithmetic."""
    for n, k in SHAPES:
        weights, x = Int4Weights.random(n, k, block, seed=n, zero_points=zero_points), activation(k)
        y = run(weights, x, "f32", variant)
        exact = weights.dequantize(np.float64) @ x.astype(np.float64)
        tolerance = 1e-5 * np.abs(exact).max() + 1e-30
        assert np.abs(y - exact).max() <= tolerance
        assert np.abs(y - onnx_runtime(weights, x, 0)).max() <= tolerance


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("block", cpu.BLOCKS)
@pytest.mark.parametrize("variant", cpu.variants("i8"))
def test_int8_mode_stays_within_its_stated_bound(variant: str, block: int, zero_points: bool) -> None:
    """Off by at most the sum over blocks of max|x| / 254 * |scale| * sum |code - zero|, and float32 rounding."""
    for n, k in SHAPES:
        weights, x = Int4Weights.random(n, k, block, seed=n, zero_points=zero_points), activation(k)
        exact_weights = weights.dequantize(np.float64)
        padded = np.zeros((n + 1, weights.blocks * block))
        padded[:n, :k], padded[n, :k] = np.abs(exact_weights), np.abs(x)
        padded = padded.reshape(n + 1, weights.blocks, block)
        bound = (padded[:n].sum(2) * padded[n].max(1) / 254).sum(1)
        exact = exact_weights @ x.astype(np.float64)
        rounding = 1e-6 * np.abs(exact).max() + 1e-6 * bound
        assert (np.abs(run(weights, x, "i8", variant) - exact) <= bound + rounding).all()


def test_int8_mode_gives_the_same_bits_in_every_variant() -> None:
    """Integer dot products and one order of additions: variants are compared bit by bit."""
    for block in cpu.BLOCKS:
        for n, k in SHAPES:
            weights, x = Int4Weights.random(n, k, block, seed=n), activation(k)
            outputs = [run(weights, x, "i8", variant).tobytes() for variant in cpu.variants("i8")]
            assert len(set(outputs)) == 1


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_threads_do_not_change_a_bit(mode: str, variant: str) -> None:
    """The same bytes give the same bits on 1, 2, 3 and 7 threads, and from memory at another alignment."""
    weights, x = Int4Weights.random(203, 5120, 32, seed=3), activation(5120)
    moved = np.empty(weights.packed.nbytes + 1, np.uint8)[1:].reshape(weights.packed.shape)
    moved[:] = weights.packed
    elsewhere = Int4Weights(moved, weights.scales, weights.zero_points, weights.n, weights.k, weights.block)
    once = run(weights, x, mode, variant, threads=1).tobytes()
    assert {run(weights, x, mode, variant, threads).tobytes() for threads in (2, 3, 7)} == {once}
    assert run(elsewhere, x, mode, variant).tobytes() == once


@pytest.mark.parametrize(("mode", "variant"), CASES)
@pytest.mark.parametrize("block", cpu.BLOCKS)
def test_padding_does_not_count(block: int, mode: str, variant: str) -> None:
    """Codes past k and the unused nibble of an odd row of zero points may hold anything."""
    k = 2 * block + block // 2 + 1
    weights, x = Int4Weights.random(5, k, block, seed=1), activation(k)
    packed, zeros = weights.packed.copy(), weights.zero_points.copy()
    packed[:, -1, block // 4 + 1 :] ^= 0xFF
    packed[:, -1, block // 4] ^= 0xF0  # k is odd: the high nibble lies past it
    zeros[:, -1] ^= 0xF0  # three blocks: the high nibble belongs to none
    other = Int4Weights(packed, weights.scales, zeros, 5, k, block)
    assert run(weights, x, mode, variant).tobytes() == run(other, x, mode, variant).tobytes()


@pytest.mark.parametrize("mode", cpu.MODES)
def test_not_a_number_in_the_activation_reaches_the_output(mode: str) -> None:
    """A NaN or infinite activation is never rounded away."""
    weights = Int4Weights.random(4, 96, 32, seed=0)
    for bad in (np.nan, np.inf):
        x = activation(96)
        x[40] = bad
        assert not np.isfinite(run(weights, x, mode)).any()


def test_repeated_work_changes_no_bit() -> None:
    """The planted slowdown gives the same output."""
    weights, x = Int4Weights.random(300, 512, 32, seed=0), activation(512)
    scales = weights.scales.astype(np.float32)
    plain, slow = (
        cpu.gemv(weights.packed, scales, weights.zero_points, x, block=32, threads=2, repeat_share=share)
        for share in (0.0, 0.37)
    )
    assert plain.tobytes() == slow.tobytes()


def test_concurrent_callers_get_their_own_results() -> None:
    """Several Python threads calling at once, each with several kernel threads: no deadlock, no mixed output."""
    weights = [Int4Weights.random(200 + i, 1024, 32, seed=i) for i in range(4)]
    x = activation(1024)
    expected = [run(w, x, "f32", threads=1).tobytes() for w in weights]
    wrong: list[int] = []

    def caller(i: int) -> None:
        outputs = (run(weights[i], x, "f32", threads=2 + turn % 3).tobytes() for turn in range(200))
        wrong.extend(i for output in outputs if output != expected[i])

    callers = [threading.Thread(target=caller, args=(i,), daemon=True) for i in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_its_own_threads() -> None:
    """A child of fork computes the same bits with several threads, although the parent's helpers are not in it."""
    weights, x = Int4Weights.random(400, 2048, 32, seed=0), activation(2048)
    expected = run(weights, x, "f32", threads=4).tobytes()
    child = os.fork()
    if child == 0:
        os._exit(0 if run(weights, x, "f32", threads=4).tobytes() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(weights, x, "f32", threads=4).tobytes() == expected


def test_helpers_sleep_between_calls() -> None:
    """Idle helper threads use no processor time."""
    weights, x = Int4Weights.random(400, 2048, 32, seed=0), activation(2048)
    run(weights, x, "f32", threads=4)
    threading.Event().wait(0.05)
    before = os.times()
    threading.Event().wait(0.3)
    after = os.times()
    assert after.user + after.system - before.user - before.system <= 0.1


def test_stream_read_adds_every_word() -> None:
    """The sum is that of the little-endian 64-bit words, the last padded with zeros, whatever the size and threads."""
    rng = np.random.default_rng(0)
    for size in (1, 7, 8, 63, 64, 65, 4096, 1_000_003):
        data = rng.integers(0, 256, size, np.uint8)
        padded = np.zeros(-(-size // 8) * 8, np.uint8)
        padded[:size] = data
        expected = int(padded.view("<u8").sum(dtype=np.uint64))
        assert {cpu.stream_read(data, threads=t) for t in (1, 2, 3)} == {expected}


def test_copy_copies_every_byte() -> None:
    """Sizes that do not divide among the threads too."""
    for size in (1, 63, 64, 4097, 1_000_003):
        source = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        for threads in (1, 2, 3):
            target = np.zeros(size, np.uint8)
            cpu.copy(target, source, threads=threads)
            assert (target == source).all()


def test_auto_is_the_last_usable_variant() -> None:
    """The variant that ran can be named, and a variant asked for by name is the one that runs."""
    for mode in cpu.MODES:
        assert cpu.variants(mode)[0] == "portable"
        assert cpu.chosen(mode) == cpu.variants(mode)[-1]
        assert cpu.chosen(mode, "portable") == "portable"


def test_what_cannot_run_is_refused_by_name() -> None:
    """Wrong arguments are BadInput that name the argument; an unknown or missing variant never becomes another one."""
    weights, x = Int4Weights.random(4, 64, 32, seed=0), activation(64)
    scales = weights.scales.astype(np.float32)
    good = {"packed": weights.packed, "scales": scales, "zero_points": weights.zero_points, "x": x, "block": 32}
    wrong = {
        "packed": weights.packed[:, :1],
        "scales": weights.scales,
        "zero_points": np.zeros((4, 2), np.uint8),
        "x": x.astype(np.float64),
        "block": 48,
        "mode": "f16",
        "threads": 0,
        "variant": "sse9",
        "out": np.zeros(3, np.float32),
        "repeat_share": 2.0,
    }
    for name, value in wrong.items():
        with pytest.raises(BadInput, match=name):
            cpu.gemv(**{**good, name: value})
    with pytest.raises(BadInput, match="C-contiguous"):
        cpu.gemv(**{**good, "x": np.repeat(x, 2)[::2]})
    with pytest.raises(BadInput, match="destination"):
        cpu.copy(np.zeros(3, np.uint8), np.zeros(4, np.uint8))


def test_the_library_itself_refuses_what_it_cannot_do() -> None:
    """Behind the Python checks the C functions return an error code for each bad argument, and touch nothing."""
    ffi, lib = cpu._ffi, cpu._lib
    bytes_, floats, out = ffi.new("uint8_t[64]"), ffi.new("float[64]"), ffi.new("float *", 7.0)
    good = {
        "p": bytes_,
        "s": floats,
        "z": ffi.NULL,
        "x": floats,
        "y": out,
        "n": 1,
        "k": 32,
        "block": 32,
        "t": 1,
        "v": 0,
    }

    def call(**change: object) -> int:
        return lib.hk_gemv_f32(*(good | change).values())

    assert call(n=0) == call(k=0) == call(x=ffi.NULL) == -1
    assert call(block=20) == -2
    assert call(t=0) == call(t=100000) == -3
    assert call(v=99) == call(v=-1) == -4
    unusable = [v for v in range(1, lib.hk_variants()) if not lib.hk_variant_usable(v, 0)]
    assert all(call(v=v) == -5 for v in unusable)
    assert out[0] == 7.0
    assert call() == 0
    assert out[0] == 0.0
