"""`fleet`: the same measurement on many machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.live import Live

    from hybrid_kernels.records import FleetMember

fleet = typer.Typer(help="The same measurement on every machine of a Dask cluster.", no_args_is_help=True)
app.add_typer(fleet, name="fleet")


@fleet.callback()
def _group() -> None:
    """The same measurement on every machine of a Dask cluster."""


@fleet.command("run")
def fleet_run(
    commits: Annotated[list[str], typer.Argument(metavar="COMMIT...", help="Commits to measure, in this order.")],
    scheduler: Annotated[
        str | None, typer.Option(help="Address of the Dask scheduler, such as tcp://host:8786.", metavar="ADDRESS")
    ] = None,
    local: Annotated[int | None, typer.Option(help="Instead start N workers on this host, to try it out.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Regular expression, as asv's --bench.")] = None,
    config: Annotated[Path, typer.Option(help="Configuration of the asv project.")] = Path("asv.conf.json"),
    worker_config: Annotated[
        str | None, typer.Option(help="Where that file lies on the workers; else the same path as here.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="History to gather into; else the project's.")] = None,
    wait: Annotated[
        str, typer.Option(help="How long to wait for a first machine, and for one that went away.")
    ] = "10m",
    suite_limit: Annotated[str, typer.Option(help="How long one suite of one commit may take.")] = "60m",
) -> None:
    """Measure commits on every machine of a cluster, one suite at a time each, and gather one history.

    Exit 1 when a suite failed, a machine went away for good, or a worker was refused.
    """
    from hybrid_kernels.measure import fleet as fleets
    from hybrid_kernels.report import fleets as report
    from hybrid_kernels.units import parse_seconds

    if (scheduler is None) == (local is None):
        raise BadInput("--scheduler: give either the address of a scheduler or --local N")
    patience, limit = parse_seconds(wait, "--wait"), parse_seconds(suite_limit, "--suite-limit")
    wanted, own = fleets.order(
        config, commits, worker_config=worker_config, benchmark=benchmark, limit=limit, named=local is not None
    )
    opened = fleets.local(local) if local is not None else fleets.connected(str(scheduler))
    with opened as client, _Shown() as shown:
        done = fleets.run(client, wanted, results or own, wait=patience, progress=shown)
    for line in report.summary(done):
        print(line)
    if done.nothing:
        raise BadInput(f"--benchmark: {benchmark!r} matches no benchmark of these commits")
    if done.interrupted:
        raise typer.Exit(130)
    if done.failed or done.missing or done.refused:
        raise typer.Exit(1)


class _Shown:
    """Who runs what, on standard error: a table that follows on a terminal, elsewhere a line for each change."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self.told: dict[str, str] = {}

    def __enter__(self) -> _Shown:
        if sys.stderr.isatty():
            from rich.live import Live

            from hybrid_kernels.report import tables

            self.live = Live(console=tables.console(stderr=True), transient=True)
            self.live.start()
        return self

    def __call__(self, members: Sequence[FleetMember]) -> None:
        from hybrid_kernels.report import fleets as report

        if self.live is not None:
            self.live.update(report.table(members))
            return
        for one in members:
            text = report.line(one)
            if self.told.get(one.machine) != text:
                self.told[one.machine] = text
                print(f"fleet: {text}", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
