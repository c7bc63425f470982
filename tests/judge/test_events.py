"""Every change of a history is told for what it was, from files that asv wrote and changes whose cause is known."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge.events import KINDS, Event, History, rows

Planted = Any  # tests/judge/conftest.py
Make = Callable[..., Planted]
COPY = "copies.Bandwidth.track_copy"
READ = "reads.Bandwidth.track_read"
TIMED = "reads.Seconds.time_read"
NUMPY = "controls.NumpyCopy.time_numpy_copy"

FIGURES = """\
schema = 1

[methods.copy]
what = "Sequential copy"
kind = "upper bound"
benchmark = "copies.Bandwidth.track_copy"
params = { kind = "copy" }

[methods.in_place]
what = "GEMV, weights in place"
benchmark = "reads.Bandwidth.track_read"
params = { strategy = "in_place" }
supersedes = "copy"
reason = "A copy has no kernel."

[figures.cold]
title = "Cold path"
unit = "GB/s"
direction = "higher"
methods = ["copy", "in_place"]
params = { device = "cpu", mib = 64 }
"""

DROP = 5.6 / 11.41
LATER = [0, 1, 0, 1, 2, 3, 4, 5]  # four commits with the copy only, four with copy and reads


def of_figure(events: tuple[Event, ...], figure: str = "cold") -> list[Event]:
    """The events of one figure in order."""
    return [event for event in events if figure in event.figures]


def kinds(events: list[Event] | tuple[Event, ...]) -> list[str]:
    """What the events are."""
    return [event.kind for event in events]


def verdicts(events: tuple[Event, ...]) -> set[str]:
    """Kinds that say the code changed."""
    return {event.kind for event in events} & {"regression", "improvement", "undone", "change"}


def cold(history: Planted) -> Planted:
    """The planted history with the two methods at the values of the first case."""
    return history.level(COPY, 11.41).level(READ, 5.6)


def test_changed_method_with_the_copy_measured_again_is_one_correction(planted: Make) -> None:
    """The case that gave the project its reason: both values, the factor and the reason, and no regression."""
    events = cold(planted(LATER)).events(FIGURES)
    first, correction = of_figure(events)
    assert (first.kind, first.after, first.before) == ("upper bound", pytest.approx(11.41), None)
    assert correction.kind == "correction"
    assert (correction.before, correction.after) == (pytest.approx(11.41), pytest.approx(5.6))
    assert correction.factor == pytest.approx(DROP)
    assert correction.reason == "A copy has no kernel."
    assert correction.controls[0].benchmark == COPY
    assert not correction.controls[0].moved
    assert "copies" in str(correction.method_before)
    assert "reads" in str(correction.method)
    assert kinds(events) == ["upper bound", "correction"]


def test_the_same_drop_with_the_copy_halved_is_confounded(planted: Make) -> None:
    """Method and world changed together: two factors that multiply to the whole, and no regression."""
    events = cold(planted(LATER)).scale(COPY, 0.5, since=4).events(FIGURES)
    _, change = of_figure(events)
    assert change.kind == "confounded"
    assert change.world_factor == pytest.approx(0.5)
    assert change.method_factor == pytest.approx(DROP / 0.5)
    assert change.factor == pytest.approx(DROP)
    assert not verdicts(events)
    assert [e.kind for e in events if e.benchmark == COPY and e.before is not None] == ["environment"]


def test_the_same_drop_within_one_version_is_a_regression(planted: Make) -> None:
    """Nothing but the code changed: a regression, with the control arms that held as evidence."""
    events = cold(planted([0, 1, 2, 3, 4, 5, 2, 3])).scale(READ, DROP, since=5).events(FIGURES)
    found = [event for event in events if event.kind == "regression"]
    assert {event.name for event in found} == {
        f"{READ} (device=cpu, strategy=in_place, mib=64.0)",
        f"{READ} (device=cpu, strategy=resident, mib=64.0)",
    }
    (of_cold,) = [event for event in found if event.figures == ("cold",)]
    assert of_cold.factor == pytest.approx(DROP, rel=0.01)
    assert {arm.benchmark for arm in of_cold.controls} == {COPY, NUMPY}
    assert not any(arm.moved for arm in of_cold.controls)
    assert kinds(of_figure(events)) == ["upper bound", "correction", "regression"]


def test_the_old_method_not_measured_again_leaves_it_unverified(planted: Make) -> None:
    """Without the copy at or after the change nobody can say what changed: unverified, and no factor is claimed."""
    events = cold(planted(LATER)).drop(COPY, since=4).events(FIGURES)
    _, change = of_figure(events)
    assert (change.kind, change.factor) == ("unverified", None)
    assert "not measured again" in change.reason


def test_the_old_method_measured_again_later_still_counts(planted: Make) -> None:
    """The copy measured one commit after the change is a control arm as well."""
    events = cold(planted(LATER)).drop(COPY, since=4, until=6).events(FIGURES)
    assert kinds(of_figure(events)) == ["upper bound", "correction"]


@pytest.mark.parametrize("stages", [[0, 1, 2, 3, 4, 5], [0, 2, 3], [0, 1, 0, 1, 2, 3, 4, 5, 2, 3, 4, 5]])
def test_copy_then_narrow_then_wide_kernel(planted: Make, stages: list[int]) -> None:
    """A copy, a narrow GEMV, then a wide one: upper bound, correction, improvement, with few points or many."""
    wide = len(stages) - (len([stage for stage in stages if stage > 1]) // 2)
    history = planted(stages).level(COPY, 55.5).level(READ, 24.0).level(READ, 51.4, since=wide)
    events = history.events(FIGURES)
    told = of_figure(events)
    assert kinds(told) == ["upper bound", "correction", "improvement"]
    assert [event.after for event in told] == [pytest.approx(v) for v in (55.5, 24.0, 51.4)]
    assert "regression" not in kinds(events)
    assert history.history(FIGURES).statements("cold", "laptop") == tuple(told)


def test_records_of_the_ledger_declare_a_method_as_well(planted: Make) -> None:
    """A figure without a list of methods takes them, and the reason, from the records that correct one another."""
    figures = """\
