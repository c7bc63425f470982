"""`figures`: published numbers, kept true."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import Results, as_json
from hybrid_kernels.cli.history import tell_skipped
from hybrid_kernels.errors import BadInput
from hybrid_kernels.units import counted

if TYPE_CHECKING:
    import datetime

File = Annotated[Path, typer.Option("--file", help="The ledger of figures.")]

figures = typer.Typer(
    help="Published numbers: what each is now, what it was, and whether it still holds.", no_args_is_help=True
)
app.add_typer(figures, name="figures")


@figures.command("list")
def figures_list(
    file: File = Path("figures.toml"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Every figure on every machine: its value now and what it was before."""
    from hybrid_kernels.judge import ledger
    from hybrid_kernels.records import document
    from hybrid_kernels.report import figure_tables, tables

    book = ledger.load(file)
    if json:
        sys.stdout.buffer.write(as_json(document({"file": file}, ledger.current_rows(book))))
    else:
        tables.console().print(figure_tables.list_table(book))


@figures.command("show")
def figures_show(
    figure: Annotated[str, typer.Argument(metavar="ID")],
    file: File = Path("figures.toml"),
    results: Results = "results",
    machine: Annotated[str | None, typer.Option(help="Only this machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """One figure and its whole record: what it was, when and why it changed, cross-checks, events in the history."""
    from hybrid_kernels.history import folders
    from hybrid_kernels.judge import ledger
    from hybrid_kernels.judge.events import History, rows
    from hybrid_kernels.records import document
    from hybrid_kernels.report import figure_tables, tables

    book = ledger.load(file)
    one = book.figure(figure)
    machines = one.machines() if machine is None else (book.machine(one, machine),)
    history = History(results, book) if folders.is_there(results) else None
    told = {name: history.statements(figure, name) for name in machines} if history is not None else {}
    closures = [closure for closure in book.closures(figure) if closure.check.machine in machines]
    if json:
        records = [ledger.row(one, record) for record in one.records if record.machine in machines]
        events = [row for name in told for row in rows(told[name])]
        checks = [ledger.closure_row(closure) for closure in closures]
        about = {"file": file, "results": results if history is not None else None}
        data = document(about, records, figure=ledger.figure_row(one), cross_checks=checks, events=events)
        sys.stdout.buffer.write(as_json(data))
        return
    out = tables.console()
    for line in figure_tables.show_lines(one, closures, told, machine):
        out.print(line, markup=False, soft_wrap=True)


@figures.command("check")
def figures_check(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Documents; by default those that figures.toml names.")
    ] = None,
    file: File = Path("figures.toml"),
    results: Results = "results",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Exit 1 if a figure, a cross-check or a document no longer holds; each with file, line and what to do."""
    from hybrid_kernels.history import folders
    from hybrid_kernels.judge import backing, ledger
    from hybrid_kernels.judge.events import History
    from hybrid_kernels.records import document
    from hybrid_kernels.report import documents

    book = ledger.load(file)
    history = None
    if folders.is_there(results) or any(backing.rests_on_results(record) for _, record in ledger.current(book)):
        history = History(results, book)
        tell_skipped(history.skipped, history.stored.notes)
    read = documents.documents(paths) if paths else documents.own_documents(book)
    found = documents.ledger_findings(book, backing.problems(history) if history is not None else ())
    found += documents.check(read, book)
    if json:
        about = {"file": file, "results": results if history is not None else None, "documents": read}
        sys.stdout.buffer.write(as_json(document(about, found)))
    for finding in found if not json else ():
        print(finding)
    if found:
        raise typer.Exit(1)
    if not json:
        count = sum(len(figure.records) for figure in book.figures.values())
        against = f"{results}" if history is not None else f"no history ({results} is no folder)"
        print(
            f"{file}: against {against} hold {counted(len(book.figures), 'figure')} with {counted(count, 'record')}; "
            f"{counted(len(book.checks), 'cross-check')} closed, {counted(len(read), 'document')} read: "
            "what they quote is current"
        )


@figures.command("sync")
def figures_sync(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Documents or folders; by default those that figures.toml names.")
    ] = None,
    file: File = Path("figures.toml"),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if anything is out of date.")] = False,
) -> None:
    """Bring the numbers between figure markers in Markdown documents up to date."""
    from hybrid_kernels.judge import ledger
    from hybrid_kernels.report import documents

    book = ledger.load(file)
    read = documents.documents(paths) if paths else documents.own_documents(book)
    stale = documents.sync(read, book, check=check)
    for finding in stale:
        print(finding if check else f"{finding.file}:{finding.line}: {finding.what}: rewritten")
    if check and stale:
        raise typer.Exit(1)
    if not stale:
        print(f"{counted(len(read), 'document')}: every figure marker holds the current value")


@figures.command("correct")
def figures_correct(
    figure: Annotated[str, typer.Argument(metavar="ID")],
    reason: Annotated[str, typer.Option(help="Why the number changed.")] = "",
    value: Annotated[str | None, typer.Option(help="Value or range with its unit, such as '5.6 to 5.7 GB/s'.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="What the value is.", metavar="'upper bound'|'lower bound'|estimate|measured")
    ] = None,
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Take value, method, commit and evidence from the results.")
    ] = False,
    machine: Annotated[str | None, typer.Option(help="Machine; may be left out when the figure has one.")] = None,
    method: Annotated[str | None, typer.Option(help="The outside source, when not from the history.")] = None,
    change: Annotated[
        str | None, typer.Option(help="What the step was.", metavar="correction|improvement|regression|environment")
    ] = None,
    conditions: Annotated[str | None, typer.Option(help="What the value holds under.")] = None,
    commit: Annotated[
        str | None, typer.Option(help="Commit that was measured; with --from-history, as of that commit.")
    ] = None,
    evidence: Annotated[list[str] | None, typer.Option(help="Where to look; may be given again.")] = None,
    date: Annotated[
        str | None, typer.Option(help="Day of the statement, such as 2026-08-13; by default today.")
    ] = None,
    file: File = Path("figures.toml"),
    results: Results = "results",
) -> None:
    """Append a record that corrects the current one. Earlier records, comments and order stay as they are."""
    from hybrid_kernels.judge import corrections, ledger

    if not reason.strip():
        raise BadInput("--reason: a correction without a reason is not recorded; say why the number changed")
    if (value is None) == (not from_history):
        raise BadInput("--value: give either --value with its unit, or --from-history")
    read_from = ledger.read_text(file)
    book = ledger.parse(read_from, file)
    one = book.figure(figure)
    if from_history:
        from hybrid_kernels.judge import backing
        from hybrid_kernels.judge.events import History

        machine = machine or book.machine(one, None)
        history = History(results, book)
        stated = backing.statement(history.as_of(commit) if commit is not None else history, one, machine)
        commit = None  # the one whose value it is
    else:
        stated = corrections.Statement(*ledger.parse_quantity(str(value), one), method=ledger.Method(source=method))
        if method is None:
            raise BadInput("--method: name the source of the value; a number without its method cannot be corrected")
        if kind is None:
            raise BadInput(f"--kind: say what the value is: {', '.join(ledger.KINDS)}")
    record = corrections.correct(
        file, figure, stated, kind=kind, reason=reason, machine=machine or book.machine(one, None),
        date=_day(date), change=change, conditions=conditions, commit=commit, evidence=tuple(evidence or ()),
        read_from=read_from,
    )  # fmt: skip
    was = f", corrects record {record.corrects}" if record.corrects is not None else ", the first of this machine"
    print(
        f"{file}:{record.line}: {figure} record {record.id} ({record.machine}): "
        f"{one.format(record)}, {record.kind}{was}"
    )


def _day(text: str | None) -> datetime.date:
    import datetime

    try:
        return datetime.date.fromisoformat(text) if text is not None else datetime.datetime.now(datetime.UTC).date()
    except ValueError:
        raise BadInput(f"--date: {text!r} is no date; write for example 2026-08-13") from None
