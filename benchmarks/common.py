"""What the suites share: parameters, opening what a parameter names, and skipping what is absent."""

from __future__ import annotations

import atexit
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


class Prepared:
    """Base of suites whose preparation is dear. asv sets up anew before every sample, and a device that rests for a
    second between two samples has left its clocks; so one process prepares once, and gives everything back at its end.
    """

    def prepare(self, *params: object) -> None:
        """Do what `setup` would; NotImplementedError skips these parameters."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what `prepare` took."""
        for name in ("arm", "placed", "pool", "device"):
            thing = self.__dict__.pop(name, None)
            if thing is not None:
                thing.close()

    def setup(self, *params: object) -> None:
        if self.__dict__.get("prepared") == params:
            return
        atexit.register(self.close)
        try:
            self.prepare(*params)
        except BaseException:
            self.close()
            raise
        self.prepared = params


class Timed(Prepared):
    """Base of suites that time one arm: `timer` is the arm's device clock, so asv times what the device times.

    One call of the timed function is a batch of passes, and the clock counts the passes alone, as one pass: eviction,
    dispatch and replay set-up stay outside.
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
