"""The host's side of the GPU checksum (in stream_read.cu): equal pairs mean that the GPU sees the host's bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SLICE = 1 << 20  # 8-byte words summed at once: the weights stay in the cache


def host(data: npt.ArrayLike) -> tuple[int, int]:
    """Two sums modulo 2^64 over the little-endian 8-byte words of contiguous `data` (any dtype, any shape).

    The words themselves, and the words times their position counted from 1; the last word is filled up with zero
    bytes. The second sum tells apart pages that were swapped, which the first cannot.
    """
    octets = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    whole = octets.size // 8 * 8
    words = octets[:whole].view("<u8")
    plain = weighted = 0
    for start in range(0, words.size, _SLICE):
        part = words[start : start + _SLICE]
        position = np.arange(start + 1, start + 1 + part.size, dtype=np.uint64)
        plain += int(part.sum(dtype=np.uint64))
        weighted += int((part * position).sum(dtype=np.uint64))
    if whole < octets.size:
        last = int.from_bytes(octets[whole:].tobytes(), "little")
        plain += last
        weighted += (words.size + 1) * last
    return plain % 2**64, weighted % 2**64
