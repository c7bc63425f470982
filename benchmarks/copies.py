"""Baselines: plain copies with no kernel. Upper bounds of a link, and control arms no kernel change can touch."""

from __future__ import annotations

import numpy as np

from benchmarks.common import DEVICES, SIZES_MIB, Timed, weights_of
from hybrid_kernels.measure.sampling import ramp

KINDS = ["copy", "copy_h2d", "copy_d2d"]


class _Copy(Timed):
    params = [DEVICES, KINDS, SIZES_MIB]
    param_names = ["device", "kind", "mib"]

    def prepare(self, device: str, kind: str, mib: float) -> None:
        self.open(device)
        if kind not in self.device.baselines:
            raise NotImplementedError(f"device {device} has no baseline {kind}")
        weights = weights_of(mib)
        copies = self.device.cold_copies(weights.packed_bytes, "in_place")
        self.placed = self.device.place(weights, "in_place", copies=copies)
        self.use(self.device.baseline_arm(self.placed, kind))


class Seconds(_Copy):
    """Seconds per copy, samples kept."""

    def time_copy(self, device: str, kind: str, mib: float) -> None:
        self.step()

    time_copy.version = "1 sequential, cold, batches on the device clock"


class Bandwidth(_Copy):
    """GB/s of the median copy, bytes counted once: what was once published as the cold path's rate."""

    def track_copy(self, device: str, kind: str, mib: float) -> float:
        ramp(self.arm, self.passes)
        seconds = np.median([self.arm.run(self.passes) / self.passes for _ in range(11)])
        return self.arm.pass_bytes / seconds / 1e9

    track_copy.unit = "GB/s"
    track_copy.higher_is_better = True
    track_copy.version = "1 sequential, cold, median of 11 batches"
