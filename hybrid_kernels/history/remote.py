"""Results that lie elsewhere than in a folder: any address that fsspec can list and read (s3, gcs, memory, ...).

The only module that knows fsspec. It is imported when an address is given, so that folders cost nothing more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput

Stamp = tuple[int, int, int]

PIP = "pip install 'hybrid-kernels[remote]'"
CHANGING = (
    "ETag", "etag", "md5Hash", "content_md5", "generation", "VersionId", "LastModified", "last_modified", "updated",
    "mtime", "modified", "created",
)  # fmt: skip
"""What file systems say of a file that changes when its content does: fsspec has no one name for it."""
FILES_AT_ONCE = 64
"""Files asked for together: a round trip each would make a history of thousands of files a matter of minutes."""


def _refused(address: str, error: Exception) -> BadInput:
    said = " ".join(str(error).split()) or type(error).__name__
    return BadInput(f"results: {address} cannot be read: {said}; check the address, the network and the credentials")


def _place(address: str) -> tuple[Any, str]:
    """The file system of an address and the path in it. Its options come from the environment or fsspec's own files."""
    protocol = address.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise BadInput(f"results: {address} needs fsspec; {PIP}") from None
    try:
        system, place = url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise BadInput(f"results: {protocol}:// needs a package that is not here ({error}); {PIP}") from None
    except ValueError as error:
        raise BadInput(
            f"results: {address}: {error}; give a folder or an address such as s3://bucket/results"
        ) from None
    except Exception as error:  # each file system has exceptions of its own
        raise _refused(address, error) from error
    return system, place.rstrip("/")


def find(root: str) -> list[tuple[str, Stamp]]:
    """(path below `root`, stamp) of every JSON file below the address `root`. BadInput when there is nothing there."""
    system, place = _place(root)
    try:
        found = system.find(place, detail=True)
        if not found and not system.isdir(place):
            what = "is a file" if system.isfile(place) else "does not exist"
            raise BadInput(f"results: {root} {what}; name the results of an asv project")
    except BadInput:
        raise
    except Exception as error:
        raise _refused(root, error) from error
    prefix = f"{place}/" if place else ""
    return [
        (path.removeprefix(prefix), _stamp(info))
        for path, info in found.items()
        if path.endswith(".json") and info.get("type") != "directory" and ".." not in path.split("/")
    ]


def _stamp(info: dict[str, Any]) -> Stamp:
    """Size in bytes, and two numbers out of whatever else tells one content from another."""
    told = repr([(name, str(info[name])) for name in CHANGING if info.get(name) is not None])
    digest = hashlib.sha256(told.encode()).digest()
    return int(info.get("size") or 0), int.from_bytes(digest[:7]), int.from_bytes(digest[7:14])


def read(paths: Sequence[str]) -> Iterator[bytes | OSError]:
    """The bytes of each file, or why it cannot be read, in the order of `paths` (whole addresses of one root)."""
    for at in range(0, len(paths), FILES_AT_ONCE):
        some = paths[at : at + FILES_AT_ONCE]
        system = _place(some[0])[0]
        # Whole files by ranges without bounds: fsspec's `cat` would first ask whether each file is there.
        contents = system.cat_ranges([_place(path)[1] for path in some], None, None, on_error="return")
        for content in contents:
            if isinstance(content, bytes):
                yield content
            else:
                yield content if isinstance(content, OSError) else OSError(str(content))


def mirror(root: str) -> Path:
    """A folder of the user's cache with the JSON files below the address `root` as they are now.

    Only what is new or has changed there since the last call is fetched. BadInput when it cannot be read.
    """
    folder = files.cache_folder() / "mirrors" / hashlib.sha256(root.encode()).hexdigest()[:24]
    results, noted = folder / "results", folder / "stamps.json"
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}); set HYBRID_KERNELS_CACHE") from error
    with files.locked(noted):
        known: dict[str, Stamp] = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            known = msgspec.json.decode(noted.read_bytes(), type=dict[str, Stamp])
        there = dict(find(root))
        for path in known.keys() - there.keys():
            (results / path).unlink(missing_ok=True)
        new = [path for path, stamp in there.items() if known.get(path) != stamp or not (results / path).exists()]
        for path, content in zip(new, read([os.path.join(root, path) for path in new]), strict=True):
            if isinstance(content, OSError):
                raise _refused(os.path.join(root, path), content)
            (results / path).parent.mkdir(parents=True, exist_ok=True)
            files.replace(results / path, content)
        files.replace(noted, msgspec.json.encode(there))
    return results


def write(target: str, folder: Path, paths: Iterable[Path]) -> None:
    """Put files of `folder` below the address `target`, replacing every file that is there. BadInput when it fails."""
    system, place = _place(target)
    try:
        if system.exists(place):
            system.rm(place, recursive=True)
        for path in paths:
            system.pipe_file(f"{place}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"--output: {target} cannot be written: {said}; check address and credentials") from error


def is_address(text: str | os.PathLike[str]) -> bool:
    """Whether `text` is an address such as s3://bucket/results and no path of this machine."""
    return isinstance(text, str) and re.match(r"[a-z][a-z0-9+.-]+://", text) is not None
