"""Kernels are compiled once per source, architecture and compiler, and a bad compiler gives one sentence."""

import os
import shutil

import pytest

from hybrid_kernels.devices import cuda_kernels
from hybrid_kernels.errors import DeviceUnavailable

needs_nvcc = pytest.mark.skipif(
    cuda_kernels.nvcc() is None, reason="nvcc is not on this machine: install CUDA's toolkit or nvidia-cuda-nvcc"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setattr(cuda_kernels, "cache_folder", lambda: folder)
    return folder


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "one.cu"
    path.write_text('extern "C" __global__ void one(int* p) { *p = 1; }\n')
    return path


@needs_nvcc
def test_compiled_once_and_again_when_the_source_changes(cache, source):
    """A second call reads the cache; another source or architecture is another entry."""
    first = cuda_kernels.cubin(source, "sm_90")
    assert first[:4] == b"\x7fELF"
    (kept,) = cache.iterdir()
    kept.write_bytes(b"from the cache")
    assert cuda_kernels.cubin(source, "sm_90") == b"from the cache"

    cuda_kernels.cubin(source, "sm_80")
    source.write_text(source.read_text().replace("= 1", "= 2"))
    assert cuda_kernels.cubin(source, "sm_90") != first
    assert len(list(cache.iterdir())) == 3


@needs_nvcc
def test_a_source_that_does_not_compile_is_quoted_in_one_line(cache, source):
    """The compiler's first error is in the message, which is one line; nothing is kept."""
    source.write_text("int main( {")

    with pytest.raises(DeviceUnavailable, match=r"could not compile one\.cu for sm_90 .*error") as caught:
        cuda_kernels.cubin(source, "sm_90")

    assert "\n" not in str(caught.value)
    assert not cache.exists()


@needs_nvcc
def test_a_cache_that_cannot_be_written_is_done_without(cache, source):
    """Where the cache folder is a file, kernels still compile."""
    cache.write_text("in the way")

    assert cuda_kernels.cubin(source, "sm_90")[:4] == b"\x7fELF"


def test_no_compiler_says_what_to_do(cache, source, monkeypatch):
    """Without nvcc the message names the toolkit, the package and the variable."""
    monkeypatch.setattr(cuda_kernels, "nvcc", lambda: None)

    with pytest.raises(DeviceUnavailable, match=r"CUDA toolkit.*nvidia-cuda-nvcc.*NVCC"):
        cuda_kernels.cubin(source, "sm_90")


def test_the_compiler_is_found_by_name_path_and_package(tmp_path, monkeypatch):
    """NVCC comes first, then PATH, then CUDA_HOME, then PyPI's package."""

    def tool(*parts):
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\necho Cuda compilation tools, release 1.2, V1.2.3\n")
        path.chmod(0o755)
        return path

    named, on_path = tool("named", "mine"), tool("path", "nvcc")
    home, package = tool("home", "bin", "nvcc"), tool("site", "nvidia", "cu13", "bin", "nvcc")
    monkeypatch.setenv("PATH", str(on_path.parent) + os.pathsep + os.path.dirname(shutil.which("sh")))
    monkeypatch.setenv("CUDA_HOME", str(home.parent.parent))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr("sys.path", [str(package.parents[3])])
    monkeypatch.setenv("NVCC", str(named))

    assert cuda_kernels.nvcc() == named
    assert cuda_kernels.nvcc_version(named) == "release 1.2, V1.2.3"
    monkeypatch.setenv("NVCC", "")
    on_path.rename(on_path.with_name("other"))
    assert cuda_kernels.nvcc() in (home, shutil.which("nvcc"))
    shutil.rmtree(home.parents[1])
    found = cuda_kernels.nvcc()
    assert found == package or str(found).startswith("/usr/local/cuda")
