"""Results at addresses: a real S3 server on loopback, fsspec's memory, and what is said when an address is no good."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from hybrid_kernels import cli
from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import folders, remote, store
from hybrid_kernels.judge.events import History, rows

fsspec = pytest.importorskip("fsspec", reason="needs the extra `test`")
HISTORIES = Path(__file__).parents[1] / "data/histories/results"
LEDGER = Path(__file__).parents[1] / "data/figures.toml"


def put(folder: Path, address: str) -> None:
    system, place = fsspec.core.url_to_fs(address, use_listings_cache=False)
    for path in folder.rglob("*"):
        if path.is_file():
            system.pipe_file(f"{place}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def same(here: pd.DataFrame, there: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        here.drop(columns="file").astype({"commit": str}), there.drop(columns="file").astype({"commit": str}),
        check_categorical=False,
    )  # fmt: skip


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The example histories in a folder that stands in no repository, as those at an address do not."""
    return Path(shutil.copytree(HISTORIES, tmp_path / "copied" / "results"))


@pytest.mark.parametrize("scheme", ["s3", "memory"])
def test_an_address_holds_what_its_folder_holds(scheme: str, local: Path, request: pytest.FixtureRequest) -> None:
    """Frame, files, definitions and machines are the same, with and without the cache, and with raw samples."""
    root = f"s3://{request.getfixturevalue('bucket')}/deep/results" if scheme == "s3" else "memory://one/results"
    put(local, root)
    here = store.load(local)

    for _ in range(2):
        there = store.load(f"{root}/")
        same(here.frame, there.frame)
        assert there.benchmarks == here.benchmarks
        assert there.machines == here.machines
        assert set(there.frame["file"]) == {f"{root}{path.removeprefix(str(local))}" for path in here.frame["file"]}
    same(here.frame, store.load(root, cache=False).frame)
    assert store.load(root, samples=True).frame["samples"].equals(store.load(local, samples=True).frame["samples"])


def test_only_new_and_changed_files_are_read_again(bucket: str, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second load asks for no result file; then for the one that changed with its size kept; one gone is gone."""
    root = f"s3://{bucket}/results"
    put(local, root)
    before = store.load(root)
    asked: list[str] = []
    original = remote.read

    def counted(paths: list[str]) -> Iterator[bytes | OSError]:
        asked.extend(path for path in paths if os.path.basename(path) not in folders.NOT_RESULTS)
        yield from original(paths)

    monkeypatch.setattr(remote, "read", counted)
    store.load(root)
    assert asked == []
    changed, gone = sorted(before.files["file"])[:2]
    system = fsspec.filesystem("s3", use_listings_cache=False)
    text = system.cat_file(changed)
    system.pipe_file(changed, text.replace(b'"version": 2', b'"version":2 '))
    system.rm(gone)

    after = store.load(root)

    assert asked == [changed]
    assert set(before.files["file"]) - set(after.files["file"]) == {gone}


def test_events_are_the_same_at_an_address(kedro: Path) -> None:
    """The judgement does not depend on where results lie; files are named with their address."""
    put(kedro, "memory://kedro/results")

    here, there = (rows(History(place).events()) for place in (kedro, "memory://kedro/results"))

    assert len(here) > 20
    assert json.dumps(there).replace("memory://kedro/results", str(kedro)) == json.dumps(here)


def test_commands_read_addresses(
    bucket: str, local: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`history`, `events` and `figures show` print the same of an address as of a folder."""
    root = f"s3://{bucket}/results"
    put(local, root)
    for command in (["history"], ["events", "--file", LEDGER],
                    ["figures", "show", "cold_path_read_bandwidth", "--file", LEDGER]):  # fmt: skip
        said = []
        for place in (local, root):
            monkeypatch.setattr(sys, "argv", ["hybrid-kernels", *map(str, command), "--results", str(place)])
            with pytest.raises(SystemExit) as stop:
                cli.main()
            assert stop.value.code == 0
            said.append(capsys.readouterr().out)
        assert said[0]
        assert said[0] == said[1]


def test_a_file_address_is_its_folder(local: Path) -> None:
    """`file://` is read as the folder that it names: the same rows, the same cache."""
    assert folders.roots(f"file://{local}") == [str(local)]
    pd.testing.assert_frame_equal(store.load(f"file://{local}").frame, store.load(local).frame)


def test_a_mirror_follows_its_address(local: Path) -> None:
    """The copy for asv's own pages holds what the address holds now; what did not change is not written again."""
    root = "memory://mirrored/results"
    put(local, root)
    copy = folders.folder(root)
    assert {path.relative_to(copy) for path in copy.rglob("*.json")} == {
        path.relative_to(local) for path in local.rglob("*.json")
    }
    kept = {path: path.stat().st_mtime_ns for path in copy.rglob("*.json")}
    first, second, *_ = sorted(path for path in kept if path.name not in folders.NOT_RESULTS)
    system = fsspec.filesystem("memory")
    system.pipe_file(f"/mirrored/results/{first.relative_to(copy)}", b"{}")
    system.rm(f"/mirrored/results/{second.relative_to(copy)}")

    folders.folder(root)

    assert first.read_bytes() == b"{}"
    assert not second.exists()
    assert all(path.stat().st_mtime_ns == kept[path] for path in kept if path not in (first, second))
    assert folders.folder(local) == local


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("memory://nothing/there", "does not exist"),
        ("nosuch://place/results", "Protocol not known: nosuch"),
        ("s3://no-such-bucket/results", "cannot be read|does not exist"),
    ],
)
def test_a_bad_address_is_named(address: str, words: str, bucket: str) -> None:
    """An address that holds nothing, or that nothing can read, is one line that names it."""
    with pytest.raises(BadInput, match=words) as error:
        store.load(address)
    assert address.rpartition("/")[0] in str(error.value)


def test_a_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    """A refused connection names the address and says what to look at."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    with pytest.raises(BadInput, match=r"s3://away/results cannot be read: .*check the address"):
        store.load("s3://away/results")
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_missing_packages_are_named_with_the_command(missing: str) -> None:
    """Without fsspec, or what it needs for an address, the error is one line with the pip command that brings it."""
    script = f"import sys; sys.modules[{missing!r}] = None; from hybrid_kernels.cli import main; main()"
    command = [sys.executable, "-c", script, "history", "--results", "s3://bucket/results"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'hybrid-kernels[remote]'" in done.stderr
