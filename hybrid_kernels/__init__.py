"""Measure what a machine reads int4 weights at, keep the history, and know a correction from a regression.

The public names are imported on first use, so that `import hybrid_kernels` costs nothing that is not asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Int4Weights": "hybrid_kernels.layout.weights",
    "open_device": "hybrid_kernels.devices",
    "sweep": "hybrid_kernels.measure.sweep",
    "History": "hybrid_kernels.judge.events",
}

__all__ = ["History", "Int4Weights", "open_device", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hybrid_kernels' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
