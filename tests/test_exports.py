"""The public names: what the design promises a Python caller, imported on first use."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hybrid_kernels

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("hybrid_kernels", "tests") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("name", hybrid_kernels.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` and `dir` promise can be had, is documented, and says where it lives."""
    value = getattr(hybrid_kernels, name)

    assert name in dir(hybrid_kernels)
    assert value.__doc__
    assert value.__module__.startswith("hybrid_kernels.")


def test_the_promised_names_are_public() -> None:
    """The names that the design's "From Python" uses."""
    assert {"Int4Weights", "open_device", "sweep", "History"} <= set(hybrid_kernels.__all__)


def test_another_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = hybrid_kernels.no_such_name


def test_importing_the_package_imports_no_library() -> None:
    """`import hybrid_kernels` loads nothing outside the standard library: names are fetched on first use."""
    code = "import sys; old = set(sys.modules); import hybrid_kernels; print(*sorted(set(sys.modules) - old))"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots - set(sys.stdlib_module_names) == {"hybrid_kernels"}


def test_the_version_is_stated_once() -> None:
    """An installed package says the version of pyproject.toml."""
    try:
        installed = importlib.metadata.version("hybrid-kernels")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("a checkout on PYTHONPATH, not installed")

    assert installed == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def test_every_test_says_what_it_states() -> None:
    """Each test function has a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in SOURCES
        if path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert silent == []
