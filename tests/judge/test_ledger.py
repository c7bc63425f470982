"""figures.toml as read: chains of records, validation with file and line, cross-checks."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import ledger

ROOT = Path(__file__).parents[2]

SMALL = """\
schema = 1

[figures.rate]
title = "Rate"
unit = "tok/s"
direction = "higher"

[[figures.rate.records]]
id = 1
date = 2026-01-02
machine = "m1"
value = 8
kind = "measured"
method = { source = "a run" }

[[figures.rate.records]]
id = 2
date = 2026-01-03
machine = "m2"
range = [3, 4]
kind = "lower bound"
method = { benchmark = "walks.Walk.track_rate", version = "2", params = { mib = [64, 128], device = "cuda" } }

[[figures.rate.records]]
id = 4
date = 2026-01-04
machine = "m1"
value = 4
kind = "measured"
method = { source = "a better run" }
corrects = 1
reason = "The first run decoded nothing."

[figures.bytes]
title = "Bytes"
unit = "GB"

[[figures.bytes.records]]
id = 1
date = 2026-01-02
machine = "m1"
value = 0.5
kind = "estimate"
method = { source = "a guess" }

[cross-checks.half]
figure = "rate"
machine = "m1"
expression = "bytes * 9"
factor = 1.2
"""


def test_chains_of_two_machines_do_not_mix() -> None:
    """Each machine has its own chain; the last of a chain is current, the corrected one knows by what."""
    figure = ledger.parse(SMALL).figure("rate")
    assert figure.machines() == ("m1", "m2")
    assert [record.id for record in figure.chain("m1")] == [1, 4]
    current, other = figure.current("m1"), figure.current("m2")
    assert current is not None
    assert other is not None
    assert (current.value, current.change, current.line) == (4, "correction", 24)
    assert (other.value, other.low, other.high) == (None, 3, 4)
    assert other.method.params == {"mib": ("64", "128"), "device": ("cuda",)}
    assert figure.superseded_by(figure.record(1)) is current
    row = ledger.row(figure, current)
    assert (row["factor"], row["status"], row["text"]) == (0.5, "current", "4 tok/s")
    assert ledger.row(figure, figure.record(1))["superseded_by"] == 4


def test_cross_check_closes_within_its_factor_only() -> None:
    """4 against 4.5 closes within 1.2 and not within 1.1; both values and the ratio are given."""
    (closure,) = ledger.parse(SMALL).closures()
    assert closure.closes
    assert closure.ratio == pytest.approx(4 / 4.5)
    assert not ledger.parse(SMALL.replace("factor = 1.2", "factor = 1.1")).closures()[0].closes


def test_cross_check_of_a_machine_without_records_says_so() -> None:
    """A cross-check that cannot be evaluated does not close, and says what is missing."""
    (closure,) = ledger.parse(SMALL.replace('machine = "m1"\nexpression', 'machine = "m2"\nexpression')).closures()
    assert not closure.closes
    assert "bytes" in str(closure.problem)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema = 1", "schema = 7", "reads `schema = 1`"),
        ("schema = 1", "schema = ", "figures.toml:1: not valid TOML"),
        ("corrects = 1\n", "", ":24: figure 'rate', record 4: must say `corrects = 1`"),
        ("corrects = 1", "corrects = 2", ":24: figure 'rate', record 4: must say `corrects = 1`"),
        ("2026-01-04", "2026-01-01", ":24: figure 'rate', record 4: is dated 2026-01-01, before record 1 (2026-01-02)"),
        ('reason = "The first run decoded nothing."', "", "without a 'reason'"),
        ("id = 4", "id = 2", "ids must ascend"),
        ("id = 4", 'id = "4"', "give a whole number"),
        ("value = 8", 'value = "8"', ":8: figure 'rate', record 1: 'value' is '8'; give a finite number"),
        ("value = 8", "value = nan", "finite"),
        ("value = 8\n", "", "'value' or 'range' is missing"),
        ("range = [3, 4]", "range = [4, 3]", "must ascend"),
        ('kind = "lower bound"', 'kind = "lowest"', "use one of: upper bound, lower bound, estimate, measured"),
        ("date = 2026-01-03", 'date = "2026-01-03"', "without quotes"),
        ('unit = "tok/s"', "", "'unit' is missing"),
        ('unit = "tok/s"', 'units = "tok/s"', "did you mean unit"),
        ('method = { source = "a run" }', 'method = { what = "a run" }', "none of them"),
        ('method = { source = "a run" }', 'method = { source = "a run", benchmark = "b" }', "benchmark and source"),
        ('method = { source = "a run" }', "", "a number without its method"),
        ("bytes * 9", "byte * 9", "no figure 'byte'; did you mean bytes?"),
        ("bytes * 9", "open('x')", "not allowed"),
        ("factor = 1.2", "factor = 0.5", "from 1 up"),
        ("[figures.rate]", "[figures.Rate]", "lower-case"),
        ("schema = 1", 'schema = 1\n[events]\ncontrols = ["("]', "no pattern"),
        ("schema = 1", 'schema = 1\ndocuments = ["/etc/*"]', "below the folder"),
        ("schema = 1", 'schema = 1\n[methods.a]\nbenchmark = "b"\nsupersedes = "c"', "no method"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(old: str, new: str, said: str) -> None:
    """Each mistake is one line that names the file, the place, and what to write."""
    assert SMALL.count(old) >= 1
    with pytest.raises(BadInput) as error:
        ledger.parse(SMALL.replace(old, new, 1))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("figures.toml")


def test_unknown_ids_name_near_ones() -> None:
    """A mistyped figure, record or machine is answered with those that there are."""
    book = ledger.parse(SMALL)
    with pytest.raises(BadInput, match="did you mean rate"):
        book.figure("rat")
    with pytest.raises(BadInput, match="it has: 1, 2, 4"):
        book.figure("rate").record(3)
    with pytest.raises(BadInput, match="say which machine"):
        book.machine(book.figure("rate"), None)
    with pytest.raises(BadInput, match="there are: m1, m2"):
        book.machine(book.figure("rate"), "m3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5.6 tok/s", (5.6, 5.6, 5.6)),
        ("5.6tok/s", (5.6, 5.6, 5.6)),
        ("5.6 to 5.7 tok/s", (None, 5.6, 5.7)),
        ("100-133 tok/s", (None, 100, 133)),
        ("1,234.5 tok/s", (1234.5, 1234.5, 1234.5)),
        ("1e3 tok/s", (1000, 1000, 1000)),
    ],
)
def test_quantities(text: str, expected: tuple[float | None, float, float]) -> None:
    """Numbers and ranges with the figure's unit are understood."""
    assert ledger.parse_quantity(text, ledger.parse(SMALL).figure("rate")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5.6", "no unit"),
        ("5.6 GB/s", "is in 'tok/s'"),
        ("fast", "not a number"),
        ("3 to 2 tok/s", "ascending"),
        ("1e999 tok/s", "finite"),
        ("-5.6 tok/s", "above zero"),
        ("0 tok/s", "above zero"),
        ("-1 to 3 tok/s", "above zero"),
    ],
)
def test_bad_quantities(text: str, said: str) -> None:
    """A value without a unit, in another unit, that is none, or that no rate can have, is refused."""
    with pytest.raises(BadInput, match=said):
        ledger.parse_quantity(text, ledger.parse(SMALL).figure("rate"))


