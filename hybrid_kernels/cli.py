"""The command line: parse, call, print, exit code. No logic; nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hybrid_kernels.errors import BadInput, HybridKernelsError

if TYPE_CHECKING:
    from rich.progress import Progress

    from hybrid_kernels.records import Reading

app = typer.Typer(
    name="hybrid-kernels",
    help="Measure what a machine reads int4 weights at, keep the history, know a correction from a regression.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

DEVICES = "auto|cpu|cuda"


@app.command()
def probe(
    device: Annotated[str, typer.Option(help="Device to measure.", metavar=DEVICES)] = "auto",
    sizes: Annotated[str, typer.Option(help="MiB of packed bytes, comma-separated.")] = "12.5,64,128,256,384",
    k: Annotated[int, typer.Option(help="Depth K of the weight matrices.")] = 5120,
    reps: Annotated[int, typer.Option(help="Samples of every arm at every size.")] = 11,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU device.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on a disk for the CPU device's next tier.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write facts and rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the sweep: .png, .svg or .html.")] = None,
) -> None:
    """Measure this machine: resident and in-place reads of a real int4 GEMV beside the plain copy."""
    from dataclasses import replace

    from hybrid_kernels import files
    from hybrid_kernels.devices import open_device
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure import sweep as sweeping
    from hybrid_kernels.records import document
    from hybrid_kernels.report import tables

    wanted = _numbers(sizes, "--sizes")
    if json is not None:
        files.check_writable(json, "--json")
    if plot is not None:
        from hybrid_kernels.report import charts

        files.check_writable(plot, "--plot")
        if plot.suffix not in charts.ENDINGS:
            raise BadInput(f"--plot: {plot.name} must end in {', '.join(charts.ENDINGS)}")

    out = tables.console()
    rows: list[Reading] = []
    interrupted = False
    with open_device(device, scratch=scratch, threads=threads) as opened:
        sweeping.check(opened, wanted, k=k, block=32, reps=reps)
        load = facts_of.host_facts()["load_average"]  # before our own work adds to it
        with ProgressLine("probe") as progress:
            try:
                frame = sweeping.sweep(opened, wanted, k=k, reps=reps, progress=progress, on_rows=rows.extend)
            except KeyboardInterrupt:
                interrupted = True
                frame = sweeping.frame(opened.name, sweeping.mark_disorder(rows))
        facts = replace(facts_of.under_load(opened), load_average=load)
    for line in tables.facts_lines(facts):
        out.print(line, markup=False)
    out.print()
    out.print(tables.sweep_table(frame))
    out.print("GB/s of packed bytes: median [95 % interval of the median], n samples each.\n", markup=False)
    for line in tables.sweep_words(frame, facts):
        out.print(f"- {line}", markup=False)
    if json is not None:
        records = sweeping.with_units(frame)
        files.replace(json, as_json(document(facts, records, complete=not interrupted)))
    if plot is not None and not frame.empty:
        charts.save(charts.sweep_chart(frame, facts), plot)
    if interrupted:
        kept = f", kept in {json}" if json is not None else ""
        _fail(f"interrupted: {len({row.n for row in rows})} of {len(wanted)} sizes finished{kept}", 130)
    if any(row.outputs_identical is False for row in rows):
        _fail("outputs differ between strategies: these numbers are not to be used", 1)


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    scratch: Annotated[Path | None, typer.Option(help="Folder on a disk for the CPU device's next tier.")] = None,
) -> None:
    """Say which devices can be used here and, for each that cannot, why and what to do."""
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure.doctor import examine
    from hybrid_kernels.records import document
    from hybrid_kernels.report import tables

    rows = examine(scratch)
    if json:
        sys.stdout.buffer.write(as_json(document(facts_of.host_facts(), rows)))
    else:
        tables.console().print(tables.doctor_table(rows))
    if not any(row["usable"] for row in rows):
        raise typer.Exit(1)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{option}: {text!r} is not a list of numbers; write for example 12.5,64") from None


def as_json(document: Any) -> bytes:
    """One JSON document in UTF-8, numbers plain, NaN refused."""
    import json

    return (json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


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


def _fail(message: str, code: int) -> NoReturn:
    print(f"hybrid-kernels: {message}", file=sys.stderr)
    raise typer.Exit(code)


def main() -> None:
    """Entry point: errors that users can act on become one line and an exit code, never a traceback."""
    try:
        status = app(standalone_mode=False)
    except typer.Exit as stop:
        status = stop.exit_code
    except HybridKernelsError as error:
        print(f"hybrid-kernels: {' '.join(str(error).split())}", file=sys.stderr)
        status = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("hybrid-kernels: interrupted", file=sys.stderr)
        status = 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors carry their own one line
            raise
        print(f"hybrid-kernels: {error.format_message()}", file=sys.stderr)
        status = 2
    sys.exit(status if isinstance(status, int) else 0)