schema = 1
[figures.cold]
title = "Cold path"
unit = "GB/s"
params = { device = "cpu", mib = 64 }
[[figures.cold.records]]
id = 1
date = 2026-01-01
machine = "laptop"
value = 11.41
kind = "upper bound"
method = { benchmark = "copies.Bandwidth.track_copy", params = { kind = "copy" } }
[[figures.cold.records]]
id = 2
date = 2026-01-02
machine = "laptop"
value = 5.6
kind = "measured"
method = { benchmark = "reads.Bandwidth.track_read", params = { strategy = "in_place" } }
corrects = 1
reason = "The engine reads, it does not copy."
"""
    told = of_figure(cold(planted(LATER)).events(figures))
    assert kinds(told) == ["upper bound", "correction"]
    assert told[1].reason == "The engine reads, it does not copy."


def test_link_and_copy_halved_is_environment(planted: Make) -> None:
    """The link lost half its lanes, copy and reads half their rate: environment, with the fact before and after."""
    history = cold(planted([2, 3, 4, 5] * 2)).scale(COPY, 0.5, since=4).scale(READ, 0.5, since=4)
    events = history.fact("machine.Device.track_link_width", [16] * 4 + [8] * 4).events(FIGURES)
    assert {kind for kind in kinds(events) if kind != "measured"} == {"environment"}
    (event,) = [e for e in events if e.cell == "device=cpu, strategy=in_place, mib=64.0" and e.before is not None]
    assert [(fact.name, fact.before, fact.after) for fact in event.facts] == [
        ("machine.Device.track_link_width (device=cpu)", "16", "8")
    ]
    assert any(arm.moved and arm.benchmark == COPY for arm in event.controls)


def test_control_arm_that_moved_less_leaves_two_factors(planted: Make) -> None:
    """The copy lost a fifth, the reads two thirds: world and code, told apart as factors."""
    history = cold(planted([2, 3, 4, 5] * 2)).scale(COPY, 0.8, since=4).scale(READ, 0.33, since=4)
    events = [e for e in history.drop(NUMPY).events(FIGURES) if e.benchmark == READ and e.before is not None]
    assert set(kinds(events)) == {"confounded"}
    assert events[0].world_factor == pytest.approx(0.8, rel=0.01)
    assert events[0].method_factor == pytest.approx(0.33 / 0.8, rel=0.01)


def test_benchmark_may_declare_itself_a_control_arm(planted: Make) -> None:
    """An attribute `control`, which asv keeps in benchmarks.json, makes an arm of a benchmark of any name."""
    history = planted([2, 3, 4, 5] * 2).alone(READ, TIMED).scale(READ, 0.5, since=4).scale(TIMED, 2, since=4)
    assert {e.kind for e in history.events() if e.benchmark == READ} == {"regression"}
    assert {e.kind for e in history.define(TIMED, control=True).events() if "resident" in e.cell} == {"environment"}


def test_slower_control_arm_explains_lower_bandwidth(planted: Make) -> None:
    """A control arm in seconds that doubled says the same as one in GB/s that halved."""
    history = cold(planted([2, 3, 4, 5] * 2)).drop(COPY).scale(NUMPY, 2, since=4).scale(READ, 0.5, since=4)
    assert {e.kind for e in history.events() if e.benchmark == READ} == {"environment"}


def test_changed_driver_that_changed_nothing_else(planted: Make) -> None:
    """A driver changed where the code got slower and the control arms held: a regression, and the driver is named."""
    history = cold(planted([2, 3, 4, 5] * 2)).scale(READ, 0.5, since=4)
    events = history.fact("machine.Device.track_driver", [580.0] * 4 + [590.0] * 4).events()
    event = next(e for e in events if e.benchmark == READ)
    assert event.kind == "regression"
    assert "580 -> 590" in " ".join(event.notes)
    assert COPY in " ".join(event.notes)
    assert [e.name for e in events if e.kind == "environment"] == [
        f"machine.Device.track_driver (device={name})" for name in ("cpu", "cuda")
    ]


def test_changed_driver_without_a_control_arm(planted: Make) -> None:
    """No control arm on both sides of a boundary at which the driver changed: nobody can tell, so unverified."""
    driver = "machine.Device.track_driver"
    history = cold(planted([2, 3, 4, 5] * 2)).alone(READ, driver).scale(READ, 0.5, since=4)
    events = history.fact(driver, [580.0] * 4 + [590.0] * 4).events()
    assert {e.kind for e in events if e.benchmark == READ} == {"unverified"}


def test_facts_in_the_result_files_count(planted: Make) -> None:
    """asv's own machine facts, as each file has them, are facts too; a little less memory is not a change."""
    history = cold(planted([2, 3, 4, 5] * 2)).alone(READ).scale(READ, 0.5, since=4)
    for file in history.files[4:]:
        file["params"].update(cpu="another CPU", ram="8210000")
    for file in history.files[:4]:
        file["params"].update(ram="8220000")
    event = next(e for e in history.events() if e.benchmark == READ)
    assert [(fact.name, fact.after) for fact in event.facts] == [("cpu", "another CPU")]
    assert event.kind == "unverified"


