"""The CPU kernel built by another compiler, and for aarch64 under emulation, gives the bits that this build gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hybrid_kernels.kernels import build_gemv, cpu
from hybrid_kernels.layout.weights import Int4Weights

KERNEL = Path(build_gemv.__file__).parent
BUILDS = {
    "clang": (["clang"], []),
    "aarch64": (["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"]),
}


@pytest.fixture(scope="module", params=BUILDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs tests/kernels/one_call.c, compiled with the package's own flags and no warning."""
    compiler, emulator = BUILDS[request.param]
    missing = [tool for tool in (compiler[0], *emulator) if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed (Debian: clang, gcc-aarch64-linux-gnu, qemu-user)")
    binary = tmp_path_factory.mktemp(request.param) / "one_call"
    source = Path(__file__).with_name("one_call.c")
    command = [
        *compiler,
        *build_gemv.COMPILE_ARGS,
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{KERNEL}",
        str(source),
        "-o",
        str(binary),
        "-lm",
    ]
    subprocess.run(command, check=True)
    return [*emulator, str(binary)]


@pytest.mark.parametrize("mode", cpu.MODES)
def test_another_build_gives_the_same_bits(program: list[str], mode: str) -> None:
    """Int8 mode everywhere; float32 mode wherever multiply-adds are fused (avx2, avx512, aarch64)."""
    if mode == "f32" and cpu.chosen("f32") == "portable":
        pytest.skip("this processor has no fused multiply-add to compare with")
    for n, k, block, zero_points in (
        (7, 33, 16, True),
        (5, 2049, 32, True),
        (40, 1000, 64, False),
        (3, 5120, 128, True),
    ):
        weights = Int4Weights.random(n, k, block, seed=n, zero_points=zero_points)
        x = np.random.default_rng(k).standard_normal(k, np.float32)
        scales, zeros = weights.scales.astype(np.float32), weights.zero_points
        given = b"".join(a.tobytes() for a in (weights.packed, scales, zeros, x) if a is not None)
        numbers = [str(value) for value in (cpu.MODES.index(mode), n, k, block, int(zero_points))]
        done = subprocess.run([*program, *numbers], input=given, capture_output=True, check=True)
        here = cpu.gemv(weights.packed, scales, zeros, x, block=block, mode=mode, threads=2)
        assert done.stdout == here.tobytes()
