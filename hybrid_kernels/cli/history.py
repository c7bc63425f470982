"""`history`: what asv's results hold, as a table or as data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import RESULTS, as_json
from hybrid_kernels.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hybrid_kernels.history.store import Note, Skipped

FORMATS = ("table", "csv", "json", "parquet")
SHOWN = 10  # skipped files and notes told one by one; the JSON document has them all


@app.command()
def history(
    results: Annotated[list[str] | None, typer.Option(help=RESULTS)] = None,
    benchmark: Annotated[str | None, typer.Option(help="Regular expression of benchmarks, as of asv.")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="Only this machine; repeatable.")] = None,
    format: Annotated[
        str, typer.Option(help="table: a line a series and version; the others: every row.", metavar="|".join(FORMATS))
    ] = "table",
    output: Annotated[
        str | None,
        typer.Option(
            help="File to write to; parquet needs one that ends in .parquet, or a folder or address for a dataset "
            "partitioned by machine and month."
        ),
    ] = None,
    samples: Annotated[
        bool, typer.Option("--samples", help="With the raw samples, where the files keep them.")
    ] = False,
    cache: Annotated[bool, typer.Option(help="Use the cache of earlier loads.")] = True,
) -> None:
    """Show what a history of asv holds: every value of every version, and what could not be read."""
    from hybrid_kernels import files
    from hybrid_kernels.history import store
    from hybrid_kernels.report import datasets

    if format not in FORMATS:
        raise BadInput(f"--format: unknown format {format!r}; use {', '.join(FORMATS)}")
    as_dataset = format == "parquet" and output is not None and not output.endswith(".parquet")
    if output is not None:
        if as_dataset:
            datasets.check(output)
        else:
            files.check_writable(output, "--output")
    elif format == "parquet":
        raise BadInput("--output: parquet is not for a terminal; name a file or a folder to write to")
    loaded = store.load(results or ["results"], samples=samples, cache=cache, benchmark=benchmark, machine=machine)

    from hybrid_kernels.report import history_tables, tables

    tell_skipped(loaded.skipped, loaded.notes)
    if loaded.frame.empty:
        raise BadInput(f"--results: no results in {', '.join(results or ['results'])}; write some with asv run")
    if format == "table":
        table = history_tables.series_table(loaded.frame)
        if output is None:
            tables.console().print(table)
        else:
            files.replace(output, tables.as_text(table).encode())
        return
    if as_dataset and output is not None:
        datasets.write(loaded.frame, output)
        return
    if format == "json":
        data = as_json(history_tables.document(loaded))
    else:
        data = {"csv": history_tables.csv, "parquet": history_tables.parquet}[format](loaded.frame)
    if output is not None:
        files.replace(output, data)
    else:
        sys.stdout.buffer.write(data)


def tell_skipped(skipped: Iterable[Skipped], notes: Iterable[Note] = ()) -> None:
    """Says on standard error which files could not be read and what was odd about others; nothing when nothing."""
    for what, lines in (
        ("skipped, as it cannot be read", [f"{one.file} {one.reason}" for one in skipped]),
        ("note", [f"{one.file} {one.text}" for one in notes]),
    ):
        for line in lines[:SHOWN]:
            print(f"hybrid-kernels: {what}: {line}", file=sys.stderr)
        if len(lines) > SHOWN:
            print(f"hybrid-kernels: {what}: {len(lines) - SHOWN} more, {len(lines)} in all", file=sys.stderr)
