"""A file mapping whose pages are evicted before each read: the tier below memory, as for weights larger than RAM."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices.base import Closing
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.units import MIB, format_bytes

_CHUNK = 16 * MIB  # written and synced piece by piece, so that Ctrl-C is heard within a second
_HEADROOM = 64 * MIB  # left free on the scratch file system
_UNEVICTABLE = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}

_libc = ctypes.CDLL(None, use_errno=True)


def filesystem(folder: Path) -> str:
    """Kind of file system that holds `folder`, as the kernel names it (`ext4`, `tmpfs`); `unknown` when not listed."""
    target = os.path.realpath(folder)
    best, kind = "", "unknown"
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                point, name = line.split()[1:3]
                point = point.replace("\\040", " ")
                inside = target == point or target.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, name
    except OSError:
        pass
    return kind


def scratch_folder(folder: str | Path | None) -> Path:
    """The folder that the mapped file will lie in; BadInput when it is no folder, not writable or held in memory."""
    path = Path(folder) if folder is not None else Path(tempfile.gettempdir())
    if not path.is_dir():
        raise BadInput(f"scratch: {path} is not a folder; name an existing one on a disk")
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadInput(f"scratch: {path} cannot be written to; name a folder on a disk that you may write to")
    kind = filesystem(path)
    if kind in _UNEVICTABLE:
        raise BadInput(
            f"scratch: {path} is on {kind}, whose pages are memory and cannot be evicted; name a folder on a disk"
        )
    return path


def free_scratch(folder: Path) -> int:
    """Bytes that may be written to `folder` by this process, some headroom kept."""
    return max(shutil.disk_usage(folder).free - _HEADROOM, 0)


class EvictedMapping(Closing):
    """`data` (uint8, any shape) in an unlinked file of `folder`, mapped read-only; `array` is the mapping, same shape.

    The file has no name from the moment it is opened, so nothing is left behind, whatever ends the process.
    BadInput when the space is short; ConditionNotMet when the file system keeps pages that were to be evicted.
    """

    def __init__(self, data: npt.NDArray[np.uint8], folder: Path) -> None:
        self._map: mmap.mmap | None = None
        self._direct = -1
        self._folder = folder
        flat = np.ascontiguousarray(data).reshape(-1).data
        free = free_scratch(folder)
        if len(flat) > free:
            raise BadInput(
                f"scratch: {format_bytes(len(flat))} are needed in {folder}, {format_bytes(free)} are free; "
                "choose smaller sizes or another folder"
            )
        self._fd = _open_unnamed(folder)
        try:
            for start in range(0, len(flat), _CHUNK):
                _write_all(self._fd, flat[start : start + _CHUNK], folder)
                os.fdatasync(self._fd)  # dirty pages cannot be evicted
            self._map = mmap.mmap(self._fd, len(flat), flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            self._bytes = len(flat)
            self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8).reshape(data.shape)
            self._address = self.array.ctypes.data
            self._pages = np.empty(-(-self._bytes // mmap.PAGESIZE), np.uint8)
            self.evict()
        except BaseException:
            self.close()
            raise

    def evict(self) -> None:
        """Drop every page of the mapping from memory and assert that none is left (mincore)."""
        assert self._map is not None
        self._map.madvise(mmap.MADV_DONTNEED)  # page-table entries would keep the pages in the cache
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        left = self.resident_pages()
        if left:
            raise ConditionNotMet(
                f"scratch: {left} of {len(self._pages)} pages in {self._folder} ({filesystem(self._folder)}) stayed in "
                "memory after eviction, so a read of them would not come from the next tier; name a folder on a disk"
            )

    def resident_pages(self) -> int:
        """Pages of the mapping that are in memory now."""
        status = _libc.mincore(
            ctypes.c_void_p(self._address), ctypes.c_size_t(self._bytes), ctypes.c_void_p(self._pages.ctypes.data)
        )
        if status != 0:
            code = ctypes.get_errno()
            raise ConditionNotMet(f"mincore: {os.strerror(code)}; it cannot be said whether pages were evicted")
        return int(np.count_nonzero(self._pages & 1))

    def read_direct(self, target: npt.NDArray[np.uint8]) -> None:
        """Read all bytes into `target` (uint8, page-aligned, whole pages) from the disk, past the page cache.

        ConditionNotMet when the file system does not allow it or the read comes short.
        """
        if self._direct < 0:
            try:
                self._direct = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_DIRECT)
            except OSError as error:
                raise ConditionNotMet(
                    f"scratch: {filesystem(self._folder)} at {self._folder} allows no direct reads "
                    f"({os.strerror(error.errno or 0)}); name a folder on another disk"
                ) from error
        view, done = target.reshape(-1).data, 0
        while done < self._bytes:
            step = os.preadv(self._direct, [view[done : done + _CHUNK]], done)
            if step <= 0:
                raise ConditionNotMet(
                    f"scratch: a direct read in {self._folder} ended at {done} of {self._bytes} bytes"
                )
            done += step

    def close(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1
        self.array = np.empty(0, np.uint8)
        if self._map is not None:
            with contextlib.suppress(BufferError):  # a view is still held; it is unmapped when that goes
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open_unnamed(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise BadInput(f"scratch: {folder}: {os.strerror(error.errno or 0)}; name another folder") from error
    fd, path = tempfile.mkstemp(prefix="hybrid-kernels-", dir=folder)  # file systems without O_TMPFILE
    os.unlink(path)
    return fd


def _write_all(fd: int, data: memoryview, folder: Path) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except OSError as error:
            raise BadInput(f"scratch: {folder}: {os.strerror(error.errno or 0)} while writing; name another") from error
