"""Plans: predictions by hand, never worse than simple rules, within the budget, and files that come back."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import plan
from hybrid_kernels.layout import models
from hybrid_kernels.measure.walk import tensors_of
from hybrid_kernels.records import Tensor

RATES = {"resident": 3000e9, "in_place": 50e9, "staged": 53e9, "copy_h2d": 55e9, "copy": 55e9}
LATENCY = {"resident": 3e-6, "in_place": 8e-6, "staged": 20e-6, "copy_h2d": 5e-6, "copy": 5e-6}


def sweep(rates: dict[str, float] = RATES, sizes: tuple[int, ...] = (1, 4, 16, 64, 256)) -> pd.DataFrame:
    """A machine with exact rates and latencies."""
    rows = []
    for mib, (name, rate) in itertools.product(sizes, rates.items()):
        n = mib * 2**20 // 2560
        seconds = n * 2560 / rate + LATENCY[name]
        rows.append(
            {
                "device": "cuda", "strategy": name, "form": "eager", "n": n, "k": 5120, "packed_bytes": n * 2560,
                "seconds": seconds, "seconds_low": 0.98 * seconds, "seconds_high": 1.02 * seconds,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


COSTS = plan.Costs.of(sweep())
QWEN = tensors_of(models.find("qwen2.5-14b"))


def tensor(packed: int, name: str = "t") -> Tensor:
    return Tensor(name, packed // 2560, 5120, packed, round(packed * 18.5 / 16))


def test_published_figures_bracket_the_published_decode_rate() -> None:
    """RTX 4060: 7.7 GB resident at 100 to 133 GB/s and 0.6 GB at 5.6 GB/s bracket the 8 tok/s seen.

    By hand: 0.6/5.6 = 107 ms; 7.7/133 = 57.9 and 7.7/100 = 77 ms; serial 165 to 184 ms, overlapped 107 ms.
    """
    slow, overlapped = plan.formula(7.7e9, 0.6e9, 100, 5.6)
    fast, _ = plan.formula(7.7e9, 0.6e9, 133, 5.6)
    assert 1 / slow == pytest.approx(5.4, abs=0.05)
    assert 1 / fast == pytest.approx(6.1, abs=0.05)
    assert 1 / overlapped == pytest.approx(9.3, abs=0.05)
    assert 1 / slow < 8 < 1 / overlapped


def test_time_is_interpolated_between_sizes_and_kept_at_a_measured_shape() -> None:
    """Linear in bytes between and beyond sizes; a measured shape gives its own time."""
    for mib in (0.5, 2, 100, 1000):
        packed = int(mib * 2**20) // 2560 * 2560
        mid, low, high = COSTS.seconds("resident", tensor(packed))
        assert mid == pytest.approx(packed / 3000e9 + 3e-6, rel=1e-6)
        assert low < mid < high


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.one_of(st.none(), st.floats(0.01, 10))), min_size=1, max_size=30),
    st.integers(2, 5),
)
def test_overlapped_time_lies_between_floor_and_sum(steps: list[tuple[float, float | None]], ring: int) -> None:
    """Never below the longer of the two streams, never above both one after the other; more buffers never hurt."""
    passes, copies = [work for work, _ in steps], [copy for _, copy in steps]
    total, moved = sum(passes), sum(copy or 0 for copy in copies)
    time = plan.simulate(passes, copies, ring)
    assert max(total, moved) <= time * (1 + 1e-12)
    assert time <= (total + moved) * (1 + 1e-12)
    assert plan.simulate(passes, copies, ring + 1) <= time * (1 + 1e-12)


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.one_of(st.none(), st.floats(0.01, 10))), min_size=1, max_size=30),
    st.integers(2, 5),
)
def test_streams_that_share_nothing_follow_the_recurrence(steps: list[tuple[float, float | None]], ring: int) -> None:
    """A copy ends its time after the copy before it and the pass that frees its buffer, a pass after its own copy."""
    ends: list[float] = []
    copied = done = 0.0
    for work, copy in steps:
        if copy is not None:
            copied = max(copied, ends[-ring] if len(ends) >= ring else 0.0) + copy
            done = max(done, copied)
        done += work
        if copy is not None:
            ends.append(done)
    got = plan.simulate([work for work, _ in steps], [copy for _, copy in steps], ring)
    assert got == pytest.approx(done, rel=1e-9)


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.one_of(st.none(), st.floats(0.01, 10))), min_size=1, max_size=30),
    st.floats(1, 3),
    st.floats(1, 3),
)
def test_streams_that_share_take_longer_but_not_than_their_slowdowns(
    steps: list[tuple[float, float | None]], slow_copy: float, slow_pass: float
) -> None:
    """Between what they take alone and that times the larger slowdown."""
    passes, copies = [work for work, _ in steps], [copy for _, copy in steps]
    alone = plan.simulate(passes, copies, 3)
    together = plan.simulate(passes, copies, 3, (slow_copy, slow_pass))
    assert alone * (1 - 1e-9) <= together <= alone * max(slow_copy, slow_pass) * (1 + 1e-9)


def test_sharing_streams_by_hand() -> None:
    """A resident pass of 2 beside a copy of 4: at half its speed the pass ends at 4. By then 4 / 1.5 = 8/3 of the copy
    are done, and the other 4/3 run alone until 16/3; the pass over what was copied takes 1 more."""
    assert plan.simulate([2, 1], [None, 4], 2, (1.5, 2.0)) == pytest.approx(16 / 3 + 1)


def test_overlapped_time_by_hand() -> None:
    """Two buffers, three cold tensors of copy 4 and work 1, one resident of 2 first.

    Copies end at 4, 8, then the third waits for the first pass (ends 5, no wait): 12; passes end at 5, 9, 13.
    """
    assert plan.simulate([2, 1, 1, 1], [None, 4, 4, 4], 2) == 13


def test_a_full_ring_waits_for_the_pass_before() -> None:
    """Work of 10 and copies of 1 with two buffers: the third copy waits until the first pass has ended at 11."""
    assert plan.simulate([10, 10, 10], [1, 1, 1], 2) == 31


@settings(max_examples=8)
@given(st.floats(2.5, 9.0), st.sampled_from(plan.SCHEDULES))
def test_never_worse_than_the_simple_rules_and_within_the_budget(gigabytes: float, schedule: str) -> None:
    """Whatever the budget, the plan fits it and beats or equals every simple rule that fits."""
    chosen = plan.choose("qwen2.5-14b", QWEN, COSTS, budget_bytes=int(gigabytes * 1e9), schedule=schedule)
    assert chosen.device_bytes <= gigabytes * 1e9
    assert len(chosen.choices) == len(QWEN)
    assert chosen.predicted_seconds <= min(chosen.rules.values(), default=np.inf) * (1 + 1e-9)
    assert chosen.floor_seconds <= chosen.predicted_seconds * (1 + 1e-9)
    assert chosen.predicted_low < chosen.predicted_seconds < chosen.predicted_high


def test_serial_plan_is_optimal_on_a_small_model() -> None:
    """Against every subset of nine tensors: no resident set within the budget is faster."""
    tensors = [tensor(mib * 2**20 // 2560 * 2560, f"t{i}") for i, mib in enumerate((2, 2, 2, 8, 8, 20, 20, 40, 60))]
    meta = sum(t.total_bytes - t.packed_bytes for t in tensors)
    for share in (0.2, 0.5, 0.8):
        budget = int(meta + share * sum(t.packed_bytes for t in tensors))
        chosen = plan.choose("small", tensors, COSTS, budget_bytes=budget, marginal=False)
        best = min(
            plan.predict(tensors, ["resident" if bit else "staged" for bit in bits], COSTS, "serial")[0][0]
            for bits in itertools.product((False, True), repeat=len(tensors))
            if meta + sum(t.packed_bytes for t, bit in zip(tensors, bits, strict=True) if bit) <= budget
        )
        assert chosen.predicted_seconds <= best * (1 + 1e-9)


def test_everything_fits_without_a_limit() -> None:
    """No budget: all resident, and nothing more to gain."""
    chosen = plan.choose("qwen2.5-14b", QWEN, COSTS, budget_bytes=None)
    assert chosen.resident_fraction == 1.0
    assert chosen.saved_by_one_gb is None


def test_one_more_gigabyte_is_worth_its_bytes_at_the_difference_of_the_rates() -> None:
    """In a serial plan 1 GB more saves about 1 GB / 53 GB/s less 1 GB / 3000 GB/s."""
    chosen = plan.choose("qwen2.5-14b", QWEN, COSTS, budget_bytes=int(5e9))
    assert chosen.saved_by_one_gb == pytest.approx(1 / 53 - 1 / 3000, rel=0.05)


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 8), st.floats(1.5, 8))
def test_no_more_is_read_in_place_than_stays_right(limit: float, budget: float) -> None:
    """In GB: whatever the capacity and the budget, and no simple rule is better than the plan."""
    fast = plan.Costs.of(sweep({**RATES, "in_place": 54e9}))  # reading in place would be the best
    chosen = plan.choose("qwen2.5-14b", QWEN, fast, budget_bytes=int(budget * 1e9), in_place_limit=limit * 1e9)
    read = sum(c.tensor.packed_bytes for c in chosen.choices if c.strategy == "in_place")
    assert read <= limit * 1e9
    assert all(chosen.predicted_seconds <= seconds * (1 + 1e-9) for seconds in chosen.rules.values())


def test_the_capacity_is_used_up_where_reading_in_place_is_the_fastest() -> None:
    """5 GB of device memory leave more than 2 GB cold: those 2 GB are read in place and the rest staged."""
    fast = plan.Costs.of(sweep({**RATES, "in_place": 54e9}))
    chosen = plan.choose("qwen2.5-14b", QWEN, fast, budget_bytes=int(5e9), in_place_limit=2e9)
    read = {s: sum(c.tensor.packed_bytes for c in chosen.choices if c.strategy == s) for s in ("in_place", "staged")}
    assert read["in_place"] == pytest.approx(2e9, rel=0.01)
    assert read["staged"] > 0.5e9


def test_what_may_not_be_read_in_place_and_cannot_be_staged_is_said() -> None:
    """Overlapped plans copy everything ahead, so the capacity does not bind them."""
    bare = plan.Costs.of(sweep({name: rate for name, rate in RATES.items() if name != "staged"}))
    with pytest.raises(BadInput, match=r"capacity: 0 B may be read in place .* walk --capacity"):
        plan.choose("qwen2.5-14b", QWEN, bare, budget_bytes=int(5e9), in_place_limit=0)
    assert plan.choose("qwen2.5-14b", QWEN, bare, budget_bytes=int(5e9), in_place_limit=0, schedule="overlapped")


@pytest.mark.parametrize("fraction", [1.0, 0.99, 0.93, 0.75, 0.5, 0.25, 0.0])
@pytest.mark.parametrize("model", ["qwen2.5-14b", "qwen2.5-0.5b"])
def test_fractions_are_met(fraction: float, model: str) -> None:
    """Within half of the smallest tensors' bytes for a large model, and a percent for a small one."""
    tensors = tensors_of(models.find(model))
    strategies = plan.at_fraction(tensors, fraction)
    total = sum(t.packed_bytes for t in tensors)
    held = sum(t.packed_bytes for t, s in zip(tensors, strategies, strict=True) if s == "resident")
    assert held / total == pytest.approx(fraction, abs=0.01)


