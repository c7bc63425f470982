"""Histories for the tests of `history`, written as asv would write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


class Results:
    """A results folder being written, with asv's schema 2 unless a test says otherwise."""

    def __init__(self, root: Path, machine: str = "box") -> None:
        self.root = root
        self.machine = machine
        self.definitions: dict[str, Any] = {}
        (root / machine).mkdir(parents=True)
        self.write(f"{machine}/machine.json", {"machine": machine, "cpu": "some cpu", "version": 1})

    def write(self, name: str, content: Any) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def define(self, name: str, version: str = "1", **more: Any) -> None:
        entry = {"name": name, "type": "time", "unit": "seconds", "version": version, "params": [], "param_names": []}
        self.definitions[name] = {**entry, **more}
        self.write("benchmarks.json", {**self.definitions, "version": 2})

    def commit(self, number: int, results: dict[str, Any], env: str = "py3.11", **more: Any) -> Path:
        """The file of commit `number` (also its day); a result is asv's row or an unparametrized value."""
        commit = f"{number:08x}" + "0" * 32
        content = {
            "commit_hash": commit,
            "env_name": env,
            "date": 1_700_000_000_000 + 86_400_000 * number,
            "params": {"machine": self.machine, "python": "3.11"},
            "python": "3.11",
            "requirements": {},
            "env_vars": {},
            "result_columns": COLUMNS,
            "results": {
                name: value if isinstance(value, list) or value is None else [[value], [], "1"]
                for name, value in results.items()
            },
            "durations": {},
            "version": 2,
            **more,
        }
        return self.write(f"{self.machine}/{commit[:8]}-{env}.json", content)


COLUMNS = [
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
]  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")
