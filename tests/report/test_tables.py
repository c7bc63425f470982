"""Tables and the words below them, from results whose numbers are known."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from hybrid_kernels.measure.sweep import frame
from hybrid_kernels.records import Choice, Facts, Plan, Reading, Tensor, Walk
from hybrid_kernels.report import tables

MIB = 2**20

CPU = Facts(
    device="cpu", device_name="A processor", machine="m", os="Linux", kernel="6.1", arch="x86_64", cpu="A processor",
    cores=8, memory_bytes=16 * 2**30, cache_bytes=32 * MIB, python="3.11.7", version="0.1.0", commit="0123456789abcdef",
    variant="avx2", threads=8, scratch="ext4", load_average=0.1, started_at="2026-01-02T03:04:05Z",
)  # fmt: skip
GPU = dataclasses.replace(
    CPU, device="cuda", device_name="A card", multiprocessors=132, threads=None, scratch=None, driver="580.1",
    link_generation=5, link_width=8, link_generation_max=5, link_width_max=16, sm_clock_mhz=1980, memory_clock_mhz=2619,
    throttle_reasons=("power cap",), other_processes=2, commit="0123456789abcdef+",
)  # fmt: skip


def reading(strategy: str, mib: float, gbs: float, **changed: Any) -> Reading:
    """A reading of `mib` MiB at `gbs` GB/s, its interval 10 % to either side in time."""
    packed = round(mib * MIB)
    seconds = packed / (gbs * 1e9)
    values: dict[str, Any] = {
        "strategy": strategy, "form": "eager", "n": packed // 2560, "k": 5120, "block": 32, "packed_bytes": packed,
        "total_bytes": packed * 37 // 32, "copies": 4, "cold": True, "samples": 11, "seconds": seconds,
        "seconds_low": seconds * 0.9, "seconds_high": seconds * 1.1, "seconds_best": seconds * 0.9,
        "outputs_identical": None if strategy == "copy" else True,
    }  # fmt: skip
    return Reading(**{**values, **changed})


def sweep(*rows: Reading, device: str = "cpu") -> pd.DataFrame:
    return frame(device, list(rows))


def lines_of(table: Any) -> list[list[str]]:
    """The table's lines, split where two spaces or more stand."""
    return [[cell for cell in line.split("  ") if cell.strip()] for line in tables.as_text(table).splitlines()]


def test_the_header_says_what_must_be_known_to_believe_a_number() -> None:
    """Device, kernel variant, host and versions of a CPU; nothing is said of a link that it has not."""
    text = "\n".join(tables.facts_lines(CPU))

    for part in (
        "A processor, 8 threads",
        "32.0 MiB last-level cache",
        "kernel avx2",
        "16.0 GiB memory",
        "scratch on ext4",
        "hybrid_kernels 0.1.0 at 0123456789, Python 3.11.7",
    ):
        assert part in text
    assert "PCIe" not in text
    assert "throttled" not in text


def test_the_header_of_a_gpu_names_its_link_and_what_limits_it() -> None:
    """Link as read and as possible, clocks, throttling, other processes, and a checkout with changes."""
    text = "\n".join(tables.facts_lines(GPU))

    for part in ("132 multiprocessors", "driver 580.1", "PCIe 5 x8 under load (device and slot: 5 x16)", "SM 1980 MHz",
                 "throttled: power cap", "shared device: 2 other processes", "at 0123456789+"):  # fmt: skip
        assert part in text
    unread = dataclasses.replace(GPU, link_generation=None, sm_clock_mhz=None)
    assert "driver 580.1, link not read" in "\n".join(tables.facts_lines(unread))


def test_a_size_is_one_row_with_its_ratios() -> None:
    """Strategies beside the copy, each with the interval of its median, and the ratios of the medians."""
    table = tables.sweep_table(sweep(reading("resident", 64, 20), reading("in_place", 64, 5), reading("copy", 64, 10)))

    head, row = lines_of(table)
    assert [cell.strip() for cell in head] == [
        "packed MiB", "N", "resident GB/s", "in place GB/s", "resident / in place", "copy GB/s", "in place / copy", "n",
        "outputs",
    ]  # fmt: skip
    assert [cell.strip() for cell in row] == [
        "64", "26,214", "20.0 [18.2, 22.2]", "5.00 [4.55, 5.56]", "4.00", "10.0 [9.09, 11.1]", "0.500", "11",
        "identical",
    ]  # fmt: skip