@pytest.mark.parametrize(("memory", "changed"), [(8.4e9, False), (8.6e9, True)])
def test_a_little_less_memory_at_another_start_is_no_change(planted: Make, memory: float, changed: bool) -> None:
    """What an operating system keeps for itself differs from start to start; half of a module is another machine."""
    history = cold(planted([2, 3, 4, 5] * 2)).fact("machine.track_memory_bytes", [8.41e9] * 4 + [memory] * 4)
    found = [e for e in history.define("machine.track_memory_bytes", unit="bytes").events() if e.kind == "environment"]
    assert bool(found) is changed


def test_level_that_returns_is_undone(planted: Make) -> None:
    """A regression taken back: the return is no improvement, and the regression says by which commit it was undone."""
    history = planted([2, 3, 4, 5] * 3).alone(READ, COPY, NUMPY).scale(READ, 0.6, since=4, until=8)
    events = [e for e in history.events() if e.cell == "device=cpu, strategy=resident, mib=64.0"]
    assert kinds(events) == ["regression", "undone"]
    assert events[0].undone_by == events[1].commit == history.commits[8]
    assert events[1].undoes == events[0].commit == history.commits[4]


def test_half_way_back_is_an_improvement(planted: Make) -> None:
    """Only a return to the level before undoes a regression."""
    history = planted([2, 3, 4, 5] * 3).alone(READ).scale(READ, 0.4, since=4).scale(READ, 1.5, since=8)
    events = [e for e in history.events() if e.cell == "device=cpu, strategy=resident, mib=64.0"]
    assert kinds(events) == ["regression", "improvement"]


