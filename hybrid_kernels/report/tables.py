"""Finished results as terminal tables and the words below them. Nothing here measures or judges."""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from hybrid_kernels.records import Choice, Facts, Plan, Walk
from hybrid_kernels.units import counted, format_bytes, format_seconds, significant

if TYPE_CHECKING:
    import pandas as pd

HONEST_MIB = 60  # rows of about 64 MiB and more, whatever the rounding to whole rows: beyond most caches and latencies
DRIFT_NOTED = 0.1  # share by which the first point may move before the reader is told to measure again
ENOUGH_SAMPLES = 6  # below, no pair of order statistics covers the median in 95 % of cases (2 x 2^-6 < 5 % <= 2 x 2^-5)
WIDE = 200  # columns for output that is not a terminal: a table must not be folded by a width nobody chose


def console(stderr: bool = False) -> Console:
    """A console for results (or for progress on standard error), wide where it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else WIDE, highlight=False, soft_wrap=False)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _Whole(Table):
    """A table that a narrow terminal folds between words, as long as its longest words fit beside each other."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        texts = [[str(cell) for cell in (column.header, *column.cells)] for column in self.columns]
        widths = [max(map(len, cells), default=1) for cells in texts]
        words = [max((len(word) for cell in cells for word in cell.split()), default=1) for cells in texts]
        room = options.max_width - 2 * (len(widths) - 1)  # two columns of space between neighbours
        if sum(words) <= room < sum(widths):
            while sum(widths) > room:
                spare = [width - word for width, word in zip(widths, words, strict=True)]
                widths[spare.index(max(spare))] -= 1
            for column, width in zip(self.columns, widths, strict=True):
                column.width = width
        yield from super().__rich_console__(console, options)


def rows_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> Table:
    """A table of ready text. Right-aligned unless named in `left`; text is shown as it is, never as markup.

    Control characters, with which a name could write to the terminal, are shown as escapes.
    """
    table = _Whole(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        table.add_column(Text(name), justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_CONTROL.sub(lambda found: repr(found[0])[1:-1], cell)) for cell in row))
    return table


def as_text(table: Table) -> str:
    """A table as plain text, wide enough that nothing is folded, for files and pipes."""
    held = io.StringIO()
    Console(width=10_000, file=held, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in held.getvalue().splitlines()) + "\n"


def facts_lines(facts: Facts) -> list[str]:
    """The header of a measurement: what must be known to believe it."""
    known = asdict(facts)
    lines = [
        f"{facts.device}: {facts.device_name}"
        + (f", {facts.threads} threads" if facts.threads else "")
        + (f", {facts.multiprocessors} multiprocessors" if facts.multiprocessors else "")
        + (f", {format_bytes(facts.cache_bytes)} last-level cache" if facts.cache_bytes else "")
        + (f", kernel {facts.variant}" if facts.variant else ""),
        f"host: {facts.cpu}, {facts.cores} cores, {format_bytes(facts.memory_bytes)} memory, {facts.os} {facts.kernel}"
        + (f", load {significant(facts.load_average, 2)}" if facts.load_average is not None else "")
        + (f", scratch on {facts.scratch}" if facts.scratch else ""),
    ]
    if facts.driver or facts.link_generation:
        link = (
            f"PCIe {facts.link_generation} x{facts.link_width} under load"
            f" (device and slot: {known['link_generation_max'] or '?'} x{known['link_width_max'] or '?'})"
            if facts.link_generation
            else "link not read"
        )
        clocks = f"SM {facts.sm_clock_mhz} MHz, memory {facts.memory_clock_mhz} MHz" if facts.sm_clock_mhz else ""
        lines.append(", ".join(part for part in (f"driver {facts.driver}", link, clocks) if part))
    if facts.throttle_reasons:
        lines.append("throttled: " + ", ".join(facts.throttle_reasons))
    if facts.other_processes:
        lines.append(f"shared device: {facts.other_processes} other processes")
    lines.append(
        f"hybrid_kernels {facts.version}"
        + (f" at {facts.commit[:10]}{'+' if facts.commit.endswith('+') else ''}" if facts.commit else "")
        + f", Python {facts.python}, {facts.started_at}"
    )
    return lines


