"""`nightly`: what a timer calls on every machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import ProgressLine
from hybrid_kernels.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hybrid_kernels.judge.events import Event
    from hybrid_kernels.measure.night import Project


@app.command()
def nightly(
    config: Annotated[Path, typer.Option(help="Configuration of the asv project.")] = Path("asv.conf.json"),
    branch: Annotated[str, typer.Option(help="Branch whose commits are measured.")] = "main",
    machine: Annotated[str | None, typer.Option(help="Name of this machine; else as asv knows it.")] = None,
    backfill: Annotated[int, typer.Option(help="Also measure up to N older commits, in the largest gaps.")] = 0,
    idle_limit: Annotated[str, typer.Option(help="How long to wait for an idle machine.")] = "30m",
    suite_limit: Annotated[str, typer.Option(help="How long one suite of one commit may take.")] = "60m",
    attribute: Annotated[list[str] | None, typer.Option(help="For asv's --attribute, such as rounds=1.")] = None,
    publish: Annotated[Path | None, typer.Option(help="Publish the site to this folder when done.")] = None,
    push: Annotated[bool, typer.Option("--push", help="Commit the results and push them.")] = False,
    results_branch: Annotated[str | None, typer.Option(help="Commit the results to this branch.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Also write the summary to this Markdown file.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="The ledger of figures.")] = None,
) -> None:
    """Measure new commits, check figures, publish, and say what happened. Exit 0 fine, 1 events or failed checks."""
    from hybrid_kernels import files
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure import night as nights
    from hybrid_kernels.report import nights as report
    from hybrid_kernels.units import parse_seconds

    if backfill < 0:
        raise BadInput(f"--backfill: {backfill} must be 0 or more")
    limits = parse_seconds(idle_limit, "--idle-limit"), parse_seconds(suite_limit, "--suite-limit")
    if summary is not None:
        files.check_writable(summary, "--summary")
    project = nights.Project(config, branch, machine)
    try:
        with nights.lock(project.side / "lock"):
            with ProgressLine("nightly") as progress:
                night = nights.run(
                    project, backfill=backfill, idle_limit=limits[0], suite_limit=limits[1],
                    attributes=attribute or (), facts=facts_of.machine_facts(), progress=progress,
                )  # fmt: skip
            events, problems, more = _judged(project, file or project.folder / "figures.toml", night.measured)
            if publish is not None and night.idle is None:
                more += _published(config, publish)
            if (push or results_branch) and night.moved:
                more.append(nights.share(project, night, results_branch, push))
    except nights.Held as held:
        print(held)
        return
    sys.stdout.write(report.text(night, events, problems, more))
    if summary is not None:
        files.replace(summary, report.as_markdown(night, events, problems, more).encode())
    if night.interrupted:
        raise typer.Exit(130)
    if events or problems or night.marks:
        raise typer.Exit(1)


def _judged(project: Project, file: Path, measured: Sequence[str]) -> tuple[list[Event], list[str], list[str]]:
    """New events of this machine since the last night, failed checks, and what else to say."""
    from hybrid_kernels.errors import HybridKernelsError
    from hybrid_kernels.judge import backing, ledger
    from hybrid_kernels.judge.events import History
    from hybrid_kernels.measure.night import new_events
    from hybrid_kernels.report import documents

    if not (project.results / project.machine).is_dir():
        return [], [], ["no history yet"]
    try:
        book = ledger.load(file) if file.is_file() else None
        history = History(project.results, book)
        events = history.events(machine=project.machine) if history.series else ()
        problems = []
        if book is not None:
            found = documents.ledger_findings(book, backing.problems(history))
            problems = [str(one) for one in [*found, *documents.check(documents.own_documents(book), book)]]
    except HybridKernelsError as error:
        return [], [str(error)], []
    more = [f"skipped, as it cannot be read: {one.file} {one.reason}" for one in history.skipped]
    return new_events(project, events, measured), problems, more


def _published(config: Path, site: Path) -> list[str]:
    from hybrid_kernels.errors import HybridKernelsError
    from hybrid_kernels.report.dashboard import publish as publishing

    try:
        return [f"published: {publishing.publish(config, site, pull=False) / 'index.html'}"]
    except HybridKernelsError as error:
        return [f"not published, the old site stands: {error}"]