def test_few_large_tensors_are_cold_and_lie_apart() -> None:
    """At 0.93 of Qwen2.5-14B thirteen of the largest matrices and what is left over, no two of them neighbours; the
    output head, which stands alone, stays resident until everything else is cold."""
    strategies = plan.at_fraction(QWEN, 0.93)
    cold = [index for index, strategy in enumerate(strategies) if strategy != "resident"]
    largest = max(t.packed_bytes for t in QWEN[:-1])
    assert sum(QWEN[index].packed_bytes == largest for index in cold) == 13
    assert len(cold) <= 16
    assert min(b - a for a, b in itertools.pairwise(i for i in cold if QWEN[i].packed_bytes == largest)) > 10
    assert QWEN[max(cold)].packed_bytes == largest  # nothing but the last layer's rest and the head waits behind it
    assert max(cold) >= len(QWEN) - 4
    assert plan.at_fraction(QWEN, 0.25)[-1] == "resident"
    assert set(plan.at_fraction(QWEN, 0.0)) == {"in_place"}


@pytest.mark.parametrize("fraction", [0.99, 0.98, 0.97, 0.93, 0.75])
def test_a_fraction_comes_near_the_floor(fraction: float) -> None:
    """Copies have the passes before them to hide in: a step is above its floor by the last cold pass and what comes
    behind it, little more than the output head's."""
    strategies = plan.at_fraction(QWEN, fraction)
    (step, _, _), passes = plan.predict(QWEN, strategies, COSTS, "overlapped")
    assert step <= plan.floor(QWEN, strategies, COSTS) + passes[-1] + 2 * max(passes[:-1])


