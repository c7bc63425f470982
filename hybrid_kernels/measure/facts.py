"""Facts of the machine that travel with every number."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from hybrid_kernels.devices.base import Arm, Device
from hybrid_kernels.records import Facts

LOAD_SECONDS = 0.3
"""How long a load runs while facts are read: an idle link and idle clocks need some 100 ms to come up."""
SAMPLE_SECONDS = 0.02

_LIBRARIES = ("numpy", "pandas", "scipy", "cffi", "pycuda", "cuda-bindings", "onnxruntime", "torch")


def collect(device: Device, busy: Sequence[Arm] = ()) -> Facts:
    """Facts now. Those that an idle device hides (link, clocks) are read while `busy` arms run, or not at all."""
    host, own = host_facts(), device.facts()
    versions = {**host["versions"], **own.pop("versions", {})}
    with watch(device) as seen:
        until = time.monotonic() + (LOAD_SECONDS if busy and seen else 0)
        while busy and seen and time.monotonic() < until:
            for arm in busy:
                arm.run(max(1, arm.copies))
    loaded = seen.fields(under_load=bool(busy)) if seen else {}
    return Facts(**{"device": device.name, "device_name": _processor(), **host, **own, **loaded, "versions": versions})


def host_facts() -> dict[str, Any]:
    """Fields of records.Facts that hold for the host, whatever the device."""
    return {
        "machine": platform.node(),
        "os": platform.system(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory("MemTotal"),
        "cache_bytes": None,
        "python": platform.python_version(),
        "version": _version("hybrid-kernels") or "unknown",
        "commit": _commit(),
        "load_average": os.getloadavg()[0],
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: found for name in _LIBRARIES if (found := _version(name))},
    }


def memory(field: str) -> int:
    """Bytes of one line of /proc/meminfo, such as MemTotal or MemAvailable; 0 when it is not listed."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


