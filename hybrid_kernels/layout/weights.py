"""Int4 weights in the layout of ONNX Runtime's `com.microsoft.MatMulNBits` (4 bits): the bytes that every kernel reads.

    y[i] = sum over j < k of  x[j] * scales[i, j // block] * (code[i, j] - zero[i, j // block])

The operator's definition is the source of shapes and nibble order:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits

When `k` is not a multiple of `block`, the last block of a row holds codes past `k`. They are padding: they take part in
nothing (whoever reads whole blocks pads x with zeros), count as packed bytes because they lie in memory and are read
with the rest, and may hold anything. The same goes for the last high nibble of a row of zero points when the number of
blocks is odd.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hybrid_kernels.errors import BadInput

BLOCKS = (16, 32, 64, 128)
"""Weights that share one scale and one zero point: the sizes that are valid."""

IMPLIED_ZERO = 8
"""The zero point of every block when none are stored (definition of MatMulNBits)."""

_LEVELS = 15  # highest code of 4 bits
_CHUNK = 1 << 24  # elements worked on at once, so that temporaries stay small beside the weights

Bytes = npt.NDArray[np.uint8]


def pack_nibbles(codes: npt.ArrayLike) -> Bytes:
    """uint8 [..., ceil(m / 2)] from codes 0..15 [..., m]: even positions in the low nibble, an odd tail padded with 0.

    BadInput when a code is not an integer from 0 to 15.
    """
    codes = np.asarray(codes)
    if codes.ndim == 0 or codes.dtype.kind not in "ui":
        raise BadInput(
            f"codes: {codes.dtype} array of shape {codes.shape}; give integers from 0 to 15, one axis or more"
        )
    if codes.size and (codes.min() < 0 or codes.max() > _LEVELS):
        raise BadInput(f"codes: values from {codes.min()} to {codes.max()}; 4 bits hold 0 to 15")
    codes = codes.astype(np.uint8)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], axis=-1)
    packed: Bytes = codes[..., ::2] | codes[..., 1::2] << np.uint8(4)
    return packed


def unpack_nibbles(packed: Bytes, count: int | None = None) -> Bytes:
    """uint8 codes [..., count] from packed uint8 [..., m], low nibble first; `count` is 2 m unless given."""
    codes = np.empty((*packed.shape, 2), np.uint8)
    np.bitwise_and(packed, np.uint8(15), out=codes[..., 0])
    np.right_shift(packed, np.uint8(4), out=codes[..., 1])
    return codes.reshape(*packed.shape[:-1], 2 * packed.shape[-1])[..., :count]


def blocks_in(k: int, block: int) -> int:
    """Blocks in a row of `k` weights: ceil(k / block)."""
    return -(-k // block)


def packed_bytes(n: int, k: int, block: int = 32) -> int:
    """Bytes of the int4 codes of an [n, k] matrix, padding of the last block included."""
    return n * blocks_in(k, block) * (block // 2)


def total_bytes(n: int, k: int, block: int = 32, *, scale_bytes: int = 2, zero_points: bool = True) -> int:
    """Bytes of an [n, k] matrix with codes, scales of `scale_bytes` each (2: float16) and packed zero points."""
    blocks = blocks_in(k, block)
    return packed_bytes(n, k, block) + n * blocks * scale_bytes + (n * -(-blocks // 2) if zero_points else 0)


@dataclass(frozen=True, eq=False)
class Int4Weights:
    """An [n, k] matrix of 4-bit codes with a scale, and mostly a zero point, for each block of a row.

    Every way of making one validates it: BadInput (a ValueError) names the argument for a wrong shape or dtype, an
    array that is not C-contiguous, a scale that is NaN or infinite, `n` or `k` below 1, or a `block` that is not one of
    BLOCKS. Arrays are kept, never copied, so they may be (read-only) memory maps.
    """

    packed: Bytes = field(repr=False)
    """uint8 [n, ceil(k / block), block // 2], low nibble first."""
    scales: npt.NDArray[np.floating[Any]] = field(repr=False)
    """float16 or float32 [n, ceil(k / block)]."""
    zero_points: Bytes | None = field(repr=False)
    """uint8 [n, ceil(ceil(k / block) / 2)], low nibble = even block; None: every zero point is 8."""
    n: int
    k: int
    block: int

    def __post_init__(self) -> None:
        n, k, block = _dimensions(self.n, self.k, self.block)
        blocks = blocks_in(k, block)
        _check("packed", self.packed, (n, blocks, block // 2), ("uint8",))
        _check("scales", self.scales, (n, blocks), ("float16", "float32"))
        if self.zero_points is not None:
            _check("zero_points", self.zero_points, (n, -(-blocks // 2)), ("uint8",))
        for rows in _row_slices(n, blocks):
            if not np.isfinite(self.scales[rows]).all():
                row, column = np.argwhere(~np.isfinite(self.scales[rows]))[0]
                value = self.scales[rows.start + row, column]
                raise BadInput(f"scales: {value} at [{rows.start + row}, {column}]; every scale must be finite")
        for name, value in (("n", n), ("k", k), ("block", block)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_arrays(
        cls,
        packed: Bytes,
        scales: npt.NDArray[np.floating[Any]],
        zero_points: Bytes | None = None,
        *,
        k: int | None = None,
    ) -> Self:
        """Weights around arrays as MatMulNBits stores them; nothing is copied.

        packed: uint8 [n, blocks, block // 2]. scales: float16 or float32 [n, blocks]. zero_points: uint8
        [n, ceil(blocks / 2)] or None. k: weights in a row, blocks * block unless given. Errors as for the class.
        """
        _check("packed", packed, (None, None, None), ("uint8",))
        n, blocks, half = packed.shape
        return cls(packed, scales, zero_points, n, blocks * half * 2 if k is None else k, half * 2)

    @classmethod
    def random(cls, n: int, k: int, block: int = 32, seed: int = 0, *, zero_points: bool = True) -> Self:
        """Weights that depend on the arguments only: uniform codes and zero points, padding included.

        Scales are float16 from 2^-8 up to, not including, 2^-7, so that weights have about the spread of a trained
        model's (a standard deviation of 0.04) and y stays far inside float16's range for x of the order of 1.
        BadInput for `n`, `k`, `block` as for the class, and for a negative `seed`.
        """
        n, k, block = _dimensions(n, k, block)
        blocks = blocks_in(k, block)
        bits = np.random.Generator(np.random.SFC64(_integer("seed", seed, least=0)))
        packed = _random_bytes(bits, n * blocks * (block // 2)).reshape(n, blocks, block // 2)
        mantissas = _random_bytes(bits, 2 * n * blocks).view(np.uint16)
        mantissas &= np.uint16(0x03FF)
        mantissas |= np.uint16(0x1C00)  # exponent of 2^-8 in float16
        zeros = _random_bytes(bits, n * -(-blocks // 2)).reshape(n, -1) if zero_points else None
        return cls(packed, mantissas.view(np.float16).reshape(n, blocks), zeros, n, k, block)

    @classmethod
    def quantize(
        cls,
        matrix: npt.ArrayLike,
        block: int = 32,
        *,
        zero_points: bool = True,
        scale_dtype: npt.DTypeLike = np.float16,
    ) -> Self:
        """Round a float matrix [n, k] to the nearest code, block by block.

        With zero points: a block's range, widened to contain 0, is cut into 15 steps, and 0 stays exactly 0. Without:
        the largest magnitude is 7 steps from the implied zero point 8. A scale is rounded up to `scale_dtype`
        (float16 or float32), so no weight is clipped: each is off by at most half a scale. Padding becomes exact zeros.
        BadInput for a matrix that is not finite float [n, k], and for a range whose scale float16 cannot hold.
        """
        matrix = np.asarray(matrix)
        if matrix.ndim != 2 or matrix.dtype.kind != "f":
            raise BadInput(f"matrix: {matrix.dtype} array of shape {matrix.shape}; give floats [n, k]")
        dtype = np.dtype(scale_dtype)
        if dtype not in (np.dtype(np.float16), np.dtype(np.float32)):
            raise BadInput(f"scale_dtype: {dtype}; use float16 or float32")
        n, k, block = _dimensions(matrix.shape[0], matrix.shape[1], block)
        blocks = blocks_in(k, block)
        packed = np.empty((n, blocks, block // 2), np.uint8)
        scales = np.empty((n, blocks), dtype)
        zeros = np.empty((n, -(-blocks // 2)), np.uint8) if zero_points else None
        for rows in _row_slices(n, blocks * block):
            part = np.zeros((rows.stop - rows.start, blocks * block))
            part[:, :k] = matrix[rows]
            if not np.isfinite(part).all():
                raise BadInput("matrix: holds NaN or infinite values; every weight must be finite")
            part = part.reshape(-1, blocks, block)
            codes, scales[rows], zero = _round(part, zero_points, dtype)
            packed[rows] = pack_nibbles(codes)
            if zeros is not None:
                zeros[rows] = pack_nibbles(zero)
        return cls(packed, scales, zeros, n, k, block)

    @property
    def blocks(self) -> int:
        """Blocks in a row."""
        return blocks_in(self.k, self.block)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the codes: what bandwidths are counted over."""
        return self.packed.nbytes

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales as they are stored: 2 each in float16, 4 each in float32."""
        return self.scales.nbytes

    @property
    def zero_point_bytes(self) -> int:
        """Bytes of the packed zero points; 0 when none are stored."""
        return 0 if self.zero_points is None else self.zero_points.nbytes

    @property
    def total_bytes(self) -> int:
        """Bytes of codes, scales and zero points together, as they are stored."""
        return self.packed_bytes + self.scale_bytes + self.zero_point_bytes

    def codes(self, rows: slice = slice(None)) -> Bytes:
        """uint8 codes [rows, k] of some rows (all of them unless given), padding left out."""
        packed = self.packed[rows]
        return unpack_nibbles(packed.reshape(len(packed), self.blocks * (self.block // 2)), self.k)

    def zeros(self, rows: slice = slice(None)) -> Bytes:
        """uint8 zero points [rows, blocks] of some rows; 8 everywhere when none are stored."""
        if self.zero_points is None:
            return np.full((len(self.packed[rows]), self.blocks), IMPLIED_ZERO, np.uint8)
        return unpack_nibbles(self.zero_points[rows], self.blocks)

    def dequantize(self, dtype: npt.DTypeLike = np.float32, rows: slice = slice(None)) -> npt.NDArray[np.floating[Any]]:
        """The weights [rows, k] as float32 or float64, of some rows (all of them unless given).

        Exact in float64, and in float32 too for float16 scales. BadInput for another dtype.
        """
        dtype = np.dtype(dtype)
        if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise BadInput(f"dtype: {dtype}; use float32 or float64")
        values = self.codes(rows).astype(dtype)
        values -= np.repeat(self.zeros(rows), self.block, axis=1)[:, : self.k]
        values *= np.repeat(self.scales[rows].astype(dtype), self.block, axis=1)[:, : self.k]
        return values


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool | np.bool_):
        raise BadInput(f"{name}: {value!r} is not an integer; give a whole number of {least} or more")
    try:
        number = operator.index(value)
    except TypeError:
        raise BadInput(f"{name}: {value!r} is not an integer; give a whole number of {least} or more") from None
    if number < least:
        raise BadInput(f"{name}: {number} is too small; give a whole number of {least} or more")
    return number


def _dimensions(n: Any, k: Any, block: Any) -> tuple[int, int, int]:
    size = _integer("block", block, least=1)
    if size not in BLOCKS:
        raise BadInput(f"block: {block!r} is not a valid size; use one of {', '.join(map(str, BLOCKS))}")
    return _integer("n", n, least=1), _integer("k", k, least=1), size


def _check(name: str, array: Any, shape: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """BadInput unless `array` is a C-contiguous NumPy array of `shape` (None: any length) and one of `dtypes`."""
    if not isinstance(array, np.ndarray):
        raise BadInput(f"{name}: is a {type(array).__name__}; give a NumPy array of {' or '.join(dtypes)}")
    if array.dtype.name not in dtypes or not array.dtype.isnative:
        raise BadInput(f"{name}: dtype {array.dtype}; it must be {' or '.join(dtypes)}")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise BadInput(f"{name}: shape {array.shape}; it must be [{wanted}]")
    if not array.flags.c_contiguous:
        raise BadInput(f"{name}: not C-contiguous; pass numpy.ascontiguousarray({name})")


def _row_slices(n: int, row_elements: int) -> Iterator[slice]:
    """Slices that cover `n` rows, each of about _CHUNK elements and at least one row."""
    step = max(1, _CHUNK // max(1, row_elements))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def _random_bytes(bits: np.random.Generator, count: int) -> Bytes:
    """`count` random bytes, drawn as whole 64-bit words: the fastest way NumPy has; in pieces, so Ctrl-C is heard."""
    words = np.empty(-(-count // 8), np.uint64)
    for start in range(0, len(words), _CHUNK):
        piece = words[start : start + _CHUNK]
        piece[...] = bits.integers(0, 2**64 - 1, size=len(piece), dtype=np.uint64, endpoint=True)
    return words.view(np.uint8)[:count]


def _round(
    part: npt.NDArray[np.float64], zero_points: bool, dtype: np.dtype[Any]
) -> tuple[Bytes, npt.NDArray[np.floating[Any]], Bytes]:
    """Codes [rows, blocks, block], scales of `dtype` and zero points [rows, blocks] of float64 `part`."""
    low = np.minimum(part.min(axis=2), 0.0)
    high = np.maximum(part.max(axis=2), 0.0)
    exact = (high - low) / _LEVELS if zero_points else np.maximum(high, -low) / (_LEVELS - IMPLIED_ZERO)
    with np.errstate(over="ignore"):  # a scale too large for float16 becomes infinite, and is refused below
        scales = exact.astype(dtype)
    scales = np.where(scales.astype(np.float64) < exact, np.nextafter(scales, np.array(np.inf, dtype)), scales)
    if not np.isfinite(scales).all():
        raise BadInput(f"matrix: a block needs a scale of {exact.max():.3g}, too large for {dtype}; use float32")
    step = np.where(scales > 0, scales.astype(np.float64), 1.0)  # a block of zeros has scale 0
    zero = np.rint(-low / step) if zero_points else np.full(step.shape, float(IMPLIED_ZERO))
    codes = np.clip(np.rint(part / step[..., None]) + zero[..., None], 0, _LEVELS)
    return codes.astype(np.uint8), scales, zero.astype(np.uint8)