@pytest.mark.parametrize(
    ("unit", "declared", "after", "kind"),
    [
        ("MFLOPS", None, 80, "regression"),
        ("MFLOPS", None, 120, "improvement"),
        ("unit", None, 80, "change"),
        ("unit", None, 120, "change"),
        ("unit", True, 80, "regression"),
        ("unit", False, 80, "improvement"),
    ],
)
def test_direction(planted: Make, unit: str, declared: bool | None, after: float, kind: str) -> None:
    """asv #1617: more MFLOPS is better; a unit that says nothing gives no verdict; a declared direction counts."""
    history = planted([2, 3, 4, 5] * 3).alone(READ).level(READ, 100).level(READ, after, since=6)
    events = history.define(READ, unit=unit, higher_is_better=declared).events()
    assert set(kinds(events)) == {kind}
    assert all(("direction unknown" in event.reason) == (kind == "change") for event in events)


@pytest.mark.parametrize(("before", "after", "kind"), [(0.0, 3.0, "improvement"), (3.0, 0.0, "regression")])
def test_zero_has_no_ratio(planted: Make, before: float, after: float, kind: str) -> None:
    """From or to zero there is a direction and no factor; nothing is divided by zero."""
    history = planted([2, 3, 4, 5] * 3).alone(READ).level(READ, before).level(READ, after, since=6)
    events = history.events()
    assert set(kinds(events)) == {kind}
    assert events[0].factor is None
    json.dumps(rows(events), allow_nan=False)


def test_cosmetic_edit_changes_the_hash(planted: Make) -> None:
    """pylcm #366: five values of version A, two of B: all kept, one change of method, nothing compared across."""
    history = planted([2, 3, 4, 5, 2, 3, 4]).alone(TIMED).level(TIMED, 1.0).level(TIMED, 1.01, since=5)
    loaded = history.version(TIMED, "B", since=5).history()
    frame = loaded.frame()
    values = frame[frame["status"] == "ok"]
    assert len(values) == 7
    assert values["is_current_version"].tolist() == [False] * 5 + [True] * 2
    (event,) = loaded.events()
    assert (event.kind, event.factor, event.before, event.after) == ("unverified", None, 1.0, pytest.approx(1.01))


def test_whole_history_of_another_project(kedro: Path) -> None:
    """kedro: 149 series, and its 22 version changes inside series are changes of method, none of them a regression."""
    history = History(kedro)
    assert len(history.series) == 149
    events = history.events()
    changed = [event for event in events if event.version != event.version_before]
    assert Counter(kinds(changed)) == {"unverified": 22}
    # On 2026-08-04 the project went over to one call a sample, and what takes a microsecond seemed to take more.
    sampled = [event for event in events if "number changed from 4" in event.reason and "to 1 at" in event.reason]
    assert {event.commit[:7] for event in sampled} == {"0498150"}
    assert all("time_context_params_cached" in event.name for event in sampled)
    assert set(kinds(events)) <= set(KINDS)


