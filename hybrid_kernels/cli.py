"""The command line: parse, call, print, exit code. No logic; nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.records import CONTROL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress

    from hybrid_kernels.records import Comparison, Reading

app = typer.Typer(
    name="hybrid-kernels",
    help="Measure what a machine reads int4 weights at, keep the history, know a correction from a regression.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

DEVICES = "auto|cpu|cuda"
HARNESSES = "criterion|pytest-benchmark|asv"


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
    _check_outputs(json, plot)

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
        from hybrid_kernels.report import charts

        charts.save(charts.sweep_chart(frame, facts), plot)
    if interrupted:
        kept = f", kept in {json}" if json is not None else ""
        _fail(f"interrupted: {len({row.n for row in rows})} of {len(wanted)} sizes finished{kept}", 130)
    if any(row.outputs_identical is False for row in rows):
        _fail("outputs differ between strategies: these numbers are not to be used", 1)


@app.command()
def walk(
    model: Annotated[str, typer.Option(help="Model whose projections are read.")] = "",
    device: Annotated[str, typer.Option(help="Device to measure.", metavar=DEVICES)] = "auto",
    resident_bytes: Annotated[str, typer.Option(help="Device memory for weights, for example 7.7GB.")] = "",
    fractions: Annotated[str, typer.Option(help="Resident fractions to measure instead, for example 1,0.5,0.")] = "",
    plan: Annotated[Path | None, typer.Option(help="Walk this plan (from hybrid-kernels plan --json).")] = None,
    schedule: Annotated[str, typer.Option(help="serial, overlapped or both.")] = "both",
    sweep: Annotated[Path | None, typer.Option(help="Predict from this sweep instead of measuring one.")] = None,
    reps: Annotated[int, typer.Option(help="Walks timed for each row.")] = 11,
    ring: Annotated[int, typer.Option(help="Buffers that weights run ahead into.")] = 3,
    capacity: Annotated[bool, typer.Option("--capacity", help="Find how many bytes in place stay right.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU device.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on a disk for the CPU device's next tier.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write facts and rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw step time: .png, .svg or .html.")] = None,
) -> None:
    """Measure one decode step over every projection of a model, beside what a sweep predicts for it."""
    from dataclasses import replace

    from hybrid_kernels import files
    from hybrid_kernels.devices import open_device
    from hybrid_kernels.judge import plan as planning
    from hybrid_kernels.layout import models
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure import sweep as sweeping
    from hybrid_kernels.measure import walk as walking
    from hybrid_kernels.records import Walk, document
    from hybrid_kernels.report import tables
    from hybrid_kernels.units import parse_bytes

    _check_outputs(json, plot)
    schedules = planning.SCHEDULES if schedule == "both" else (schedule,)
    if not set(schedules) <= set(planning.SCHEDULES):
        raise BadInput(f"--schedule: {schedule!r} is not known; use serial, overlapped or both")
    given = planning.read(plan) if plan is not None else None
    known = models.find(given.model if given and not model else model)
    if given is not None and given.model != known.name:
        raise BadInput(f"--plan: {plan} is a plan for {given.model}, not for {known.name}; make one with plan --model")
    budget = parse_bytes(resident_bytes, "--resident-bytes") if resident_bytes else None
    shares = _numbers(fractions, "--fractions") if fractions else []
    out = tables.console()
    rows: list[Walk] = []
    right: tuple[int, bool] | None = None
    interrupted = False
    with open_device(device, scratch=scratch, threads=threads) as opened, ProgressLine("walk") as progress:
        tensors = walking.tensors_of(known)
        if sweep is not None:
            costs = planning.Costs.of(planning.read_sweep(sweep))
        else:
            shapes = sorted({(tensor.n, tensor.k) for tensor in tensors})
            costs = planning.Costs.of(sweeping.sweep_shapes(opened, shapes, reps=reps, progress=progress))
        wanted: list[tuple[str, list[str]]] = []
        for name in schedules:
            if given is not None:
                wanted += (
                    [(given.schedule, [choice.strategy for choice in given.choices])] if name == schedules[0] else []
                )
            elif shares:
                wanted += [(name, planning.at_fraction(tensors, share)) for share in shares]
            else:
                chosen = planning.choose(
                    known.name, tensors, costs, budget_bytes=budget, schedule=name, ring=ring, marginal=False
                )
                wanted.append((name, [choice.strategy for choice in chosen.choices]))
        with walking.Tensors(opened, tensors) as pool:
            try:
                for name, strategies in wanted:
                    span, _ = planning.predict(tensors, strategies, costs, name, ring)
                    row = walking.walk(
                        pool, known.name, strategies, schedule=name, reps=reps, ring=ring, progress=progress
                    )
                    least = planning.floor(tensors, strategies, costs)
                    rows.append(replace(row, predicted_seconds=span[0], floor_seconds=least))
                if capacity:
                    right = walking.capacity(pool, progress)
            except KeyboardInterrupt:
                interrupted = True
        facts = facts_of.collect(opened)
    for line in tables.facts_lines(facts):
        out.print(line, markup=False)
    out.print()
    out.print(tables.walk_table(rows))
    for line in [*tables.walk_words(rows), *tables.capacity_words(right)]:
        out.print(f"- {line}", markup=False)
    if json is not None:
        found = None if right is None else {"bytes": right[0], "whole_model": right[1]}
        files.replace(json, as_json(document(facts, rows, complete=not interrupted, capacity=found)))
    if plot is not None and rows:
        from hybrid_kernels.report import charts

        charts.save(charts.walk_chart(tables.walk_frame(rows), facts), plot)
    if interrupted:
        _fail(f"interrupted: {len(rows)} of {len(wanted)} walks finished", 130)
    if any(row.outputs_identical is False for row in rows):
        _fail("outputs differ from the all-resident walk: these numbers are not to be used", 1)


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="Model to plan for.")],
    budget: Annotated[str, typer.Option(help="Device memory for weights, for example 7.7GB.")],
    sweep: Annotated[Path | None, typer.Option(help="Sweep of the machine (probe --json FILE).")] = None,
    machine: Annotated[str, typer.Option(help="Or a machine of the history in --results.")] = "",
    results: Annotated[Path, typer.Option(help="Folder of asv results.")] = Path("results"),
    device: Annotated[str, typer.Option(help="Device of the history's numbers.")] = "cuda",
    schedule: Annotated[str, typer.Option(help="serial or overlapped.")] = "serial",
    ring: Annotated[int, typer.Option(help="Buffers that weights run ahead into.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Also write the plan to this file.")] = None,
) -> None:
    """Choose which tensors stay resident in a budget of device memory, and predict the step time."""
    from hybrid_kernels import files
    from hybrid_kernels.judge import plan as planning
    from hybrid_kernels.layout import models
    from hybrid_kernels.measure.walk import tensors_of
    from hybrid_kernels.report import tables
    from hybrid_kernels.units import parse_bytes

    _check_outputs(json, None)
    known = models.find(model)
    nbytes = parse_bytes(budget, "--budget")
    if (sweep is None) == (not machine):
        raise BadInput("--sweep or --machine: give one of them, the measurements that the plan is made from")
    if sweep is not None:
        costs = planning.Costs.of(planning.read_sweep(sweep), str(sweep))
    else:
        costs = planning.from_history(results, machine, device)
    tensors = tensors_of(known)
    chosen = planning.choose(known.name, tensors, costs, budget_bytes=nbytes, schedule=schedule, ring=ring)
    out = tables.console()
    out.print(tables.plan_table(chosen))
    for line in tables.plan_words(chosen):
        out.print(f"- {line}", markup=False)
    if json is not None:
        files.replace(json, as_json(planning.to_document(chosen)))


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


class _ManyPaths(TyperCommand):
    """`--base A1 A2 --head B1 B2`: every path up to the next option belongs to the option before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word if word in ("--base", "--head") else ""
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
    from hybrid_kernels.errors import NothingMeasured
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
            result = _measured(given, rounds, time_limit, benchmark or [], controls, config, keep, calibrate)
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
        _fail(f"interrupted after {result.rounds} rounds; the same command goes on from there", 130)
    if fail_on is not None and any(row.verdict == fail_on for row in result.rows):
        raise typer.Exit(1)


