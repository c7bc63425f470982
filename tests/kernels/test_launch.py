"""Launch shapes, decided without a GPU: what every device must be able to run."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels.errors import BadInput
from hybrid_kernels.kernels import launch

H200 = launch.DeviceShape(sm_count=132, l2_bytes=60 << 20, capability=(9, 0))
MOST_THREADS = {"narrow": 256, "wide_short": 640, "wide_long": 512, "wide_any": 512}


@given(
    variant=st.sampled_from(launch.VARIANTS),
    n=st.integers(1, 3_000_000),
    k=st.integers(1, 200_000),
    block=st.sampled_from(launch.BLOCKS),
    zeros=st.booleans(),
    multiprocessors=st.integers(1, 200),
    part=st.integers(1, 3_000_000),
)
def test_every_launch_fits_and_covers_its_rows(variant, n, k, block, zeros, multiprocessors, part):
    """Threads within the kernel's bound, barriers within 16, shared memory within 48 KiB, and blocks for every row."""
    shape = launch.DeviceShape(multiprocessors, 1 << 20, (8, 6))
    how = launch.gemv(variant, n=n, k=k, block=block, has_zero_points=zeros, shape=shape)
    lanes, split, groups = how.block
    bound = next(most for name, most in MOST_THREADS.items() if name in how.kernel)

    assert lanes == 32
    assert lanes * split * groups <= bound
    assert groups <= 15  # named barriers, one a group
    assert 0 <= how.shared_bytes <= 48 * 1024
    assert how.grid[0] >= 1
    assert variant == "wide" or how.grid[0] * split >= n
    assert ("any" not in how.kernel) == (variant == "narrow" or (k % 256 == 0 and k <= 23296))
    tile = launch.gemv(variant, n=n, k=k, block=block, has_zero_points=zeros, shape=shape, rows=min(part, n))
    assert (tile.kernel, tile.block, tile.shared_bytes) == (how.kernel, how.block, how.shared_bytes)


@pytest.mark.parametrize(
    ("n", "k", "kernel", "grid", "block"),
    [
        (1024, 5120, "wide_short", 128, (32, 20, 1)),
        (5120, 5120, "wide_short", 128, (32, 4, 5)),
        (5120, 13824, "wide_short", 128, (32, 4, 5)),
        (13824, 5120, "wide_long", 264, (32, 4, 2)),
        (104858, 5120, "wide_long", 264, (32, 4, 2)),
        (419430, 5120, "wide_long", 528, (32, 4, 1)),
    ],
)
def test_the_shapes_that_were_measured_best(n, k, kernel, grid, block):
    """Qwen2.5-14B's projections, 256 MiB and 1 GiB get the launches that won the sweep on an H200."""
    how = launch.gemv("wide", n=n, k=k, block=32, has_zero_points=True, shape=H200)

    assert how.kernel == f"gemv_int4_{kernel}_b32_zp"
    assert (how.grid, how.block) == ((grid, 1, 1), block)
    assert how.request_bytes == 128


def test_only_kernels_that_wait_by_themselves_start_early():
    """The wide kernel, from compute capability 9.0 on, and not where activations are read through L1, which is emptied
    only between kernels that do not overlap."""

    def early(variant="wide", k=5120, shape=H200):
        return launch.gemv(variant, n=4096, k=k, block=32, has_zero_points=True, shape=shape).starts_early

    older = dataclasses.replace(H200, capability=(8, 9))
    assert early()
    assert early(k=23296)
    assert early(k=5000)
    assert not early(k=23328)
    assert not early("narrow")
    assert not early(shape=older)
    assert not launch.stream(1 << 20, H200).starts_early
    assert not launch.checksum(1 << 20, H200).starts_early


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"variant": "fast"}, "variant"),
        ({"block": 48}, "block"),
        ({"n": 0}, "n:"),
        ({"k": -1}, "k:"),
        ({"rows": 0}, "rows"),
    ],
)
def test_what_no_kernel_can_do_is_bad_input(change, names):
    """The message names the argument and says what there is."""
    wanted = {"variant": "wide", "n": 8, "k": 256, "block": 32, "has_zero_points": True, "shape": H200} | change
    with pytest.raises(BadInput, match=names):
        launch.gemv(wanted.pop("variant"), **wanted)


def test_access_patterns_name_compiled_kernels():
    """Each pattern, width and depth has its name; others are bad input; scattered reads cover a power of two."""
    for pattern, widths in launch.REQUESTS.items():
        for width in widths:
            how = launch.access(request_bytes=width, loads_in_flight=4, nbytes=1 << 20, shape=H200, pattern=pattern)
            assert how.kernel == f"access_{pattern}_{width}_4"
            assert how.request_bytes == width
    with pytest.raises(BadInput, match="request_bytes"):
        launch.access(request_bytes=48, loads_in_flight=4, nbytes=1, shape=H200)
    with pytest.raises(BadInput, match="loads_in_flight"):
        launch.access(request_bytes=64, loads_in_flight=3, nbytes=1, shape=H200)
    with pytest.raises(BadInput, match="threads"):
        launch.access(request_bytes=64, loads_in_flight=4, nbytes=1, shape=H200, threads=48)
    assert launch.scattered_bytes(100 * 64 + 5, 64) == 64 * 64
    assert launch.scattered_bytes(63, 64) == 0