def sweep_table(frame: pd.DataFrame) -> Table:
    """One row a size (and form): the strategies side by side with the copy, medians with their 95 % intervals."""
    staged = (frame["strategy"] == "staged").any()
    forms = list(dict.fromkeys(frame.loc[frame["strategy"] == "resident", "form"]))
    columns = ["packed MiB", "N", *(["form"] if len(forms) > 1 else []), "resident GB/s", "in place GB/s"]
    columns += ["staged GB/s"] if staged else []
    columns += ["resident / in place", "copy GB/s", "in place / copy", "n", "outputs"]
    noted = frame["warnings"].map(bool).any() or frame["reason"].notna().any() or not frame["cold"].all()
    columns += ["notes"] if noted else []
    readings = _records(frame)
    rows = []
    for n in dict.fromkeys(row["n"] for row in readings):
        for form in forms:
            arms = {
                row["strategy"]: row
                for row in readings
                if row["n"] == n and (row["form"] == form or row["strategy"] not in _READS)
            }
            if not {"resident", "in_place", "copy"} <= arms.keys():
                continue
            copy = arms["copy"]
            resident, in_place = arms["resident"]["gbs"], arms["in_place"]["gbs"]
            compared = [arms[name]["outputs_identical"] for name in _READS if name in arms and not arms[name]["reason"]]
            cells = [f"{arms['resident']['packed_mib']:.4g}", f"{n:,}", *([form] if len(forms) > 1 else [])]
            cells += [_with_interval(arms[name]) for name in _READS if name in arms]
            cells += [significant(resident / in_place), _with_interval(copy), significant(in_place / copy["gbs"])]
            cells += [str(copy["samples"]), "identical" if all(compared) else "DIFFER"]
            if "notes" in columns:
                cells.append(_notes(arms))
            rows.append(cells)
    return rows_table(columns, rows, left=("form", "outputs", "notes"))


def interval_caption(samples: int) -> str:
    """What the brackets beside a median of `samples` hold: its interval, or the range where they are too few."""
    if samples < ENOUGH_SAMPLES:
        return f"median [range, since a 95 % interval takes {ENOUGH_SAMPLES} samples]"
    return "median [95 % interval of the median]"


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{str(name): v for name, v in row.items()} for row in frame.to_dict("records")]
    for row in rows:  # in a column of text, pandas keeps what is missing as NaN
        row["reason"] = row["reason"] if isinstance(row.get("reason"), str) else None
    return rows


_READS = ("resident", "in_place", "staged")


def _with_interval(row: Mapping[str, Any]) -> str:
    return f"{significant(row['gbs'])} [{significant(row['gbs_low'])}, {significant(row['gbs_high'])}]"


def _notes(arms: Mapping[str, Mapping[str, Any]]) -> str:
    notes = [] if arms["resident"]["cold"] else ["resident cached"]
    for name, row in arms.items():
        notes += [f"{name.replace('_', ' ')} {warning}" for warning in row["warnings"]]
        notes += [f"{name.replace('_', ' ')}: {row['reason'].partition(':')[0]}"] if row["reason"] else []
    return "; ".join(dict.fromkeys(notes))


