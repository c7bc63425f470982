"""Graph replay against eager launches, and whether graphs were really captured."""

from __future__ import annotations

import numpy as np

from benchmarks.common import Timed, weights_of

FORMS = ["eager", "graph"]


class Replay(Timed):
    """One 12.5 MiB projection, resident and cold: seconds per pass by form, captures and fallbacks."""

    params = [["cuda"], FORMS]
    param_names = ["device", "form"]

    def prepare(self, device: str, form: str) -> None:
        self.open(device)
        weights = weights_of(12.5)
        copies = self.device.cold_copies(weights.packed_bytes, "resident")
        self.placed = self.device.place(weights, "resident", copies=copies)
        x = np.random.default_rng(1).standard_normal(weights.k).astype(np.float16).astype(np.float32)
        try:
            self.use(self.device.read_arm(self.placed, x, form))
        except ValueError as error:  # commits before the device had graphs
            raise NotImplementedError(str(error)) from error

    def time_pass(self, device: str, form: str) -> None:
        self.step()

    def track_captures(self, device: str, form: str) -> int:
        return self.arm.captures

    def track_fallbacks(self, device: str, form: str) -> int:
        return self.arm.fallbacks

    time_pass.version = "1 12.5 MiB resident, cold, batches on the device clock"
    track_captures.version = track_fallbacks.version = "1"
    track_captures.unit = "captures"
    track_fallbacks.unit = "fallbacks"
