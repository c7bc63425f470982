"""Which files a change touches, and whether any of them can reach what the benchmarks run.

Decided without running anything, and in doubt for "it can": a file counts as out of reach only if it is documentation
or a test by its place or kind, and lies in nothing that the benchmarks import.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from hybrid_kernels.errors import BadInput

_PROSE = frozenset({".md", ".rst", ".adoc", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf"})
_PROSE_NAMES = frozenset(
    {"LICENSE", "COPYING", "AUTHORS", "NOTICE", "CHANGELOG", "CODEOWNERS", ".gitignore", "CITATION.cff"}
)
_ASIDE = frozenset({"doc", "docs", "test", "tests", ".github", ".ci", ".gitlab", "news", "changelog.d"})


def git(repository: Path, *arguments: str) -> str:
    """Output of a git command in `repository`; BadInput with git's last line when it fails."""
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise BadInput(f"git {arguments[0]} in {repository}: {lines[-1]}")
    return done.stdout


def changed(repository: Path, base: str, head: str) -> tuple[str, ...]:
    """Paths that differ between two commits, renames by both names."""
    listed = git(repository, "diff", "--name-only", "--no-renames", "-z", base, head)
    return tuple(path for path in listed.split("\0") if path)


def out_of_reach(paths: Sequence[str], tree: Iterable[str], suite: str, modules: Iterable[str]) -> bool:
    """Whether none of `paths` can change what the benchmarks measure.

    `tree` lists the files of the repository, `suite` is the benchmark folder in it ("" if elsewhere), `modules` the
    dotted names that the benchmarks import.
    """
    files = set(tree)
    roots = [f"{suite}/"] if suite else []
    for module in modules:
        top = module.split(".")[0]
        for place in ("", "src/", "lib/", "python/"):
            if f"{place}{top}.py" in files:
                roots.append(f"{place}{top}.py")
            if any(path.startswith(f"{place}{top}/") for path in files):
                roots.append(f"{place}{top}/")
    tests_imported = any({"test", "tests"} & set(module.split(".")) for module in modules)

    def harmless(path: str) -> bool:
        parts = PurePosixPath(path)
        aside = bool(_ASIDE & set(parts.parts[:-1]))
        if any(path.startswith(root) for root in roots):
            return bool({"test", "tests"} & set(parts.parts[:-1])) and not tests_imported
        return aside or parts.suffix.lower() in _PROSE or parts.name in _PROSE_NAMES

    return all(harmless(path) for path in paths)


def imports(suite: Path) -> tuple[str, ...]:
    """Dotted names that the Python files of a benchmark folder import, wherever in the file; relative ones left out."""
    names: set[str] = set()
    for path in sorted(suite.rglob("*.py")):
        try:
            parsed = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue  # a file that Python cannot read is reported where it is run
        for node in ast.walk(parsed):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    return tuple(sorted(names))