def test_a_plan_file_comes_back_as_it_was(tmp_path: Path) -> None:
    """Written and read, the plan is equal."""
    chosen = plan.choose("qwen2.5-14b", QWEN, COSTS, budget_bytes=int(5e9))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_document(chosen), allow_nan=False))
    assert plan.read(path) == chosen


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not JSON"), ("[]", "no JSON object"), ("{}", "not a plan"), ('{"schema": 99}', "newer")],
)
def test_files_that_are_no_plan_are_named(tmp_path: Path, text: str, says: str) -> None:
    """Each kind of wrong file is one line with its name."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=says):
        plan.read(path)
    with pytest.raises(BadInput, match=r"x\.json"):
        plan.read(path)
    with pytest.raises(BadInput, match=r"absent\.json"):
        plan.read(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "changed",
    [{"ring": "three"}, {"ring": None}, {"schedule": "parallel"}, {"model": None}, {"model": ["m"]}, {"no_field": 1}],
)
def test_a_plan_that_names_no_walk_is_refused(changed: dict[str, object]) -> None:
    """A model, schedule or ring of the wrong kind is found on reading, not in the middle of a walk."""
    made = plan.to_document(plan.choose("qwen2.5-14b", QWEN, COSTS, budget_bytes=int(5e9), marginal=False))
    with pytest.raises(BadInput, match="not a plan"):
        plan.from_document({**made, "plan": {**made["plan"], **changed}})


@pytest.mark.parametrize(
    "changed",
    [
        {"n": None}, {"k": "x"}, {"seconds": "1"}, {"seconds": -1.0}, {"seconds_low": None}, {"packed_bytes": 0},
        {"form": ["eager"]}, {"seconds_high": 1e400},
    ],
)  # fmt: skip
def test_a_sweep_with_a_row_that_is_no_reading_is_refused(changed: dict[str, object]) -> None:
    """Sizes and times that are no positive numbers: one line, and no prediction is made of them."""
    rows = sweep().to_dict("records")
    with pytest.raises(BadInput, match="sweep: a row is not a reading"):
        plan.Costs.of(pd.DataFrame([{**rows[0], **changed}, *rows[1:]]))


def test_a_reading_without_a_number_is_left_out() -> None:
    """Null seconds, as a refused registration leaves them, take no part and refuse nothing."""
    rows = sweep().to_dict("records")
    lost = dict.fromkeys(("seconds", "seconds_low", "seconds_high"))
    costs = plan.Costs.of(pd.DataFrame([{**rows[2], **lost}, *rows]))
    assert costs.points == COSTS.points


def test_beyond_the_sizes_measured_shapes_of_equal_bytes_are_one_size() -> None:
    """Two shapes of 256 MiB have no slope between them: the line through the next smaller size goes on."""
    wide = sweep().query("packed_bytes == packed_bytes.max()").assign(n=2560, k=209_664)
    both = plan.Costs.of(pd.concat([sweep(), wide], ignore_index=True))
    bytes_512 = 2 * 209_664 * 1280
    seconds, low, high = both.seconds("resident", tensor(bytes_512))
    assert seconds == pytest.approx(bytes_512 / RATES["resident"] + LATENCY["resident"])
    assert low < seconds < high


@pytest.mark.parametrize("packed", [2**20, 100 * 2**20, 2**30])
def test_an_interval_holds_its_median_beyond_the_sizes_measured(packed: int) -> None:
    """Copies of 64 MiB known to 0.1 % and of 256 MiB to 2 %: lines through the ends alone would cross below and above.

    Below, the share of the nearest size holds (0.999 to 1.001), above likewise (0.98 to 1.02).
    """
    sizes = {64 * 2**20: 0.001, 256 * 2**20: 0.02}
    points = [
        (size // 2560, 5120, size, size / 55e9, (1 - e) * size / 55e9, (1 + e) * size / 55e9)
        for size, e in sizes.items()
    ]
    mid, low, high = plan.Costs("cuda", "m", {"copy": points}).seconds("copy", tensor(packed, "t"))
    assert mid == pytest.approx(packed / 55e9)
    share = {2**20: 0.001, 100 * 2**20: 0.001 + 0.019 * 36 / 192, 2**30: 0.02}[packed]
    assert (low / mid, high / mid) == (pytest.approx(1 - share), pytest.approx(1 + share))


def test_a_budget_that_holds_no_ring_says_what_would_do() -> None:
    """1.3 GB holds scales and zero points, but not the ring and what is too large for it; the least is named."""
    with pytest.raises(BadInput, match=r"holds no overlapped plan.*GiB would"):
        plan.choose("m", QWEN, COSTS, budget_bytes=int(1.3e9), schedule="overlapped")
    least = 1.63 * 2**30
    assert plan.choose("m", QWEN, COSTS, budget_bytes=int(least), schedule="overlapped", marginal=False)


def test_bad_budgets_schedules_and_sweeps_are_named() -> None:
    """Too small for metadata, an unknown schedule, a ring of one, a sweep without reads."""
    with pytest.raises(BadInput, match="budget"):
        plan.choose("m", QWEN, COSTS, budget_bytes=1000)
    with pytest.raises(BadInput, match="schedule"):
        plan.choose("m", QWEN, COSTS, budget_bytes=None, schedule="parallel")
    with pytest.raises(BadInput, match="ring"):
        plan.choose("m", QWEN, COSTS, budget_bytes=None, ring=1)
    with pytest.raises(BadInput, match="in_place"):
        plan.Costs.of(sweep({"resident": 1e9, "copy": 1e9}))
    with pytest.raises(BadInput, match="sweep"):
        plan.Costs.of(pd.DataFrame())
    with pytest.raises(BadInput, match="fraction"):
        plan.at_fraction(QWEN, 1.5)


@pytest.mark.parametrize("found", [None, True, -5, "8 GB", 1.5])
def test_a_capacity_that_is_no_amount_is_refused(tmp_path: Path, found: object) -> None:
    """The message names the file."""
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"facts": {"in_place_capacity_bytes": found}}))
    with pytest.raises(BadInput, match=r"w\.json says of no bytes"):
        plan.read_capacity(path)
