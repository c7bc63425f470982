"""The CPU kernel in processes of half a second, with a control arm: for comparisons that must be quick.

The weights (6.6 MB packed) fit a large cache, so these are no figures of a memory: they answer only whether a change
made the kernel slower.
"""

from __future__ import annotations

import numpy as np

from hybrid_kernels.kernels import cpu


class Kernel:
    """One pass of the GEMV, by threads, and the streaming read of the same bytes."""

    params = [1, 2]
    param_names = ["threads"]
    repeat = 9
    warmup_time = 0.05

    def setup(self, threads: int) -> None:
        rng = np.random.default_rng(0)
        n, k = 2560, 5120
        self.packed = rng.integers(0, 255, (n, k // 32, 16), np.uint8)
        self.scales = rng.uniform(0.001, 0.01, (n, k // 32)).astype(np.float32)
        self.x = rng.standard_normal(k).astype(np.float32)
        self.out = np.empty(n, np.float32)

    def time_gemv(self, threads: int) -> None:
        cpu.gemv(self.packed, self.scales, None, self.x, block=32, threads=threads, out=self.out)

    def time_stream(self, threads: int) -> None:
        cpu.stream_read(self.packed, threads=threads)

    time_gemv.version = "1 f32, block 32, no zero points, 2560 x 5120"
    time_stream.version = "1 6.6 MB"


class Copy:
    """A NumPy copy of 8 MiB: no change to this project can touch it."""

    repeat = 9
    warmup_time = 0.05

    def setup(self) -> None:
        self.source = np.ones(8 << 20, np.uint8)
        self.target = np.zeros_like(self.source)

    def time_copy(self) -> None:
        np.copyto(self.target, self.source)

    time_copy.version = "1 8 MiB"
    time_copy.control = True
