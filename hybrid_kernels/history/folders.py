"""Where result files lie: finding and reading them. The only part of `history` that touches a results folder.

asv keeps `benchmarks.json` in the root and one folder a machine below it, each with a `machine.json` and one file for
every commit and environment. Real histories also have several roots in one repository, folders without `machine.json`,
and unrelated JSON beside them, so a folder counts when it holds `machine.json`, and a file elsewhere only when its name
looks like a result's.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybrid_kernels.errors import BadInput

RESULT_NAME = re.compile(r"(?:^|_)[0-9a-f]{6,40}-.*\.json$")  # <hash>-<env>.json, also <time>_<hash>-<env>.json
NOT_RESULTS = frozenset({"benchmarks.json", "machine.json"})
NOT_FOLDERS = frozenset({".git", "node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as it lies on disk now. `stamp` changes whenever the file is replaced or written to."""

    path: str  # as given: root and name below it
    stamp: tuple[int, int, int]  # size in bytes, modification time in ns, inode


@dataclass(slots=True)
class Listing:
    """What one results root holds. Paths in `results` are sorted, so that reading is repeatable."""

    root: str
    results: list[Entry] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)  # paths of machine.json files
    definitions: list[str] = field(default_factory=list)  # paths of benchmarks.json files


def roots(results: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """The results folders that `results` names, each checked to be one. BadInput names the folder that is not."""
    given = [results] if isinstance(results, str | os.PathLike) else list(results)
    if not given:
        raise BadInput("results: no folder given; name the results folder of an asv project")
    for root in given:
        if not Path(root).is_dir():
            what = "is a file" if Path(root).exists() else "does not exist"
            raise BadInput(f"results: {os.fspath(root)} {what}; name the results folder of an asv project")
    return [os.fspath(root) for root in given]


def listing(root: str) -> Listing:
    """Every result file, machine description and benchmark definition below `root`."""
    found = Listing(root)
    for folder, names, entries in _walk(root):
        machine = "machine.json" in names
        if machine:
            found.machines.append(os.path.join(folder, "machine.json"))
        if "benchmarks.json" in names:
            found.definitions.append(os.path.join(folder, "benchmarks.json"))
        for entry in entries:
            if entry.name not in NOT_RESULTS and (machine or RESULT_NAME.search(entry.name)):
                with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                    status = entry.stat()
                    found.results.append(Entry(entry.path, (status.st_size, status.st_mtime_ns, status.st_ino)))
    found.results.sort(key=lambda entry: entry.path)
    found.machines.sort()
    found.definitions.sort()
    return found


def _walk(root: str) -> Iterator[tuple[str, set[str], list[os.DirEntry[str]]]]:
    """(folder, names of its JSON files, those files) for `root` and every folder below it."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        files: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        files.append(entry)
                    elif entry.name not in NOT_FOLDERS and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if folder == root:
                raise BadInput(f"results: {folder} cannot be read: {error.strerror}; check its permissions") from error
            continue
        yield folder, {entry.name for entry in files}, files


def read(path: str) -> bytes:
    """The bytes of one file. OSError as the system gives it."""
    with open(path, "rb", buffering=0) as file:
        return file.read()
