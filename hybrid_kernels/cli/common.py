"""What commands share: reading options, progress, JSON, and ending with a line and a code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hybrid_kernels.errors import BadInput, HybridKernelsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress

DEVICES = "auto|cpu|cuda"
RESULTS = "A results folder of asv, one above several, or an address such as s3://bucket/results; repeatable."
Results = Annotated[str, typer.Option(help="A results folder of asv, or an address such as s3://bucket/results.")]


def check_outputs(json: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before anything is measured."""
    from hybrid_kernels import files

    if json is not None:
        files.check_writable(json, "--json")
    if plot is not None:
        from hybrid_kernels.report import charts

        files.check_writable(plot, "--plot")
        if plot.suffix not in charts.ENDINGS:
            raise BadInput(f"--plot: {plot.name} must end in {', '.join(charts.ENDINGS)}")


def numbers(text: str, option: str, example: str = "12.5,64") -> list[float]:
    """The comma-separated numbers of an option. BadInput naming it when they are none."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{option}: {text!r} is not a list of numbers; write for example {example}") from None


def choices(text: str, known: Sequence[str], option: str) -> list[str]:
    """The comma-separated words of an option. BadInput naming it and what is `known` when one is another word."""
    chosen = [part.strip() for part in text.split(",")]
    for part in chosen:
        if part not in known:
            raise BadInput(f"{option}: {part!r} is not one of: {', '.join(known)}")
    return chosen


def as_json(document: Any) -> bytes:
    """One JSON document in UTF-8, numbers plain, NaN refused."""
    import json

    return (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


class Keeping:
    """Measuring whose finished `rows` are reported however it ends: through, by Ctrl-C, or by an error after the first
    of them."""

    def __init__(self, rows: Sequence[object]) -> None:
        self.rows, self.interrupted = rows, False
        self.error: HybridKernelsError | None = None

    def __enter__(self) -> Keeping:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, KeyboardInterrupt):
            self.interrupted = True
        elif isinstance(error, HybridKernelsError) and self.rows:
            self.error = error
        else:
            return False
        return True

    def fields(self) -> dict[str, Any]:
        """For `--json`: whether everything asked for is in the file, and why not."""
        why = {} if self.error is None else {"error": " ".join(str(self.error).split())}
        return {"complete": not self.interrupted and self.error is None, **why}

    def leave(self, finished: str) -> None:
        """End the command where measuring did not go through, saying what was `finished`."""
        if self.interrupted:
            fail(f"interrupted: {finished}", 130)
        if self.error is not None:
            print(f"hybrid-kernels: ended early: {finished}", file=sys.stderr)
            raise self.error


class ProgressLine:
    """Progress on standard error: a bar on a terminal, elsewhere a plain line for each new text (done, total, text)."""

    def __init__(self, title: str) -> None:
        self.title, self.last = title, ""
        self.bar: Progress | None = None

    def __enter__(self) -> ProgressLine:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            from hybrid_kernels.report import tables

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            bar = Progress(*columns, TimeRemainingColumn(), console=tables.console(stderr=True), transient=True)
            self.task = bar.add_task(self.title, total=None)
            bar.start()
            self.bar = bar
        return self

    def __call__(self, done: int, total: int, text: str) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, description=f"{self.title}: {text}")
        elif text != self.last:
            print(f"{self.title}: {text} ({done}/{total})", file=sys.stderr, flush=True)
            self.last = text

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def fail(message: str, code: int) -> NoReturn:
    """End the command with one line on standard error and this exit code."""
    print(f"hybrid-kernels: {message}", file=sys.stderr)
    raise typer.Exit(code)