def test_our_own_history_on_a_gpu() -> None:
    """The copy, the plain kernel, the wide one, each at its own commits: read so with no event written by hand."""
    history = History(Path(__file__).parents[2] / "results")
    told = history.statements("cold_path_read_bandwidth", "nvidia-h200")
    assert kinds(told)[:3] == ["upper bound", "correction", "improvement"]
    bound, correction, improvement = told[:3]
    assert correction.before == bound.after
    assert correction.controls[0].benchmark == COPY
    assert abs(correction.controls[0].ratio - 1) < 0.05
    assert improvement.commit.startswith("cd6c123")


SYNC = """\
schema = 1
[methods.no_sync]
benchmark = "reads.Seconds.time_read"
version = "A"
flaw = "The clock was stopped before the device was done."
[methods.device_sync]
benchmark = "reads.Seconds.time_read"
version = "B"
supersedes = "no_sync"
"""


def test_missing_sync_is_a_correction_on_record(planted: Make) -> None:
    """mlx-benchmark #21: 0.03 became 1.36 when the timing got a sync, which is on record: a correction, not slower."""
    history = planted([2, 3, 4, 5] * 2).version(TIMED, "A", since=0).level(TIMED, 0.03).level(TIMED, 1.36, since=4)
    (event,) = history.version(TIMED, "B", since=4).events(SYNC)
    assert (event.kind, event.factor) == ("correction", pytest.approx(1.36 / 0.03))
    assert event.reason == "The clock was stopped before the device was done."
    assert "not measured again" in " ".join(event.notes)


def test_missing_sync_while_the_machine_changed_too(planted: Make) -> None:
    """With a control arm that moved at the same boundary even a recorded flaw leaves two factors."""
    history = planted([2, 3, 4, 5] * 2).version(TIMED, "A", since=0).level(TIMED, 0.03).level(TIMED, 1.36, since=4)
    events = history.scale(NUMPY, 2, since=4).version(TIMED, "B", since=4).events(SYNC)
    (event,) = [event for event in events if event.benchmark == TIMED]
    assert (event.kind, event.world_factor) == ("confounded", pytest.approx(2, rel=0.01))


AGAIN = """\
schema = 1
[methods.old]
benchmark = "reads.Bandwidth.track_read"
version = "A"
again = { benchmark = "reads.Old.track_read" }
[methods.new]
benchmark = "reads.Bandwidth.track_read"
version = "B"
supersedes = "old"
reason = "It now reads cold."
"""


@pytest.mark.parametrize(("moved", "kind"), [(1.0, "correction"), (0.5, "confounded")])
def test_superseded_version_kept_under_its_own_name(planted: Make, moved: float, kind: str) -> None:
    """A version raised, the old method kept as a benchmark of its own: it is the control arm, cell by cell."""
    history = planted([2, 3, 4, 5] * 2).alone(READ, COPY).version(READ, "A", since=0)
    history.benchmarks["reads.Old.track_read"] = {**history.benchmarks[READ], "name": "reads.Old.track_read"}
    for file in history.files[4:]:
        file["results"]["reads.Old.track_read"] = json.loads(json.dumps(file["results"][READ]))
    history.scale("reads.Old.track_read", moved, since=4).scale(READ, 0.3, since=4).version(READ, "B", since=4)
    events = [event for event in history.events(AGAIN) if event.benchmark == READ]
    assert kinds(events) == [kind] * 2
    for event in events:
        assert event.factor == pytest.approx(0.3, rel=0.05)
        assert event.controls[0].benchmark == "reads.Old.track_read"
        assert event.controls[0].cell == event.cell
        assert event.controls[0].ratio == pytest.approx(moved, rel=0.05)


