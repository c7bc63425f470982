"""The compiled CPU kernel with its arguments checked: what devices/cpu.py calls."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hybrid_kernels.errors import BadInput, DeviceFailure
from hybrid_kernels.kernels._gemv_int4 import ffi as _ffi
from hybrid_kernels.kernels._gemv_int4 import lib as _lib

Mode = Literal["f32", "i8"]
MODES: tuple[Mode, ...] = ("f32", "i8")
BLOCKS = (16, 32, 64, 128)
MAX_THREADS = 256

_U8, _F32 = np.dtype(np.uint8), np.dtype(np.float32)
_ERRORS = {
    -1: "bad shape",
    -2: "bad block",
    -3: f"threads must be 1 to {MAX_THREADS}",
    -4: "unknown variant",
    -5: "this processor cannot run the variant in this mode",
    -6: "out of memory",
    -7: "share must be between 0 and 1",
}


@cache
def variants(mode: Mode) -> tuple[str, ...]:
    """Names of the variants of `mode` that this processor can run, slowest first. BadInput for an unknown mode."""
    number = _mode(mode)
    return tuple(
        _ffi.string(_lib.hk_variant_name(v)).decode()
        for v in range(1, _lib.hk_variants())
        if _lib.hk_variant_usable(v, number)
    )


def chosen(mode: Mode, variant: str = "auto") -> str:
    """The name of the variant that runs when `variant` is asked for: itself, or what `auto` picks here."""
    _variant(variant, mode)
    return _ffi.string(_lib.hk_variant_auto(_mode(mode))).decode() if variant == "auto" else variant


def gemv(
    packed: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    zero_points: npt.NDArray[np.uint8] | None,
    x: npt.NDArray[np.float32],
    *,
    block: int,
    mode: Mode = "f32",
    threads: int = 1,
    variant: str = "auto",
    out: npt.NDArray[np.float32] | None = None,
    repeat_share: float = 0.0,
) -> npt.NDArray[np.float32]:
    """y = W x over weights in the MatMulNBits layout, read as they lie; returns float32 [n] (`out` if given).

    packed uint8 [n, blocks, block/2], low nibble first; scales float32 [n, blocks]; zero_points uint8
    [n, ceil(blocks/2)], low nibble = even block, or None for 8; x float32 [k] with blocks = ceil(k/block). All arrays
    C-contiguous. `mode` f32 multiplies in float32; i8 rounds x to int8 per block first (error bound in gemv_int4.c).
    `repeat_share` (f32 only) does the work again on that share of the rows: a planted slowdown.
    BadInput names the argument; a variant that this processor lacks is BadInput too, never another variant.
    """
    number, mode_number = _variant(variant, mode), _mode(mode)
    if block not in BLOCKS:
        raise BadInput(f"block: {block} is not one of {', '.join(map(str, BLOCKS))}")
    k = _length("x", x)
    blocks = -(-k // block)
    n = _length("packed", packed)
    _check("x", x, _F32, (k,))
    _check("packed", packed, _U8, (n, blocks, block // 2))
    _check("scales", scales, _F32, (n, blocks))
    if zero_points is not None:
        _check("zero_points", zero_points, _U8, (n, -(-blocks // 2)))
    if out is None:
        out = np.empty(n, np.float32)
    _check("out", out, _F32, (n,))
    if not out.flags.writeable:
        raise BadInput("out: must be writeable")
    if not 0.0 <= repeat_share <= 1.0 or (repeat_share and mode_number):
        raise BadInput(f"repeat_share: {repeat_share} must be between 0 and 1, in mode f32 only")
    arguments = (
        _pointer("uint8_t[]", packed),
        _pointer("float[]", scales),
        _ffi.NULL if zero_points is None else _pointer("uint8_t[]", zero_points),
        _pointer("float[]", x),
        _pointer("float[]", out),
        n, k, block, _threads(threads), number,
    )  # fmt: skip
    if repeat_share:
        _raise(_lib.hk_gemv_f32_repeat(*arguments, repeat_share))
    else:
        _raise((_lib.hk_gemv_i8 if mode_number else _lib.hk_gemv_f32)(*arguments))
    return out


def stream_read(data: npt.NDArray[np.uint8], *, threads: int = 1) -> int:
    """Read every byte of a C-contiguous uint8 array once, as fast as loads go; returns the sum of its little-endian
    64-bit words (the last one padded with zeros) modulo 2^64. BadInput names the argument.
    """
    _length("data", data)
    _check("data", data, _U8, data.shape)
    total = _ffi.new("uint64_t *")
    _raise(_lib.hk_stream_read(_pointer("uint8_t[]", data), data.size, _threads(threads), total))
    return int(total[0])


def copy(destination: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8], *, threads: int = 1) -> None:
    """Copy a C-contiguous uint8 array into another of the same size, every thread one run of bytes in order.

    BadInput names the argument. The two must not overlap.
    """
    for name, array in (("source", source), ("destination", destination)):
        _length(name, array)
        _check(name, array, _U8, array.shape)
    if destination.size != source.size or not destination.flags.writeable:
        raise BadInput(f"destination: must be writeable and hold {source.size} bytes, it holds {destination.size}")
    if np.may_share_memory(destination, source):
        raise BadInput("destination: overlaps source")
    target = _pointer("uint8_t[]", destination)
    _raise(_lib.hk_copy(target, _pointer("uint8_t[]", source), source.size, _threads(threads)))


def _mode(mode: str) -> int:
    if mode not in MODES:
        raise BadInput(f"mode: {mode!r} is not one of {', '.join(MODES)}")
    return MODES.index(mode)


@cache
def _variant(name: str, mode: Mode) -> int:
    if name == "auto":
        return 0
    usable = variants(mode)
    if name not in usable:
        raise BadInput(f"variant: {name!r} cannot run here in mode {mode}; use auto, {', '.join(usable)}")
    return next(v for v in range(1, _lib.hk_variants()) if _ffi.string(_lib.hk_variant_name(v)).decode() == name)


def _threads(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise BadInput(f"threads: {threads} must be 1 to {MAX_THREADS}")
    return int(threads)


def _length(name: str, array: npt.NDArray[Any]) -> int:
    """Size of the first axis, 1 or more."""
    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.size == 0:
        raise BadInput(f"{name}: must be a numpy array that is not empty")
    return int(array.shape[0])


def _check(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Cheap, because it stands in every timed pass: a few tenths of a microsecond when all is well."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise BadInput(f"{name}: must be a numpy array of {dtype}")
    if array.shape != shape:
        raise BadInput(f"{name}: shape {array.shape} must be {shape}")
    if not array.flags.c_contiguous:
        raise BadInput(f"{name}: must be C-contiguous; pass numpy.ascontiguousarray({name})")


def _pointer(kind: str, array: npt.NDArray[Any]) -> Any:
    return _ffi.from_buffer(kind, array)


def _raise(code: int) -> None:
    if code:
        raise DeviceFailure(f"CPU kernel: {_ERRORS.get(code, 'failed')}", str(code))
