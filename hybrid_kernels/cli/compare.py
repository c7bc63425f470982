"""`compare`: two commits, or two sides that another harness measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import ProgressLine, fail
from hybrid_kernels.errors import BadInput, NothingMeasured
from hybrid_kernels.records import CONTROL_NAMES
from hybrid_kernels.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hybrid_kernels.history.importers import Side
    from hybrid_kernels.records import Comparison

HARNESSES = "criterion|pytest-benchmark|asv"


class _ManyPaths(TyperCommand):
    """`--base A1 A2 --head B1 B2`: the paths up to the next option belong to the option before them; `--join` too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word if word in ("--base", "--head", "--join") else ""
                spread.append(word)
            elif option and spread[-1] != option:
                spread += [option, word]
            else:
                spread.append(word)
        return list(super().parse_args(ctx, spread))


@app.command(cls=_ManyPaths)
def compare(
    sides: Annotated[
        list[str] | None, typer.Argument(help="Two commits; with --import two files or folders.", metavar="BASE HEAD")
    ] = None,
    rounds: Annotated[str, typer.Option(help="Rounds a side: a number, or auto: until nothing is unsettled.")] = "auto",
    time_limit: Annotated[str, typer.Option(help="Begin no round that would end after this much time.")] = "20m",
    benchmark: Annotated[list[str] | None, typer.Option(help="Regular expression of benchmarks; repeatable.")] = None,
    controls: Annotated[str, typer.Option(help="Regular expression of control arms.")] = CONTROL_NAMES,
    attribute: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for every benchmark, as of asv run.")] = None,
    config: Annotated[Path, typer.Option(help="Configuration of the asv project.")] = Path("asv.conf.json"),
    keep: Annotated[Path | None, typer.Option(help="Folder for every round's raw samples; resumed from.")] = None,
    join: Annotated[list[Path] | None, typer.Option(help="Judge the rounds kept in these folders together.")] = None,
    calibrate: Annotated[str | None, typer.Option(help="Commit to compare with itself, to learn the noise.")] = None,
    harness: Annotated[
        str | None, typer.Option("--import", help="Judge what another harness left.", metavar=HARNESSES)
    ] = None,
    base: Annotated[list[Path] | None, typer.Option(help="Runs of the base, for --import.")] = None,
    head: Annotated[list[Path] | None, typer.Option(help="Runs of the head, for --import.")] = None,
    own_intervals: Annotated[
        bool, typer.Option("--own-intervals", help="Believe criterion's interval of one run.")
    ] = False,
    results: Annotated[Path | None, typer.Option(help="Results with calibrations, for --join.")] = None,
    format: Annotated[str, typer.Option(help="How to tell it.", metavar="table|markdown|json")] = "table",
    output: Annotated[Path | None, typer.Option(help="File to write the report to.")] = None,
    always: Annotated[bool, typer.Option("--always", help="Write Markdown also when there is nothing to say.")] = False,
    fail_on: Annotated[
        str | None, typer.Option(help="Exit with 1 if a row has this verdict.", metavar="slower")
    ] = None,
) -> None:
    """Compare two commits in alternating rounds, or what other harnesses measured, and call only what is shown."""
    from hybrid_kernels import files
    from hybrid_kernels.report import comparison as telling

    telling.check(format, fail_on)
    if output is not None:
        files.check_writable(output, "--output")
    given = sides or []
    try:
        if harness is not None:
            result = _imported(harness, given, base or [], head or [], controls, own_intervals)
        elif join:
            result = _joined(join, given, results)
        else:
            only = {"benchmark": benchmark or (), "controls": controls, "attributes": _attributes(attribute or [])}
            result = _measured(given, rounds, time_limit, only, config, keep, calibrate)
    except NothingMeasured as nothing:
        if output is not None and format == "markdown":
            files.replace(output, telling.nothing_measured(str(nothing)).encode())
        raise
    text = telling.render(result, format, always=always)
    if output is not None:
        files.replace(output, text.encode())
    elif text:
        sys.stdout.write(text)
    if result.interrupted:
        fail(f"interrupted after {result.rounds} rounds; the same command goes on from there", 130)
    if fail_on is not None and any(row.verdict == fail_on for row in result.rows):
        raise typer.Exit(1)


