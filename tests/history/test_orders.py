"""The order of commits."""

from __future__ import annotations

import os
import subprocess

from hybrid_kernels.history import orders, store

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder, *arguments, day: int = 1) -> str:
    """What git says; commits are made on a day of January 2026."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"2026-01-{day:02}T00:00:00Z")
    environment = {**os.environ, **IDENTITY, **dates, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-C", folder, *arguments], env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def commit(folder, day: int) -> str:
    """A new empty commit."""
    git(folder, "commit", "-q", "--allow-empty", "-m", f"day {day}", day=day)
    return git(folder, "rev-parse", "HEAD")


def milliseconds(day: int) -> float:
    """Of a day of January 2026, since 1970."""
    return 1_767_225_600_000.0 + 86_400_000.0 * (day - 1)


def test_by_date():
    """Without a repository commits go by date, unknown dates last."""
    assert orders.by_date({"c": 3.0, "a": None, "b": 1.0}) == {"b": 0, "c": 1, "a": 2}


def test_graph_beats_dates(tmp_path):
    """A parent comes before its child even where clocks say otherwise; a commit the graph lacks goes by its date."""
    git(tmp_path, "init", "-q")
    first, second, third = commit(tmp_path, 5), commit(tmp_path, 3), commit(tmp_path, 8)
    dates = {third: milliseconds(8), second: milliseconds(3), first: milliseconds(5), "f" * 40: milliseconds(6)}

    rank = orders.by_graph(dates, tmp_path)

    assert sorted(rank, key=rank.__getitem__) == [first, second, "f" * 40, third]


def test_short_hashes(tmp_path):
    """Commits named by a prefix of their hash are found."""
    git(tmp_path, "init", "-q")
    first, second = commit(tmp_path, 5), commit(tmp_path, 3)

    assert orders.by_graph({second[:8]: None, first[:8]: None}, tmp_path) == {first[:8]: 0, second[:8]: 1}


def test_repository_that_knows_nothing(tmp_path):
    """A repository without any of the commits (results kept in one of their own) gives no order."""
    git(tmp_path, "init", "-q")
    commit(tmp_path, 5)

    assert orders.by_graph({"f" * 40: 1.0}, tmp_path) is None
    assert orders.by_graph({"f" * 40: 1.0}, tmp_path / "none") is None


def test_history_in_its_repository(tmp_path, results):
    """A history that lies in the repository of its commits comes in the order of the graph."""
    git(tmp_path, "init", "-q")
    first, second = commit(tmp_path, 5), commit(tmp_path, 3)
    for name, day in ((second, 3), (first, 5)):
        results.commit(day, {"suite.time_a": float(day)}, commit_hash=name, date=milliseconds(day))

    frame = store.load(results.root).frame

    assert frame["value"].tolist() == [5.0, 3.0]
    assert frame["order"].tolist() == [0, 1]
