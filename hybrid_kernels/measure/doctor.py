"""Which devices can be used on this machine and, for each that cannot, why and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybrid_kernels.devices import NAMES, cuda_absence, open_device
from hybrid_kernels.errors import HybridKernelsError


def examine(scratch: str | Path | None = None) -> list[dict[str, Any]]:
    """One row a device: `device`, `usable`, `detail` (what it is, or why not and what to do), and its facts."""
    rows: list[dict[str, Any]] = []
    for name in NAMES:
        if name == "cuda" and (reason := cuda_absence()) is not None:
            rows.append({"device": name, "usable": False, "detail": reason, "facts": {}})
            continue
        try:
            with open_device(name, scratch=scratch if name == "cpu" else None) as device:
                facts = device.facts()
            detail = f"kernel {facts.get('variant')}, strategies {', '.join(device.strategies)}"
            if facts.get("scratch"):
                detail += f", scratch on {facts['scratch']}"
            rows.append({"device": name, "usable": True, "detail": detail, "facts": facts})
        except (HybridKernelsError, ImportError) as error:
            detail = str(error)
            if isinstance(error, ImportError):
                detail += "; the compiled kernel is missing: install the package with pip, which needs a C compiler"
            rows.append({"device": name, "usable": False, "detail": detail, "facts": {}})
    return rows
