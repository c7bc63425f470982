"""Request width, alignment and bytes in flight, one knob at a time: why a kernel reads a tier as fast as it does."""

from __future__ import annotations

import numpy as np

from benchmarks.common import Timed, weights_of
from hybrid_kernels.measure.accesses import ACCESSES, TIERS
from hybrid_kernels.measure.sampling import ramp

NAMED = {
    f"{a.pattern} {a.request_bytes} B, {a.loads_in_flight} loads"
    + (f", off by {a.offset}" if a.offset else "")
    + (f", {a.blocks} x {a.threads}" if a.blocks else ""): a
    for a in ACCESSES
}


class Bandwidth(Timed):
    """GB/s of the bytes that a pattern reads, 256 MiB, median of 5 batches; nothing is computed."""

    params = [["cpu", "cuda"], list(TIERS), list(NAMED)]
    param_names = ["device", "tier", "access"]

    def prepare(self, device: str, tier: str, access: str) -> None:
        self.open(device)
        if self.device.request_bytes is None:
            raise NotImplementedError(f"device {device} has no access patterns")
        weights = weights_of(256.0)
        self.placed = self.device.place(weights, tier, copies=self.device.cold_copies(weights.packed_bytes, tier))
        self.use(self.device.access_arm(self.placed, NAMED[access]))

    def track_access(self, device: str, tier: str, access: str) -> float:
        ramp(self.arm, self.passes)
        seconds = np.median([self.arm.run(self.passes) / self.passes for _ in range(5)])
        return self.arm.pass_bytes / seconds / 1e9

    track_access.unit = "GB/s"
    track_access.higher_is_better = True
    track_access.version = "1 plain reads of 256 MiB, median of 5 batches"
