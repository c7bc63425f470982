"""The host checksum against arithmetic done with Python's own integers."""

import numpy as np
import pytest

from hybrid_kernels.kernels import checksum


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4096, 8 * (1 << 20) + 5])
def test_sums_are_those_of_python_integers(size):
    """Both sums equal exact integer arithmetic modulo 2^64, tails and slice boundaries included."""
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    padded = data.tobytes() + bytes(-size % 8)
    words = np.frombuffer(padded, "<u8").tolist()

    assert checksum.host(data) == (sum(words) % 2**64, sum((i + 1) * w for i, w in enumerate(words)) % 2**64)


def test_a_stale_or_swapped_page_changes_it():
    """One stale page changes the sums; two swapped pages keep the plain sum but change the weighted one."""
    data = np.random.default_rng(0).integers(0, 256, (16, 4096), dtype=np.uint8)
    stale, swapped = data.copy(), data[[1, 0, *range(2, 16)]]
    stale[5] = 0

    assert checksum.host(stale) != checksum.host(data)
    assert checksum.host(swapped)[0] == checksum.host(data)[0]
    assert checksum.host(swapped)[1] != checksum.host(data)[1]
