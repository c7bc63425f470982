"""Tests that need an NVIDIA GPU: skipped elsewhere, with the reason that `doctor` gives."""

from pathlib import Path

import pytest

from hybrid_kernels.devices import cuda_absence, open_device

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Mark everything in this folder, and skip it where CUDA cannot be used."""
    here = [item for item in items if HERE in Path(str(item.path)).parents]
    reason = cuda_absence() if here else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def device():
    """The GPU, opened once a file."""
    with open_device("cuda") as device:
        yield device
