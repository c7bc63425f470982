"""Walks on a real GPU: products that start before the last one has ended read what it wrote."""

import numpy as np
import pytest

from hybrid_kernels.judge.plan import at_fraction
from hybrid_kernels.layout.models import Model
from hybrid_kernels.measure import walk

TINY = Model("tiny", "none", 256, 768, 24, 4, 2, 64, 1024, False)
"""Products of a few blocks each, so that three of them can be on the card at once."""
LONG = Model("long", "none", 512, 24576, 2, 4, 2, 128, 1024, False)
"""More activations than fit shared memory: those are read through L1."""


@pytest.mark.parametrize("model", [TINY, LONG], ids=["tiny", "long"])
@pytest.mark.parametrize(("schedule", "fraction"), [("serial", 1.0), ("serial", 0.5), ("overlapped", 0.5)])
def test_a_thousand_replays_give_the_same_bits(device, model, schedule, fraction):
    """Activations hand over 169 times a walk; one that was read too early would change the bits that come out."""
    with walk.Tensors(device, walk.tensors_of(model)) as pool:
        steps = pool.place(at_fraction(pool.tensors, fraction))
        truth = pool.truth().tobytes()
        with device.walk_arm(steps, pool.start, schedule, "graph") as arm:
            for _ in range(1000):
                arm.run(1)
                assert arm.output().tobytes() == truth
            assert (arm.captures, arm.fallbacks) == (1, 0)


def test_batches_of_passes_in_one_graph_give_the_bits_of_one(device):
    """Sixty-four passes that may overlap, over three buffers: the output is that of a single eager one."""
    weights = walk.weights_of(walk.tensors_of(TINY)[0], 32, 0)
    x = np.random.default_rng(0).standard_normal(weights.k)
    with device.place(weights, "resident", copies=3) as placed, device.read_arm(placed, x, "graph") as arm:
        truth = device.gemv(placed, x).tobytes()
        for _ in range(100):
            arm.run(64)
            assert arm.output().tobytes() == truth
