"""The int4 layout: packing, quantising, byte counts, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout.weights import BLOCKS, Int4Weights, pack_nibbles, total_bytes, unpack_nibbles


def test_low_nibble_comes_first() -> None:
    """Two codes share a byte, the even one in the low half."""
    packed = pack_nibbles([1, 2, 3])

    assert packed.tolist() == [0x21, 0x03]
    assert unpack_nibbles(packed, 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("zero_points", [True, False])
def test_quantising_is_off_by_at_most_half_a_scale(block: int, zero_points: bool) -> None:
    """No weight moves further than half of its block's scale."""
    matrix = np.random.default_rng(0).normal(size=(9, 77))

    weights = Int4Weights.quantize(matrix, block, zero_points=zero_points)

    bound = np.repeat(weights.scales.astype(np.float64), block, axis=1)[:, :77] / 2
    assert (np.abs(weights.dequantize(np.float64) - matrix) <= bound * (1 + 1e-12)).all()


def test_bytes_are_counted_by_kind() -> None:
    """Codes, scales and zero points add up to the total, padding of the last block included."""
    weights = Int4Weights.random(7, 33, 16)

    assert (weights.packed_bytes, weights.scale_bytes, weights.zero_point_bytes) == (7 * 3 * 8, 7 * 3 * 2, 7 * 2)
    assert weights.total_bytes == total_bytes(7, 33, 16) == 7 * (24 + 6 + 2)


def test_a_row_of_zero_length_is_refused() -> None:
    """n or k of 0 names the argument."""
    with pytest.raises(BadInput, match=r"^k: 0 is too small"):
        Int4Weights.random(4, 0)
