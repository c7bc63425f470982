"""What starting the command line costs: counted in modules, which do not depend on how busy the machine is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOW = {"pandas", "asv", "scipy", "altair", "onnxruntime", "pyarrow", "pycuda", "cuda", "vl_convert", "jinja2"}

EVERY_HELP = """
import typer
from hybrid_kernels.cli import app
command = typer.main.get_command(app)
for name in ["", *command.commands]:
    command.main([*name.split(), "--help"], prog_name="hybrid-kernels", standalone_mode=False)
"""


def imported(*arguments: str) -> tuple[set[str], str]:
    """Top-level modules that a run of the interpreter imports, as it reports them itself, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}, done.stdout


def test_help_imports_nothing_heavy() -> None:
    """`--help` answers without pandas (0.2 s), asv (0.1 s) or anything else that only measuring or reporting needs."""
    modules, text = imported("-c", "from hybrid_kernels.cli import main; main()", "--help")

    assert "hybrid_kernels" in modules
    assert "probe" in text
    assert modules & SLOW == set()


def test_help_of_every_command_imports_nothing_heavy() -> None:
    """A command's own imports wait until it runs, so its help is as quick."""
    modules, text = imported("-c", EVERY_HELP)

    assert text.count("Usage: hybrid-kernels") >= 3
    assert modules & SLOW == set()