@pytest.mark.parametrize(
    ("value", "unit", "possible"),
    [
        (0.1, "GB/s", True),
        (0, "GB/s", False),
        (-3, "MFLOPS", False),
        (0, "x", False),
        (0, "MiB", True),
        (-1, "MiB", False),
        (-0.5, "ms/GiB", False),
        (-2, "%", True),
        (-4, "points", True),
    ],
)
def test_values_that_a_unit_cannot_have(value: float, unit: str, possible: bool) -> None:
    """Rates and ratios lie above zero, times and amounts not below; of other units nothing is known. Records too."""
    assert (ledger.impossible(value, unit) is None) is possible
    rate = SMALL.partition("[figures.bytes]")[0].replace('"tok/s"', f'"{unit}"')
    text = re.sub(r"^(value|range) = .*$", f"value = {value}", rate, flags=re.M)
    if possible:
        ledger.parse(text)
    else:
        with pytest.raises(BadInput, match="zero"):
            ledger.parse(text)


@pytest.mark.parametrize(
    ("value", "text"), [(5.6, "5.6"), (5, "5"), (1234567.5, "1,234,567.5"), (1e-3, "0.001"), (11.41, "11.41"), (0, "0")]
)
def test_numbers_are_printed_as_written(value: float, text: str) -> None:
    """A published number keeps its digits: nothing is rounded, no exponent."""
    assert ledger.number(value) == text


PUBLISHED = """\
rtx4060-laptop-wddm,cold_path_read_bandwidth,upper bound,11.41,11.41,GB/s,superseded
rtx4060-laptop-wddm,explicit_copy_bandwidth,measured,11.28,11.28,GB/s,current
rtx4060-laptop-wddm,resident_copy_bandwidth,measured,110.46,110.46,GB/s,current
rtx4060-laptop-wddm,host_register_cost,measured,2.8,3.1,ms/GiB,current
rtx4060-laptop-wddm,cold_path_read_bandwidth,measured,5.6,5.7,GB/s,current
rtx4060-laptop-wddm,resident_read_bandwidth,measured,100,133,GB/s,current
rtx4060-laptop-wddm,residency_ratio_realistic,measured,9.7,9.7,x,current
rtx4060-laptop-wddm,residency_ratio,measured,15,24,x,current
rtx4060-laptop-wddm,decode_rate,measured,7.78,8.09,tok/s,current
"""


def test_our_own_ledger_holds_the_first_case() -> None:
    """Every number published for the laptop is in figures.toml as it was published, and its cross-checks close."""
    book = ledger.load(ROOT / "figures.toml")
    held = {
        (r.machine, f.id, r.kind, r.low, r.high, f.unit, "superseded" if f.superseded_by(r) else "current")
        for f in book.figures.values()
        for r in f.records
    }
    for machine, figure, kind, low, high, unit, status in csv.reader(PUBLISHED.splitlines()):
        assert (machine, figure, kind, float(low), float(high), unit, status) in held
    assert all(closure.closes for closure in book.closures())
    (average,) = [c for c in book.closures("cold_path_read_bandwidth") if "*" in c.check.expression]
    assert average.computed is not None
    assert average.computed.middle == pytest.approx(4.8, rel=0.02)
