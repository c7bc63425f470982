"""Events and figures as text, from a ledger and events whose numbers are known."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from hybrid_kernels.judge import ledger as ledgers
from hybrid_kernels.judge.events import Event, FactChange
from hybrid_kernels.report import event_tables, figure_tables
from hybrid_kernels.report.tables import as_text

LEDGER = """
schema = 1

[methods.copy]
what = "A copy"
kind = "upper bound"
benchmark = "copies.track_copy"
version = "1"

[methods.kernel]
what = "A kernel"
benchmark = "reads.track_read"
version = "1"
supersedes = "copy"
reason = "a copy has no kernel"

[figures.cold]
title = "Cold reads"
unit = "GB/s"
direction = "higher"
sizes = "the cold path"
methods = ["copy", "kernel"]

[[figures.cold.records]]
id = 1
date = 2026-01-01
machine = "laptop"
value = 10.0
kind = "upper bound"
method = { source = "a copy" }

[[figures.cold.records]]
id = 2
date = 2026-01-03
machine = "laptop"
value = 5.0
range = [4.9, 5.2]
kind = "measured"
method = { source = "a kernel" }
conditions = "quiet"
corrects = 1
reason = "a copy has no kernel"

[[figures.cold.records]]
id = 3
date = 2026-01-04
machine = "server"
value = 50.0
kind = "measured"
method = { source = "a kernel" }
reason = "first look"

[figures.warm]
title = "Warm reads"
unit = "GB/s"
direction = "higher"

[[figures.warm.records]]
id = 1
date = 2026-01-01
machine = "laptop"
range = [90, 110]
kind = "measured"
method = { source = "a kernel" }

[figures.ratio]
title = "Warm over cold"
unit = "x"
direction = "none"
expression = "warm / cold"

