"""Facts of the machine as series: what explains a step that the code does not."""

from __future__ import annotations

import re

from benchmarks.common import DEVICES, device_or_skip
from hybrid_kernels.measure import facts as facts_of


def track_memory_bytes() -> int:
    """Memory of the host."""
    return facts_of.host_facts()["memory_bytes"]


track_memory_bytes.unit = "bytes"
track_memory_bytes.version = "1"


def track_cores() -> int:
    """Cores that the benchmark process may use."""
    return facts_of.host_facts()["cores"]


track_cores.unit = "cores"
track_cores.version = "1"


def track_kernel_release() -> int:
    """The operating system's release as a number: 6.18.44 is 6018044."""
    return _number(facts_of.host_facts()["kernel"])


track_kernel_release.unit = "release"
track_kernel_release.version = "1"


class Device:
    """Facts of one device. Those that an idle device hides are read while a copy runs, once for all of them."""

    params = [DEVICES]
    param_names = ["device"]
    timeout = 120

    def setup_cache(self) -> dict[str, facts_of.Facts | str]:
        found: dict[str, facts_of.Facts | str] = {}
        for name in DEVICES:
            try:
                with device_or_skip(name) as opened:
                    found[name] = facts_of.under_load(opened)
            except NotImplementedError as error:
                found[name] = str(error)
        return found

    def setup(self, found: dict[str, facts_of.Facts | str], device: str) -> None:
        facts = found[device]
        if isinstance(facts, str):
            raise NotImplementedError(facts)
        self.facts = facts

    def track_driver(self, found: object, device: str) -> float:
        """Driver release as a number: 580.159.04 is 580159004."""
        return self._known(_number(self.facts.driver) if self.facts.driver else None)

    def track_link_generation(self, found: object, device: str) -> float:
        return self._known(self.facts.link_generation)

    def track_link_width(self, found: object, device: str) -> float:
        return self._known(self.facts.link_width)

    def track_sm_clock(self, found: object, device: str) -> float:
        return self._known(self.facts.sm_clock_mhz)

    def track_cache_bytes(self, found: object, device: str) -> float:
        return self._known(self.facts.cache_bytes)

    def track_device_memory_bytes(self, found: object, device: str) -> float:
        return self._known(self.facts.device_memory_bytes)

    @staticmethod
    def _known(value: int | None) -> float:
        """The value, or NaN, which asv stores as a gap, where the device has no such fact."""
        return float("nan") if value is None else value

    track_driver.unit = "release"
    track_link_generation.unit = "generation"
    track_link_width.unit = "lanes"
    track_sm_clock.unit = "MHz"
    track_cache_bytes.unit = "bytes"
    track_device_memory_bytes.unit = "bytes"


for _name in ("driver", "link_generation", "link_width", "sm_clock", "cache_bytes", "device_memory_bytes"):
    getattr(Device, f"track_{_name}").version = "1"


def _number(release: str) -> int:
    parts = [int(part) for part in re.findall(r"\d+", release)[:3]]
    return sum(part * 1000**power for part, power in zip(parts, (2, 1, 0), strict=False))