def _measured(
    sides: list[str],
    rounds: str,
    time_limit: str,
    only: dict[str, Any],
    config: Path,
    keep: Path | None,
    calibrate: str | None,
) -> Comparison:
    """Build, measure, judge; rounds of code that is equal to the benchmarks are kept as calibration."""
    from hybrid_kernels.history import calibrations, importers
    from hybrid_kernels.judge import verdict
    from hybrid_kernels.measure import rounds as measuring
    from hybrid_kernels.units import parse_seconds

    if calibrate is not None:
        if sides:
            raise BadInput("--calibrate: compares one commit with itself; give no BASE and HEAD beside it")
        sides = [calibrate, calibrate]
    if len(sides) != 2:
        raise BadInput(f"compare: needs two commits, BASE and HEAD; got {len(sides)}")
    count = _rounds(rounds) if calibrate is None or rounds != "auto" else verdict.CALIBRATION_ROUNDS
    seconds = parse_seconds(time_limit, "--time-limit")
    with (
        ProgressLine("compare") as line,
        measuring.AsvLaboratory(config, *sides, **only, progress=_progress(line)) as laboratory,
    ):
        noise = calibrations.load(laboratory.results, laboratory.machine, laboratory.plan["environment"])
        if laboratory.untouched and count is None:
            count = verdict.UNTOUCHED_ROUNDS
        stop = verdict.Settled(noise) if count is None else None
        kept = measuring.measure(
            laboratory,
            keep or laboratory.kept_folder(),
            rounds=count,
            stop=stop,
            time_limit=seconds,
            progress=_progress(line),
        )
    frame = importers.frame(kept.samples)
    result = verdict.judge(
        frame,
        base=sides[0],
        head=sides[1],
        looks=verdict.LOOKS if kept.sequential else (),
        noise=noise,
        untouched=laboratory.untouched,
        touched=laboratory.touched,
        interrupted=kept.interrupted,
        unselected=laboratory.unselected,
        warnings=(*laboratory.warnings, *kept.warnings),
        facts=kept.facts,
    )
    if (calibrate is not None or laboratory.untouched) and kept.rounds > kept.resumed and not kept.interrupted:
        why = "the same commit" if calibrate is not None else "a change that touches nothing measured"
        path = calibrations.append(
            laboratory.results,
            laboratory.machine,
            verdict.differences(frame),
            environment=laboratory.plan["environment"],
            commits=list(laboratory.commits.values()),
            date=str(kept.facts["started_at"]),
            why=why,
        )
        print(f"hybrid-kernels: {counted(kept.rounds, 'round')} of equal code kept in {path}", file=sys.stderr)
    return result


def _joined(folders: list[Path], sides: list[str], results: Path | None) -> Comparison:
    from hybrid_kernels.history import calibrations, importers
    from hybrid_kernels.judge import verdict

    if sides:
        raise BadInput("--join: the kept folders name their commits; give no BASE and HEAD beside it")
    samples, plans = importers.kept(folders)
    plan = plans[0]
    noise = calibrations.load(results, plan["machine"], plan["environment"]) if results is not None else {}
    return verdict.judge(
        importers.frame(samples),
        base=plan["base"][:8],
        head=plan["head"][:8],
        looks=verdict.LOOKS if any(plan["sequential"] for plan in plans) else (),
        noise=noise,
        untouched=plan["untouched"],
        unselected=tuple(plan["unselected"]),
        facts=plan["facts"],
    )


def _imported(
    harness: str, sides: list[str], base: list[Path], head: list[Path], controls: str, own_intervals: bool
) -> Comparison:
    from hybrid_kernels.history import importers

    if sides and (base or head):
        raise BadInput("--import: give BASE_PATH and HEAD_PATH, or --base and --head, not both")
    if len(sides) > 2:
        raise BadInput("--import: more than one run a side needs --base A1 A2 --head B1 B2")
    if sides:
        base, head = [Path(sides[0])], [Path(sides[-1])]
    if not base or not head:
        raise BadInput("--import: needs both sides: BASE_PATH HEAD_PATH, or --base and --head")
    left, right, why = importers.read(harness, base, head, controls)
    try:
        return _judged(left, right, why, base, head, own_intervals)
    except NothingMeasured as nothing:
        told = [str(nothing), *left.warnings, *right.warnings]
        raise NothingMeasured("; ".join(told[:4])) from nothing


def _judged(left: Side, right: Side, why: str, base: list[Path], head: list[Path], own_intervals: bool) -> Comparison:
    from hybrid_kernels.history import importers
    from hybrid_kernels.judge import verdict

    facts = {
        f"{name} ({side})": told
        for side, read in (("base", left), ("head", right))
        for name, told in read.told().items()
    }
    return verdict.judge(
        importers.frame([*left.samples, *right.samples]), base=str(base[0]), head=str(head[0]), harness=right.intervals,
        trust_harness=own_intervals, incomparable=why, warnings=(*left.warnings, *right.warnings), facts=facts,
    )  # fmt: skip


def _attributes(words: list[str]) -> dict[str, object]:
    from ast import literal_eval

    made: dict[str, object] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name.isidentifier() and sign):
            raise BadInput(f"--attribute: {word!r} is not NAME=VALUE; write for example repeat=3")
        try:
            made[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            made[name] = value
    return made


def _rounds(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadInput(f"--rounds: {text!r} is neither auto nor a number of rounds of at least 1")
    return int(text)


def _progress(line: ProgressLine) -> Callable[[str, int, int, Sequence[str]], None]:
    """What the runner reports, as one line: the step, and which rows more rounds could still settle."""

    def told(step: str, done: int, total: int, unsettled: Sequence[str]) -> None:
        names = ", ".join(unsettled[:2]) + ("..." if len(unsettled) > 2 else "")
        line(done, total, f"{step}, {len(unsettled)} unsettled: {names}" if unsettled else step)

    return told
