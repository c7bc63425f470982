"""CUDA kernels from source: compiled by nvcc when first used, kept in the user's cache, loaded into a context.

The cache is keyed by source, architecture and compiler version, so a changed kernel is never mistaken for its old self.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from hybrid_kernels.devices import cuda_driver
from hybrid_kernels.errors import DeviceUnavailable

NVCC_FLAGS = ("-O3", "-std=c++17")
NVCC_MISSING = (
    "nvcc was not found, and the kernels are compiled when first used: install the CUDA toolkit or "
    "`pip install nvidia-cuda-nvcc`, or name the compiler in the environment variable NVCC"
)


def nvcc() -> Path | None:
    """The compiler: $NVCC, on PATH, in CUDA_HOME or CUDA_PATH, in /usr/local/cuda, or from PyPI's nvidia-cuda-nvcc."""
    named = os.environ.get("NVCC")
    if named:
        found = shutil.which(named)
        return Path(found) if found else None
    if found := shutil.which("nvcc"):
        return Path(found)
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots.append(Path("/usr/local/cuda"))
    for entry in sys.path:
        roots += sorted(Path(entry or ".").glob("nvidia/cu*"), reverse=True)
    for root in roots:
        if found := shutil.which("nvcc", path=str(root / "bin")):
            return Path(found)
    return None


@functools.cache
def nvcc_version(compiler: Path) -> str:
    """What the compiler calls itself, such as `release 13.0, V13.0.88`. DeviceUnavailable when it does not run."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DeviceUnavailable(f"{compiler} --version does not run ({error}); name a working nvcc in NVCC") from error
    lines = [line for line in done.stdout.splitlines() if "release" in line]
    return (lines[-1] if lines else done.stdout.strip()).removeprefix("Cuda compilation tools, ")


def source_folder() -> Path:
    """Where the .cu files lie in this installation."""
    return Path(str(resources.files("hybrid_kernels.kernels")))


def cache_folder() -> Path:
    """Where compiled kernels are kept: the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("hybrid-kernels")) / "kernels"


def cubin(source: Path, architecture: str, compiler: Path | None = None) -> bytes:
    """Machine code of a .cu file for an architecture such as `sm_90`, out of the cache or compiled now.

    DeviceUnavailable when nvcc is missing (what to do is said) or refuses the source (its first error is quoted).
    """
    compiler = compiler or nvcc()
    if compiler is None:
        raise DeviceUnavailable(NVCC_MISSING)
    text = hashlib.sha256()
    headers = sorted(p for p in source.parent.iterdir() if p.suffix in (".cuh", ".h"))
    for part in (nvcc_version(compiler), architecture, *NVCC_FLAGS):
        text.update(part.encode() + b"\0")
    for path in (source, *headers):
        text.update(path.read_bytes() + b"\0")
    kept = cache_folder() / f"{source.stem}-{architecture}-{text.hexdigest()[:32]}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    code = _compile(source, architecture, compiler)
    _keep(kept, code)
    return code


def _compile(source: Path, architecture: str, compiler: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hybrid-kernels-") as folder:
        result = Path(folder) / "kernel.cubin"
        command = [str(compiler), "-cubin", f"-arch={architecture}", *NVCC_FLAGS, "-o", str(result), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            first = next((line for line in said if "error" in line.lower() or "fatal" in line.lower()), said[:1] or "")
            raise DeviceUnavailable(
                f"{compiler} could not compile {source.name} for {architecture} (exit {done.returncode}): {first}; "
                f"check the compiler with: {' '.join(command[:-3])} {source}"
            )
        return result.read_bytes()


def _keep(path: Path, code: bytes) -> None:
    """Write beside, then rename, so that nobody reads half a kernel. A cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as beside:
            try:
                beside.write(code)
                beside.flush()
                os.fsync(beside.fileno())
                os.replace(beside.name, path)
            except BaseException:
                Path(beside.name).unlink(missing_ok=True)
                raise
    except OSError:
        return


class Kernels:
    """The kernels of one context, each compiled and loaded when first asked for."""

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        self.architecture = "sm_{}{}".format(*compute_capability)
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}

    def function(self, source: str, name: str, arguments: str) -> Any:
        """The entry `name` of kernels/`source`, prepared for `arguments` (struct's format characters)."""
        import pycuda.driver as cuda

        if (source, name) not in self._functions:
            if source not in self._modules:
                code = cubin(source_folder() / source, self.architecture)
                with cuda_driver.failing(f"loading {source} for {self.architecture}"):
                    self._modules[source] = cuda.module_from_buffer(code)
            with cuda_driver.failing(f"finding {name} in {source}"):
                self._functions[source, name] = self._modules[source].get_function(name).prepare(arguments)
        return self._functions[source, name]

    def close(self) -> None:
        """Forget modules and functions, which unloads them; the context must still be current."""
        self._functions.clear()
        self._modules.clear()
