"""The cache of histories: never wrong, whatever happens to it or to the files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from hybrid_kernels.history import asv_files, cache, folders, store


def values(root) -> list[float]:
    """The values of a history, read with the cache, which must be those read without it."""
    fresh = store.load(root, cache=False).frame
    cached = store.load(root).frame
    pd.testing.assert_frame_equal(cached, fresh)
    return fresh["value"].tolist()


@pytest.fixture
def parsed(monkeypatch):
    """Names of the result files that are parsed from now on."""
    names: list[str] = []
    decode = asv_files.decode

    def counted(data, name):
        names.append(name)
        return decode(data, name)

    monkeypatch.setattr(asv_files, "decode", counted)
    return names


def test_only_new_files_are_parsed(results, parsed):
    """A second load parses nothing; a new, a changed and a touched file are parsed, and nothing else."""
    for number in range(5):
        results.commit(number, {"suite.time_a": float(number)})
    store.load(results.root)
    parsed.clear()

    store.load(results.root)
    assert parsed == []

    new = results.commit(7, {"suite.time_a": 7.0})
    changed = results.commit(2, {"suite.time_a": 2.5})
    assert store.load(results.root).frame["value"].tolist() == [0.0, 1.0, 2.5, 3.0, 4.0, 7.0]
    assert sorted(parsed) == sorted([new.name, changed.name])


def test_replaced_by_a_file_of_the_same_size_and_time(results):
    """A file renamed into place counts as new even where size and time are those of the file before."""
    path = results.commit(1, {"suite.time_a": 1.0})
    store.load(results.root)
    status = path.stat()

    beside = path.with_suffix(".new")
    beside.write_text(path.read_text().replace("1.0", "2.0"))
    os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns))
    beside.rename(path)

    assert path.stat().st_size == status.st_size
    assert values(results.root) == [2.0]


def test_removed_files_and_folders(results):
    """A file that is gone has no rows, and neither has a folder."""
    for number in range(3):
        results.commit(number, {"suite.time_a": float(number)})
    other = type(results)(results.root, machine="other")
    other.commit(1, {"suite.time_a": 9.0})
    assert values(results.root) == [0.0, 1.0, 9.0, 2.0]

    results.commit(1, {}).unlink()
    shutil.rmtree(results.root / "other")

    assert values(results.root) == [0.0, 2.0]


def test_many_small_loads(results, cache_folder):
    """After many loads with one new file each the segments stay few, and nothing is lost."""
    for number in range(30):
        results.commit(number, {"suite.time_a": float(number), f"suite.time_{number}": [[0.5], [], f"v{number}"]})
        store.load(results.root)

    assert len(list(cache_folder.rglob("*.npz"))) <= cache.MANY + 1
    assert len(values(results.root)) == 60


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "other format", "remove"])
def test_damaged(results, cache_folder, damage):
    """A damaged cache is found out and rebuilt."""
    for number in range(20):
        results.commit(number, {"suite.time_a": float(number)})
    expected = values(results.root)
    (segment,) = cache_folder.rglob("*.npz")
    data = bytearray(segment.read_bytes())
    if damage == "cut":
        segment.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        for at in range(0, len(data), 50):  # inside the numbers and codes too, where only a checksum tells
            data[at] ^= 0xFF
        segment.write_bytes(data)
    elif damage == "empty":
        segment.write_bytes(b"")
    elif damage == "text":
        segment.write_bytes(b"PK\x03\x04 not a zip file")
    elif damage == "remove":
        shutil.rmtree(segment.parent)
    else:
        cache.FORMAT += 1
    try:
        assert values(results.root) == expected
        assert values(results.root) == expected
    finally:
        cache.FORMAT -= damage == "other format"


def test_one_flipped_bit_in_the_numbers(results, cache_folder):
    """A single bit that flips in a stored value never becomes a value of the history."""
    results.commit(1, {"suite.time_a": 0.123456789})
    assert values(results.root) == [0.123456789]
    (segment,) = cache_folder.rglob("*.npz")
    data = bytearray(segment.read_bytes())
    stored = bytes(pd.Series([0.123456789]).to_numpy().tobytes())
    data[data.index(stored)] ^= 1
    segment.write_bytes(data)

    assert values(results.root) == [0.123456789]


def test_cache_that_cannot_be_written(results, monkeypatch, tmp_path):
    """Without a place for the cache everything is read as before."""
    results.commit(1, {"suite.time_a": 1.0})
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HYBRID_KERNELS_CACHE", str(blocked / "below"))

    assert values(results.root) == [1.0]


def test_file_that_may_be_read_later(results, monkeypatch):
    """What the system refuses now is skipped with its reason, and read as soon as it can be."""
    path = results.commit(1, {"suite.time_a": 1.0})
    read = folders.read

    def refused(name):
        if name == str(path):
            raise PermissionError(13, "Permission denied")
        return read(name)

    monkeypatch.setattr(folders, "read", refused)
    loaded = store.load(results.root)
    assert [(one.file, one.reason) for one in loaded.skipped] == [(str(path), "cannot be read: Permission denied")]

    monkeypatch.setattr(folders, "read", read)
    assert values(results.root) == [1.0]


def test_cache_off(results, cache_folder):
    """With cache=False nothing is written."""
    results.commit(1, {"suite.time_a": 1.0})

    store.load(results.root, cache=False)

    assert list(cache_folder.rglob("*")) == []


def _load_often(root: Path, times: int) -> None:
    for _ in range(times):
        frame = store.load(root).frame
        assert frame["value"].notna().all()
        assert frame["file"].nunique() == len(frame)


def test_processes_at_once(results):
    """Processes that load while files are being added never see a wrong value, and none of them fails."""
    for number in range(5):
        results.commit(number, {"suite.time_a": float(number)})
    context = multiprocessing.get_context("fork")
    readers = [context.Process(target=_load_often, args=(results.root, 20)) for _ in range(3)]

    for reader in readers:
        reader.start()
    staged = type(results)(results.root.parent / "staged")
    for number in range(5, 25):
        path = staged.commit(number, {"suite.time_a": float(number)})
        path.rename(results.root / "box" / path.name)  # a result comes whole
        gone = results.root / "box" / f"{number:08x}-gone.json"
        gone.write_text(path.name)
        store.load(results.root)
        gone.unlink()
    for reader in readers:
        reader.join(60)

    assert [reader.exitcode for reader in readers] == [0, 0, 0]
    assert values(results.root) == [float(number) for number in range(25)]


def test_order_of_words_does_not_matter(results):
    """Segments that number their words differently give one consistent history."""
    results.commit(1, {"suite.time_a": 1.0, "suite.time_b": [[2.0, 3.0], [["x", "y"]], "v2"]})
    store.load(results.root)
    results.commit(2, {"suite.time_b": [[4.0, 5.0], [["y", "z"]], "v1"], "suite.time_a": 6.0})

    frame = store.load(results.root).frame

    rows = frame[["benchmark", "cell", "version", "value"]].astype(object).values.tolist()
    assert sorted(map(tuple, rows), key=lambda row: row[-1]) == [
        ("suite.time_a", "", "1", 1.0),
        ("suite.time_b", "p1=x", "v2", 2.0),
        ("suite.time_b", "p1=y", "v2", 3.0),
        ("suite.time_b", "p1=y", "v1", 4.0),
        ("suite.time_b", "p1=z", "v1", 5.0),
        ("suite.time_a", "", "1", 6.0),
    ]
