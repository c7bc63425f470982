"""A rate is explained by the width of its requests: every knob in both tiers, and the GEMV put on the curve."""

import pandas as pd
import pytest

from hybrid_kernels.measure import accesses
from hybrid_kernels.report.accesses import accesses_table, placement_words
from hybrid_kernels.report.tables import console

# Medians on one H200, GB/s of mapped and of resident memory, from requests of these bytes.
H200 = {32: (24.65, 1959.0), 64: (43.68, 3214.0), 128: (51.21, 3998.0), 256: (51.28, 4167.0)}


def table(request_bytes=32, mapped=20.5, resident=626.0):
    """A sweep of widths, with a GEMV of this width beside it."""
    rows = []
    for tier, at in (("resident", 1), ("in_place", 0)):
        common = {"tier": tier, "offset": 0, "bytes_in_flight": 2**20, "pass_bytes": 2**28, "copies": 1, "samples": 5}
        points = [("coalesced", width, rates[at], 8, 1024, None) for width, rates in H200.items()]
        points.append(("gemv", request_bytes, (mapped, resident)[at], None, None, "narrow"))
        for pattern, width, gbs, loads, threads, variant in points:
            rows.append(
                {**common, "pattern": pattern, "request_bytes": width, "gbs": gbs, "gbs_low": gbs, "gbs_high": gbs}
                | {"loads_in_flight": loads, "blocks": None, "threads": threads, "variant": variant}
            )
        rows.append({**rows[-2], "offset": 4, "gbs": 999999.0})  # off the line: not on the curve
        rows.append({**rows[-3], "blocks": 24, "gbs": 999999.0})  # few bytes in flight: not on the curve
    return pd.DataFrame(rows)


def test_the_kernel_is_placed_by_its_own_width():
    """The curve's rate at the kernel's width, and the best width's, come from aligned, ordered, full reads alone."""
    found = accesses.place(table(), "in_place")

    assert (found.request_bytes, found.gbs, found.curve_gbs) == (32, 20.5, 24.65)
    assert (found.best_request_bytes, found.best_gbs) == (256, 51.28)


@pytest.mark.parametrize(("width", "rate"), [(16, 24.65), (32, 24.65), (100, 43.68), (512, 51.28)])
def test_a_width_beside_the_curve_is_read_off_the_narrower_point(width, rate):
    """Between two points the narrower one counts, below the first the first, beyond the last the last."""
    assert accesses.place(table(width), "in_place").curve_gbs == rate


def test_words_say_what_a_wider_read_would_bring():
    """A narrow kernel hears the factor of a wider read, a wide one that there is nothing to gain."""
    narrow = placement_words([accesses.place(table(32), "in_place")])
    assert "asks for 32 bytes a request and reads 20.5 GB/s" in narrow[0]
    assert "0.83 of what its width allows" in narrow[0]
    assert "Requests of 256 bytes read 51.3 GB/s there" in narrow[1]
    assert "up to 2.1 times as much from mapped host memory" in narrow[1]

    wide = placement_words([accesses.place(table(128, mapped=51.0), "in_place")])
    assert "nothing more from mapped host memory" in wide[1]


def test_the_table_shows_both_tiers_of_an_access_in_one_row():
    """One row an access, its knobs first, resident and mapped rates last."""
    out = console()
    with out.capture() as capture:
        out.print(accesses_table(table()))
    lines = capture.get().splitlines()

    assert "resident GB/s" in lines[0]
    (narrowest,) = [line for line in lines if line.split()[:2] == ["coalesced", "32"]]
    assert "1,959" in narrowest or "1,960" in narrowest
    assert "24.6" in narrowest or "24.7" in narrowest
    assert sum("gemv narrow" in line for line in lines) == 1