def sweep_words(frame: pd.DataFrame, facts: Facts) -> list[str]:
    """What a reader should take from the table, in sentences: the bound, the cached rows, the number to size with."""
    lines = []
    readings = [row for row in _records(frame) if not row["reason"]]
    copies = {row["n"]: row for row in readings if row["strategy"] == "copy"}
    reads = [row for row in readings if row["strategy"] == "in_place" and row["cold"]]
    if not copies or not reads:
        return ["Not one size was finished, so there is nothing to size a cold path with."]
    big = max(reads, key=lambda row: row["packed_bytes"])
    beside = copies[big["n"]]
    honest = [row for row in reads if row["packed_mib"] >= HONEST_MIB]
    sized = honest or reads
    worst = min([row for row in sized if not row["warnings"]] or sized, key=lambda row: row["gbs"])
    lines.append(
        f"Size a cold path with {significant(worst['gbs_low'])} GB/s: the lower end of the interval of the slowest "
        f"in-place read of {'64 MiB and more' if honest else 'these sizes'} "
        f"({significant(worst['gbs'])} GB/s at {worst['packed_mib']:.4g} MiB)."
        + (" That read is marked: measure again before anything is sized with it." if worst["warnings"] else "")
    )
    share = significant(big["gbs"] / beside["gbs"])
    lines.append(
        f"The sequential copy ({significant(beside['gbs'])} GB/s) runs no kernel: it is only an upper bound of the "
        f"link, and the in-place read at {big['packed_mib']:.4g} MiB is {share} of it."
    )
    if big["gbs"] > beside["gbs"] and facts.device == "cpu":
        lines.append(
            f"Here the read beats the copy because {facts.threads} threads fault pages in where the copy has one."
            if (facts.threads or 1) > 1
            else "Here the read beats the copy, which bounds nothing then: repeat it on a quiet machine."
        )
    warm = frame[(frame["strategy"] == "resident") & ~frame["cold"]]
    if not warm.empty:
        sizes = ", ".join(f"{mib:.4g}" for mib in sorted(set(warm["packed_mib"])))
        lines.append(
            f"Cache-resident rows: {sizes} MiB. They were read from {counted(int(warm['copies'].max()), 'buffer')} in "
            "turn, too few to keep them out of the last-level cache; do not divide by them."
        )
    elif facts.cache_bytes is not None:
        small = sorted({mib for mib in frame["packed_mib"] if mib * 2**20 <= facts.cache_bytes})
        if small:
            buffers = int(frame.loc[frame["strategy"] == "resident", "copies"].max())
            lines.append(
                f"No row is cache-resident: sizes that fit the {format_bytes(facts.cache_bytes)} cache "
                f"({', '.join(f'{mib:.4g}' for mib in small)} MiB) were read cold, from "
                f"{counted(buffers, 'buffer')} in turn."
            )
        else:
            lines.append("No row is cache-resident: every size is larger than the last-level cache.")
    graphs = [row for row in readings if row["form"] == "graph"]
    if graphs:
        captures, fallbacks = (sum(row[name] for row in graphs) for name in ("captures", "fallbacks"))
        lines.append(
            f"Graphs: {captures} captured and replayed, {fallbacks} batches fell back to eager"
            + ("." if not fallbacks else ": their rows are marked and are no replays.")
        )
    if frame["drift"].notna().any():
        drift = float(frame["drift"].dropna().iloc[0])
        advice = "" if abs(drift) < DRIFT_NOTED else " Conditions changed under the run: repeat it on a quiet machine."
        lines.append(
            f"Drift: measured again at the end, the first point took {1 + drift:.2f} of its first time.{advice}"
        )
    if facts.load_average is not None and facts.load_average > facts.cores / 4:
        lines.append(
            f"The host was not idle (load {significant(facts.load_average, 2)} on {facts.cores} cores before the first "
            "sample): read the intervals, not the medians."
        )
    if frame["warnings"].map(bool).any():
        names = sorted({w for row in frame["warnings"] for w in row})
        lines.append(f"Marked: {', '.join(names)}. A marked number is kept, and is not one to size anything with.")
    return lines


def walk_frame(rows: Sequence[Walk]) -> pd.DataFrame:
    """Walks as the frame that `charts.walk_chart` draws."""
    import pandas as pd

    return pd.DataFrame([asdict(row) for row in rows])


def walk_table(rows: Sequence[Walk]) -> Table:
    """One row a walk: step time beside its prediction and its floor."""
    columns = [
        "resident", "schedule", "form", "step", "tok/s at most", "predicted", "predicted / step", "floor / step",
        "cold GB", "link GB/s", "device GB", "host locked GB", "n", "captures", "fallbacks", "output",
    ]  # fmt: skip
    cells = []
    for row in rows:
        predicted, least = row.predicted_seconds, row.floor_seconds
        cold = row.in_place_bytes + row.staged_bytes
        cells.append(
            (
                f"{row.resident_fraction:.3f}", row.schedule, row.form,
                _span(row.seconds, row.seconds_low, row.seconds_high),
                significant(row.tokens_per_second),
                format_seconds(predicted) if predicted is not None else "-",
                significant(predicted / row.seconds) if predicted is not None else "-",
                significant(least / row.seconds) if least is not None else "-",
                significant(cold / 1e9), significant(row.link_gbs), significant(row.device_bytes / 1e9),
                significant(row.host_locked_bytes / 1e9), str(row.samples), str(row.captures), str(row.fallbacks),
                "identical" if row.outputs_identical else "DIFFERS",
            )
        )  # fmt: skip
    return rows_table(columns, cells, left=("schedule", "form", "output"))


def _span(middle: float, low: float, high: float) -> str:
    return f"{format_seconds(middle)} [{format_seconds(low)}, {format_seconds(high)}]"


