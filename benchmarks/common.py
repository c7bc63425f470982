"""What the suites share: parameters, opening what a parameter names, and skipping what is absent."""

from __future__ import annotations

import os

from hybrid_kernels.devices import open_device
from hybrid_kernels.errors import DeviceUnavailable
from hybrid_kernels.layout.weights import Int4Weights

K = 5120
BLOCK = 32
DEVICES = ["cpu", "cuda"]
SIZES_MIB = [12.5, 64.0, 256.0]
BATCH_SECONDS = 2e-3  # a timed call lasts at least this long on the device's clock, so that dispatch stays outside


def device_or_skip(name: str):
    """The device, or NotImplementedError, which asv records as a skipped parameter, when it is absent here."""
    try:
        return open_device(name, scratch=os.environ.get("HYBRID_KERNELS_SCRATCH"))
    except (DeviceUnavailable, ImportError) as error:
        raise NotImplementedError(str(error)) from error


def weights_of(mib: float, k: int = K) -> Int4Weights:
    """Random weights of about `mib` MiB packed."""
    return Int4Weights.random(n=round(mib * 2**20 / (k // 2)), k=k, block=BLOCK, seed=0)


class Timed:
    """Base of suites that time one arm: `timer` is the arm's device clock, so asv times what the device times.

    asv calls the timed function once or more a sample; one call is a batch of passes, and its clock counts the passes
    alone: eviction, dispatch and replay set-up stay outside. `per_pass` turns the result into seconds a pass.
    """

    warmup_time = 0.4
    repeat = (5, 11, 20.0)
    number = 1
    timeout = 300

    def open(self, device: str) -> None:
        self.device = device_or_skip(device)

    def use(self, arm) -> None:
        self.arm = arm
        once = max(arm.run(1), 1e-9)
        self.passes = max(1, min(int(BATCH_SECONDS / once), 512))
        if self.passes > arm.copies > 1:
            self.passes = -(-self.passes // arm.copies) * arm.copies
        self.elapsed = 0.0
        self.timer = lambda: self.elapsed

    def step(self) -> None:
        """One batch, counted as one pass: the clock advances by the batch's seconds over its passes."""
        self.elapsed += self.arm.run(self.passes) / self.passes

    def close(self) -> None:
        for name in ("arm", "placed", "device"):
            thing = self.__dict__.pop(name, None)
            if thing is not None:
                thing.close()
