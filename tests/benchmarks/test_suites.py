"""asv finds the suites, every benchmark names its method, and preparation is done once a process."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from asv_runner.discovery import disc_benchmarks

SUITES = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def found():
    return list(disc_benchmarks(str(SUITES)))


def test_asv_finds_every_suite_and_nothing_else(found) -> None:
    """A class that a suite merely imports, with a method called time_something, would be taken for a benchmark."""
    names = {benchmark.name.split(".")[0] for benchmark in found}
    assert {"reads", "copies", "walks", "graphs", "machine", "controls", "accesses"} <= names
    assert not {"peers", "peers_cuda", "common", "history_load", "detector"} & names


def test_every_version_is_set_by_hand(found) -> None:
    """A version that is a hash of the source loses the history with the next edit."""
    assert [benchmark.name for benchmark in found if len(benchmark.version) == 64] == []


def test_bandwidths_say_that_higher_is_better(found) -> None:
    """asv takes every track benchmark for one where less is better, unless it is told."""
    wrong = [b.name for b in found if b.unit == "GB/s" and getattr(b, "higher_is_better", None) is not True]
    assert wrong == []


def test_preparation_is_done_once_for_all_samples() -> None:
    """asv calls setup before every sample; the weights stay placed and the clock goes on."""
    common = importlib.import_module("benchmarks.common")
    done: list[int] = []

    class Suite(common.Prepared):
        def prepare(self, number: int) -> None:
            done.append(number)

    suite = Suite()
    suite.setup(3)
    suite.setup(3)
    assert done == [3]


def test_what_cannot_be_prepared_gives_back_what_it_took() -> None:
    """A skip half way closes the device that was opened before it."""
    common = importlib.import_module("benchmarks.common")
    closed: list[str] = []

    class Thing:
        def close(self) -> None:
            closed.append("device")

    class Suite(common.Prepared):
        def prepare(self) -> None:
            self.device = Thing()
            raise NotImplementedError("absent")

    with pytest.raises(NotImplementedError):
        Suite().setup()
    assert closed == ["device"]
