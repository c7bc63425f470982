"""What the commits that events name are about: the first line of each message, asked of git once for all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec


def subjects(repo: Any, commits: Sequence[str]) -> bytes:
    """The data script `commits` for our pages: subjects by full hash. Empty where `repo`, as asv has it, is no git.

    One process whatever the number of commits; a commit that the repository lacks is left out.
    """
    found: dict[str, str] = {}
    path = getattr(repo, "_path", None)
    if commits and path is not None:
        command = ["git", "-C", str(path), "log", "--no-walk=unsorted", "--ignore-missing", "--stdin", "--format=%H %s"]
        try:
            done = subprocess.run(
                command, input="\n".join(commits).encode(), capture_output=True, check=False, timeout=60
            )
            lines = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired):
            lines = []
        for line in lines:
            commit, _, subject = line.partition(" ")
            found[commit] = subject
    return b'"use strict";\ndashboard.receive("commits", ' + msgspec.json.encode(found) + b");\n"
