"""A comparison in words, shared by the Markdown comment and the terminal table: headline, values, limits.

Takes a finished `records.Comparison` and returns text. The headline says no more than the rows do: it is about a
slowdown only if a row is called slower, and whatever keeps the run from answering comes before anything else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hybrid_kernels import units
from hybrid_kernels.records import Comparison, Verdict
from hybrid_kernels.units import counted, significant

MOVED = ("slower", "faster", "unsettled", "added", "removed", "method changed")
"""Verdicts that a reader must see; failures join them (see `notable`)."""

_SEVERITY = ("slower", "faster", "unadjudicable", *MOVED[2:], "same")
_ORDER = {word: place for place, word in enumerate(_SEVERITY)}
_TELLING = 0.1  # a change of this size is what a reader would want to hear of; rows that cannot show it are counted


def headline(comparison: Comparison) -> str:
    """One true line, plain text."""
    counts = Counter(row.verdict for row in comparison.rows)
    rows = len(comparison.rows)
    said = _headline(comparison, counts, rows)
    failed = sum(1 for row in comparison.rows if _failed(row))
    if failed:
        said += f" {counted(failed, 'benchmark')} measured nothing on one side or both."
    if comparison.interrupted:
        said = f"Interrupted after {counted(comparison.rounds, 'round')}: {said}"
    return said


def _headline(comparison: Comparison, counts: Counter[str], rows: int) -> str:
    if not rows:
        return "Only control arms were measured: nothing to say about the change."
    slower, faster = (_by_size(comparison.rows, word) for word in ("slower", "faster"))
    ratios = [row for row in comparison.rows if row.change is not None]
    if slower:
        worst = slower[0]
        said = (
            f"{counted(len(slower), 'benchmark')} of {rows} slower, the worst {worst.name} by {percent(worst.change)}"
        )
        return f"{said}; {len(faster)} faster." if faster else f"{said}."
    if comparison.untouched:
        kept = f"{counted(rows, 'row')} measured, kept as calibration"
        return f"This change touches nothing that the benchmarks import: {kept}."
    if faster:
        best = faster[0]
        most = f"the most {best.name} by {percent(best.change)}"
        return f"{counted(len(faster), 'benchmark')} of {rows} faster, {most}; none slower."
    blocked = [row for row in ratios if row.verdict == "unadjudicable"]
    if ratios and len(blocked) == len(ratios):
        if comparison.spread is not None and comparison.rounds == 1 and "one run a side" in blocked[0].reason:
            return _one_run(comparison.spread, ratios)
        reasons = Counter(row.reason for row in blocked)
        return f"No verdict: {reasons.most_common(1)[0][0]}."
    quiet = f"Nothing called slower or faster: {counts['same']} of {rows} shown to be the same"
    if counts["unsettled"]:
        return f"{quiet}, {counts['unsettled']} unsettled."
    if counts["same"] == rows:
        return f"No change: {'all ' if rows > 1 else ''}{counted(rows, 'benchmark')} shown to be the same."
    others = ", ".join(f"{counts[word]} {word}" for word in _ORDER if counts[word] and word != "same")
    return f"{quiet}, {others}."


def _one_run(spread: Mapping[str, float], rows: Sequence[Verdict]) -> str:
    said = (
        "No verdict: one run a side cannot tell a change from noise. Single runs of these "
        f"{counted(len(rows), 'row')} differ by {percent(spread['least'])} to {percent(spread['most'])}, half of them "
        f"by more than {significant(100 * spread['typical'], 2)} % from the middle."
    )
    own = sum(row.harness.startswith("regression") for row in rows)
    return f"{said} The harness's own intervals, from inside those runs, say regression in {own}." if own else said


def silent(comparison: Comparison) -> bool:
    """Whether there is nothing to say: every row the same (or out of the change's reach), every control arm held."""
    if comparison.interrupted or any(row.verdict == "moved" for row in comparison.controls):
        return False
    return comparison.untouched or all(row.verdict == "same" for row in comparison.rows)


def notable(rows: Iterable[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """(rows that moved, are unsettled or failed, the most telling first; the rest)."""
    shown: list[Verdict] = []
    rest: list[Verdict] = []
    for row in rows:
        (shown if row.verdict in MOVED or _failed(row) else rest).append(row)
    return sorted(shown, key=_telling), sorted(rest, key=_telling)


def value(row: Verdict, number: float | None) -> str:
    """A value with its unit, three digits; "-" where there is none."""
    return "-" if number is None else units.format_value(number, row.unit)


def percent(change: float | None) -> str:
    """A relative change as a signed percentage, "-" where there is none."""
    if change is None:
        return "-"
    sign = "+" if change >= 0 else "-"
    size = abs(100 * change)
    return f"{sign}{size:.1f} %" if size < 100 else f"{sign}{significant(size)} %"


def interval(row: Verdict) -> str:
    """The 95 % interval of the change; "-" with fewer than two rounds."""
    if row.ci_low is None or row.ci_high is None:
        return "-"
    return f"{percent(row.ci_low)} to {percent(row.ci_high)}"


def limits(comparison: Comparison) -> list[str]:
    """What this run cannot catch, each sentence from what it did or left out."""
    told = []
    rows = [row for row in comparison.rows if row.rounds]
    if comparison.skipped:
        told.append(_left_out(comparison.skipped, comparison, "What skips itself here"))
    if comparison.unselected:
        told.append(_left_out([(name, "") for name in comparison.unselected], comparison, "What the filter left out"))
    if rows:
        learned = [row for row in rows if row.learned_from]
        default = [row for row in rows if not row.learned_from]
        if default:
            of = "every row" if not learned else f"{len(default)} of {counted(len(rows), 'row')}"
            told.append(
                f"Changes under {_size(default[0].threshold)} in {of}: the default threshold, since this machine has "
                "no comparisons of equal code for them (`hybrid-kernels compare --calibrate COMMIT`)."
            )
        if learned:
            least, most = (pick(row.threshold or 0 for row in learned) for pick in (min, max))
            told.append(
                f"Changes under the noise that comparisons of equal code showed here: {_size(least)} to {_size(most)}, "
                f"by row, for {counted(len(learned), 'row')}."
            )
        blunt = [row for row in rows if row.rounds > 1 and _half_width(row) > _TELLING]
        if blunt:
            told.append(
                f"A change of 10 % in {len(blunt)} of {counted(len(rows), 'row')}: their noise would still hide it "
                f"after {counted(comparison.rounds, 'round')}."
            )
    if not comparison.controls:
        told.append("A machine that changed between the sides: no control arm was measured.")
    if comparison.rounds > 1 and comparison.runs == 1:
        told.append(
            "Whatever this sitting of this machine was like as a whole: the rounds share it, and the intervals do not "
            "cover it (`--join` judges several sittings together)."
        )
    if comparison.rounds == 1:
        told.append("Any change at all: more runs of each side would settle it (four or more; runs are rounds).")
    return told


def _left_out(cells: Sequence[tuple[str, str]], comparison: Comparison, what: str) -> str:
    """Which parameter values, and failing that which benchmarks, were never measured."""
    seen = {pair for row in (*comparison.rows, *comparison.controls) for pair in row.cell.split(", ")}
    absent: Counter[str] = Counter()
    for name, _ in cells:
        inside = re.search(r"\((.*)\)$", name)
        for pair in inside[1].split(", ") if inside else ():
            if pair not in seen and "=" in pair:
                absent[pair] += 1
    suites = sorted({name.split("(")[0].rpartition(".")[0] or name for name, _ in cells})
    measured = {row.benchmark.rpartition(".")[0] for row in (*comparison.rows, *comparison.controls)}
    whole = [suite for suite in suites if suite not in measured]
    said = f"{what} ({counted(len(cells), 'benchmark cell')})"
    parts = [f"all with {_few(sorted(absent))}"] if absent else []
    parts += [f"the whole of {_few(whole)}"] if whole else []
    if not parts:
        parts = [_few([name for name, _ in cells])]
    return f"{said}: {'; '.join(parts)}."


def _few(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _half_width(row: Verdict) -> float:
    low, high = row.called_low, row.called_high
    return (high - low) / 2 if low is not None and high is not None else float("inf")


def _failed(row: Verdict) -> bool:
    return row.verdict == "unadjudicable" and row.reason.startswith("nothing measured")


def _by_size(rows: Iterable[Verdict], word: str) -> list[Verdict]:
    return sorted((row for row in rows if row.verdict == word), key=_telling)


def _telling(row: Verdict) -> tuple[int, float, str]:
    return _ORDER.get(row.verdict, len(_ORDER)), -abs(row.change or 0.0), row.name


def _size(threshold: float | None) -> str:
    return f"{significant(100 * (threshold or 0.0), 2)} %"
