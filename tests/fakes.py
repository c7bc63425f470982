"""A device whose times are known exactly: tests of sampling and sweep are exact and instant with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Arm, Device, Placed
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import Int4Weights

RATES = {  # bytes a second of each arm
    "resident": 100e9, "in_place": 10e9, "copy": 20e9, "stream_resident": 110e9, "stream_in_place": 11e9,
}  # fmt: skip


class FakeArm(Arm):
    """Takes `seconds()` a pass, and counts its passes."""

    def __init__(self, label: str, seconds: Callable[[], float], nbytes: int = 1, copies: int = 1) -> None:
        super().__init__()
        self.label, self.seconds, self.copies = label, seconds, copies
        self.pass_bytes = self.total_bytes = nbytes
        self.passes: list[int] = []
        self.result: npt.NDArray[np.float32] | None = None

    def _time(self, passes: int) -> float:
        self.passes.append(passes)
        return sum(self.seconds() for _ in range(passes))

    def output(self) -> npt.NDArray[np.float32] | None:
        return self.result

    def close(self) -> None:
        self.seconds = _closed


def _closed() -> float:
    raise AssertionError("used after it was closed")


class FakePlaced(Placed):
    def __init__(self, device: FakeDevice, weights: Int4Weights, strategy: str, copies: int) -> None:
        self.device, self.weights, self.strategy, self.copies = device, weights, strategy, copies
        self.n, self.k, self.block = weights.n, weights.k, weights.block
        self.packed_bytes, self.total_bytes = weights.packed_bytes, weights.total_bytes
        device.open += 1

    def close(self) -> None:
        self.device.open -= 1


class FakeDevice(Device):
    """Reads at `rates`, times an endless iterator of `factors`; the output of the strategy `wrong` differs."""

    name = "fake"
    strategies = ("resident", "in_place")
    baselines = ("copy",)

    def __init__(
        self,
        rates: dict[str, float] | None = None,
        factors: Iterator[float] | None = None,
        wrong: str | None = None,
        cache: int = 0,
        free: int = 2**40,
        limit: float | None = None,
    ) -> None:
        self.rates = {**RATES, **(rates or {})}
        self.factors, self.wrong, self.cache, self.free, self.limit = factors, wrong, cache, free, limit
        self.open = 0
        self.arms: list[FakeArm] = []

    def place(self, weights: Int4Weights, strategy: str, *, copies: int = 1) -> FakePlaced:
        return FakePlaced(self, weights, strategy, copies)

    def gemv(self, placed: Placed, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
        assert isinstance(placed, FakePlaced)
        return reference.gemv(placed.weights, x).astype(np.float32)

    def _arm(self, label: str, placed: Placed) -> FakeArm:
        def seconds() -> float:
            return placed.packed_bytes / self.rates[label] * (next(self.factors) if self.factors else 1.0)

        arm = FakeArm(label, seconds, placed.packed_bytes, placed.copies)
        self.arms.append(arm)
        return arm

    def read_arm(self, placed: Placed, x: npt.ArrayLike, form: str = "eager") -> FakeArm:
        arm = self._arm(placed.strategy, placed)
        arm.result = self.gemv(placed, x)
        if placed.strategy == self.wrong:
            arm.result[0] = np.nextafter(arm.result[0], np.float32(np.inf))
        return arm

    def baseline_arm(self, placed: Placed, kind: str, form: str = "eager") -> FakeArm:
        return self._arm(kind, placed)

    def stream_arm(self, placed: Placed, form: str = "eager") -> FakeArm:
        return self._arm(f"stream_{placed.strategy}", placed)

    def facts(self) -> dict[str, Any]:
        return {"cache_bytes": self.cache, "variant": "fake"}

    def free_bytes(self, strategy: str) -> int:
        return self.free

    def cold_copies(self, nbytes: int, strategy: str = "resident") -> int:
        return max(-(-self.cache // nbytes), 1)

    def limit_gbs(self, tier: str) -> float | None:
        return self.limit

    def close(self) -> None:
        assert self.open == 0, "weights left placed"
