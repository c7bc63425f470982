"""The GEMV on a real GPU: near the float64 reference on hostile inputs, and the same bits by every way to read."""

import numpy as np
import pytest

from hybrid_kernels.devices.cuda import CudaDevice
from hybrid_kernels.kernels import launch
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import Int4Weights

TOLERANCE = 2e-3  # relative L2 error against the float64 reference


def normal(k, seed=0):
    """float16 activations of an ordinary layer."""
    return np.random.default_rng(seed).standard_normal(k).astype(np.float16)


def error(y, truth):
    """Relative L2 error."""
    return np.linalg.norm(y.astype(np.float64) - truth) / np.linalg.norm(truth)


@pytest.fixture(scope="module", params=launch.VARIANTS)
def device(request):
    """The GPU, once for each variant of the kernel."""
    with CudaDevice(variant=request.param) as device:
        yield device


@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("n", "k"), [(5120, 5120), (1024, 5120), (1, 1), (7, 33), (1003, 1000), (64, 13824), (9, 40000)]
)
def test_every_way_to_read_gives_the_same_right_bits(device, n, k, block, zero_points):
    """Resident, in place and staged, eager and replayed: one and the same product, near the reference, any shape."""
    weights = Int4Weights.random(n=n, k=k, block=block, seed=n + k, zero_points=zero_points)
    x = normal(k)
    outputs = {}
    for strategy in device.strategies:
        with device.place(weights, strategy, copies=2) as placed:
            for form in device.forms:
                with device.read_arm(placed, x, form) as arm:
                    arm.run(3)
                    outputs[strategy, form] = arm.output()
                    assert (arm.captures > 0, arm.fallbacks) == (form == "graph", 0)
                    assert arm.variant == device.variant

    assert len({y.tobytes() for y in outputs.values()}) == 1
    assert error(outputs["resident", "eager"], reference.gemv(weights, x)) < TOLERANCE


def hostile(name, k):
    """Activations [k] that break kernels which take short cuts."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(k)
    if name == "outliers":  # a few of thousands beside small ones, as in real LLM layers
        x *= 0.02
        x[rng.choice(k, 6, replace=False)] = rng.choice([-1, 1], 6) * rng.uniform(2000, 6000, 6)
    elif name == "one sign":
        x = np.abs(x)
    elif name == "subnormal":
        x = rng.uniform(-6e-5, 6e-5, k)
    elif name == "large":
        x = rng.choice([-1, 1], k) * rng.uniform(30000, 60000, k)
    return x.astype(np.float16)


@pytest.mark.parametrize("zeros", ["random", "none", "all 0", "all 15"])
@pytest.mark.parametrize("name", ["outliers", "one sign", "subnormal", "large"])
def test_hostile_activations_stay_near_the_reference(device, name, zeros):
    """Outliers, one sign, subnormals and activations up to 60000: no infinity or NaN where the truth fits float16."""
    n, k = 512, 5120
    weights = Int4Weights.random(n=n, k=k, block=32, seed=11, zero_points=zeros != "none")
    scales = weights.scales.astype(np.float32)
    if name == "large":
        scales *= 2.0**-13  # so that the result fits float16
    if name == "subnormal":
        scales *= 2.0**7
    zero_points = weights.zero_points
    if zeros.startswith("all"):
        zero_points = np.full_like(zero_points, {"all 0": 0x00, "all 15": 0xFF}[zeros])
    if zeros.startswith("all") and name == "one sign":
        scales *= 2.0**-3
    weights = Int4Weights.from_arrays(weights.packed, scales.astype(np.float16), zero_points)
    x = hostile(name, k)
    truth = reference.gemv(weights, x)
    with device.place(weights, "resident") as placed:
        y = device.gemv(placed, x)

    fits = np.abs(truth) < 65000
    assert fits.any()
    assert np.isfinite(y[fits]).all()
    small = np.spacing(np.float16(6e-8)) * np.sqrt(n)  # the output is float16 itself: half its smallest step a row
    assert np.linalg.norm(y[fits] - truth[fits]) <= TOLERANCE * np.linalg.norm(truth[fits]) + small


def test_runs_are_repeatable(device):
    """The same bytes give the same bits, run to run."""
    weights = Int4Weights.random(n=4096, k=5120, block=32, seed=2)
    with device.place(weights, "resident") as placed:
        assert len({device.gemv(placed, normal(5120)).tobytes() for _ in range(5)}) == 1
