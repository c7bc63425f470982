"""Which way is better."""

from __future__ import annotations

import pytest

from hybrid_kernels.history import directions, store


@pytest.mark.parametrize("unit", ["seconds", "s", "ms", "µs", "μs", "bytes", "KB", "MiB", "runtime (s)", "time [ms]",
                                  "ms/step", "s / iteration", "slowdown"])  # fmt: skip
def test_lower(unit):
    """Times, memory, and times or memory for each of something: less is better."""
    assert directions.of_unit(unit) == -1


@pytest.mark.parametrize("unit", ["GB/s", "MB / s", "bytes/second", "MFLOPS", "gflopss", "GFLOP/s", "tok/s",
                                  "tokens per second", "particles / second", "it/s", "frames/sec", "fps", "speedup",
                                  "bandwidth (GB/s)"])  # fmt: skip
def test_higher(unit):
    """Rates, and words that say it: more is better."""
    assert directions.of_unit(unit) == 1


@pytest.mark.parametrize("unit", ["", "unit", "%", "ratio", "count", "x", "s/s", "GHz", "iterations",
                                  "points", "percent", "per", "()", "temperature"])  # fmt: skip
def test_unknown(unit):
    """Nothing is guessed from a unit that says nothing."""
    assert directions.of_unit(unit) == 0


def test_declared_beats_all(results):
    """`higher_is_better` decides, then the type, then the unit; anything but true or false declares nothing."""
    results.define("s.track_a", type="track", unit="unit", higher_is_better=True)
    results.define("s.track_b", type="track", unit="GB/s", higher_is_better=False)
    results.define("s.track_c", type="track", unit="GB/s", higher_is_better="yes")
    results.define("s.time_d", type="time", unit="tok/s")
    results.define("s.track_e", type="track", unit="unit")
    results.commit(1, dict.fromkeys(results.definitions, 1.0))

    frame = store.load(results.root).frame

    assert dict(zip(frame["benchmark"], frame["direction"], strict=True)) == {
        "s.track_a": 1, "s.track_b": -1, "s.track_c": 1, "s.time_d": -1, "s.track_e": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("suite.Class.time_a", "time"),
        ("suite.timeraw_a", "time"),
        ("suite.mem_a", "memory"),
        ("suite.peakmem_a", "peakmemory"),
        ("suite.track_a", "track"),
        ("suite.time_helpers.other", ""),
    ],
)
def test_type_of_name(name, kind):
    """The type of a benchmark that is gone follows from its name, as asv has it."""
    assert directions.type_of(name)[0] == kind


def test_the_placeholder_unit_names_no_quantity():
    """asv writes "unit" for a benchmark that declares none; a sentence about it speaks of "it"."""
    assert [directions.quantity(unit) for unit in ("unit", "", "tok")] == ["of it", "of it", "tok"]
