"""The int4 layout: packing, quantising, byte counts, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout import weights as layout
from hybrid_kernels.layout.weights import BLOCKS, Int4Weights, pack_nibbles, total_bytes, unpack_nibbles

shapes = st.tuples(st.integers(1, 6), st.integers(1, 150))
blocks = st.sampled_from(BLOCKS)


def test_low_nibble_comes_first() -> None:
    """Two codes share a byte, the even one in the low half."""
    packed = pack_nibbles([1, 2, 3])

    assert packed.tolist() == [0x21, 0x03]
    assert unpack_nibbles(packed, 3).tolist() == [1, 2, 3]


@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=9), elements=st.integers(0, 15)))
def test_unpacking_undoes_packing(codes: npt.NDArray[np.uint8]) -> None:
    """Any codes of any shape come back, odd lengths too."""
    packed = pack_nibbles(codes)

    assert packed.shape == (*codes.shape[:-1], -(-codes.shape[-1] // 2))
    assert np.array_equal(unpack_nibbles(packed, codes.shape[-1]), codes)


@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=9)))
def test_packing_undoes_unpacking(packed: npt.NDArray[np.uint8]) -> None:
    """Any bytes come back."""
    assert np.array_equal(pack_nibbles(unpack_nibbles(packed)), packed)


@pytest.mark.parametrize(
    ("codes", "message"),
    [([16], "values from 16 to 16"), ([-1, 3], "values from -1 to 3"), ([1.0], "float64 array"), (3, "of shape")],
)
def test_codes_that_do_not_fit_four_bits_are_refused(codes: Any, message: str) -> None:
    """Values outside 0 to 15, floats and scalars: BadInput that names the codes."""
    with pytest.raises(BadInput, match=f"^codes: .*{message}"):
        pack_nibbles(codes)


@st.composite
def matrices(draw: st.DrawFn) -> npt.NDArray[np.float64]:
    """Float matrices from tiny to large numbers, with ranges that do and do not contain 0, zeros included."""
    n, k = draw(shapes)
    scale = 10.0 ** draw(st.integers(-8, 4))
    offset = draw(st.sampled_from([0.0, 0.0, 3.0, -3.0]))
    values = arrays(np.float64, (n, k), elements=st.floats(-1, 1, allow_subnormal=False))
    matrix: npt.NDArray[np.float64] = scale * (draw(values) + offset)
    return matrix


@given(matrices(), blocks, st.booleans(), st.sampled_from([np.float16, np.float32]))
def test_quantising_is_off_by_at_most_half_a_scale(
    matrix: npt.NDArray[np.float64], block: int, zero_points: bool, scale_dtype: type
) -> None:
    """No weight moves further than half of its block's scale, and zeros stay exactly 0."""
    weights = Int4Weights.quantize(matrix, block, zero_points=zero_points, scale_dtype=scale_dtype)

    scales = np.repeat(weights.scales.astype(np.float64), block, axis=1)[:, : matrix.shape[1]]
    restored = weights.dequantize(np.float64)
    assert (np.abs(restored - matrix) <= scales / 2 * (1 + 1e-9)).all()
    assert (restored[matrix == 0] == 0).all()


@given(matrices(), blocks, st.booleans())
def test_quantising_leaves_padding_at_zero(matrix: npt.NDArray[np.float64], block: int, zero_points: bool) -> None:
    """Codes past k equal their zero point, so whoever reads whole blocks adds nothing."""
    weights = Int4Weights.quantize(matrix, block, zero_points=zero_points)

    whole = Int4Weights.from_arrays(weights.packed, weights.scales, weights.zero_points)
    assert (whole.dequantize()[:, weights.k :] == 0).all()


