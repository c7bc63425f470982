"""Facts of the machine that travel with every number."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hybrid_kernels.devices.base import Arm, Device
from hybrid_kernels.records import Facts

_LIBRARIES = ("numpy", "pandas", "scipy", "cffi", "pycuda", "cuda-bindings", "onnxruntime", "torch")


def collect(device: Device, busy: Sequence[Arm] = ()) -> Facts:
    """Facts now. Those that an idle device hides (link, clocks) are read while the arms in `busy` run."""
    return Facts(**{"device": device.name, "device_name": _processor(), **host_facts(), **device.facts()})


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
    """Facts read while a plain copy out of the next tier runs, since an idle link shows its lowest generation."""
    from hybrid_kernels.layout.weights import Int4Weights

    weights = Int4Weights.random(n=13108, k=5120, block=32, seed=0)  # 32 MiB packed
    with device.place(weights, "in_place") as placed, device.baseline_arm(placed, "copy") as copy:
        return collect(device, [copy])
