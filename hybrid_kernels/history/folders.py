"""Where result files lie: finding and reading them. The only part of `history` that touches a results folder.

A root is a folder, or an address that fsspec knows (`remote`); what comes out of here looks the same for both.

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
from hybrid_kernels.history import remote

RESULT_NAME = re.compile(r"(?:^|_)[0-9a-f]{6,40}-.*\.json$")  # <hash>-<env>.json, also <time>_<hash>-<env>.json
NOT_RESULTS = frozenset({"benchmarks.json", "machine.json"})
NOT_FOLDERS = frozenset({".git", "node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as it lies there now. `stamp` changes whenever the file is replaced or written to."""

    path: str  # as given: root and name below it
    stamp: tuple[int, int, int]  # size in bytes; modification time in ns and inode, or a digest of what marks a change


@dataclass(slots=True)
class Listing:
    """What one results root holds. Paths in `results` are sorted, so that reading is repeatable."""

    root: str
    results: list[Entry] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)  # paths of machine.json files
    definitions: list[str] = field(default_factory=list)  # paths of benchmarks.json files
    nameless: list[str] = field(default_factory=list)  # JSON files whose path is no text, with escapes in its place


def roots(results: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """The results folders and addresses that `results` names. BadInput names the one that is no folder."""
    given = [results] if isinstance(results, str | os.PathLike) else list(results)
    if not given:
        raise BadInput("results: no folder given; name the results folder of an asv project")
    found = [place(root) for root in given]
    for root in found:
        if not remote.is_address(root) and not Path(root).is_dir():
            what = "is a file" if Path(root).exists() else "does not exist"
            raise BadInput(f"results: {root} {what}; name the results folder of an asv project")
    return found


def place(root: str | os.PathLike[str]) -> str:
    """`root` as it is used here: a path, also where it is written `file://...`, or an address without a last slash."""
    text = os.fspath(root)
    if text.startswith("file://"):
        return text.removeprefix("file://") or "/"
    return text.rstrip("/") if remote.is_address(text) and not text.endswith("://") else text


def identity(root: str) -> str:
    """What tells one root from another however it is written: an address, or the path without links."""
    return root if remote.is_address(root) else os.path.realpath(root)


def beside(root: str | os.PathLike[str]) -> Path:
    """The folder that a root stands in; the current one where the root is an address."""
    root = place(root)
    return Path.cwd() if remote.is_address(root) else Path(root).resolve().parent


def is_there(root: str | os.PathLike[str]) -> bool:
    """Whether a root can be read: that it is a folder; of an address only reading it tells."""
    root = place(root)
    return remote.is_address(root) or Path(root).is_dir()


def folder(root: str | os.PathLike[str]) -> Path:
    """`root` when it is a folder of this machine, else a copy of it in the user's cache, brought up to date."""
    root = roots(root)[0]
    return remote.mirror(root) if remote.is_address(root) else Path(root)


def listing(root: str) -> Listing:
    """Every result file, machine description and benchmark definition below `root`."""
    found = Listing(root)
    for folder, names, entries in _remote_walk(root) if remote.is_address(root) else _walk(root):
        bad = {name for name in names if _shown(name) != name} if _shown(folder) == folder else names
        found.nameless += sorted(_shown(os.path.join(folder, name)) for name in bad)
        names = names - bad
        machine = "machine.json" in names
        if machine:
            found.machines.append(os.path.join(folder, "machine.json"))
        if "benchmarks.json" in names:
            found.definitions.append(os.path.join(folder, "benchmarks.json"))
        for entry in entries:
            if entry.name in names and entry.name not in NOT_RESULTS and (machine or RESULT_NAME.search(entry.name)):
                with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                    found.results.append(Entry(entry.path, _stamp(entry)))
    found.results.sort(key=lambda entry: entry.path)
    found.machines.sort()
    found.definitions.sort()
    return found


def _shown(path: str) -> str:
    """`path`, with escapes for bytes of it that are not UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class _Remote:
    """A file at an address, as a listing tells of it: what os.DirEntry is for a folder."""

    name: str
    path: str
    stamp: tuple[int, int, int]


def _stamp(entry: os.DirEntry[str] | _Remote) -> tuple[int, int, int]:
    if isinstance(entry, _Remote):
        return entry.stamp
    status = entry.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _remote_walk(root: str) -> Iterator[tuple[str, set[str], list[_Remote]]]:
    """As `_walk`, from one listing of everything below an address."""
    by_folder: dict[str, list[_Remote]] = {}
    for below, stamp in remote.find(root):
        path = os.path.join(root, below)
        folder, name = os.path.split(path)
        if NOT_FOLDERS.isdisjoint(below.split("/")[:-1]):
            by_folder.setdefault(folder, []).append(_Remote(name, path, stamp))
    for folder, entries in by_folder.items():
        yield folder, {entry.name for entry in entries}, entries


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
    if remote.is_address(path):
        content = next(remote.read([path]))
        if isinstance(content, OSError):
            raise content
        return content
    with open(path, "rb", buffering=0) as file:
        return file.read()


def read_all(paths: Sequence[str]) -> Iterator[bytes | OSError]:
    """The bytes of each file of one root, or why it cannot be read, in order; at an address many are asked for at once.

    Read as they are taken, so that not all of them have to be held.
    """
    if paths and remote.is_address(paths[0]):
        yield from remote.read(paths)
        return
    for path in paths:
        try:
            yield read(path)
        except OSError as error:
            yield error
