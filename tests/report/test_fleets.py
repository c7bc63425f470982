"""What is shown of a fleet: its machines while they measure, and what a run did."""

from __future__ import annotations

from hybrid_kernels.records import FleetMember, FleetRun
from hybrid_kernels.report import fleets, tables

COMMIT = "0123456789" * 4
MEMBERS = (
    FleetMember("two", "", "away", None, 1, 3),
    FleetMember("one", "tcp://10.0.0.1:1", "runs", (COMMIT, "reads"), 2, 3),
)


def test_the_table_says_who_runs_what() -> None:
    """A row a machine, by name: its state, the commit and suite that it is at, how much is done, its worker."""
    lines = tables.as_text(fleets.table(MEMBERS)).splitlines()
    assert lines[1].split() == ["one", "measures", "01234567", "reads", "2", "of", "3", "tcp://10.0.0.1:1"]
    assert lines[2].split() == ["two", "away", "1", "of", "3"]


def test_the_summary_names_all_that_is_amiss() -> None:
    """What failed, is missing or was refused is a line each, with machine, commit, suite and reason."""
    run = FleetRun(
        "run", MEMBERS, (("one", COMMIT, "walks", "build failed"),), (("two", COMMIT, "reads"),),
        (("old at x", "older"),), 4, True,
    )  # fmt: skip
    assert fleets.summary(run) == [
        "one: measures 01234567 reads (2 of 3 suites)",
        "two: away (1 of 3 suites)",
        "failed: one 01234567 walks: build failed",
        "missing: two 01234567 reads: the machine went away",
        "refused: old at x: older",
        "interrupted; what was finished is kept",
        "4 result files new or changed",
    ]
