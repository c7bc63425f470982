"""`walk` and `plan`: one decode step over a model, and how to split it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid_kernels.cli.app import app
from hybrid_kernels.cli.common import DEVICES, Keeping, ProgressLine, Results, as_json, check_outputs, fail, numbers
from hybrid_kernels.errors import BadInput
from hybrid_kernels.units import counted


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
    ring: Annotated[int | None, typer.Option(help="Buffers that weights run ahead into: 3, or the plan's.")] = None,
    capacity: Annotated[bool, typer.Option("--capacity", help="Find how many bytes in place stay right.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU device.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on a disk for the CPU device's next tier.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write facts and rows to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw step time: .png, .svg or .html.")] = None,
) -> None:
    """Measure one decode step over every projection of a model, beside what a sweep predicts for it."""
    from contextlib import ExitStack
    from dataclasses import replace
    from statistics import median

    from hybrid_kernels import files
    from hybrid_kernels.devices import open_device
    from hybrid_kernels.judge import plan as planning
    from hybrid_kernels.layout import models
    from hybrid_kernels.measure import facts as facts_of
    from hybrid_kernels.measure import sweep as sweeping
    from hybrid_kernels.measure import walk as walking
    from hybrid_kernels.records import WALK_RING, Walk, document
    from hybrid_kernels.report import tables
    from hybrid_kernels.units import parse_bytes

    check_outputs(json, plot)
    schedules = planning.SCHEDULES if schedule == "both" else (schedule,)
    if not set(schedules) <= set(planning.SCHEDULES):
        raise BadInput(f"--schedule: {schedule!r} is not known; use serial, overlapped or both")
    given = planning.read(plan) if plan is not None else None
    known = models.find(given.model if given and not model else model)
    if given is not None and given.model != known.name:
        raise BadInput(f"--plan: {plan} is a plan for {given.model}, not for {known.name}; make one with plan --model")
    if sum(bool(one) for one in (given, resident_bytes, fractions)) > 1:
        raise BadInput("--plan, --resident-bytes, --fractions: each is a split of its own; give one of them")
    budget = parse_bytes(resident_bytes, "--resident-bytes") if resident_bytes else None
    tensors = walking.tensors_of(known)
    if given is not None and [choice.tensor for choice in given.choices] != tensors:
        raise BadInput(f"--plan: the tensors in {plan} are not those of {known.name}; make one with plan --model")
    shares = numbers(fractions, "--fractions", "1,0.5,0") if fractions else []
    splits = [planning.at_fraction(tensors, share) for share in shares]
    if given is not None:
        splits, schedules = [[choice.strategy for choice in given.choices]], (given.schedule,)
    elif not splits and budget is None:
        splits = [["resident"] * len(tensors)]
    out = tables.console()
    rows: list[Walk] = []
    right: tuple[int, bool] | None = None
    count = len(schedules) * max(len(splits), 1)
    with open_device(device, scratch=scratch, threads=threads) as opened:
        if ring is None:
            ring = given.ring if given is not None else WALK_RING
        walking.check(opened, tensors, splits, reps=reps, ring=ring, budget_bytes=budget)
        for name in schedules if budget is not None else ():
            planning.check_budget(known.name, tensors, budget, name, ring)
        if sweep is not None:
            costs = planning.Costs.of(planning.read_sweep(sweep))
            if costs.device != opened.name:
                raise BadInput(f"--sweep: {sweep} is of device {costs.device}; this walk is on device {opened.name}")
        with ProgressLine("walk") as progress, Keeping(rows) as ending:
            shapes = sorted({(tensor.n, tensor.k) for tensor in tensors})
            # A sweep in turn with each step is taken where speeds drift; a budget's plan needs one before.
            in_turn = sweep is None and opened.drifts
            if sweep is None and not (in_turn and splits):
                costs = planning.Costs.of(sweeping.sweep_shapes(opened, shapes, reps=reps, progress=progress))
            wanted = [(name, strategies) for name in schedules for strategies in splits]
            for name in () if splits else schedules:
                chosen = planning.choose(
                    known.name, tensors, costs, budget_bytes=budget, schedule=name, ring=ring, marginal=False
                )
                wanted.append((name, [choice.strategy for choice in chosen.choices]))
            with ExitStack() as stack:
                pool = stack.enter_context(walking.Tensors(opened, tensors))
                beside = None
                if in_turn:
                    copies = [name for name in planning.COPIES if name in opened.baselines][:1]
                    beside = stack.enter_context(sweeping.Beside(opened, shapes, copies, progress=progress))
                for name, strategies in wanted:
                    row = walking.walk(
                        pool, known.name, strategies, schedule=name, reps=reps, ring=ring, beside=beside,
                        progress=progress,
                    )  # fmt: skip
                    if beside is not None:
                        sweeps = [(planning.Costs.of(r.passes), r.copy_seconds, r.slowdowns) for r in beside.rounds]
                    else:
                        sweeps = [(costs, row.copy_seconds, (row.copy_slowdown, row.pass_slowdown))]
                    steps, floors = [], []
                    for known_costs, copied, slowed in sweeps:
                        span, _ = planning.predict(
                            tensors, strategies, known_costs, name, ring, copy_seconds=copied, slowdowns=slowed
                        )
                        steps.append(span[0])
                        floors.append(planning.floor(tensors, strategies, known_costs, copied))
                    rows.append(replace(row, predicted_seconds=median(steps), floor_seconds=median(floors)))
                if capacity:
                    right = walking.capacity(pool, progress)
        facts = facts_of.collect(opened)
    if right is not None:
        facts = replace(facts, in_place_capacity_bytes=right[0])
    for line in tables.facts_lines(facts):
        out.print(line, markup=False)
    out.print()
    out.print(tables.walk_table(rows))
    words = [*tables.walk_words(rows), *tables.capacity_words(right)]
    if in_turn and rows:
        words.append("The speeds of this device drift, so predictions come from a sweep taken in turn with each step.")
    for line in words:
        out.print(f"- {line}", markup=False)
    if json is not None:
        found = None if right is None else {"bytes": right[0], "whole_model": right[1]}
        files.replace(json, as_json(document(facts, rows, **ending.fields(), capacity=found)))
    if plot is not None and rows:
        from hybrid_kernels.report import charts

        charts.save(charts.walk_chart(tables.walk_frame(rows), facts), plot)
    kept = f", kept in {json}" if json is not None else ""
    ending.leave(f"{len(rows)} of {counted(count, 'walk')} finished{kept}")
    if any(row.outputs_identical is False for row in rows):
        fail("outputs differ from the all-resident walk: these numbers are not to be used", 1)


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="Model to plan for.")],
    budget: Annotated[str, typer.Option(help="Device memory for weights, for example 7.7GB.")],
    sweep: Annotated[Path | None, typer.Option(help="Sweep of the machine (probe --json FILE).")] = None,
    machine: Annotated[str, typer.Option(help="Or a machine of the history in --results.")] = "",
    results: Results = "results",
    device: Annotated[str, typer.Option(help="Device of the history's numbers.")] = "cuda",
    schedule: Annotated[str, typer.Option(help="serial or overlapped.")] = "serial",
    ring: Annotated[int, typer.Option(help="Buffers that weights run ahead into.")] = 3,
    capacity: Annotated[
        str, typer.Option(help="Bytes in place in one step that stay right, or the file of walk --capacity --json.")
    ] = "",
    json: Annotated[Path | None, typer.Option(help="Also write the plan to this file.")] = None,
) -> None:
    """Choose which tensors stay resident in a budget of device memory, and predict the step time."""
    from math import inf

    from hybrid_kernels import files
    from hybrid_kernels.judge import plan as planning
    from hybrid_kernels.layout import models
    from hybrid_kernels.measure.walk import tensors_of
    from hybrid_kernels.report import tables
    from hybrid_kernels.units import parse_bytes

    check_outputs(json, None)
    known = models.find(model)
    nbytes = parse_bytes(budget, "--budget")
    if (sweep is None) == (not machine):
        raise BadInput("--sweep or --machine: give one of them, the measurements that the plan is made from")
    if sweep is not None:
        costs = planning.Costs.of(planning.read_sweep(sweep), str(sweep))
    else:
        costs = planning.from_history(results, machine, device)
    tensors = tensors_of(known)
    limit = inf  # the CPU device reads files, which the kernel keeps right
    if capacity:
        file = Path(capacity)
        limit = planning.read_capacity(file) if file.is_file() else parse_bytes(capacity, "--capacity")
    elif costs.device != "cpu":
        limit = 0  # unknown
    chosen = planning.choose(
        known.name, tensors, costs, budget_bytes=nbytes, schedule=schedule, ring=ring, in_place_limit=limit
    )
    out = tables.console()
    out.print(tables.plan_table(chosen))
    words = tables.plan_words(chosen)
    if limit == 0 and schedule == "serial":
        words.append(
            "Nothing is read in place: how many bytes stay right in one step is not known. Find out with "
            "hybrid-kernels walk --capacity --json FILE, and give --capacity FILE."
        )
    for line in words:
        out.print(f"- {line}", markup=False)
    if json is not None:
        files.replace(json, as_json(planning.to_document(chosen)))
