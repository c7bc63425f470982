"""A comparison told in the form that was asked for: table, Markdown or JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from hybrid_kernels.errors import BadInput
from hybrid_kernels.records import Comparison, Verdict, document
from hybrid_kernels.report import markdown, tables, verdicts

FORMATS = ("table", "markdown", "json")
VERDICTS = ("slower", "faster", "same", "unsettled", "unadjudicable", "added", "removed", "method changed")

nothing_measured = markdown.nothing_measured


def check(form: str, fail_on: str | None) -> None:
    """BadInput for a form or a verdict that does not exist, before anything is measured."""
    if form not in FORMATS:
        raise BadInput(f"--format: {form!r} is not one of {', '.join(FORMATS)}")
    if fail_on is not None and fail_on not in VERDICTS:
        raise BadInput(f"--fail-on: {fail_on!r} is not a verdict; use one of {', '.join(VERDICTS)}")


def render(comparison: Comparison, form: str, *, always: bool = False) -> str:
    """The whole report. Markdown is empty when there is nothing to say and it is not asked for `always`."""
    if form == "json":
        told = replace(comparison, rows=(), controls=())
        extras = {key: value for key, value in vars(told).items() if key not in ("rows", "controls", "facts")}
        made = document(
            comparison.facts, comparison.rows, controls=comparison.controls, headline=verdicts.headline(comparison),
            limits=verdicts.limits(comparison), **extras,
        )  # fmt: skip
        return json.dumps(made, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if form == "markdown":
        return markdown.comment(comparison, always=always) or ""
    return _table(comparison)


def _table(comparison: Comparison) -> str:
    shown, rest = verdicts.notable(comparison.rows)
    columns = ["benchmark", "base", "head", "change", "95 % interval", "rounds", "verdict", "why"]
    console = tables.console()
    with console.capture() as captured:
        console.print(verdicts.headline(comparison), markup=False)
        for warning in comparison.warnings:
            console.print(f"! {warning}", markup=False)
        console.print()
        console.print(
            tables.rows_table(columns, [_cells(row) for row in (*shown, *rest)], left=("benchmark", "verdict", "why"))
        )
        if comparison.controls:
            console.print("\nControl arms", markup=False)
            cells = [_cells(row) for row in comparison.controls]
            console.print(tables.rows_table(columns, cells, left=("benchmark", "verdict", "why")))
        limits = verdicts.limits(comparison)
        if limits:
            console.print("\nWhat this run cannot catch:", markup=False)
        for line in limits:
            console.print(f"- {line}", markup=False)
    return captured.get()


def _cells(row: Verdict) -> list[str]:
    why = "; ".join(part for part in (row.reason, f"harness: {row.harness}" if row.harness else "") if part)
    return [
        row.name, verdicts.value(row, row.base), verdicts.value(row, row.head), verdicts.percent(row.change),
        verdicts.interval(row), str(row.rounds or "-"), row.verdict, why,
    ]  # fmt: skip
