"""The CUDA sources compile for every architecture without a GPU, and their machine code is what the launches assume."""

import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from hybrid_kernels.kernels import launch

KERNELS = Path(launch.__file__).parent
SOURCES = ("gemv_int4.cu", "stream_read.cu", "support.cu")
# Compiled from the source once for each of the first, assembled for each of the second: 8.6 and 8.9 run what 8.0 runs.
ARCHITECTURES = {80: (80, 86, 89), 90: (90,), 120: (120,)}
ALL_GEMVS = [
    f"gemv_int4_{variant}_b{block}_{zeros}"
    for variant in ("narrow", "wide_short", "wide_long", "wide_any")
    for block in launch.BLOCKS
    for zeros in ("zp", "sym")
]
# A multiprocessor has 65536 registers: wide_short runs 640 threads in a block, wide_long and wide_any 512.
MOST_REGISTERS = {
    "narrow": 40,
    "wide_short": 96,
    "wide_long": 128,
    "wide_any": 128,
    "stream_read": 64,
    "checksum": 64,
    "access": 64,
    "start_gate": 16,
}


def tool(name):
    """The machine's CUDA tool, or the one PyPI's nvidia-cuda-* wheels put beside site-packages."""
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/cu*/bin"))
    places = [shutil.which(name), *(p / name for p in (Path("/usr/local/cuda/bin"), *wheels))]
    found = next((str(p) for p in places if p and Path(p).exists()), None)
    if found is None:
        pytest.skip(f"{name} is not on this machine: install CUDA's toolkit, or nvidia-cuda-{name} from PyPI")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """{source: (fat binary, the assembler's report)} for all architectures, compiled once."""
    nvcc, folder = tool("nvcc"), tmp_path_factory.mktemp("cuda")
    supported = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    codes = [
        f"-gencode=arch=compute_{virtual},code=[{','.join(f'sm_{a}' for a in real)}]"
        for virtual, real in ARCHITECTURES.items()
        if f"sm_{real[0]}\n" in supported
    ]
    out = {}
    for source in SOURCES:
        fatbin = folder / f"{source}.fatbin"
        options = ["-fatbin", "-O3", "-std=c++17", "--threads=2", "-Xptxas=-v", "-Werror=all-warnings"]
        done = subprocess.run(
            [nvcc, *options, *codes, "-o", fatbin, KERNELS / source], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        out[source] = fatbin, done.stderr
    return out


def entries(report):
    """(architecture, kernel, registers, stack and spill bytes) of every kernel in the assembler's report."""
    pattern = re.compile(
        r"Compiling entry function '(\w+)' for 'sm_(\d+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads.*?Used (\d+) registers",
        re.S,
    )
    return [(int(m[2]), m[1], int(m[6]), int(m[3]) + int(m[4]) + int(m[5])) for m in pattern.finditer(report)]


def machine_code(fatbin, architecture):
    """{kernel: its instructions} in a fat binary, for one architecture."""
    command = [tool("cuobjdump"), "-sass", "-arch", f"sm_{architecture}", fatbin]
    tool("nvdisasm")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\s*Function : (\w+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_kernel_is_there_for_every_architecture(built):
    """Each name a launch can return exists for each architecture, and nothing else does."""
    names = {
        "gemv_int4.cu": set(ALL_GEMVS),
        "stream_read.cu": {"stream_read", "checksum"},
        "support.cu": {"start_gate"},
    }
    names["stream_read.cu"] |= {
        f"access_{pattern}_{width}_{loads}"
        for pattern, widths in launch.REQUESTS.items()
        for width in widths
        for loads in launch.LOADS_IN_FLIGHT
    }
    for source, (_, report) in built.items():
        found = Counter((kernel, architecture) for architecture, kernel, _, _ in entries(report))
        architectures = {architecture for _, architecture in found}

        assert {80, 86, 89, 90} <= architectures
        assert set(found) == {(kernel, architecture) for kernel in names[source] for architecture in architectures}


def test_nothing_spills_and_registers_stay_in_budget(built):
    """No stack, no spills, and few enough registers for the threads that a launch asks of a multiprocessor."""
    for _, report in built.values():
        for architecture, kernel, registers, memory in entries(report):
            budget = next(most for part, most in MOST_REGISTERS.items() if part in kernel)

            assert memory == 0, (kernel, architecture)
            assert registers <= budget, (kernel, architecture)


@pytest.mark.parametrize("architecture", [80, 90])
def test_loads_are_as_wide_as_the_launch_says(built, architecture):
    """The width of the global loads in the machine code is the one that the request size is computed from."""
    code = machine_code(built["stream_read.cu"][0], architecture)
    suffix = {1: ".U8", 2: ".U16", 4: "", 8: ".64", 16: ".128"}
    assert code["stream_read"].count("LDG.E.EF.128") >= 8
    for width in launch.REQUESTS["coalesced"]:
        for loads in launch.LOADS_IN_FLIGHT:
            text = code[f"access_coalesced_{width}_{loads}"]
            found = re.findall(r"LDG\.E((?:\.U8|\.U16|\.64|\.128)?)\S*", text.replace(".EF", ""))

            assert set(found) == {suffix[width // launch.WARP]}
            assert len(found) >= loads
    narrow = machine_code(built["gemv_int4.cu"][0], architecture)["gemv_int4_narrow_b32_sym"]
    assert "LDG.E.U8" in narrow
    assert not re.search(r"LDG\.E\.(64|128)", narrow)


@pytest.mark.parametrize("architecture", [80, 86, 89, 90])
@pytest.mark.parametrize(("which", "depth"), [("short", 2), ("long", 4)])
def test_wide_kernels_load_128_bits_and_multiply_on_tensor_cores(built, architecture, which, depth):
    """Two 16-byte loads for each chunk in flight, before the loop and in it; products on the tensor cores."""
    code = machine_code(built["gemv_int4.cu"][0], architecture)
    for block in launch.BLOCKS:
        for zeros in ("zp", "sym"):
            text = code[f"gemv_int4_wide_{which}_b{block}_{zeros}"]

            assert len(re.findall(r"LDG\.E\.NA\S*\.128", text)) >= 2 * 2 * depth
            assert "HMMA.16816.F32" in text
            assert "LDL" not in text
            assert "STL" not in text


def test_kernels_that_start_early_wait_where_a_launch_says_so(built):
    """From compute capability 9.0 on: the instruction that lets the next kernel start, then the one that waits."""
    for source, kernels in (("gemv_int4.cu", ALL_GEMVS), ("stream_read.cu", ["stream_read", "checksum"])):
        for architecture in (89, 90):
            code = machine_code(built[source][0], architecture)
            for kernel in kernels:
                waits = architecture >= 90 and "wide" in kernel
                found = re.findall(r"\b(PREEXIT|ACQBULK)\b", code[kernel])

                assert found == (["PREEXIT", "ACQBULK"] if waits else []), (kernel, architecture)
