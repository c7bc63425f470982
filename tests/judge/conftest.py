"""Histories with planted causes, made from files that asv wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid_kernels.judge.events import Event, History

REAL = Path(__file__).parents[1] / "data/histories/results"


class Planted:
    """A copy of the real history, a file a commit, whose values the test scales to plant a change of known cause.

    `stages` picks which real file each commit is made from (its first two hold the copy only). `calm` shrinks the noise
    of every series about its median: the machine that measured was busy.
    """

    def __init__(self, folder: Path, stages: list[int], calm: float, machine: str = "laptop") -> None:
        self.results = folder / "results"
        self.machine = machine
        real = sorted((REAL / "laptop").glob("*-*.json"), key=lambda file: json.loads(file.read_text())["date"])
        self.benchmarks: dict[str, Any] = json.loads((REAL / "benchmarks.json").read_text())
        facts = json.loads((REAL / "laptop/machine.json").read_text())
        self.facts = {**facts, "machine": machine}
        self.files = [json.loads(real[stage].read_text()) for stage in stages]
        for index, file in enumerate(self.files):
            file["commit_hash"] = hashlib.sha1(f"{index}".encode()).hexdigest()
            file["date"] = 1_700_000_000_000 + index * 86_400_000
            file["params"]["machine"] = machine
        self.commits = [file["commit_hash"] for file in self.files]
        medians: dict[tuple[str, int], float] = {}
        for name in {name for file in self.files for name in file["results"]}:
            values = [file["results"][name][0] for file in self.files if name in file["results"]]
            for cell in range(max(len(column or []) for column in values)):
                known = sorted(
                    column[cell]
                    for column in values
                    if column and cell < len(column) and isinstance(column[cell], int | float)
                )
                if known:
                    medians[name, cell] = known[len(known) // 2]
        self.map(lambda name, cell, value, _: value * (medians[name, cell] / value) ** (1 - calm) if value else value)

    def map(self, change: Callable[[str, int, float, int], float]) -> None:
        """Put `change(benchmark, cell index, value, commit index)` in the place of every value, intervals along."""
        for index, file in enumerate(self.files):
            columns = file["result_columns"]
            for name, row in file["results"].items():
                for cell, value in enumerate(row[0] or []):
                    if not isinstance(value, int | float) or value != value:
                        continue
                    new = change(name, cell, value, index)
                    for column in ("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75"):
                        at = columns.index(column)
                        if at < len(row) and row[at] and cell < len(row[at]) and isinstance(row[at][cell], int | float):
                            row[at][cell] = new + (row[at][cell] - value) * (new / value) * 0.1 if value else new
                    row[0][cell] = new

    def scale(self, benchmark: str, factor: float, since: int, until: int | None = None) -> Planted:
        """Multiply the values of `benchmark` at commits since..until (the end)."""
        end = len(self.files) if until is None else until
        self.map(lambda name, _, value, index: value * factor if name == benchmark and since <= index < end else value)
        return self

    def level(self, benchmark: str, value: float, since: int = 0) -> Planted:
        """Give every value of `benchmark` from commit `since` on this value."""
        self.map(lambda name, _, old, index: value if name == benchmark and index >= since else old)
        return self

    def version(self, benchmark: str, version: str, since: int) -> Planted:
        """Raise the version of `benchmark` from commit `since` on, as benchmarks.json then has it."""
        for file in self.files[since:]:
            if benchmark in file["results"]:
                at = file["result_columns"].index("version")
                file["results"][benchmark][at] = version
        self.benchmarks[benchmark]["version"] = version
        return self

    def put(self, benchmark: str, column: str, value: Any, since: int) -> Planted:
        """Set one column (`stats_number`, ...) of every cell of `benchmark` from commit `since` on."""
        for file in self.files[since:]:
            row = file["results"].get(benchmark)
            at = file["result_columns"].index(column)
            if row is not None and at < len(row):
                row[at] = [value for _ in row[0]]
        return self

    def drop(self, benchmark: str, since: int = 0, until: int | None = None) -> Planted:
        """Leave `benchmark` out of the files of commits since..until (the end)."""
        for file in self.files[since:until]:
            file["results"].pop(benchmark, None)
        return self

    def fact(self, benchmark: str, values: list[float]) -> Planted:
        """Let a series of machine.py hold these values on every device, one a commit."""
        for file, value in zip(self.files, values, strict=True):
            row = file["results"][benchmark]
            row[0] = [value for _ in row[0] or [None]]
        return self

    def alone(self, *benchmarks: str) -> Planted:
        """Keep these benchmarks only."""
        for name in {name for file in self.files for name in file["results"]} - set(benchmarks):
            self.drop(name)
        return self

    def define(self, benchmark: str, **entry: Any) -> Planted:
        """Change the benchmark's entry in benchmarks.json; a value of None takes the key away."""
        known = self.benchmarks[benchmark]
        known.update(entry)
        for key in [key for key, value in entry.items() if value is None]:
            del known[key]
        return self

    def write(self, figures: str | None = None) -> Path:
        """Write the history, and figures.toml beside it; returns the results folder."""
        folder = self.results / self.machine
        folder.mkdir(parents=True, exist_ok=True)
        (self.results / "benchmarks.json").write_text(json.dumps(self.benchmarks))
        (folder / "machine.json").write_text(json.dumps(self.facts))
        for file in self.files:
            name = f"{file['commit_hash'][:8]}-{file['env_name']}.json"
            (folder / name).write_text(json.dumps(file))
        if figures is not None:
            (self.results.parent / "figures.toml").write_text(figures)
        return self.results

    def history(self, figures: str | None = None) -> History:
        """The history as judged."""
        return History(self.write(figures))

    def events(self, figures: str | None = None) -> tuple[Event, ...]:
        """Its events."""
        return self.history(figures).events()


@pytest.fixture
def plant() -> Callable[..., Planted]:
    """Makes a history in a folder of the test's choice: `plant(folder, stages, calm, machine)`."""
    return Planted


@pytest.fixture
def planted(tmp_path: Path) -> Callable[..., Planted]:
    """Makes a history to plant changes in: by default the six real commits, calmed."""

    def make(stages: list[int] | None = None, calm: float = 0.02, machine: str = "laptop") -> Planted:
        return Planted(tmp_path, [0, 1, 2, 3, 4, 5] if stages is None else stages, calm, machine)

    return make
