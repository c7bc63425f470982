"""Write files whole: beside, flushed to the disk, renamed. What was there before stays until the new bytes are safe."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from hybrid_kernels.errors import BadInput

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h


def cache_folder() -> Path:
    """The user's folder for what can be made again: $HYBRID_KERNELS_CACHE, else $XDG_CACHE_HOME, else ~/.cache."""
    if "HYBRID_KERNELS_CACHE" in os.environ:
        return Path(os.environ["HYBRID_KERNELS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hybrid-kernels"


def replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `path` in one step; readers see the old bytes or the new ones, never half.

    A symbolic link keeps pointing where it did, and a file that was there keeps its permissions. BadInput, with
    nothing changed, when the folder is missing or not writable.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        try:
            with open(beside, "wb") as file:
                file.write(data)
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the rename itself
        finally:
            os.close(folder)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); check the folder and its permissions") from error


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], patience: float = 10.0) -> Iterator[None]:
    """Hold the one writer's lock for `path` (a lock on its folder, so that no lock file is left behind).

    Waits `patience` seconds for another writer, then BadInput. Locks those who ask for it: an editor does not.
    """
    folder = Path(os.path.realpath(path)).parent
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise BadInput(f"{path}: its folder cannot be opened ({error.strerror}); check the path") from error
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BadInput(f"{path}: another process is writing beside it; try again when it is done") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def check_writable(path: str | os.PathLike[str], option: str) -> Path:
    """`path` when it can become a file here; BadInput naming `option` otherwise. Nothing is created."""
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise BadInput(f"{option}: {target} is a folder; name a file")
    if not folder.is_dir():
        raise BadInput(f"{option}: folder {folder} does not exist; make it first")
    if not os.access(folder, os.W_OK | os.X_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise BadInput(f"{option}: {target} cannot be written to; name another file")
    return target


def exchange(new: Path, there: Path) -> None:
    """Let two folders of one file system change places, in one step where the system can (Linux 3.15 and later).

    Elsewhere in three; should the second fail, the first is taken back.
    """
    if _exchanged(new, there):
        return
    aside = new.with_name(f"{new.name}.old")
    os.rename(there, aside)
    try:
        os.rename(new, there)
    except BaseException:
        os.rename(aside, there)
        raise
    os.rename(aside, new)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the two folders changed places in one step (Linux 3.15 and later, on most file systems)."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        return False
    done = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE))
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV):
        return False
    raise OSError(code, os.strerror(code), os.fspath(other))


def flush(folder: Path) -> None:
    """The file system of `folder` written to the disk: one call for all the files in it."""
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    if syncfs is None:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        syncfs(handle)
    finally:
        os.close(handle)
