"""Pages kept from the last publish, so that an unchanged history costs no judging again. Safe to delete at any time.

asv starts from nothing on every publish; judging a history again would add nearly half to its time. What the pages
depend on is fingerprinted: the results folder (size, time and inode of each file), figures.toml, the project's settings
and this package. Importing this module is cheap: numpy does not stand in the way of an unchanged history.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import folders
from hybrid_kernels.report.dashboard.links import Project

PUBLISHED = "{published}"
"""Stands in the pages for the moment they were published: the one thing that differs between two publishes."""


class Built(msgspec.Struct):
    """Our pages: bytes by path, with `PUBLISHED` still in them, and what to tell whoever publishes."""

    files: dict[str, bytes]
    warnings: list[str]
    figures: int  # on the page of figures
    commits: list[str]  # that an event names


class _Kept(msgspec.Struct):
    key: str
    built: Built


_decoder = msgspec.msgpack.Decoder(_Kept)


@dataclass(frozen=True)
class Source:
    """What pages are built from: asv's results folder, the project, and figures.toml, which need not exist."""

    results: Path
    project: Project
    figures: Path

    @property
    def place(self) -> Path:
        """The file that keeps the pages of this results folder."""
        name = hashlib.sha256(os.fsencode(self.results.resolve())).hexdigest()[:24]
        return files.cache_folder() / "pages" / f"{name}.msgpack"


def pages(source: Source, published: datetime.datetime) -> Built:
    """Our pages of `source`, published now: as kept, or built again where anything has changed.

    BadInput when figures.toml is broken or the results cannot be read.
    """
    built = refresh(source)
    moment = published.strftime("%Y-%m-%d %H:%M UTC").encode()
    made = {path: data.replace(PUBLISHED.encode(), moment) if path.endswith(".html") else data
            for path, data in built.files.items()}  # fmt: skip
    return Built(made, built.warnings, built.figures, built.commits)


def refresh(source: Source) -> Built:
    """The pages with `PUBLISHED` in them, taken from where they are kept, or built and kept."""
    key = _fingerprint(source)
    built = _read(source.place, key)
    if built is None:
        from hybrid_kernels.report.dashboard import build

        built = build.build(source)
        _write(source.place, _Kept(key, built))
    return built


def is_kept(source: Source) -> bool:
    """Whether `pages` will not have to build anything."""
    return _read(source.place, _fingerprint(source)) is not None


def _fingerprint(source: Source) -> str:
    listing = folders.listing(os.fspath(source.results))
    project, figures = source.project, source.figures
    own = Path(__file__).parents[2]
    parts: list[Any] = [
        [(entry.path, entry.stamp) for entry in listing.results],
        [_stamp(Path(path)) for path in (*listing.machines, *listing.definitions)],
        figures.read_bytes().hex() if figures.exists() else None,
        [project.name, project.url, project.commit_url, project.hash_length],
        [(os.fspath(path), _stamp(path)) for path in sorted(own.rglob("*")) if path.suffix in (".py", ".j2")],
        _repository(source.results),
    ]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _repository(results: Path) -> list[Any]:
    """Where the results' own repository stands: it orders the commits."""
    for parent in results.resolve().parents:
        git = parent / ".git"
        if git.is_dir():
            return [
                (name, _stamp(git / name)) for name in ("HEAD", "packed-refs", "logs/HEAD") if (git / name).exists()
            ]
    return []


def _read(place: Path, key: str) -> Built | None:
    try:
        kept = _decoder.decode(place.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return kept.built if kept.key == key else None


def _write(place: Path, kept: _Kept) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        files.replace(place, msgspec.msgpack.encode(kept))
    except (OSError, BadInput):
        pass  # a full disk or a cache folder that may not be written: built again the next time
