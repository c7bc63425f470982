"""The whole way from alternating processes to a verdict, on machines that change while they measure."""

import numpy as np
import pytest

from hybrid_kernels.history import importers
from hybrid_kernels.judge import verdict
from hybrid_kernels.measure import rounds
from hybrid_kernels.records import Sampled

CELLS = ("a.time_x", "a.time_y", "a.time_z", "controls.time_copy")


class Machine:
    """Answers at once with what a machine under `conditions` takes; the head of a.time_x is `slower` by a share."""

    def __init__(self, conditions, seed, slower=0.0):
        self.cells = [rounds.Cell(name, None, "", ("base", "head")) for name in CELLS]
        self.plan = {"base": "aaa", "head": "bbb"}
        self.conditions, self.slower, self.done = conditions, slower, 0
        self.rng = np.random.default_rng(seed)

    def measure(self, side, cell, round_number):
        seconds = 1e-3 * np.exp(self.rng.normal(0, 0.03)) * self.conditions(self.done, self.rng)
        if side == "head" and cell.benchmark == "a.time_x":
            seconds *= 1 + self.slower
        self.done += 1
        samples = tuple(seconds * np.exp(self.rng.normal(0, 0.01, 3)))
        return Sampled(
            side, round_number, cell.benchmark, "", samples, "seconds", -1, "1", control=cell.benchmark == CELLS[-1]
        )


def falling(done, rng):
    """A clock that loses a third over the 256 processes of 32 rounds."""
    return 1 / (1 - 0.33 * done / 256)


def stepping(done, rng):
    """A clock limit that sets in at once, in the middle of a round."""
    return 1.0 if done < 53 else 1.4


def neighbour(done, rng):
    """A second process that comes for five processes and goes for seven."""
    return 1.5 if done % 12 < 5 else 1.0


def bursts(done, rng):
    """Now and then something takes the core for most of a process."""
    return 1 + 3 * (rng.random() < 0.05)


def judged(machine, folder):
    kept = rounds.measure(machine, folder, stop=verdict.Settled())
    return verdict.judge(importers.frame(kept.samples), looks=verdict.LOOKS)


@pytest.mark.parametrize("conditions", [falling, stepping, neighbour, bursts])
def test_a_machine_that_changes_gives_no_false_verdict(conditions, tmp_path):
    """Equal code on a drifting machine: two comparisons of three rows, none slower or faster."""
    words = [row.verdict for seed in range(2) for row in judged(Machine(conditions, seed), tmp_path / str(seed)).rows]

    assert len(words) == 6
    assert not {"slower", "faster"} & set(words)


def test_ten_percent_is_found_within_auto(tmp_path):
    """On a machine with 3 % of noise a process, a slowdown of 10 % is found, and nothing beside it is called."""
    for seed in range(4):
        rows = judged(Machine(lambda done, rng: 1.0, seed, slower=0.10), tmp_path / str(seed)).rows

        assert rows[0].verdict == "slower"
        assert rows[0].ci_low < 0.10 < rows[0].ci_high
        assert [row.verdict for row in rows[1:] if row.verdict in ("slower", "faster")] == []