def test_forms_and_staging_have_columns_of_their_own_where_they_exist() -> None:
    """Eager and graph are two rows of a size, held against the same copy."""
    rows = [
        reading(strategy, 64, gbs, form=form, captures=form == "graph", fallbacks=0)
        for form in ("eager", "graph")
        for strategy, gbs in (("resident", 3000), ("in_place", 50), ("staged", 54))
    ]

    text = tables.as_text(tables.sweep_table(sweep(*rows, reading("copy", 64, 55), device="cuda")))

    assert "staged GB/s" in text
    assert [line.split()[2] for line in text.splitlines()[1:]] == ["eager", "graph"]


def test_what_limits_a_number_stands_beside_it() -> None:
    """Outputs that differ, cached rows, warnings and a missing number are in the row they belong to."""
    rows = [
        reading("resident", 64, 20, cold=False),
        reading("in_place", 64, 50, warnings=("implausible",), outputs_identical=False),
        reading("staged", 64, float("nan"), reason="no room: 1 GiB needed", outputs_identical=None),
        reading("copy", 64, 10),
    ]

    text = tables.as_text(tables.sweep_table(sweep(*rows)))

    assert "DIFFER" in text
    assert "resident cached; in place implausible; staged: no room" in text
    assert "1 GiB needed" not in text


def test_a_size_without_all_three_arms_has_no_row() -> None:
    """An interrupted size is left out of the table rather than shown with holes."""
    whole = [reading("resident", 1, 9), reading("in_place", 1, 2), reading("copy", 1, 3)]

    assert len(lines_of(tables.sweep_table(sweep(*whole, reading("resident", 2, 9))))) == 2


def test_the_words_give_the_number_to_size_with() -> None:
    """The lower end of the slowest in-place read from 64 MiB up, and the copy as no more than a bound."""
    rows = [
        *(reading("resident", mib, 20) for mib in (12.5, 64, 256)),
        reading("in_place", 12.5, 3), reading("in_place", 64, 6), reading("in_place", 256, 5.5),
        *(reading("copy", mib, 11, drift=0.02) for mib in (12.5, 64, 256)),
    ]  # fmt: skip

    words = "\n".join(tables.sweep_words(sweep(*rows), CPU))

    assert "Size a cold path with 5.00 GB/s" in words
    assert "slowest in-place read of 64 MiB and more (5.50 GB/s at 256 MiB)" in words
    assert "The sequential copy (11.0 GB/s) runs no kernel: it is only an upper bound" in words
    assert "at 256 MiB is 0.500 of it" in words
    assert "sizes that fit the 32.0 MiB cache (12.5 MiB) were read cold, from 4 buffers in turn" in words
    assert "Drift: measured again at the end, the first point took 1.02 of its first time." in words
    assert "Conditions changed" not in words


@pytest.mark.parametrize(
    ("changed", "facts", "told"),
    [
        ({"gbs": 12}, {}, "the read beats the copy because 8 threads"),
        ({"gbs": 12}, {"threads": 1}, "beats the copy, which bounds nothing then"),
        ({"cold": False}, {}, "Cache-resident rows: 64 MiB. They were read from 4 buffers in turn, too few"),
        ({}, {"cache_bytes": MIB}, "every size is larger than the last-level cache"),
        ({"drift": 0.25}, {}, "took 1.25 of its first time. Conditions changed under the run"),
        ({}, {"load_average": 7.5}, "The host was not idle (load 7.5 on 8 cores"),
        ({"warnings": ("implausible",)}, {}, "Marked: implausible."),
        ({"form": "graph", "captures": 2}, {}, "Graphs: 2 captured and replayed, 0 batches fell back to eager."),
        ({"form": "graph", "captures": 2, "fallbacks": 3}, {}, "3 batches fell back to eager: their rows are marked"),
    ],
)
def test_the_words_name_each_condition(changed: dict[str, Any], facts: dict[str, Any], told: str) -> None:
    """A cached row, a drift, a busy host, a mark, a graph: one sentence each, and only where it is so."""
    plain = {"gbs": 5.0, **changed}
    resident = {name: value for name, value in plain.items() if name == "cold"}
    in_place = {name: value for name, value in plain.items() if name not in ("cold", "gbs")}
    rows = sweep(
        reading("resident", 64, 20, **resident),
        reading("in_place", 64, plain["gbs"], **in_place),
        reading("copy", 64, 10),
    )

    assert told in "\n".join(tables.sweep_words(rows, dataclasses.replace(CPU, **facts)))
    ordinary = sweep(reading("resident", 64, 20), reading("in_place", 64, 5), reading("copy", 64, 10))
    if "cache" not in told:
        assert told not in "\n".join(tables.sweep_words(ordinary, CPU))