def test_step_beside_a_version_boundary_is_still_found(planted: Make) -> None:
    """A real regression two commits before the version changed is a regression; the boundary is its own event."""
    history = planted([2, 3, 4, 5] * 4).alone(READ).scale(READ, 0.5, since=8).version(READ, "B", since=12)
    events = [e for e in history.events() if e.cell == "device=cpu, strategy=resident, mib=64.0"]
    assert [(e.kind, e.commit) for e in events] == [
        ("regression", history.commits[8]),
        ("unverified", history.commits[12]),
    ]


def test_step_on_the_last_point_before_a_version_boundary(planted: Make) -> None:
    """One point on another level just before the version changed: reported, and said to be unconfirmed."""
    stages = [2 + i % 4 for i in range(21)]
    history = planted(stages, calm=0.005).alone(READ).scale(READ, 0.5, since=12).version(READ, "B", since=13)
    events = [e for e in history.events() if e.cell == "device=cpu, strategy=resident, mib=64.0"]
    assert [(e.kind, e.commit) for e in events] == [
        ("regression", history.commits[12]),
        ("unverified", history.commits[13]),
    ]
    assert any("unconfirmed" in note for note in events[0].notes)


def test_other_number_of_calls_where_the_level_changed(planted: Make) -> None:
    """number changed where the level did, and no level beside it contradicts that it is why: unverified, not slower."""
    history = planted([2, 3, 4, 5] * 3).alone(TIMED).scale(TIMED, 2, since=6)
    (event,) = history.put(TIMED, "stats_number", 7, since=6).events()
    assert event.kind == "unverified"
    assert event.factor == pytest.approx(2, rel=0.02)
    assert "number changed from 1 to 7" in event.reason


def test_other_number_of_calls_contradicted_by_the_levels(planted: Make) -> None:
    """The new number was in use before at the old level: it is said, and it is not the cause."""
    history = planted([2, 3, 4, 5] * 3).alone(TIMED).scale(TIMED, 2, since=6)
    history.put(TIMED, "stats_number", 7, since=0).put(TIMED, "stats_number", 1, since=3)
    (event,) = history.put(TIMED, "stats_number", 7, since=6).events()
    assert event.kind == "regression"
    assert "not the cause" in event.notes[0]


def test_other_number_of_repeats_is_said_only(planted: Make) -> None:
    """A slower function is repeated less: said, and never the cause."""
    history = planted([2, 3, 4, 5] * 3).alone(TIMED).scale(TIMED, 2, since=6)
    (event,) = history.put(TIMED, "stats_repeat", 5, since=6).events()
    assert event.kind == "regression"
    assert "repeat changed" in event.notes[0]
    assert "cause" not in event.notes[0]


def test_number_that_asv_chose_follows_the_level(planted: Make) -> None:
    """asv calls a slower function less often in a sample: a consequence, not a cause."""
    history = planted([2, 3, 4, 5] * 3).alone(TIMED).put(TIMED, "stats_number", 10, since=0).scale(TIMED, 10, since=6)
    (event,) = history.put(TIMED, "stats_number", 1, since=6).events()
    assert event.kind == "regression"
    assert "follows the level" in event.notes[0]


def test_verdict_belongs_to_a_machine(tmp_path: Path, plant: Make) -> None:
    """The same commit faster on one machine and slower on another: one of each, each by its own control arms."""
    for machine, factor in (("one", 0.39), ("other", 1.35)):
        plant(tmp_path, [2, 3, 4, 5] * 2, 0.02, machine).scale(READ, factor, since=4).write()
    found = {(e.machine, e.kind) for e in History(tmp_path / "results").events()}
    assert found == {("one", "regression"), ("other", "improvement")}


