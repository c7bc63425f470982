"""The history behind a figure: what it would be now, whether records agree, and which versions nobody has explained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import backing
from hybrid_kernels.judge.events import History

Make = Callable[..., Any]

COPY = "copies.Bandwidth.track_copy"
READ = "reads.Bandwidth.track_read"
TIMED = "reads.Seconds.time_read"

METHODS = """\
schema = 1

[methods.copy]
kind = "upper bound"
benchmark = "copies.Bandwidth.track_copy"
params = { kind = "copy" }

[methods.in_place]
benchmark = "reads.Bandwidth.track_read"
params = { strategy = "in_place" }
supersedes = "copy"
reason = "A copy has no kernel."

[methods.resident]
benchmark = "reads.Bandwidth.track_read"
params = { strategy = "resident" }
what = "GEMV, weights resident"

[figures.cold]
title = "Cold path"
unit = "GB/s"
direction = "higher"
methods = ["copy", "in_place"]
params = { device = "cpu", mib = 64 }

[figures.warm]
title = "Resident"
unit = "GB/s"
methods = ["resident"]
params = { device = "cpu", mib = "64.0" }

[figures.ratio]
title = "Residency"
unit = "x"
expression = "warm / cold"
"""

RECORD = """
[[figures.{figure}.records]]
id = {number}
date = 2026-01-0{number}
machine = "laptop"
value = {value}
kind = "measured"
method = {method}
{more}
"""

IN_PLACE = '{ name = "in_place", benchmark = "reads.Bandwidth.track_read", params = { strategy = "in_place" } }'
AS_COPY = '{ name = "copy", benchmark = "copies.Bandwidth.track_copy", params = { kind = "copy" } }'
RESIDENT = '{ name = "resident", benchmark = "reads.Bandwidth.track_read", params = { strategy = "resident" } }'
RATIO = '{ expression = "warm / cold" }'


def record(figure: str, value: float, method: str, number: int = 1, more: str = "") -> str:
    """A record of the laptop."""
    return RECORD.format(figure=figure, value=value, method=method, number=number, more=more)


def planted_at(planted: Make, cold: float, warm: float) -> Any:
    """A history whose reads in place and resident lie at these rates, noise kept."""
    history = planted([0, 1, 2, 3, 4, 5, 2, 3]).level(COPY, 11.41)
    places = {"in_place": cold, "resident": warm}
    params = history.benchmarks[READ]["params"]
    cells = [(d, s, m) for d in params[0] for s in params[1] for m in params[2]]
    history.map(
        lambda name, cell, value, _: (
            places[cells[cell][1].strip("'")] * (1 + 0.01 * (value % 1)) if name == READ else value
        )
    )
    return history


def test_statement_from_the_history(planted: Make) -> None:
    """Value, method with version and cell, commit and evidence of the current level, and what the change was."""
    written = planted_at(planted, 5.6, 50).write(METHODS + record("cold", 11.41, AS_COPY))
    history = History(written)
    stated = backing.statement(history, history.ledger.figure("cold"), "laptop")
    assert stated.value == pytest.approx(5.6, rel=0.01)
    assert stated.method.name == "in_place"
    assert stated.method.params == {"device": ("cpu",), "mib": ("64",), "strategy": ("in_place",)}
    assert stated.method.version == "1 gemv int4 block 32, cold, median of 11 batches"
    assert (stated.kind, stated.change) == ("measured", "correction")
    assert stated.commit == history.series[0].points[-1].commit
    assert stated.evidence[0].startswith("results/laptop/")


def test_computed_figure_is_computed_from_the_history(planted: Make) -> None:
    """A ratio of two figures takes both from the results of that machine."""
    history = planted_at(planted, 5.6, 50).history(METHODS)
    now = backing.measured(history, history.ledger.figure("ratio"), "laptop")
    assert now.value == pytest.approx(50 / 5.6, rel=0.02)
    assert now.low < now.value < now.high


def test_range_over_cells(planted: Make) -> None:
    """A method over several cells states their range."""
    figures = METHODS.replace('methods = ["copy", "in_place"]', 'methods = ["all"]').replace(
        "[figures.cold]",
        '[methods.all]\nbenchmark = "reads.Bandwidth.track_read"\nstatistic = "range"\n\n[figures.cold]',
    )
    history = planted_at(planted, 5.6, 50).history(figures)
    stated = backing.statement(history, history.ledger.figure("cold"), "laptop")
    assert stated.value is None
    assert (stated.low, stated.high) == (pytest.approx(5.6, rel=0.02), pytest.approx(50, rel=0.02))


def test_records_within_the_noise_agree(planted: Make) -> None:
    """A record that the history bears out is no problem, nor is one within the noise of single runs."""
    records = record("cold", 5.7, IN_PLACE) + record("ratio", 9, RATIO)
    assert list(backing.problems(planted_at(planted, 5.6, 50).history(METHODS + records))) == []


@pytest.mark.parametrize(
    ("records", "said", "fix"),
    [
        (record("cold", 11.41, IN_PLACE), "says 11.41 GB/s, the history 5.6", "figures correct cold --machine laptop"),
        (record("ratio", 2, RATIO), "says 2x, the history 8.9", "figures correct ratio"),
        (record("cold", 11.41, AS_COPY), "is by 'copy', but 'in_place' is measured since", "--from-history"),
        (record("cold", 5.6, IN_PLACE).replace('"laptop"', '"other"'), "results that are not there", "add them"),
        (record("cold", 5.6, IN_PLACE.replace("in_place", "on_disk")), "results that are not there", "add them"),
    ],
)
def test_records_that_no_longer_hold(planted: Make, records: str, said: str, fix: str) -> None:
    """Each record that the results contradict, or no longer bear out, is named with its line and what to run."""
    figures = METHODS + records
    (problem,) = backing.problems(planted_at(planted, 5.6, 50).history(figures))
    assert said in problem.what
    assert fix in problem.fix
    assert problem.line is not None
    assert figures.splitlines()[problem.line - 1].startswith("[[figures.")


def test_a_computed_record_follows_the_figures_it_is_computed_from(planted: Make) -> None:
    """Within the noise of the history, but not what the published parts give to their digits: 50 / 5.6 is not 9.1."""
    parts = record("cold", 5.6, IN_PLACE) + record("warm", 50, RESIDENT)
    made = planted_at(planted, 5.6, 50)
    for good in (8.9, 8.93, 8.95):
        assert list(backing.problems(made.history(METHODS + parts + record("ratio", good, RATIO)))) == []
    (problem,) = backing.problems(made.history(METHODS + parts + record("ratio", 9.1, RATIO)))
    assert "says 9.1x, the figures it is computed from give 8.93 x" in problem.what
    assert "figures correct ratio --machine laptop --from-history" in problem.fix


def test_a_computed_record_stays_what_it_was(planted: Make) -> None:
    """An upper bound computed from measured figures is not measured, however its parts were."""
    bound = record("ratio", 9, RATIO).replace('"measured"', '"upper bound"')
    history = planted_at(planted, 5.6, 50).history(METHODS + bound)
    assert backing.statement(history, history.ledger.figure("ratio"), "laptop").kind == "upper bound"
    history = planted_at(planted, 5.6, 50).history(METHODS)
    assert backing.statement(history, history.ledger.figure("ratio"), "laptop").kind == "measured"


def test_superseded_records_are_left_alone(planted: Make) -> None:
    """Only the current record has to agree: the one that it corrects was true of its time."""
    records = record("cold", 11.41, AS_COPY) + record("cold", 5.6, IN_PLACE, 2, 'corrects = 1\nreason = "It reads."')
    assert list(backing.problems(planted_at(planted, 5.6, 50).history(METHODS + records))) == []


def test_raised_version_needs_a_method(planted: Make) -> None:
    """A version raised without a method that says what it measures is a problem; declared, it is none."""
    history = planted([2, 3, 4, 5] * 2).version(TIMED, "2 batches", since=4)
    (problem,) = backing.problems(history.history(METHODS))
    assert "'2 batches'" in problem.what
    assert TIMED in problem.what
    assert "[methods.NAME]" in problem.fix
    assert problem.line is None
    (problem,) = backing.problems(planted([2, 3, 4, 5] * 2).version(READ, "2 batches", since=4).history(METHODS))
    assert METHODS.splitlines()[(problem.line or 0) - 1] == "[methods.resident]"
    declared = f'\n[methods.batches]\nbenchmark = "{TIMED}"\nversion = "2 batches"\nwhat = "Batches of passes"\n'
    assert list(backing.problems(history.history(METHODS + declared))) == []


def test_nothing_measured_and_wrong_units_are_said(planted: Make) -> None:
    """A figure without a benchmark, without values, or tied to another unit cannot be taken from the history."""
    figures = METHODS.replace('unit = "GB/s"\nmethods = ["resident"]', 'unit = "MB/s"\nmethods = ["resident"]') + (
        '\n[figures.bare]\ntitle = "Bare"\nunit = "x"\n'
    )
    history = planted().history(figures)
    for figure, machine, said in (
        ("bare", "laptop", "no method of it is a benchmark"),
        ("cold", "other", "holds no value on machine 'other'"),
        ("warm", "laptop", "is in 'GB/s', the figure in 'MB/s'"),
    ):
        with pytest.raises(BadInput, match=said):
            backing.measured(history, history.ledger.figure(figure), machine)


def test_our_own_figures_agree_with_our_own_results() -> None:
    """Every current record of figures.toml that rests on results/ agrees with them, and no version is unexplained."""
    root = Path(__file__).parents[2]
    found = list(backing.problems(History(root / "results", root / "figures.toml")))
    assert not found, found
