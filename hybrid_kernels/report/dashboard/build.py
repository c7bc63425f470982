"""From a results folder to our pages: everything is read, judged and gathered anew."""

from __future__ import annotations

from hybrid_kernels.judge import ledger as books
from hybrid_kernels.judge.events import History
from hybrid_kernels.report.dashboard import events, gather, pages
from hybrid_kernels.report.dashboard.kept import Built, Source
from hybrid_kernels.report.dashboard.links import Graphs
from hybrid_kernels.units import counted


def build(source: Source) -> Built:
    """Our pages of `source`, made anew. BadInput when figures.toml is broken or the results cannot be read."""
    figures, project = source.figures, source.project
    ledger = books.load(figures) if figures.exists() else books.empty(figures)
    judge = History(source.results, ledger)
    history = judge.stored
    entries = {name: one.entry for name, one in history.benchmarks.items() if one.defined and one.entry is not None}
    graphs = Graphs(entries, sorted(history.machines))
    sweeps, newest = gather.sweep_pages(history, project)
    timeline = events.timeline(judge, project, graphs)
    contents = {
        "figures": gather.figures(judge, project, graphs),
        "events": timeline,
        "sweeps": sweeps,
        "machines": gather.machines(history, ledger, project, newest),
    }
    holds = f"{counted(len(history.rows), 'record')} in {counted(len(history.reports), 'file')}"
    if history.skipped:
        holds += f", {counted(len(history.skipped), 'file')} could not be read"
    made = pages.render(contents, project, holds)
    made["events.xml"] = events.feed(timeline, project)
    return Built(
        files=made,
        warnings=[f"{one.file}: {one.reason}; left out" for one in history.skipped],
        figures=len(contents["figures"].page["figures"]),
        commits=sorted(
            {commit for chunk in timeline.chunks.values() for one in chunk.values() for commit in one["commits"]}
        ),
    )
