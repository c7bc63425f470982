"""What users see when something is wrong: which argument or file, what is wrong, what to do.

The command line prints any of these as one line and turns it into an exit code; in Python they are plain exceptions.
"""

from __future__ import annotations


class HybridKernelsError(Exception):
    """Base of every error this package raises on purpose. `exit_code` is what the command line ends with."""

    exit_code = 2


class BadInput(HybridKernelsError, ValueError):
    """An option, argument or file cannot be used. The message names it, says what is wrong and what to do."""


class DeviceUnavailable(HybridKernelsError):
    """A device cannot be used on this machine; the message says why and what to do."""


class DeviceFailure(HybridKernelsError):
    """A device call failed while measuring. `code` is the vendor's name for it, such as CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class ConditionNotMet(HybridKernelsError):
    """A condition that a result needs was constructed and did not hold (pages not evicted, outputs differ)."""


class NothingMeasured(HybridKernelsError):
    """There is nothing to judge: a side, or both, holds no measurement. Neither a pass nor a regression."""

    exit_code = 3


class CheckFailed(HybridKernelsError):
    """The answer is no: a check ran and failed."""

    exit_code = 1


class Interrupted(HybridKernelsError):
    """Ctrl-C ended a command before it had anything to keep."""

    exit_code = 130
