"""The ready-made files say what the tools that read them accept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_cuda_configuration_differs_in_one_thing() -> None:
    """asv.cuda.conf.json is asv.conf.json with the extra that a GPU needs, and stays so."""
    plain, cuda = (json.loads((ROOT / name).read_text()) for name in ("asv.conf.json", "asv.cuda.conf.json"))
    assert cuda.pop("install_command") == [line + "[cuda]" for line in plain.pop("install_command")]
    assert plain == cuda


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_units_verify(tmp_path: Path) -> None:
    """systemd's own checker finds nothing wrong, once the program they call exists."""
    home = tmp_path / "hybrid_kernels/.venv/bin"
    home.mkdir(parents=True)
    program = home / "hybrid-kernels"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("service", "timer"):
        text = (ROOT / f"deploy/hybrid-kernels-nightly.{name}").read_text().replace("%h", str(tmp_path))
        (tmp_path / f"hybrid-kernels-nightly.{name}").write_text(text)
    units = [str(tmp_path / f"hybrid-kernels-nightly.{name}") for name in ("service", "timer")]
    got = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in got.stderr.splitlines() if "hybrid-kernels" in line]
    assert ours == []


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_pass_actionlint(path: Path) -> None:
    """actionlint knows GitHub's syntax, contexts and shells."""
    program = shutil.which("actionlint") or shutil.which("actionlint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("actionlint is not here")
    got = subprocess.run([program, str(path)], capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").iterdir()), ids=lambda path: path.name)
def test_every_option_that_is_used_exists(path: Path) -> None:
    """A ready-made file calls `nightly` with options that it has."""
    text = path.read_text() + (ROOT / ".github/workflows/nightly.yml").read_text()
    run = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()", "nightly", "--help"]
    known = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    used = {
        option
        for line in text.splitlines()
        if "hybrid-kernels nightly" in line
        for option in re.findall(r"--[a-z-]+", line)
    }
    assert used
    assert {option for option in used if option not in known} == set()
