"""What every test shares."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of an S3 server on a port of its own."""
    moto = pytest.importorskip("moto.server", reason="needs the extra `test`: moto[server]")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An empty bucket, to be reached with the credentials in the environment, as on any machine."""
    pytest.importorskip("s3fs", reason="needs the extra `test`")
    for name, value in {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    name = f"b{abs(hash(request.node.name))}"
    pytest.importorskip("fsspec").filesystem("s3", use_listings_cache=False).mkdir(name)
    return name