[[figures.ratio.records]]
id = 1
date = 2026-01-03
machine = "laptop"
value = 20.0
kind = "measured"
method = { source = "both kernels" }
"""


CHECK = """
[cross-checks.twice]
title = "Twice the cold path"
figure = "cold"
machine = "{machine}"
expression = "{expression}"
factor = 1.5
note = "to the order"
"""


@pytest.fixture
def ledger() -> ledgers.Ledger:
    return ledgers.parse(LEDGER)


def event(**changed: Any) -> Event:
    """A correction from 10 to 5 GB/s."""
    values: dict[str, Any] = {
        "kind": "correction", "machine": "laptop", "env": "e", "benchmark": "reads.track_read", "cell": "mib=64",
        "commit": "abcdef0123456789", "commit_before": "0123",
        "date": datetime.datetime(2026, 1, 3, tzinfo=datetime.UTC),
        "version": "2", "version_before": "1", "before": 10.0, "after": 5.0, "unit": "GB/s", "direction": 1,
        "reason": "another method", "factor": 0.5,
    }  # fmt: skip
    return Event(**{**values, **changed})


def test_figures_are_listed_with_their_current_record(ledger: ledgers.Ledger) -> None:
    """One row a figure and machine: the value that holds, since when, and what it was before."""
    rows = [line.split() for line in as_text(figure_tables.list_table(ledger)).splitlines()[1:]]

    assert [row[:2] for row in rows] == [
        ["cold", "laptop"],
        ["cold", "server"],
        ["warm", "laptop"],
        ["ratio", "laptop"],
    ]
    assert rows[0][2:] == ["5", "GB/s", "measured", "2026-01-03", "10", "GB/s", "Cold", "reads"]
    assert rows[1][-3:] == ["-", "Cold", "reads"]


def test_a_figure_is_shown_with_its_records_and_the_way_between_them(ledger: ledgers.Ledger) -> None:
    """Newest first, with method, conditions and range; a corrected one says by what, the correction by how much."""
    told = {"laptop": [event()]}

    text = "\n".join(figure_tables.show_lines(ledger.figures["cold"], (), told))

    for line in (
        "cold: Cold reads",
        "sizes the cold path",
        "  5 GB/s (4.9 to 5.2), measured, 2026-01-03 (record 2, now)",
        "    under quiet",
        "of record 1 (10 GB/s, x0.500): a copy has no kernel",
        "  10 GB/s, upper bound, 2026-01-01 (record 1, superseded 2026-01-03 by record 2)",
        "    because first look",
        "    2026-01-03 abcdef01 correction: 10.0 GB/s -> 5.00 GB/s (x0.500): another method",
    ):
        assert line in text
    assert text.index("record 2, now") < text.index("record 1, superseded")


def test_one_machine_of_a_figure_is_shown_alone(ledger: ledgers.Ledger) -> None:
    """Asked for one machine, the others and their events are left out."""
    lines = figure_tables.show_lines(ledger.figures["cold"], (), {"laptop": [event()]}, "server")

    assert "laptop" not in "\n".join(lines)
    assert not any("in the history" in line for line in lines)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (
            "warm / 20",
            "cross-check closes: Twice the cold path: warm / 20 = 4.50 to 5.50 GB/s, published over computed",
        ),
        ("warm / 2", "cross-check DOES NOT CLOSE: Twice the cold path: warm / 2 = 45.0 to 55.0 GB/s"),
    ],
)
def test_a_cross_check_says_whether_it_closes(expression: str, told: str) -> None:
    """The arithmetic, its range, by how much it is off and what was allowed, with its note below."""
    ledger = ledgers.parse(LEDGER + CHECK.format(machine="laptop", expression=expression))

    lines = figure_tables.show_lines(ledger.figures["cold"], ledger.closures("cold"), {}, "laptop")

    assert lines[-2].strip().startswith(told)
    assert "allowed 1.50" in lines[-2]
    assert lines[-1].strip() == "to the order"


def test_a_cross_check_without_its_numbers_says_so() -> None:
    """A machine that lacks one of the figures cannot be checked, and the reason stands there."""
    ledger = ledgers.parse(LEDGER + CHECK.format(machine="server", expression="warm / 20"))

    lines = figure_tables.show_lines(ledger.figures["cold"], ledger.closures("cold"), {}, "server")

    assert lines[-1].strip().startswith("cross-check cannot be made: Twice the cold path: ")
    assert "warm" in lines[-1]


def test_a_derived_figure_shows_its_expression(ledger: ledgers.Ledger) -> None:
    """How it is computed from others stands at its head."""
    assert "= warm / cold" in figure_tables.show_lines(ledger.figures["ratio"], (), {})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "10.0 GB/s -> 5.00 GB/s (x0.500)"),
        ({"before": None, "factor": None}, "5.00 GB/s"),
        ({"factor": None}, "10.0 GB/s -> 5.00 GB/s"),
        ({"factor": float("nan")}, "10.0 GB/s -> 5.00 GB/s"),
        (
            {"world_factor": 0.8, "method_factor": 0.625},
            "10.0 GB/s -> 5.00 GB/s (x0.500 = world x0.800 x method x0.625)",
        ),
    ],
)
def test_a_change_is_told_with_the_factor_that_may_be_told(changed: dict[str, Any], text: str) -> None:
    """Two factors where both are known, none where the levels may not be compared, a first value alone."""
    assert event_tables.change_text(event(**changed)) == text


def test_the_reason_carries_what_else_is_known() -> None:
    """What undid it, the facts that changed and the notes follow the reason; facts that it names are not repeated."""
    facts = (FactChange("driver", "580", "581"),)

    told = event_tables.why_text(event(undone_by="fedcba9876543210", facts=facts, notes=("few points",)))
    named = event_tables.why_text(event(reason="driver changed at the same boundary", facts=facts))

    assert told == "another method; undone by fedcba98; driver 580 -> 581; few points"
    assert named == "driver changed at the same boundary"


def test_the_machine_is_a_column_only_where_there_are_several() -> None:
    """Events of one machine do without it."""
    one = as_text(event_tables.events_table([event(), event(kind="regression", date=None, figures=("cold",))]))
    two = as_text(event_tables.events_table([event(), event(machine="server")]))

    assert "machine" not in one
    assert "cold: reads.track_read (mib=64)" in one
    assert one.splitlines()[2].startswith("-")
    assert "machine" in two
    assert "server" in two


def test_markdown_keeps_its_table_whatever_a_reason_holds() -> None:
    """Bars, angle brackets, stars and line ends in a reason stay text in one cell."""
    head, rule, row = event_tables.markdown([event(reason="a|b <c>\n*d* \\", cell="")]).splitlines()

    assert head == "| date | commit | machine | event | of | change | why |"
    assert rule.count("---") == 7
    assert row.endswith(r"| a\|b &lt;c> \*d\* \\ |")
    assert "| reads.track\\_read |" in row or "| reads.track_read |" in row