def test_the_number_to_size_with_is_never_rounded_up_past_its_interval() -> None:
    """1.26 GB/s is told as 1.26: what a cold path is sized with must not be more than what was seen."""
    rows = [reading("resident", 64, 20), reading("in_place", 64, 1.26 * 1.1), reading("copy", 64, 10)]
    assert "Size a cold path with 1.26 GB/s" in tables.sweep_words(sweep(*rows), CPU)[0]


def test_a_marked_read_is_sized_with_only_where_there_is_no_other() -> None:
    """The slowest read that is not marked gives the number; where all are marked, the sentence says so."""
    marked = reading("in_place", 64, 2, warnings=("implausible",))
    rows = [reading(name, mib, 20) for name in ("resident", "copy") for mib in (64, 256)]

    words = tables.sweep_words(sweep(*rows, marked, reading("in_place", 256, 5.5)), CPU)
    assert "Size a cold path with 5.00 GB/s" in words[0]
    assert "marked" not in words[0]
    words = tables.sweep_words(sweep(*rows, marked), CPU)
    assert "at 64 MiB). That read is marked: measure again" in words[0]


@pytest.mark.parametrize(("samples", "told"), [(5, "range"), (6, "95 % interval of the median")])
def test_brackets_are_called_an_interval_only_from_six_samples(samples: int, told: str) -> None:
    """P(median outside the range of n) = 2 x 2^-n: 6.25 % of five samples, 3.1 % of six."""
    assert told in tables.interval_caption(samples)


def test_nothing_finished_gives_nothing_to_size_with() -> None:
    """Without an in-place read beside a copy there is no number, and the words say so."""
    rows = sweep(reading("in_place", 64, float("nan"), reason="refused"), reading("copy", 64, 10))

    assert tables.sweep_words(rows, CPU) == ["Not one size was finished, so there is nothing to size a cold path with."]


def walk(schedule: str, fraction: float, seconds: float, **changed: Any) -> Walk:
    """A walk of a model with 8 GB packed."""
    resident = round(8e9 * fraction)
    values: dict[str, Any] = {
        "model": "m", "device": "cuda", "schedule": schedule, "form": "eager", "resident_fraction": fraction,
        "resident_bytes": resident, "in_place_bytes": 8_000_000_000 - resident, "staged_bytes": 0, "samples": 5,
        "seconds": seconds, "seconds_low": seconds, "seconds_high": seconds, "seconds_best": seconds,
        "tokens_per_second": 1 / seconds, "link_gbs": 1.0, "device_bytes": resident, "host_locked_bytes": 0,
        "outputs_identical": True,
    }  # fmt: skip
    return Walk(**{**values, **changed})


def test_walks_say_what_residency_and_overlap_are_worth() -> None:
    """From half to all resident 4 GB save 80 ms, 20 ms a GB; running ahead at half saves 30 ms."""
    rows = [
        walk("serial", 0.5, 0.1),
        walk("serial", 1.0, 0.02),
        walk("overlapped", 0.5, 0.07),
        walk("overlapped", 1.0, 0.02),
    ]

    words = tables.walk_words(rows)

    assert "From 0.50 to 1.00 resident, 1 GB more in the device saves 20.0 ms a step." in words
    assert "At 0.50 resident, letting weights run ahead saves 30.0 ms a step against reading in place." in words
    assert len(words) == 4
    assert tables.walk_words([]) == ["Not one walk was finished."]