def test_interrupted_run_and_cut_file_lose_nothing_else(planted: Make) -> None:
    """renaissance #119: a run killed half way, a file cut at byte 700: the rest is judged as before, the cut named."""
    history = cold(planted(LATER)).drop(NUMPY, since=5, until=6)
    results = history.write(FIGURES)
    cut = results / "laptop" / f"{history.commits[6][:8]}-{history.files[6]['env_name']}.json"
    cut.write_bytes(cut.read_bytes()[:700])
    loaded = History(results)
    assert kinds(of_figure(loaded.events())) == ["upper bound", "correction"]
    said = [one.file for one in loaded.skipped] + [note.file for note in loaded.stored.notes]
    assert str(cut) in said
    files = loaded.stored.files
    assert files.loc[files["commit"] == history.commits[5], "partial"].tolist() == [True]


def test_nothing_measured_has_no_events(planted: Make) -> None:
    """pybroker #287: results that hold no value give no event, neither a regression nor a pass."""
    history = planted([2, 3, 4, 5])
    for file in history.files:
        file["results"] = {}
    loaded = history.history()
    assert loaded.events() == ()
    assert loaded.series == ()


def test_filters_choose_what_is_shown_not_the_evidence(planted: Make) -> None:
    """Only the chosen benchmark is shown, judged with control arms outside the filter; no match names near ones."""
    history = cold(planted([2, 3, 4, 5] * 2)).scale(COPY, 0.5, since=4).scale(READ, 0.5, since=4).history()
    shown = history.events(benchmark=r"track_read.*in_place")
    assert kinds(shown) == ["environment"]
    assert shown[0].controls
    with pytest.raises(BadInput, match=r"reads\.Bandwidth\.track_read"):
        history.events(benchmark="track_raed")
    with pytest.raises(BadInput, match="laptop"):
        history.events(machine="labtop")


def test_rows_are_plain_json(planted: Make) -> None:
    """Every event with all its evidence is plain JSON data without NaN."""
    events = cold(planted(LATER)).scale(COPY, 0.5, since=4).events(FIGURES)
    text = json.dumps(rows(events), allow_nan=False)
    assert json.loads(text)[0]["figures"] == ["cold"]
    assert json.loads(text)[-1]["points_before"][0]["value"] > 0


LEVELS = st.lists(st.tuples(st.sampled_from([1.0, 0.3, 3.0]), st.booleans(), st.integers(4, 5)), min_size=1, max_size=4)


@given(LEVELS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
def test_random_levels_and_versions(
    tmp_path_factory: pytest.TempPathFactory, plant: Make, plan: list[tuple[float, bool, int]]
) -> None:
    """Levels and versions at random: each version boundary is one change of method and never a verdict, each step
    within a version one verdict by direction; and nothing else is reported."""
    stages = [2 + i % 4 for _, _, count in plan for i in range(count)]
    history = plant(tmp_path_factory.mktemp("random"), stages, 0.02).alone(TIMED)
    expected: list[tuple[str, str]] = []
    start, version, before = 0, 0, None
    for factor, bump, count in plan:
        history.scale(TIMED, factor, since=start, until=start + count)
        version += bump
        history.version(TIMED, f"v{version}", since=start)
        commit = history.commits[start]
        if before is not None and bump:
            expected.append((commit, "method"))
        elif before is not None and before != factor:
            expected.append((commit, "slower" if factor > before else "faster"))
        before = factor
        start += count
    told = {
        "unverified": {"method"}, "regression": {"slower"}, "improvement": {"faster"}, "undone": {"slower", "faster"},
    }  # fmt: skip
    events = history.events()
    assert [event.commit for event in events] == [commit for commit, _ in expected]
    for event, (_, what) in zip(events, expected, strict=True):
        assert what in told[event.kind]


def test_events_of_one_benchmark_are_those_of_the_whole_history(kedro: Path) -> None:
    """A filter only spares the work of judging what it leaves out: every event is told as in the whole history."""
    whole = History(kedro)
    everything = whole.events()
    for benchmark in sorted({event.benchmark for event in everything})[:3]:
        alone = History(kedro).events(f"{re.escape(benchmark)}$")
        assert alone
        assert rows(alone) == rows(event for event in everything if event.benchmark == benchmark)
