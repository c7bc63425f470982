"""Which CUDA kernel to launch, and in which shape: decided from the device's properties, importable without a GPU.

The kernels themselves are in `gemv_int4.cu` and `stream_read.cu`. A launch decides how many threads share a row, so it
decides the order of the additions: it must not depend on where the weights lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hybrid_kernels.errors import BadInput

WARP = 32  # lanes
ROW_TILE = 8  # rows: staged tiles hold a multiple of it

BLOCKS = (16, 32, 64, 128)
VARIANTS = ("narrow", "wide")
LOADS_IN_FLIGHT = (1, 4, 8)
REQUESTS = {"coalesced": (32, 64, 128, 256, 512), "scattered": (32, 64, 128, 256)}  # bytes a request covers

# The wide kernels (gemv_int4.cu). Warps and blocks are the best of the shapes swept on an H200: docs/kernels.md.
_CHUNK_CODES = 256  # codes of a row that a warp takes at once: 128 bytes
_MOST_SHARED_CODES = 91 * _CHUNK_CODES  # activations that fit shared memory beside the sums, in 48 KiB
_CORNER_BYTES = 128  # zeros in shared memory
_SHORT_WARPS, _ANY_WARPS = 20, 16  # a block, as the kernels' launch bounds allow
_SHORT_TILES = 5  # a multiprocessor: up to here all tiles run at once
_MANY_TILES = 200  # a multiprocessor: from here four small blocks beat two larger ones
_LONG_SPLIT = 4  # warps a tile
_NARROW_WARPS = 8  # a block; a warp a row
_STREAM_LOADS = 8  # 16-byte loads in flight a thread, as compiled into stream_read
_BLOCK_THREADS = 1024
_EARLY_STARTS = (9, 0)  # compute capability from which kernels can wait for one another (PTX ISA, griddepcontrol)


@dataclass(frozen=True, slots=True)
class DeviceShape:
    """The properties a launch depends on: multiprocessors, bytes of L2, and compute capability (major, minor)."""

    sm_count: int
    l2_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: name in the module, grid and block, bytes of dynamic shared memory (48 KiB at most).

    `request_bytes` are the contiguous weight bytes that one warp-level load covers: what a link sees as one request.
    `starts_early`: the kernel waits by itself for the one before it, so a graph may start it before that one has ended.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    request_bytes: int = 0
    starts_early: bool = False


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def gemv(
    variant: str,
    *,
    n: int,
    k: int,
    block: int,
    has_zero_points: bool,
    shape: DeviceShape,
    rows: int | None = None,
) -> Launch:
    """The launch of `variant` for an int4 matrix [n, k] with quantisation blocks of `block` codes.

    `rows`: how many of the n rows this launch covers (a staged tile; all by default). The order of the additions
    follows n, not `rows`, so tiles give the bits of the whole. BadInput for a variant, block or size without kernel.
    """
    if variant not in VARIANTS:
        raise BadInput(f"variant: {variant!r} is not a CUDA kernel; use one of {', '.join(VARIANTS)}")
    if block not in BLOCKS:
        raise BadInput(f"block: {block} has no CUDA kernel; use one of {', '.join(map(str, BLOCKS))}")
    for name, value in (("n", n), ("k", k), ("rows", n if rows is None else rows)):
        if not 1 <= value < 2**31:
            raise BadInput(f"{name}: {value} must be at least 1 and below 2^31")
    rows = n if rows is None else rows
    suffix = "zp" if has_zero_points else "sym"
    if variant == "wide":
        return _wide(n, k, block, suffix, shape, rows)
    return Launch(
        kernel=f"gemv_int4_narrow_b{block}_{suffix}",
        grid=(_ceil_div(rows, _NARROW_WARPS), 1, 1),
        block=(WARP, _NARROW_WARPS, 1),
        request_bytes=WARP,
    )


def _wide(n: int, k: int, block: int, suffix: str, shape: DeviceShape, rows: int) -> Launch:
    """Few tiles of 8 rows: all at once, the warps of a block shared out. Many: smaller blocks that walk over them."""
    chunks = _ceil_div(_ceil_div(k, block) * block, _CHUNK_CODES)
    whole = k % _CHUNK_CODES == 0 and chunks * _CHUNK_CODES <= _MOST_SHARED_CODES
    tiles_each = _ceil_div(n, ROW_TILE) / shape.sm_count  # a multiprocessor
    if tiles_each <= _SHORT_TILES:
        which, groups, blocks_each = "short", max(1, math.ceil(tiles_each)), 1
        split = (_SHORT_WARPS if whole else _ANY_WARPS) // groups
    elif tiles_each < _MANY_TILES:
        which, groups, blocks_each, split = "long", 2, 2, _LONG_SPLIT
    else:
        which, groups, blocks_each, split = "long", 1, 4, _LONG_SPLIT
    split = _ceil_div(chunks, _ceil_div(chunks, split))  # no warp without a chunk
    x_codes = chunks * _CHUNK_CODES if chunks * _CHUNK_CODES <= _MOST_SHARED_CODES else 0
    sums = 2 * groups * split * ROW_TILE  # float32, for this tile and the next
    return Launch(
        kernel=f"gemv_int4_wide_{which if whole else 'any'}_b{block}_{suffix}",
        grid=(min(blocks_each * shape.sm_count, _ceil_div(rows, ROW_TILE * groups)), 1, 1),
        block=(WARP, split, groups),
        shared_bytes=2 * x_codes + _CORNER_BYTES + 4 * sums,
        request_bytes=_CHUNK_CODES // 2,
        # Activations out of device memory go through L1, which is emptied only between kernels that do not overlap.
        starts_early=shape.capability >= _EARLY_STARTS and x_codes > 0,
    )


def stream(nbytes: int, shape: DeviceShape) -> Launch:
    """A streaming read of `nbytes`: a block of 1024 threads a multiprocessor, fewer where bytes do not fill them."""
    fill = _ceil_div(nbytes, _BLOCK_THREADS * 16 * _STREAM_LOADS)
    return Launch(
        kernel="stream_read",
        grid=(max(1, min(shape.sm_count, fill)), 1, 1),
        block=(_BLOCK_THREADS, 1, 1),
        request_bytes=WARP * 16,
    )


def checksum(nbytes: int, shape: DeviceShape) -> Launch:
    """The checksum of `nbytes`; compare with `hybrid_kernels.kernels.checksum.host`."""
    fill = _ceil_div(nbytes, _BLOCK_THREADS * 8)
    return Launch(
        kernel="checksum",
        grid=(max(1, min(2 * shape.sm_count, fill)), 1, 1),
        block=(_BLOCK_THREADS, 1, 1),
        request_bytes=WARP * 8,
    )


def access(
    *,
    request_bytes: int,
    loads_in_flight: int,
    nbytes: int,
    shape: DeviceShape,
    pattern: Literal["coalesced", "scattered"] = "coalesced",
    blocks: int | None = None,
    threads: int = _BLOCK_THREADS,
) -> Launch:
    """An access pattern: requests of `request_bytes`, `loads_in_flight` independent loads a thread.

    `blocks` and `threads` bound the bytes in flight; by default two blocks a multiprocessor. BadInput for a pattern
    that no kernel has. Scattered reads cover `scattered_bytes(nbytes, request_bytes)` only.
    """
    if request_bytes not in REQUESTS.get(pattern, ()):
        known = "; ".join(f"{name}: {', '.join(map(str, widths))}" for name, widths in REQUESTS.items())
        raise BadInput(f"request_bytes: no {pattern} kernel for {request_bytes}; use {known}")
    if loads_in_flight not in LOADS_IN_FLIGHT:
        raise BadInput(
            f"loads_in_flight: {loads_in_flight} is not compiled; use {', '.join(map(str, LOADS_IN_FLIGHT))}"
        )
    if threads % WARP or not WARP <= threads <= _BLOCK_THREADS:
        raise BadInput(f"threads: {threads} must be a multiple of {WARP}, at most {_BLOCK_THREADS}")
    return Launch(
        kernel=f"access_{pattern}_{request_bytes}_{loads_in_flight}",
        grid=(max(1, blocks if blocks is not None else 2 * shape.sm_count), 1, 1),
        block=(threads, 1, 1),
        request_bytes=request_bytes,
    )


def bytes_in_flight(launch: Launch, *, lane_bytes: int, loads_in_flight: int) -> int:
    """Bytes that a launch asks for at once when all its blocks run together: threads x bytes a lane x loads."""
    threads = launch.grid[0] * launch.grid[1] * launch.grid[2] * launch.block[0] * launch.block[1] * launch.block[2]
    return threads * lane_bytes * loads_in_flight


def scattered_bytes(nbytes: int, request_bytes: int) -> int:
    """Bytes a scattered pattern reads of `nbytes`: the largest power of two of whole chunks."""
    chunks = nbytes // request_bytes
    return request_bytes << (chunks.bit_length() - 1) if chunks else 0