def _measured(
    sides: list[str],
    rounds: str,
    time_limit: str,
    benchmark: list[str],
    controls: str,
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
        measuring.AsvLaboratory(
            config, *sides, benchmark=benchmark, controls=controls, progress=_progress(line)
        ) as laboratory,
    ):
        noise = calibrations.load(laboratory.results, laboratory.machine, laboratory.plan["environment"])
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
        looks=stop.looks if stop is not None else (),
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
        print(f"hybrid-kernels: {kept.rounds} rounds of equal code kept in {path}", file=sys.stderr)
    return result


def _joined(folders: list[Path], sides: list[str], results: Path | None) -> Comparison:
    from hybrid_kernels.history import calibrations, importers
    from hybrid_kernels.judge import verdict

    if sides:
        raise BadInput("--join: the kept folders name their commits; give no BASE and HEAD beside it")
    samples, plans = importers.kept(folders)
    plan = plans[0]
    noise = calibrations.load(results, plan["machine"], plan["environment"]) if results is not None else {}
    return verdict.judge(importers.frame(samples), base=plan["base"][:8], head=plan["head"][:8], noise=noise)


def _imported(
    harness: str, sides: list[str], base: list[Path], head: list[Path], controls: str, own_intervals: bool
) -> Comparison:
    from hybrid_kernels.history import importers
    from hybrid_kernels.judge import verdict

    if sides and (base or head):
        raise BadInput("--import: give BASE_PATH and HEAD_PATH, or --base and --head, not both")
    if len(sides) > 2:
        raise BadInput("--import: more than one run a side needs --base A1 A2 --head B1 B2")
    if sides:
        base, head = [Path(sides[0])], [Path(sides[-1])]
    if not base or not head:
        raise BadInput("--import: needs both sides: BASE_PATH HEAD_PATH, or --base and --head")
    left, right, why = importers.read(harness, base, head, controls)
    facts = {
        f"{name} ({side})": told
        for side, read in (("base", left), ("head", right))
        for name, told in read.told().items()
    }
    return verdict.judge(
        importers.frame([*left.samples, *right.samples]), base=str(base[0]), head=str(head[0]), harness=right.intervals,
        trust_harness=own_intervals, incomparable=why, warnings=(*left.warnings, *right.warnings), facts=facts,
    )  # fmt: skip


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


def _check_outputs(json: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before anything is measured."""
    from hybrid_kernels import files

    if json is not None:
        files.check_writable(json, "--json")
    if plot is not None:
        from hybrid_kernels.report import charts

        files.check_writable(plot, "--plot")
        if plot.suffix not in charts.ENDINGS:
            raise BadInput(f"--plot: {plot.name} must end in {', '.join(charts.ENDINGS)}")


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
