"""What comparisons of equal code showed on a machine: how far each benchmark moves when nothing changed.

One line of JSON a comparison in `<results>/<machine>/calibrations.jsonl`, beside asv's own files. asv reads every
`.json` there and warns of those it does not know; other endings it leaves alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput

NAME = "calibrations.jsonl"
SCHEMA = 1

Differences = Mapping[tuple[str, str | None], Sequence[float]]
"""Per (row name, version) of a benchmark cell: log(head / base) of every round."""


def load(results: Path, machine: str, environment: str | None = None) -> dict[tuple[str, str | None], list[float]]:
    """All rounds of equal code on `machine`, oldest first; of one asv environment only, if it is named.

    Empty when there is no calibration. BadInput names the line that cannot be read.
    """
    path = results / machine / NAME
    found: dict[tuple[str, str | None], list[float]] = {}
    if not path.exists():
        return found
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            stored = json.loads(line)
            if environment is not None and stored["environment"] != environment:
                continue
            for row in stored["rows"]:
                found.setdefault((row["name"], row["version"]), []).extend(map(float, row["rounds"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path}, line {number}: is not a calibration ({error!r}); remove that line, the others stay good"
            ) from error
    return found


def append(
    results: Path,
    machine: str,
    differences: Differences,
    *,
    environment: str,
    commits: Sequence[str],
    date: str,
    why: str,
) -> Path:
    """Add one comparison of equal code. `commits` are its two sides, `date` is ISO 8601, `why` it counts as equal.

    The file is written whole beside the old one and renamed; returns its path.
    """
    folder = results / machine
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    rows = [
        {"name": name, "version": version, "rounds": list(values)} for (name, version), values in differences.items()
    ]
    stored = {
        "schema": SCHEMA,
        "date": date,
        "environment": environment,
        "commits": list(commits),
        "why": why,
        "rows": rows,
    }
    line = json.dumps(stored, allow_nan=False)
    with files.locked(path):
        before = path.read_bytes() if path.exists() else b""
        if before and not before.endswith(b"\n"):
            before += b"\n"
        files.replace(path, before + line.encode() + b"\n")
    return path
