"""The CUDA GEMV on a CPU, lane by lane, against the float64 reference: what it computes is tested without a GPU."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hybrid_kernels.kernels import launch
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import Int4Weights

HERE = Path(__file__).parent
SHAPE = launch.DeviceShape(sm_count=2, l2_bytes=1 << 20, capability=(9, 0))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """The kernels compiled for this machine by the host's C++ compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on this machine: the emulation needs a C++20 compiler with _Float16")
    library = tmp_path_factory.mktemp("emulated") / "emulated.so"
    include = [f"-I{HERE}", f"-I{Path(launch.__file__).parent}"]
    done = subprocess.run(
        [compiler, "-O2", "-std=c++20", "-shared", "-fPIC", *include, "-o", library, HERE / "emulated.cpp"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def multiply(emulator, variant, weights, x, shape=SHAPE, rows=slice(None)):
    """y float64 [rows] as the kernel computes it in a launch over `rows` of the weights."""
    first, last, _ = rows.indices(weights.n)
    how = launch.gemv(
        variant,
        n=weights.n,
        k=weights.k,
        block=weights.block,
        has_zero_points=weights.zero_points is not None,
        shape=shape,
        rows=last - first,
    )
    y = np.full(last - first, np.nan, np.float16)
    arrays = [np.ascontiguousarray(weights.packed[rows]), np.ascontiguousarray(weights.scales[rows], np.float16)]
    arrays.append(None if weights.zero_points is None else np.ascontiguousarray(weights.zero_points[rows]))
    arrays += [np.ascontiguousarray(x, np.float16), y]
    pointers = [None if a is None else ctypes.c_void_p(a.ctypes.data) for a in arrays]
    three = ctypes.c_int * 3
    status = emulator.run(
        how.kernel.encode(), three(*how.grid), three(*how.block), how.shared_bytes, *pointers, last - first, weights.k
    )
    assert status == 0, f"{how}: {status}"
    return y.astype(np.float64)


def error(y, expected):
    """Relative L2 distance, 0 for equal vectors; NaN and infinity never pass."""
    return 0.0 if np.array_equal(y, expected) else np.linalg.norm(y - expected) / np.linalg.norm(expected)


def drawn(n, k, block, zero_points=True, seed=0):
    """Random weights and activations of the order of 1."""
    weights = Int4Weights.random(n, k, block, seed, zero_points=zero_points)
    return weights, np.random.default_rng(seed).standard_normal(k).astype(np.float16)


@pytest.mark.parametrize("variant", launch.VARIANTS)
@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("block", launch.BLOCKS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 256), (13, 1280), (17, 96), (9, 777), (5, 272), (2, 1040)])
def test_any_shape_agrees_with_the_reference(emulator, variant, zero_points, block, n, k):
    """Any n and k, every block size, with and without zero points: no element unwritten, none far off."""
    weights, x = drawn(n, k, block, zero_points)

    assert error(multiply(emulator, variant, weights, x), reference.gemv(weights, x)) < 1e-3


@pytest.mark.parametrize(
    ("multiprocessors", "n", "k", "kernel"),
    [
        (2, 10, 3072, "wide_short"),  # a tile each
        (2, 75, 1280, "wide_short"),  # five tiles each
        (2, 203, 2816, "wide_long"),  # tiles walked over, runs longer than the ring, the last tile not full
        (1, 1637, 256, "wide_long"),  # many tiles, a warp each
        (2, 203, 1056, "wide_any"),  # the same, rows of no whole chunks
        (1, 2, 24000, "wide_any"),  # more activations than fit shared memory
        (1, 2, 23552, "wide_any"),
    ],
)
def test_every_way_of_sharing_the_rows(emulator, multiprocessors, n, k, kernel):
    """Each shape of launch computes the same function, whatever warps and blocks share."""
    shape = launch.DeviceShape(multiprocessors, 1 << 20, (9, 0))
    weights, x = drawn(n, k, 32)
    how = launch.gemv("wide", n=n, k=k, block=32, has_zero_points=True, shape=shape)

    assert kernel in how.kernel
    assert error(multiply(emulator, "wide", weights, x, shape), reference.gemv(weights, x)) < 1e-3


def alternating(x):
    """60000 with either sign in turn: half-precision sums of a block would overflow."""
    return np.where(np.arange(x.size) % 2, 60000, -60000)


ACTIVATIONS = {
    "outliers of thousands beside small ones": lambda x: np.where(np.arange(x.size) % 97 == 5, 5000 * np.sign(x), x),
    "one of 60000 beside hundredths": lambda x: np.where(np.arange(x.size) == 7, 60000, 0.01 * x),
    "60000 with either sign": alternating,
    "one sign": np.abs,
    "subnormal": lambda x: x * 2e-5,
}


@pytest.mark.parametrize("variant", launch.VARIANTS)
@pytest.mark.parametrize("zeros", [None, 0, 15])
@pytest.mark.parametrize("activations", ACTIVATIONS)
@pytest.mark.parametrize("block", [16, 32, 128])
def test_adversarial_inputs(emulator, variant, zeros, activations, block):
    """Wherever the float64 result fits fp16 the output is finite and right, whatever the activations look like."""
    weights, x = drawn(16, 1024, block, seed=3)
    if zeros is not None:
        weights.zero_points[:] = zeros * 17
    x = ACTIVATIONS[activations](x).astype(np.float16)
    expected = reference.gemv(weights, x)
    fits = np.abs(expected) < 65000
    y = multiply(emulator, variant, weights, x)

    assert fits.any()
    assert error(y[fits], expected[fits]) < 2e-3


@pytest.mark.parametrize("variant", launch.VARIANTS)
def test_a_tile_of_rows_gives_the_bits_of_the_whole(emulator, variant):
    """A staged tile is launched over fewer rows, but the order of the additions is that of the whole matrix."""
    weights, x = drawn(203, 2560, 32)
    whole = multiply(emulator, variant, weights, x)
    tiles = [multiply(emulator, variant, weights, x, rows=slice(r, min(r + 72, 203))) for r in range(0, 203, 72)]

    assert np.array_equal(np.concatenate(tiles), whole)


def test_zero_points_that_equal_every_code_leave_nothing(emulator):
    """code - zero is exact: an outlier of 60000 whose code is its zero point adds nothing to the sum."""
    weights, x = drawn(8, 512, 32)
    weights.zero_points[:] = 0x55
    weights.packed[:, :, 0] = 0x55  # the first two codes of each block
    x[0::32] = 60000
    x[1::32] = -60000

    assert error(multiply(emulator, "wide", weights, x), reference.gemv(weights, x)) < 2e-3
