"""Bytes, seconds and GB/s: parsed, converted and rounded in one place."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels import units
from hybrid_kernels.errors import BadInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7.7GB", 7_700_000_000),
        ("256 MiB", 268_435_456),
        ("12.5mib", 13_107_200),
        ("1e3", 1000),
        (" 3 kB ", 3000),
        (".5KiB", 512),
        ("2TB", 2 * 10**12),
        ("1 TiB", 2**40),
        ("0", 0),
    ],
)
def test_bytes_are_read_with_decimal_and_binary_units(text: str, expected: int) -> None:
    """GB is 10^9 and GiB 2^30, in any case, with or without a space; a bare number is bytes."""
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20m", 1200.0), ("90s", 90.0), ("1.5h", 5400.0), ("250 ms", 0.25), ("3us", 3e-6), ("3 µs", 3e-6), ("2", 2.0)],
)
def test_seconds_are_read_with_their_unit(text: str, expected: float) -> None:
    """Minutes, seconds, hours and their parts; a bare number is seconds."""
    assert units.parse_seconds(text) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("parse", [units.parse_bytes, units.parse_seconds])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a number with a unit; write for example"),
        ("GB", "is not a number with a unit"),
        ("1,5GB", "is not a number with a unit"),
        ("nan", "is not a number with a unit"),
        ("7 parsecs", "unknown unit 'parsecs'"),
        ("-1", "must be a finite"),
        ("1e999", "must be a finite"),
    ],
)
def test_text_that_is_no_quantity_is_refused_by_name(parse: Callable[..., float], text: str, message: str) -> None:
    """Not a number, another unit, negative or infinite: BadInput that begins with the option's name."""
    with pytest.raises(BadInput, match=f"^--budget: .*{message}"):
        parse(text, "--budget")


@pytest.mark.parametrize(("parse", "text"), [(units.parse_bytes, "1e308GB"), (units.parse_seconds, "1e308h")])
def test_a_quantity_that_its_unit_makes_infinite_is_refused(parse: Callable[[str, str], float], text: str) -> None:
    """The number alone is finite, and the product is not."""
    with pytest.raises(BadInput, match=r"--option: .* must be a finite"):
        parse(text, "--option")


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (5.6, 3, "5.60"),
        (11.414, 3, "11.4"),
        (0.00123456, 3, "0.00123"),
        (123456.0, 3, "123,000"),
        (-2.5, 2, "-2.5"),
        (0.0, 3, "0"),
        (math.nan, 3, "-"),
        (math.inf, 3, "-"),
    ],
)
def test_significant_digits_are_kept(value: float, digits: int, expected: str) -> None:
    """Never an exponent, thousands separated, a dash where there is no number."""
    assert units.significant(value, digits) == expected


@given(st.floats(1e-9, 1e15))
def test_rounding_to_three_digits_is_off_by_at_most_half_a_step(value: float) -> None:
    """What is printed is within half a unit of the third digit of what was measured."""
    shown = float(units.significant(value).replace(",", ""))

    assert abs(shown - value) <= 0.5 * 10.0 ** (math.floor(math.log10(value)) - 2) * (1 + 1e-9)


def test_bandwidth_is_decimal() -> None:
    """256 MiB in 10 ms are 26.8 GB/s."""
    assert units.gbs(256 * 2**20, 0.01) == pytest.approx(26.8435456)
    assert units.format_gbs(26.8435456) == "26.8"


@pytest.mark.parametrize(
    ("nbytes", "expected"), [(256 * 2**20, "256 MiB"), (3 * 2**30, "3.00 GiB"), (1536, "1.50 KiB"), (12, "12.0 B")]
)
def test_bytes_are_shown_with_a_binary_prefix(nbytes: int, expected: str) -> None:
    """The largest prefix that leaves a number of 1 or more."""
    assert units.format_bytes(nbytes) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(2.0, "2.00 s"), (0.125, "125 ms"), (8.4e-6, "8.40 us"), (5e-9, "5.00 ns"), (-0.002, "-2.00 ms")],
)
def test_seconds_are_shown_in_the_unit_that_fits(seconds: float, expected: str) -> None:
    """Seconds, milliseconds, microseconds or nanoseconds."""
    assert units.format_seconds(seconds) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (8.4e-6, "seconds", "8.40 us"),
        (60 * 2**20, "bytes", "60.0 MiB"),
        (5.6, "GB/s", "5.60 GB/s"),
        (9.7, "x", "9.70x"),
        (1234567.0, "unit", "1,230,000"),
        (0.0, "tok/s", "0 tok/s"),
        (1.5e-7, "ratio", "1.5e-07 ratio"),
        (math.inf, "seconds", "inf"),
    ],
)
def test_values_of_asv_are_shown_in_their_unit(value: float, unit: str, expected: str) -> None:
    """Seconds and bytes get a fitting prefix, others keep their unit; asv's placeholder `unit` is not shown."""
    assert units.format_value(value, unit) == expected


def test_one_scale_fits_all_values_of_a_chart() -> None:
    """The divisor and unit of a magnitude; only seconds and bytes are scaled, and nothing below the smallest prefix."""
    assert units.scale("seconds", 0.02) == (1e-3, "ms")
    assert units.scale("seconds", 1e-12) == (1e-9, "ns")
    assert units.scale("GB/s", 4e3) == (1.0, "GB/s")
    assert units.scale("unit", 1.0) == (1.0, "")


def test_numbers_beyond_counting_get_an_exponent():
    """A value of 1e308 in a result file is told in a few characters, not in three hundred digits."""
    assert [units.significant(value) for value in (1e308, -2.5e20, 1e-320)] == ["1e+308", "-2.5e+20", "1e-320"]
    assert units.significant(1.25e17) == "125,000,000,000,000,000"
    assert units.format_value(1e308, "seconds") == "1e+308 s"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(2e-3, "second", "2.00 ms"), (2e-3, "s", "2.00 ms"), (2**20, "B", "1.00 MiB"), (2**20, "byte", "1.00 MiB"),
     (0.601, "unit", "0.601")],
)  # fmt: skip
def test_every_spelling_of_a_unit_is_printed_the_same_way(value: float, unit: str, shown: str) -> None:
    """Seconds and bytes get a prefix however a benchmark spells them; the placeholder prints as nothing."""
    assert units.format_value(value, unit) == shown
