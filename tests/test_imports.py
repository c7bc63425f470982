"""The import rules of the design, as pyproject.toml writes them down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_import_rule_is_kept() -> None:
    """A row imports only rows below it, and each library with a place of its own stays there, inside functions too."""
    linter = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
