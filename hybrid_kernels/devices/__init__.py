"""Devices that weights are read on. `open_device` is the way in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_kernels.errors import BadInput, DeviceUnavailable

if TYPE_CHECKING:
    from hybrid_kernels.devices.base import Device

NAMES = ("cpu", "cuda")


def open_device(
    name: str = "auto",
    *,
    scratch: str | Path | None = None,
    threads: int | None = None,
    variant: str | None = None,
) -> Device:
    """Open `cpu`, `cuda`, or with `auto` the GPU where one can be used and the CPU elsewhere. Close it after use.

    `scratch` is the folder for the CPU device's next tier and `threads` its number of threads (default: all cores of
    this process). `variant` is the GPU's GEMV kernel (default: cuda.DEFAULT_VARIANT); the CPU chooses its own by what
    the processor can do. BadInput for an unknown name or variant; DeviceUnavailable, saying why, when the device cannot
    be used here.
    """
    if name not in ("auto", *NAMES):
        raise BadInput(f"device: {name!r} is not known; use auto, {' or '.join(NAMES)}")
    if name in ("auto", "cuda"):
        reason = cuda_absence()
        if reason is None:
            from hybrid_kernels.devices.cuda import CudaDevice

            return CudaDevice() if variant is None else CudaDevice(variant=variant)
        if name == "cuda":
            raise DeviceUnavailable(f"device cuda: {reason}")
    if variant is not None:
        raise BadInput(f"variant: {variant!r} cannot be chosen on the CPU, which takes the best its processor can run")
    from hybrid_kernels.devices.cpu import CpuDevice

    return CpuDevice(scratch=scratch, threads=threads)


def cuda_absence() -> str | None:
    """Why the GPU cannot be used here and what to do about it, in one line; None when it can."""
    try:
        from hybrid_kernels.devices import cuda
    except ImportError as error:
        return f"{error}; install the GPU extra: pip install 'hybrid-kernels[cuda]'"
    return cuda.absent()
