"""What starting the command line costs: counted in modules, which do not depend on how busy the machine is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOW = {"pandas", "asv", "scipy", "altair", "onnxruntime", "pyarrow", "pycuda", "cuda", "vl_convert"}


def imported(*arguments: str) -> set[str]:
    """Top-level modules that a run of the command line imports, as the interpreter itself reports them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hybrid_kernels.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_help_imports_nothing_heavy() -> None:
    """`--help` answers without pandas (0.2 s), asv (0.1 s) or anything else that only measuring or reporting needs."""
    modules = imported("--help")

    assert "hybrid_kernels" in modules
    assert modules & SLOW == set()