def test_a_walk_stands_beside_its_prediction_and_floor() -> None:
    """Shares of the step where there is a prediction, dashes where there is none, and outputs that differ."""
    rows = [
        walk("serial", 0.5, 0.1, predicted_seconds=0.095, floor_seconds=0.08),
        walk("overlapped", 0.5, 0.07, outputs_identical=False),
    ]

    head, first, second = (line.split() for line in tables.as_text(tables.walk_table(rows)).splitlines())

    assert head[:2] == ["resident", "schedule"]
    assert first[:3] == ["0.500", "serial", "eager"]
    assert {"95.0", "0.950", "0.800", "identical"} <= set(first)
    assert second.count("-") == 3
    assert second[-1] == "DIFFERS"
    assert tables.walk_frame(rows)["seconds"].tolist() == [0.1, 0.07]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, []),
        ((6_800_000_000, True), ["All 6.80 GB of the model, read in place in one step, stayed right."]),
        ((440_000_000, False), ["Up to 0.44 GB read in place in one step stayed right; beyond that outputs differed."]),
    ],
)
def test_a_capacity_is_told_as_found(found: tuple[int, bool] | None, told: list[str]) -> None:
    """Not looked for, the whole model, or the bytes at which outputs went wrong."""
    assert tables.capacity_words(found) == told


def test_a_plan_is_told_by_shape_and_by_what_would_help() -> None:
    """Tensors of one shape and strategy are one row; the step, its bound, simple rules and the worth of 1 GB follow."""
    tensors = [Tensor(f"layers.{index}.q", 1024, 5120, 2_621_440, 3_031_040) for index in range(3)]
    choices = tuple(
        Choice(tensor, strategy, 1e-3)
        for tensor, strategy in zip(tensors, ("resident", "resident", "in_place"), strict=True)
    )
    plan = Plan(
        "m", "cuda", "here", 32, "serial", 7_700_000_000, 0, 6_000_000, 2 / 3, choices, 0.02, 0.019, 0.021, 0.018,
        {"first layers": 0.03}, 0.004,
    )  # fmt: skip

    text = tables.as_text(tables.plan_table(plan))
    words = tables.plan_words(plan)

    assert [line.split()[2:4] for line in text.splitlines()[1:]] == [["in", "place"], ["resident", "2"]]
    assert words[0].startswith("Predicted step of m (serial): 20.0 ms [19.0 ms, 21.0 ms], at most 50.0 tok/s")
    assert "66.7% of the packed bytes resident" in words[0]
    assert words[1:] == [
        "No schedule of this split can beat 18.0 ms.",
        "Simple rules on the same budget: first layers 30.0 ms.",
        "1 GB more of device memory saves 4.00 ms a step.",
    ]
    assert "More device memory saves nothing" in tables.plan_words(dataclasses.replace(plan, saved_by_one_gb=0.0))[-1]
    assert len(tables.plan_words(dataclasses.replace(plan, rules={}, saved_by_one_gb=None))) == 2


@pytest.mark.parametrize("width", [76, 80, 100, 120])
def test_a_narrow_terminal_folds_a_table_between_words(width: int) -> None:
    """No number, word or heading is cut in two, and no line is wider than the terminal."""
    rows = [
        reading(arm, mib, gbs) for mib in (12.5, 384) for arm, gbs in (("resident", 14), ("in_place", 1), ("copy", 2))
    ]
    held = io.StringIO()
    Console(width=width, file=held).print(tables.sweep_table(sweep(*rows)))
    lines = held.getvalue().splitlines()
    wide = tables.as_text(tables.sweep_table(sweep(*rows)))
    assert max(map(len, lines)) <= width
    assert sorted(held.getvalue().split()) == sorted(wide.split())


def test_markup_in_a_value_is_shown_as_it_is() -> None:
    """Text from elsewhere is never read as the terminal's markup."""
    table = tables.doctor_table([{"device": "cpu", "usable": True, "detail": "[bold]8[/bold] threads"}])

    assert "[bold]8[/bold] threads" in tables.as_text(table)


def test_a_name_writes_nothing_to_the_terminal():
    """Control characters in a name are shown as escapes: no colour, no second line."""
    shown = tables.as_text(tables.rows_table(["name"], [["red\x1b[31m\x07\nnext\x9b"]], left=["name"]))

    assert shown == "name\nred\\x1b[31m\\x07\\nnext\\x9b\n"
