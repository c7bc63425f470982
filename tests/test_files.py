"""Files are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput


def test_replace_keeps_permissions_and_link(tmp_path: Path) -> None:
    """A linked, executable file gets new bytes; the link and the mode stay."""
    real = tmp_path / "real"
    real.write_bytes(b"old")
    real.chmod(0o750)
    link = tmp_path / "link"
    link.symlink_to(real)
    files.replace(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_failed_write_leaves_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rename fails the old file is untouched and nothing lies beside it."""
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(BadInput, match="No space left"):
        files.replace(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_missing_folder_is_bad_input(tmp_path: Path) -> None:
    """A folder that is not there is the user's mistake, said in one line."""
    with pytest.raises(BadInput, match="cannot be written"):
        files.replace(tmp_path / "no" / "file", b"")


def test_lock_holds_a_second_writer_off(tmp_path: Path) -> None:
    """While one holds the lock another gives up after its patience; afterwards it gets it, and no file is left."""
    target = tmp_path / "file"
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with files.locked(target):
            inside.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(10)
    with pytest.raises(BadInput, match="another process"), files.locked(target, patience=0.05):
        pass
    done.set()
    holder.join()
    with files.locked(target, patience=0.05):
        pass
    assert list(tmp_path.iterdir()) == []
