"""What a sweep of access patterns says about a kernel's rate, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from hybrid_kernels.records import Placement
from hybrid_kernels.report.tables import rows_table
from hybrid_kernels.units import format_bytes, significant

if TYPE_CHECKING:
    import pandas as pd

NOTED = 1.05
"""A factor below which a wider read is not worth saying: the medians of one run differ by a few percent."""
TIER_WORDS = {"resident": "device memory", "in_place": "mapped host memory"}


def accesses_table(table: pd.DataFrame) -> Table:
    """One row an access: its knobs, and the median GB/s with its 95 % interval in either tier."""
    rows, order = {}, []
    for row in table.to_dict("records"):
        blocks = "full" if row["blocks"] is None or row["blocks"] != row["blocks"] else f"{row['blocks']:.0f}"
        plain = row["pattern"] != "gemv"
        key = (
            str(row["pattern"]) if plain else f"gemv {row['variant']}",
            f"{row['request_bytes']}",
            f"{row['offset']}",
            f"{row['loads_in_flight']:.0f}" if plain else "-",
            f"{blocks} x {row['threads']:.0f}" if plain else "-",
            format_bytes(row["bytes_in_flight"]) if plain else "-",
        )
        if key not in rows:
            rows[key] = dict.fromkeys(TIER_WORDS, "-")
            order.append(key)
        interval = f"[{significant(row['gbs_low'])}, {significant(row['gbs_high'])}]"
        rows[key][str(row["tier"])] = f"{significant(row['gbs'])} {interval}"
    columns = ("read", "request B", "off the line B", "loads", "blocks x threads", "in flight", *TIER_WORDS)
    names = [name.replace("_", " ") + (" GB/s" if name in TIER_WORDS else "") for name in columns]
    return rows_table(names, [(*key, *rows[key].values()) for key in order], left=("read",))


def placement_words(placements: Sequence[Placement]) -> list[str]:
    """Where the kernel stands on the curve of request widths, and what a wider read would bring on this machine."""
    lines = []
    for at in placements:
        where = TIER_WORDS[at.tier]
        kernel = f"the {at.variant} GEMV" if at.variant else "the GEMV"
        lines.append(
            f"From {where}, {kernel} asks for {at.request_bytes} bytes a request and reads {significant(at.gbs)} GB/s; "
            f"a plain read with such requests gets {significant(at.curve_gbs)}, so it reaches "
            f"{significant(at.gbs / at.curve_gbs, 2)} of what its width allows."
        )
        gain = at.best_gbs / at.curve_gbs
        if gain > NOTED:
            lines.append(
                f"Requests of {at.best_request_bytes} bytes read {significant(at.best_gbs)} GB/s there: a wider read "
                f"would bring up to {significant(gain, 2)} times as much from {where}."
            )
        else:
            lines.append(f"A wider read would bring nothing more from {where}: its width is at the top of the curve.")
    return lines
