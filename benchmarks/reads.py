"""How fast a real int4 GEMV reads its weights, by strategy and size: seconds per pass, and packed GB/s of it."""

from __future__ import annotations

import numpy as np

from benchmarks.common import DEVICES, SIZES_MIB, Timed, weights_of
from hybrid_kernels.errors import BadInput, DeviceUnavailable
from hybrid_kernels.measure.sampling import ramp

STRATEGIES = ["resident", "in_place", "staged"]


class _Read(Timed):
    params = [DEVICES, STRATEGIES, SIZES_MIB]
    param_names = ["device", "strategy", "mib"]

    def prepare(self, device: str, strategy: str, mib: float) -> None:
        self.open(device)
        if strategy not in self.device.strategies:
            raise NotImplementedError(f"device {device} has no strategy {strategy}")
        weights = weights_of(mib)
        copies = self.device.cold_copies(weights.packed_bytes, strategy)
        self.placed = self.device.place(weights, strategy, copies=copies)
        x = np.random.default_rng(1).standard_normal(weights.k).astype(np.float16).astype(np.float32)
        form = "graph" if "graph" in self.device.forms else "eager"
        try:
            self.use(self.device.read_arm(self.placed, x, form))
        except (BadInput, DeviceUnavailable) as error:  # commits before the device had a GEMV
            raise NotImplementedError(str(error)) from error


class Seconds(_Read):
    """Seconds per pass, read cold, samples kept."""

    def time_read(self, device: str, strategy: str, mib: float) -> None:
        self.step()

    time_read.version = "1 gemv int4 block 32, cold, batches on the device clock"


class Bandwidth(_Read):
    """Packed GB/s of the median pass: the figure that cold paths are sized with."""

    def track_read(self, device: str, strategy: str, mib: float) -> float:
        ramp(self.arm, self.passes)
        seconds = np.median([self.arm.run(self.passes) / self.passes for _ in range(11)])
        return self.arm.pass_bytes / seconds / 1e9

    track_read.unit = "GB/s"
    track_read.higher_is_better = True
    track_read.version = "1 gemv int4 block 32, cold, median of 11 batches"
