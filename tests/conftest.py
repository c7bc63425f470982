"""What every test shares."""

from __future__ import annotations

import os
import signal
import tarfile
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: a busy machine may pause any example, and no test here is about absolute time.
settings.register_profile("hybrid_kernels", deadline=None)
settings.load_profile("hybrid_kernels")


# A job started in the background ignores Ctrl-C and hands that down: the processes that tests interrupt must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's histories are cached: never in the user's own cache folder."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HYBRID_KERNELS_CACHE", os.fspath(folder))
    return folder


@pytest.fixture(scope="session")
def kedro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of Kedro's public history (tests/data/NOTICE); copy it before you write to it."""
    folder = tmp_path_factory.mktemp("kedro")
    with tarfile.open(Path(__file__).parent / "data/kedro-asv-results.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "kedro-benchmark-results/.asv/results"
