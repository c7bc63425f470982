"""The documents are run: every block of commands in README.md, CONTRIBUTING.md and docs/ that can run, does.

A document's blocks run in order, in one folder: a fresh clone of this repository with the files as they are now, so
that a later block may use what an earlier one wrote.

- ```python blocks are executed.
- ```console blocks: each line that begins with `$ ` is run, continued while it ends in a backslash. Other lines are its
  output: those without a digit must come out again; the others are samples.
- ```text, ```toml and ```json blocks are shown, never run.

A comment before a block changes that: `<!-- run with: OPTIONS -->` appends options to the block's last command (small
sizes, so that tests stay quick), `<!-- not run: REASON -->` leaves the block out, and `<!-- ci: NAME -->` leaves it to
.ci/run. What is left out is counted below.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if path.exists()]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
RUN, SHOWN = {"python", "console"}, {"text", "toml", "json"}

NOT_RUN = {
    "CONTRIBUTING.md": 1,
    "docs/compare.md": 3,
    "docs/method.md": 1,
    "docs/fleet.md": 5,
    "docs/nightly.md": 2,
    "docs/publish.md": 1,
    "docs/storage.md": 3,
}
"""Blocks marked `not run` in each document, by its path: a deliberate number, so that none is left out unseen."""

COMMENT = re.compile(r"<!--\s*(run with|not run|ci):\s*(.*?)\s*-->")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language, text and first line, and the comment that stands before it."""

    language: str
    text: str
    line: int
    mark: str = ""  # "run with", "not run", "ci" or nothing
    note: str = ""

    @property
    def left_out(self) -> bool:
        return self.mark in ("not run", "ci")


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, as a CommonMark parser sees them, lists and quotes included."""
    found, mark, note = [], "", ""
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            comment = COMMENT.fullmatch(token.content.strip())
            mark, note = (comment[1], comment[2]) if comment else ("", "")
        elif token.type == "fence":
            assert token.map is not None
            found.append(Block(token.info.strip(), token.content, token.map[0] + 2, mark, note))
            mark, note = "", ""
        elif token.content:
            mark, note = "", ""
    return found


def commands_of(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines of output shown under it."""
    commands: list[tuple[str, list[str]]] = []
    continued = False
    for line in block.text.splitlines():
        if continued:
            command, shown = commands[-1]
            commands[-1] = (f"{command}\n{line.removeprefix('> ')}", shown)
        elif line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and line.strip():
            commands[-1][1].append(line)
        continued = bool(commands) and line.endswith("\\") and (continued or line.startswith("$ "))
    if commands and block.mark == "run with":
        commands[-1] = (f"{commands[-1][0]} {block.note}", commands[-1][1])
    return commands


def squeezed(text: str) -> str:
    return " ".join(text.split())


def missing(shown: list[str], output: str) -> list[str]:
    """Lines shown in a document, without a digit in them, that the output does not hold."""
    lines = {squeezed(line) for line in output.splitlines()}
    return [line for line in shown if not re.search(r"\d|\.\.\.|…", line) and squeezed(line) not in lines]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command line in it, for a checkout on PYTHONPATH that nobody installed."""
    folder = tmp_path_factory.mktemp("bin")
    if shutil.which("hybrid-kernels", path=str(Path(sys.executable).parent)) is None:
        script = folder / "hybrid-kernels"
        start = f'"{sys.executable}" -P -c "from hybrid_kernels.cli import main; main()"'
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {start} "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of this repository, with its history, holding the files as they are in the working tree."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a checkout, to run the documents' commands in a clone of it")
    folder = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def execute(block: Block, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run a block in `folder`; what is wrong with it, in words, or nothing."""
    if block.language == "python":
        script = folder.parent / "block.py"
        script.write_text(block.text, "utf-8")
        steps = [(f'"{sys.executable}" "{script}"', list[str]())]
    else:
        steps = commands_of(block)
    wrong = []
    for command, shown in steps:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            wrong.append(f"{command}\nended with {done.returncode}:\n{done.stdout[-3000:]}")
            break
        wrong += [
            f"{command}\ndoes not print {line!r}; it printed:\n{done.stdout[-3000:]}"
            for line in missing(shown, done.stdout)
        ]
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_does_what_it_says(document: Path, checkout: Path, programs: Path) -> None:
    """Every block that can run ends with 0, and prints the words that the document shows."""
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "160", "PYTHONWARNINGS": "default"}
    if (ROOT / "hybrid_kernels").exists() and any(programs.iterdir()):
        environment["PYTHONPATH"] = str(ROOT)

    wrong = [
        f"{document.name}:{block.line}: {text}"
        for block in blocks_of(document.read_text("utf-8"))
        if block.language in RUN and not block.left_out
        for text in execute(block, checkout, environment)
    ]

    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_says_what_it_is(document: Path) -> None:
    """A block is of a language that is run or one that is shown, and a console block holds a command."""
    for block in blocks_of(document.read_text("utf-8")):
        assert block.language in RUN | SHOWN, f"{document.name}:{block.line}: {block.language or 'no language'}"
        assert block.language != "console" or commands_of(block), f"{document.name}:{block.line}: no `$ ` line"


def test_what_is_not_run_is_counted() -> None:
    """Each block that is left out gives its reason in words, and their number is the one written down above."""
    left_out: dict[str, int] = {}
    for document in DOCUMENTS:
        for block in blocks_of(document.read_text("utf-8")):
            if block.mark == "not run":
                name = str(document.relative_to(ROOT))
                left_out[name] = left_out.get(name, 0) + 1
                assert len(block.note.split()) >= 3, f"{name}:{block.line}: give the reason"

    assert left_out == NOT_RUN


SAMPLE = textwrap.dedent(
    """
    <!-- run with: --size 1 -->

    ```console
    $ echo head
    head
    $ echo a \\
    > b
    12 of 13
    ```

    <!-- not run: needs a second machine -->
    ```console
    $ false
    ```

    - in a list

      ```python
      print("hello")
      ```
    """
)


def test_blocks_are_found_with_their_comments() -> None:
    """Comments belong to the block after them only, continued lines to their command, other lines to its output."""
    first, second, third = blocks_of(SAMPLE)

    assert commands_of(first) == [("echo head", ["head"]), ("echo a \\\nb --size 1", ["12 of 13"])]
    assert (second.left_out, second.note) == (True, "needs a second machine")
    assert (third.language, third.mark) == ("python", "")


def test_a_block_that_fails_or_prints_something_else_is_reported(tmp_path: Path) -> None:
    """A command that fails, a Python block that raises, and a shown word that does not come out are all found."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def wrong(language: str, text: str) -> list[str]:
        return execute(Block(language, text, 1), folder, dict(os.environ))

    assert wrong("console", "$ echo head\nhead\n3 rows\n") == []
    assert "ended with 1" in wrong("console", "$ false | true\n")[0]
    assert "does not print 'tail'" in wrong("console", "$ echo head\ntail\n")[0]
    assert "ZeroDivisionError" in wrong("python", "1 / 0\n")[0]
    assert wrong("python", "assert 1 + 1 == 2\n") == []
