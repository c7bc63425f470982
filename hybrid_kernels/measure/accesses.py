"""Why a kernel's rate falls short of the copy: how wide its requests are, where they start, how many are in flight.

Each knob is turned by itself over resident and mapped memory, with the GEMV over the same buffers in the same run; then
the GEMV is placed on the curve of request widths by the width that its own loads have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hybrid_kernels.devices.base import Access, Arm, Device
from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import sampling
from hybrid_kernels.records import Placement
from hybrid_kernels.units import MIB

if TYPE_CHECKING:
    import pandas as pd

SIZE_MIB = 256.0
REPS = 5
TIERS = ("resident", "in_place")
WIDTHS = (32, 64, 128, 256)  # bytes; 256 is two cache lines
IN_FLIGHT = 8  # loads a thread, where another knob is turned

ACCESSES = (
    *(Access("coalesced", width, IN_FLIGHT) for width in (*WIDTHS, 512)),
    *(Access("scattered", width, IN_FLIGHT) for width in WIDTHS),
    # off the 128-byte line, by one lane's load
    Access("coalesced", 128, IN_FLIGHT, offset=4),
    Access("coalesced", 256, IN_FLIGHT, offset=8),
    Access("coalesced", 512, IN_FLIGHT, offset=16),
    # fewer bytes in flight, at a width that is not the limit
    *(Access("coalesced", 128, 1, blocks=24, threads=threads) for threads in (128, 256, 512, 1024)),
    *(Access("coalesced", 128, loads, blocks=24, threads=1024) for loads in (4, 8)),
)
"""One knob at a time: width in order and strewn, alignment, bytes in flight."""


@dataclass(frozen=True)
class Explained:
    """`table`: a row an access and tier, and the GEMV in each tier. `placements`: the GEMV on each tier's curve."""

    table: pd.DataFrame
    placements: list[Placement]


def explain(
    device: Device,
    size_mib: float = SIZE_MIB,
    *,
    k: int = 5120,
    reps: int = REPS,
    accesses: Iterable[Access] = ACCESSES,
    progress: Callable[[int, int, str], None] | None = None,
) -> Explained:
    """Sweep `accesses` over `size_mib` MiB in both tiers, with the GEMV beside them, medians of `reps` samples.

    BadInput for a device without access patterns (the CPU), a size that is not positive, and fewer than 3 samples.
    """
    request_bytes = check(device)
    if not size_mib > 0:
        raise BadInput(f"size: {size_mib} MiB; give a positive size, such as {SIZE_MIB:g}")
    if reps < 3:
        raise BadInput(f"reps: {reps}; an interval needs at least 3 samples")
    from hybrid_kernels.measure.sweep import activation

    accesses = tuple(accesses)
    weights = Int4Weights.random(n=max(round(size_mib * MIB / (-(-k // 32) * 16)), 1), k=k, block=32, seed=0)
    rows: list[dict[str, object]] = []
    for at, tier in enumerate(TIERS):
        copies = device.cold_copies(weights.packed_bytes, tier)
        with ExitStack() as stack:
            placed = stack.enter_context(device.place(weights, tier, copies=copies))
            gemv = stack.enter_context(device.read_arm(placed, activation(k), "eager"))
            arms: list[Arm] = [gemv, *(stack.enter_context(device.access_arm(placed, access)) for access in accesses)]
            passes = [sampling.batch_size(arm) for arm in arms]
            sampling.ramp(arms[0], passes[0])
            total = len(TIERS) * len(arms) * reps
            done = iter(range(at * len(arms) * reps + 1, total + 1))
            tick = None if progress is None else partial(_tick, progress, done, total, f"accesses, {tier}")
            taken = sampling.interleave(arms, reps, passes, tick)
            for access, arm, samples in zip((None, *accesses), arms, taken, strict=True):
                rows.append(_row(tier, access, arm, samples, request_bytes))
    table = _frame(rows)
    return Explained(table, [place(table, tier) for tier in TIERS])


def check(device: Device) -> int:
    """Bytes that one request of the device's GEMV covers. BadInput for a device without access patterns (the CPU)."""
    if device.request_bytes is None:
        raise BadInput(f"explain: device {device.name} has no access patterns to sweep; use it on cuda")
    return device.request_bytes


def _tick(progress: Callable[[int, int, str], None], done: Iterator[int], total: int, text: str) -> None:
    progress(next(done), total, text)


def _row(
    tier: str, access: Access | None, arm: Arm, samples: sampling.Samples, request_bytes: int
) -> dict[str, object]:
    low, high = samples.interval()
    rate = arm.pass_bytes / 1e9
    return {
        "tier": tier,
        "pattern": "gemv" if access is None else access.pattern,
        "request_bytes": request_bytes if access is None else access.request_bytes,
        "offset": 0 if access is None else access.offset,
        "loads_in_flight": None if access is None else access.loads_in_flight,
        "blocks": None if access is None else access.blocks,
        "threads": None if access is None else access.threads,
        "bytes_in_flight": getattr(arm, "bytes_in_flight", None),
        "pass_bytes": arm.pass_bytes,
        "copies": arm.copies,
        "variant": arm.variant,
        "samples": len(samples.seconds),
        "seconds": samples.median,
        "gbs": rate / samples.median,
        "gbs_low": rate / high,
        "gbs_high": rate / low,
    }


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)


def place(table: pd.DataFrame, tier: str) -> Placement:
    """Put the GEMV of `table` on its tier's curve of request widths: in order, on the line, enough in flight.

    A width between two of the curve's is read off the narrower one, one beyond them off the widest.
    """
    part = table[table["tier"] == tier]
    (gemv,) = part[part["pattern"] == "gemv"].to_dict("records")
    full = (part["pattern"] == "coalesced") & (part["offset"] == 0) & part["blocks"].isna()
    curve = part[full].sort_values("request_bytes")
    own = curve[curve["request_bytes"] <= gemv["request_bytes"]].tail(1)
    own = (own if len(own) else curve.head(1)).iloc[0]
    best = curve.sort_values("gbs").iloc[-1]
    return Placement(
        tier=tier,
        variant=None if gemv["variant"] is None else str(gemv["variant"]),
        request_bytes=int(gemv["request_bytes"]),
        gbs=float(gemv["gbs"]),
        curve_gbs=float(own["gbs"]),
        best_request_bytes=int(best["request_bytes"]),
        best_gbs=float(best["gbs"]),
    )
