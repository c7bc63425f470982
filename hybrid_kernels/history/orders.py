"""The order of commits: along the commit graph when a repository is at hand, else by the dates in the files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hybrid_kernels.history import remote


def repository_of(folder: str) -> Path | None:
    """The git work tree that `folder` stands in, None when it stands in none, as an address does."""
    if remote.is_address(folder):
        return None
    for parent in (Path(folder).resolve(), *Path(folder).resolve().parents):
        if (parent / ".git").exists():
            return parent
    return None


def by_date(dates: Mapping[str, float | None]) -> dict[str, int]:
    """Rank of each commit by its date (ms since 1970), unknown dates last, equal dates by name."""

    def key(commit: str) -> tuple[float, str]:
        date = dates[commit]
        return (float("inf") if date is None else date, commit)

    return {commit: rank for rank, commit in enumerate(sorted(dates, key=key))}


def by_graph(dates: Mapping[str, float | None], repository: Path) -> dict[str, int] | None:
    """Rank of each commit with parents before children; a commit that the repository lacks goes by its date.

    `dates` may name commits by a prefix of their hash. None when git is not there or knows none of them.
    """
    graph = _graph(repository)
    if not graph:
        return None
    position = _positions(dates, graph)
    if not position:
        return None
    # Between commits of the graph, one outside it stands after the last that is not younger than it.
    known = sorted(position, key=position.__getitem__)
    keys: dict[str, tuple[float, float, str]] = {commit: (position[commit], 0.0, commit) for commit in known}
    dated = sorted((date, position[commit]) for commit in known if (date := dates[commit]) is not None)
    for commit in dates.keys() - position.keys():
        date = dates[commit]
        if date is None:
            keys[commit] = (float("inf"), 0.0, commit)
        else:
            before = [place for other, place in dated if other <= date]
            keys[commit] = (max(before) if before else -1.0, date, commit)
    return {commit: rank for rank, commit in enumerate(sorted(keys, key=keys.__getitem__))}


def _graph(repository: Path) -> list[str]:
    command = ["git", "-C", os.fspath(repository), "rev-list", "--all", "--date-order", "--reverse"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("ascii", "replace").split() if done.returncode == 0 else []


def _positions(commits: Mapping[str, float | None], graph: list[str]) -> dict[str, float]:
    place = {commit: float(at) for at, commit in enumerate(graph)}
    found = {commit: place[commit] for commit in commits if commit in place}
    short = [commit for commit in commits if commit not in place and len(commit) < 40]
    for commit in short:
        matches = [full for full in graph if full.startswith(commit)]
        if len(matches) == 1:
            found[commit] = place[matches[0]]
    return found