def test_quantising_uses_every_step() -> None:
    """A ramp over 16 values with zero points becomes the codes 0 to 15; without, magnitudes up to 7 steps from 8."""
    ramp = np.arange(-4.0, 12.0)[None, :]

    asymmetric = Int4Weights.quantize(ramp, 16)
    symmetric = Int4Weights.quantize(np.arange(-8.0, 8.0)[None, :], 16, zero_points=False)

    assert asymmetric.codes().tolist() == [list(range(16))]
    assert asymmetric.zeros().tolist() == [[4]]
    assert asymmetric.scales.tolist() == [[1.0]]
    assert (symmetric.codes().min(), symmetric.codes().max()) == (1, 14)


def test_a_scale_too_large_for_float16_is_refused_not_rounded() -> None:
    """float16 ends at 65504; float32 scales hold the same matrix."""
    matrix = np.array([[0.0, 2e6]])

    with pytest.raises(BadInput, match=r"^matrix: a block needs a scale of 1.33e\+05, too large for float16"):
        Int4Weights.quantize(matrix)
    assert Int4Weights.quantize(matrix, scale_dtype=np.float32).dequantize()[0, 1] == pytest.approx(2e6)


def test_rows_in_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantising row by row gives the bytes that quantising at once gives."""
    matrix = np.random.default_rng(3).normal(size=(7, 40))
    whole = Int4Weights.quantize(matrix, 16)

    monkeypatch.setattr(layout, "_CHUNK", 1)

    parts = Int4Weights.quantize(matrix, 16)
    assert np.array_equal(parts.packed, whole.packed)
    assert np.array_equal(parts.scales, whole.scales)
    assert parts.zero_points is not None
    assert np.array_equal(parts.zero_points, whole.zero_points)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones(4), r"^matrix: float64 array of shape \(4,\)"),
        (np.ones((2, 2), int), "^matrix: int64 array"),
        (np.array([[1.0, np.nan]]), "^matrix: holds NaN"),
        (np.array([[np.inf, 1.0]]), "^matrix: holds NaN or infinite"),
        (np.ones((0, 4)), "^n: 0 is too small"),
        (np.ones((4, 0)), "^k: 0 is too small"),
    ],
)
def test_a_matrix_that_cannot_be_quantised_is_refused(matrix: Any, message: str) -> None:
    """Another dimension or kind, values that are not finite, nothing at all: BadInput that names it."""
    with pytest.raises(BadInput, match=message):
        Int4Weights.quantize(matrix)


def test_scales_are_float16_or_float32() -> None:
    """Another dtype for the scales is refused by name."""
    with pytest.raises(BadInput, match=r"^scale_dtype: float64; use float16 or float32"):
        Int4Weights.quantize(np.ones((1, 1)), scale_dtype=np.float64)


def test_random_weights_depend_on_the_arguments_only() -> None:
    """The same seed gives the same bytes, another seed others."""
    one, same, other = (Int4Weights.random(64, 70, seed=seed) for seed in (1, 1, 2))

    assert one.zero_points is not None
    assert same.zero_points is not None
    assert np.array_equal(one.packed, same.packed)
    assert np.array_equal(one.scales, same.scales)
    assert np.array_equal(one.zero_points, same.zero_points)
    assert not np.array_equal(one.packed, other.packed)


def test_random_weights_look_like_weights() -> None:
    """All codes and zero points occur about equally often, scales fill their range, y stays far below 65504."""
    weights = Int4Weights.random(256, 5120)

    for drawn in (weights.codes(), weights.zeros()):
        shares = np.bincount(drawn.ravel(), minlength=16) / drawn.size
        assert shares == pytest.approx(np.full(16, 1 / 16), rel=0.05)
    assert weights.scales.dtype == np.float16
    assert 2**-8 <= weights.scales.min() < 1.01 * 2**-8
    assert 0.99 * 2**-7 < weights.scales.max() < 2**-7
    assert weights.dequantize().std() == pytest.approx(0.04, rel=0.1)
    assert np.abs(weights.dequantize() @ np.random.default_rng(0).normal(size=5120)).max() < 100


@given(shapes, blocks, st.booleans())
def test_bytes_are_counted_by_kind(shape: tuple[int, int], block: int, zero_points: bool) -> None:
    """Codes, scales and zero points add up to the total, padding of the last block included."""
    n, k = shape
    count = -(-k // block)

    weights = Int4Weights.random(n, k, block, zero_points=zero_points)

    assert weights.blocks == count
    assert weights.packed_bytes == weights.packed.nbytes == n * count * block // 2
    assert weights.scale_bytes == n * count * 2
    assert weights.zero_point_bytes == (n * -(-count // 2) if zero_points else 0)
    assert weights.total_bytes == weights.packed_bytes + weights.scale_bytes + weights.zero_point_bytes
    assert weights.total_bytes == total_bytes(n, k, block, zero_points=zero_points)


@given(shapes, blocks, st.booleans(), st.sampled_from([np.float16, np.float32]))
def test_dequantising_follows_the_definition(
    shape: tuple[int, int], block: int, zero_points: bool, scale_dtype: type
) -> None:
    """scale * (code - zero), element by element, as the operator defines it; float32 is exact for float16 scales."""
    n, k = shape
    drawn = Int4Weights.random(n, k, block, zero_points=zero_points)
    weights = Int4Weights.from_arrays(drawn.packed, drawn.scales.astype(scale_dtype), drawn.zero_points, k=k)

    exact = weights.dequantize(np.float64)

    for row, column in ((0, 0), (n - 1, k - 1), (n // 2, k // 2)):
        group, within = divmod(column, block)
        code = weights.packed[row, group, within // 2] >> 4 * (within % 2) & 15
        zero = 8 if weights.zero_points is None else weights.zero_points[row, group // 2] >> 4 * (group % 2) & 15
        assert exact[row, column] == float(weights.scales[row, group]) * (int(code) - int(zero))
    assert exact.shape == shape
    assert np.array_equal(weights.dequantize(), exact)
    assert np.array_equal(weights.dequantize(np.float64, slice(1, 3)), exact[1:3])


def test_dequantising_to_another_dtype_is_refused() -> None:
    """float16 could not hold every product."""
    with pytest.raises(BadInput, match=r"^dtype: float16; use float32 or float64"):
        Int4Weights.random(1, 1).dequantize(np.float16)


def test_a_memory_map_is_wrapped_not_copied(tmp_path: Path) -> None:
    """Packed codes on disk stay on disk: the weights hold the very map, which may be read-only."""
    drawn = Int4Weights.random(4, 64)
    path = tmp_path / "packed.bin"
    drawn.packed.tofile(path)
    mapped = np.memmap(path, np.uint8, "r", shape=drawn.packed.shape)

    weights = Int4Weights.from_arrays(mapped, drawn.scales, drawn.zero_points)

    assert weights.packed is mapped
    assert np.array_equal(weights.dequantize(), drawn.dequantize())


def test_the_block_is_read_from_the_shape() -> None:
    """from_arrays takes n, block and, unless k is given, a k without padding from the packed shape."""
    drawn = Int4Weights.random(3, 40, 16)

    assert Int4Weights.from_arrays(drawn.packed, drawn.scales, drawn.zero_points).k == 48
    weights = Int4Weights.from_arrays(drawn.packed, drawn.scales, drawn.zero_points, k=40)
    assert (weights.n, weights.k, weights.block) == (3, 40, 16)


def arrays_with(**changed: Any) -> dict[str, Any]:
    """Arguments of from_arrays for n = 4, k = 96, block = 32, with some of them exchanged."""
    drawn = Int4Weights.random(4, 96)
    return {"packed": drawn.packed, "scales": drawn.scales, "zero_points": drawn.zero_points, "k": 96, **changed}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"packed": np.zeros((4, 48), np.uint8)}, r"packed: shape \(4, 48\)"),
        ({"packed": np.zeros((4, 3, 16), np.int8)}, "packed: dtype int8; it must be uint8"),
        ({"packed": [[[0]]]}, "packed: is a list"),
        ({"packed": np.zeros((4, 3, 32), np.uint8)[:, :, ::2]}, "packed: not C-contiguous"),
        ({"packed": np.zeros((4, 3, 5), np.uint8)}, "block: 10 is not a valid size; use one of 16, 32, 64, 128"),
        ({"packed": np.zeros((4, 3, 0), np.uint8)}, "block: 0 is too small"),
        ({"packed": np.zeros((0, 3, 16), np.uint8)}, "n: 0 is too small"),
        ({"scales": np.ones((4, 2), np.float16)}, r"scales: shape \(4, 2\); it must be \[4, 3\]"),
        ({"scales": np.ones((4, 3))}, "scales: dtype float64; it must be float16 or float32"),
        ({"scales": np.ones((4, 3), ">f4")}, "scales: dtype >f4"),
        ({"scales": np.ones((4, 6), np.float16)[:, ::2]}, "scales: not C-contiguous"),
        ({"scales": np.array([[1, 1, 1]] * 3 + [[1, np.nan, 1]], np.float16)}, r"scales: nan at \[3, 1\]"),
        ({"scales": np.array([[1, 1, 1]] * 3 + [[1, 1, -np.inf]], np.float32)}, r"scales: -inf at \[3, 2\]"),
        ({"zero_points": np.zeros((4, 3), np.uint8)}, r"zero_points: shape \(4, 3\); it must be \[4, 2\]"),
        ({"zero_points": np.zeros((4, 2), np.int8)}, "zero_points: dtype int8"),
        ({"zero_points": np.zeros((2, 4), np.uint8).T}, "zero_points: not C-contiguous"),
        ({"k": 0}, "k: 0 is too small"),
        ({"k": 64}, r"packed: shape \(4, 3, 16\); it must be \[4, 2, 16\]"),
        ({"k": 97}, r"packed: shape \(4, 3, 16\); it must be \[4, 4, 16\]"),
        ({"k": 95.5}, "k: 95.5 is not an integer"),
        ({"k": True}, "k: True is not an integer"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(changed: dict[str, Any], message: str) -> None:
    """Wrong shape, dtype, order in memory, scale or dimension: a ValueError that begins with the argument's name."""
    with pytest.raises(ValueError, match=f"^{message}"):
        Int4Weights.from_arrays(**arrays_with(**changed))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "k": 4}, "n: 0 is too small"),
        ({"n": 4, "k": -1}, "k: -1 is too small"),
        ({"n": "4", "k": 4}, "n: '4' is not an integer"),
        ({"n": 4, "k": 4, "block": 48}, "block: 48 is not a valid size"),
        ({"n": 4, "k": 4, "block": 32.0}, "block: 32.0 is not an integer"),
        ({"n": 4, "k": 4, "seed": -1}, "seed: -1 is too small"),
    ],
)
def test_random_weights_refuse_bad_arguments_by_name(arguments: dict[str, Any], message: str) -> None:
    """n, k, block and seed out of range or of the wrong kind: BadInput that names the argument."""
    with pytest.raises(BadInput, match=f"^{message}"):
        Int4Weights.random(**arguments)


def test_numpy_integers_are_taken_as_integers() -> None:
    """Dimensions that come out of NumPy become plain integers."""
    numbers: list[Any] = [np.int64(2), np.int32(33), np.int16(16)]

    weights = Int4Weights.random(*numbers)

    assert (type(weights.n), type(weights.k), type(weights.block)) == (int, int, int)


def test_random_weights_do_not_depend_on_the_pieces_they_are_drawn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn in pieces so that Ctrl-C is heard, the words are those of one draw."""
    whole = Int4Weights.random(n=33, k=100, seed=5)
    monkeypatch.setattr(layout, "_CHUNK", 7)
    pieces = Int4Weights.random(n=33, k=100, seed=5)
    assert pieces.packed.tobytes() == whole.packed.tobytes()
    assert pieces.scales.tobytes() == whole.scales.tobytes()