@cache
def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or sys.platform


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """Commit of the checkout that this package runs from, with `+` when files differ from it; None outside of one."""
    here = Path(__file__).resolve().parent
    try:
        name = subprocess.run(
            ["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        tracked = subprocess.run(
            ["git", "-C", here, "ls-files", "--error-unmatch", __file__], capture_output=True, timeout=5, check=False
        )
        if tracked.returncode != 0:  # installed into some other project's checkout
            return None
        changed = subprocess.run(
            ["git", "-C", here, "diff", "--quiet", "HEAD", "--", "."], capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return name + ("+" if changed.returncode else "")


def under_load(device: Device) -> Facts:
    """Facts read while a plain copy out of the next tier runs, since an idle link shows its lowest generation.

    A device without a link has nothing that idling hides: its facts are collected as they are.
    """
    if device.pci_bus_id is None:
        return collect(device)
    from hybrid_kernels.layout.weights import Int4Weights

    weights = Int4Weights.random(n=13108, k=5120, block=32, seed=0)  # 32 MiB packed
    with device.place(weights, "in_place") as placed, device.baseline_arm(placed, "copy") as copy:
        return collect(device, [copy])


def warnings(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What limits a number measured meanwhile: `downtrained link`, `shared device`, `throttled (and by what)`.

    found: fields of records.Facts read under load. A link is downtrained when it is below what device and slot can do
    together, in generation or in lanes.
    """
    pairs = [(found.get(name), found.get(f"{name}_max")) for name in ("link_generation", "link_width")]
    slowed = [reason for reason in found.get("throttle_reasons", ()) if reason in THROTTLING]
    holds = {
        "downtrained link": any(now is not None and best is not None and now < best for now, best in pairs),
        "shared device": bool(found.get("other_processes")),
        f"throttled ({', '.join(slowed)})": bool(slowed),
    }
    return tuple(name for name, true in holds.items() if true)


REASONS = {
    0x0002: "applications clocks",
    0x0004: "software power cap",
    0x0008: "hardware slowdown",
    0x0010: "sync boost",
    0x0020: "software thermal slowdown",
    0x0040: "hardware thermal slowdown",
    0x0080: "hardware power brake",
    0x0100: "display clocks",
}
"""Bits of nvmlClocksEventReasons (nvml.h); bit 0x1, an idle device, limits nothing."""
THROTTLING = (
    "software power cap", "hardware slowdown", "software thermal slowdown", "hardware thermal slowdown",
    "hardware power brake",
)  # fmt: skip
"""Those that slow a device below what it was asked for; the others are somebody's setting."""


class Watch:
    """Reads a GPU's link, clocks, throttle reasons and processes through NVML while a block of work runs."""

    def __init__(self, pci_bus_id: str) -> None:
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        self._stop = threading.Event()
        self._samples: list[dict[str, Any]] = []
        self._limits: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if not self._samples:  # the work was shorter than the wait between samples
            self._samples.append(self._sample())
        self._limits = {
            "link_generation_max": self._ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "link_width_max": self._ask("nvmlDeviceGetMaxPcieLinkWidth"),
            "driver": str(self._nvml.nvmlSystemGetDriverVersion()),
        }
        self._nvml.nvmlShutdown()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._samples.append(self._sample())

    def _ask(self, name: str, *arguments: Any) -> Any:
        """What NVML answers, None for what this device, driver or user cannot ask."""
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None

    def _sample(self) -> dict[str, Any]:
        nvml = self._nvml
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return {
            "link_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "link_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "throttle_reasons": tuple(text for bit, text in REASONS.items() if reasons & bit),
            # one of them is this process, under a number of its own where it runs in a container
            "other_processes": None if processes is None else max(0, len(processes) - 1),
        }

    def fields(self, *, under_load: bool = True) -> dict[str, Any]:
        """Fields of records.Facts: the link at its best, clocks as medians, reasons and neighbours ever seen.

        Without load, link, clocks and throttling are left out: an idle device shows its lowest, and would mislead.
        """
        found = {**self._limits, "other_processes": max(self._known("other_processes"), default=None)}
        if not under_load:
            return found
        for name in ("link_generation", "link_width"):
            found[name] = max(self._known(name), default=None)
        for name in ("sm_clock_mhz", "memory_clock_mhz"):
            values = self._known(name)
            found[name] = round(statistics.median(values)) if values else None
        seen = {reason for sample in self._samples for reason in sample["throttle_reasons"]}
        found["throttle_reasons"] = tuple(text for text in REASONS.values() if text in seen)
        return found

    def _known(self, name: str) -> list[Any]:
        return [sample[name] for sample in self._samples if sample[name] is not None]


@contextlib.contextmanager
def watch(device: Device) -> Iterator[Watch | None]:
    """Watch a GPU while the block runs; None where there is none, or NVML cannot be asked about it."""
    if device.pci_bus_id is None:
        yield None
        return
    import pynvml

    try:
        watching = Watch(device.pci_bus_id)
    except pynvml.NVMLError:
        yield None
        return
    with watching:
        yield watching


def busy_gpu() -> str | None:
    """Which GPU other processes are computing on, in words; None when there is none, or no GPU to ask."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            others = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
            if others:
                return f"GPU {index} is busy: other processes on it, {len(others)}"
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return None


def machine_facts() -> dict[str, Any]:
    """Facts of the host and of its GPU, if one can be used, the latter read under load: what a night compares."""
    from hybrid_kernels.devices import cuda_absence, open_device
    from hybrid_kernels.errors import HybridKernelsError

    found = host_facts()
    if cuda_absence() is None:
        try:
            with open_device("cuda") as device:
                loaded = under_load(device)
            found |= {field.name: getattr(loaded, field.name) for field in dataclasses.fields(loaded)}
        except HybridKernelsError as error:
            found["device_name"] = f"unusable: {error}"
    return found
