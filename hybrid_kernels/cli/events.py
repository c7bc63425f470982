"""`events`: what every change of a history was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import RESULTS, as_json, choices
from hybrid_kernels.cli.history import tell_skipped
from hybrid_kernels.errors import BadInput

FORMATS = ("table", "json", "markdown")


@app.command()
def events(
    results: Annotated[list[str] | None, typer.Option(help=RESULTS)] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The ledger of figures; by default figures.toml beside the results.")
    ] = None,
    benchmark: Annotated[str | None, typer.Option(help="Regular expression, as asv's --bench.")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="Only this machine; repeatable.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only these kinds of event, comma-separated.")] = None,
    format: Annotated[str, typer.Option(help="How to print.", metavar="|".join(FORMATS))] = "table",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
) -> None:
    """Say of every change in a history whether the world changed or only what was known of it."""
    from hybrid_kernels import files
    from hybrid_kernels.errors import NothingMeasured
    from hybrid_kernels.judge import events as judged
    from hybrid_kernels.records import document, plain
    from hybrid_kernels.report import event_tables, tables

    kinds = choices(kind, judged.KINDS, "--kind") if kind is not None else judged.KINDS
    if format not in FORMATS:
        raise BadInput(f"--format: unknown format {format!r}; use {', '.join(FORMATS)}")
    if output is not None:
        files.check_writable(output, "--output")
    read = results or ["results"]
    history = judged.History(read, file)
    found = [event for event in history.events(benchmark, machine) if event.kind in kinds]
    tell_skipped(history.skipped, history.stored.notes)
    if not history.series:
        raise NothingMeasured(f"{' '.join(read)}: nothing measured: no result file holds a value")
    if format == "json":
        about = {"results": read, "figures": history.ledger.path, "series": len(history.series)}
        rows = judged.rows(found)
        data = as_json(document(about, rows, skipped=plain(history.skipped), notes=plain(history.stored.notes)))
        sys.stdout.buffer.write(data) if output is None else files.replace(output, data)
        return
    if format == "table" and found and output is None and sys.stdout.isatty():
        tables.console().print(event_tables.events_table(found))
        return
    if format == "markdown":
        text = event_tables.markdown(found)
    else:
        text = tables.as_text(event_tables.events_table(found)) if found else "no events\n"
    if output is not None:
        files.replace(output, text.encode())
    else:
        sys.stdout.write(text)
