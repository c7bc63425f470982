"""`probe` and `doctor`: what this machine reads weights at, and what can be used here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import DEVICES, Keeping, ProgressLine, as_json, check_outputs, fail, numbers
from hybrid_kernels.units import counted

if TYPE_CHECKING:
    import pandas as pd

    from hybrid_kernels.records import Reading


@app.command()
def probe(
    device: Annotated[str, typer.Option(help="Device to measure.", metavar=DEVICES)] = "auto",
    sizes: Annotated[str, typer.Option(help="MiB of packed bytes, comma-separated.")] = "12.5,64,128,256,384",
    k: Annotated[int, typer.Option(help="Depth K of the weight matrices.")] = 5120,
    reps: Annotated[int, typer.Option(help="Samples of every arm at every size.")] = 11,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU device.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on a disk for the CPU device's next tier.")] = None,
    variant: Annotated[str | None, typer.Option(help="GEMV kernel of the GPU: narrow, as many engines read.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write facts and rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the sweep: .png, .svg or .html.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also say why in-place reads fall short (GPU).")] = False,
) -> None:
    """Measure this machine: resident and in-place reads of a real int4 GEMV beside the plain copy."""
    from dataclasses import replace

    from hybrid_kernels import files
    from hybrid_kernels.devices import open_device
    from hybrid_kernels.measure import accesses
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure import sweep as sweeping
    from hybrid_kernels.records import document
    from hybrid_kernels.report import tables

    wanted = numbers(sizes, "--sizes")
    check_outputs(json, plot)

    out = tables.console()
    rows: list[Reading] = []
    frame: pd.DataFrame | None = None
    found: accesses.Explained | None = None
    with open_device(device, scratch=scratch, threads=threads, variant=variant) as opened:
        sweeping.check(opened, wanted, k=k, block=32, reps=reps)
        if explain:
            accesses.check(opened)
        load = facts_of.host_facts()["load_average"]  # before our own work adds to it
        with ProgressLine("probe") as progress, Keeping(rows) as ending:
            frame = sweeping.sweep(opened, wanted, k=k, reps=reps, progress=progress, on_rows=rows.extend)
            if explain:
                found = accesses.explain(opened, k=k, progress=progress)
        if frame is None:
            frame = sweeping.frame(opened.name, sweeping.mark_disorder(rows))
        facts = replace(facts_of.under_load(opened), load_average=load)
    for line in tables.facts_lines(facts):
        out.print(line, markup=False)
    out.print()
    out.print(tables.sweep_table(frame))
    out.print(f"GB/s of packed bytes: {tables.interval_caption(reps)}; n samples each.\n", markup=False)
    for line in tables.sweep_words(frame, facts):
        out.print(f"- {line}", markup=False)
    more: dict[str, Any] = ending.fields()
    if found is not None:
        from hybrid_kernels.report.accesses import accesses_table, placement_words

        out.print()
        out.print(accesses_table(found.table))
        for line in placement_words(found.placements):
            out.print(f"- {line}", markup=False)
        more |= {"accesses": found.table.to_dict("records"), "placements": found.placements}
    if json is not None:
        records = sweeping.with_units(frame)
        files.replace(json, as_json(document(facts, records, **more)))
    if plot is not None and not frame.empty:
        from hybrid_kernels.report import charts

        charts.save(charts.sweep_chart(frame, facts), plot)
    kept = f", kept in {json}" if json is not None else ""
    ending.leave(f"{len({row.n for row in rows})} of {counted(len(wanted), 'size')} finished{kept}")
    for row in rows:
        if row.reason is not None:
            fail(f"{row.strategy} was not measured at N = {row.n}: {row.reason}", 1)
    if any(row.outputs_identical is False for row in rows):
        fail("outputs differ between strategies: these numbers are not to be used", 1)


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