def walk_words(rows: Sequence[Walk]) -> list[str]:
    """What a reader should take from the walks: what to do first, and by how much each step is worth it."""
    if not rows:
        return ["Not one walk was finished."]
    lines = [
        f"Step: {interval_caption(min(row.samples for row in rows))}, n walks each.",
        "Step time is GEMV time alone, so tok/s is a ceiling: attention, norms and sampling come on top.",
    ]
    serial = sorted((row for row in rows if row.schedule == "serial"), key=lambda row: row.resident_fraction)
    for less, more in itertools.pairwise(serial):
        gained = more.resident_bytes - less.resident_bytes
        if gained > 0 and more.seconds < less.seconds:
            saved = (less.seconds - more.seconds) / (gained / 1e9)
            lines.append(
                f"From {less.resident_fraction:.2f} to {more.resident_fraction:.2f} resident, 1 GB more in the device "
                f"saves {format_seconds(saved)} a step."
            )
    for row in rows:
        if row.schedule != "overlapped" or row.in_place_bytes + row.staged_bytes == 0:
            continue
        same = [other for other in serial if other.resident_bytes == row.resident_bytes]
        if same and same[0].seconds > row.seconds:
            lines.append(
                f"At {row.resident_fraction:.2f} resident, letting weights run ahead saves "
                f"{format_seconds(same[0].seconds - row.seconds)} a step against reading in place."
            )
    if any(row.copy_seconds is not None for row in rows):
        lines.append(
            "Predicted and floor of an overlapped step rest on a copy of its own cold weights, timed in turn with it: "
            "each copy has a cost besides its bytes."
        )
    lines += [
        f"At {row.resident_fraction:.2f} resident, copies ahead took {row.copy_slowdown:.2f} times as long while "
        f"passes ran, and passes {row.pass_slowdown:.2f} times while copies did: they share processors. Both were "
        "timed apart from the step, and its prediction counts them."
        for row in rows
        if max(row.copy_slowdown, row.pass_slowdown) > 1.02
    ]
    return lines


def capacity_words(found: tuple[int, bool] | None) -> list[str]:
    """What `walk --capacity` found."""
    if found is None:
        return []
    nbytes, whole = found
    if whole:
        return [f"All {nbytes / 1e9:.2f} GB of the model, read in place in one step, stayed right."]
    return [f"Up to {nbytes / 1e9:.2f} GB read in place in one step stayed right; beyond that outputs differed."]


def plan_table(plan: Plan) -> Table:
    """One row a shape and strategy: how many tensors, their bytes, and the time of a pass."""
    groups: dict[tuple[int, int, str], list[Choice]] = {}
    for choice in plan.choices:
        groups.setdefault((choice.tensor.n, choice.tensor.k, choice.strategy), []).append(choice)
    rows = [
        (
            f"{n:,}", f"{k:,}", strategy.replace("_", " "), str(len(members)),
            significant(sum(m.tensor.packed_bytes for m in members) / 1e9), format_seconds(members[0].seconds),
        )
        for (n, k, strategy), members in sorted(groups.items())
    ]  # fmt: skip
    return rows_table(("N", "K", "read", "tensors", "packed GB", "a pass"), rows, left=("read",))


def plan_words(plan: Plan) -> list[str]:
    """The predicted step, what it was chosen over, and what would help most."""
    lines = [
        f"Predicted step of {plan.model} ({plan.schedule}): {format_seconds(plan.predicted_seconds)} "
        f"[{format_seconds(plan.predicted_low)}, {format_seconds(plan.predicted_high)}], at most "
        f"{significant(1 / plan.predicted_seconds)} tok/s of GEMV time alone, with {plan.resident_fraction:.1%} of the "
        f"packed bytes resident in {plan.device_bytes / 1e9:.3g} GB.",
        f"No schedule of this split can beat {format_seconds(plan.floor_seconds)}.",
    ]
    if plan.rules:
        told = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in plan.rules.items())
        lines.append(f"Simple rules on the same budget: {told}.")
    if plan.saved_by_one_gb is not None:
        lines.append(
            f"1 GB more of device memory saves {format_seconds(plan.saved_by_one_gb)} a step."
            if plan.saved_by_one_gb > 0
            else "More device memory saves nothing: everything that helps is resident."
        )
    return lines


def doctor_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Which devices can be used here and, for each that cannot, why and what to do."""
    return rows_table(
        ("device", "usable", "what"),
        [(row["device"], "yes" if row["usable"] else "no", row["detail"]) for row in rows],
        left=("device", "usable", "what"),
    )
