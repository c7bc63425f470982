"""A comparison as the Markdown of one comment on a pull request: what moved in sight, the rest folded, under the limit.

Names and messages come from other people's code, so every one of them is text here, never markup: in `<code>`, with
each character that Markdown, HTML or GitHub (mentions, issue numbers) would read as an entity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hybrid_kernels.records import Comparison, Verdict
from hybrid_kernels.report import verdicts
from hybrid_kernels.units import counted

MARKER = "<!-- hybrid-kernels compare -->"
"""First line of every comment, invisible: the next run finds its own comment by it and edits it in place."""

LIMIT = 65_000
"""Bytes of UTF-8; GitHub refuses a comment of more than 65,536."""

_RESERVED = 4_000  # for the lines after the tables
_LONGEST = 160  # characters of a name or reason; the whole text is in the JSON
_SPECIAL = re.compile(r"[^0-9A-Za-z .,:;/()%+=-]")


def comment(comparison: Comparison, *, always: bool = False) -> str | None:
    """The comment, or None when there is nothing to say (see `verdicts.silent`) and it is not asked for `always`."""
    if verdicts.silent(comparison) and not always:
        return None
    shown, rest = verdicts.notable(comparison.rows)
    after = _after(comparison)
    room = LIMIT - len(after.encode()) - _RESERVED
    parts = [MARKER, f"**{text(verdicts.headline(comparison), code=False)}**", _subtitle(comparison)]
    parts += [f"> {text(warning, code=False)}" for warning in comparison.warnings[:20]]
    room -= sum(len(part.encode()) + 2 for part in parts)
    if shown:
        table, room = _table(shown, room, reasons=True)
        parts.append(table)
    if rest:
        table, room = _table(rest, room, reasons=any(row.verdict != "same" for row in rest))
        parts.append(_folded(f"{len(rest)} more benchmark{'s' if len(rest) != 1 else ''}: {_counts(rest)}", table))
    return "\n\n".join([*parts, after]) + "\n"


def nothing_measured(message: str) -> str:
    """The comment for a run that measured nothing on a side or both: neither a pass nor a regression."""
    return f"{MARKER}\n\n**Nothing to compare.** {text(message, code=False)}\n"


def text(raw: str, *, code: bool = True) -> str:
    """`raw` as text that no renderer takes for markup; in `<code>` unless told otherwise. Long text is cut."""
    flat = " ".join(raw.split())
    limit = _LONGEST if code else 4 * _LONGEST
    flat = flat if len(flat) <= limit else flat[: limit - 3] + "..."
    safe = _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", flat)
    safe = re.sub(r"(https?|www)([:.])", r"\1&#8203;\2", safe)  # no automatic links
    if not code:
        safe = re.sub(r"(&#(?:64|35);)", r"\1&#8203;", safe)  # no mentions, no issue numbers
    return f"<code>{safe}</code>" if code else safe


def _subtitle(comparison: Comparison) -> str:
    took = f"{comparison.rounds} round{'s' if comparison.rounds != 1 else ''} a side"
    if comparison.runs > 1:
        took += f" in {comparison.runs} sittings"
    return f"{text(comparison.base)} against {text(comparison.head)}, {took}."


def _table(rows: Sequence[Verdict], room: int, *, reasons: bool) -> tuple[str, int]:
    """A table of as many rows as fit into `room` bytes, and the room that is left; says how many did not fit."""
    own = any(row.harness for row in rows)
    head = ["benchmark", "base", "head", "change", "95 % interval", "rounds", "verdict"] + (["why"] if reasons else [])
    head += ["the harness said"] if own else []
    aligned = ["---", "---:", "---:", "---:", "---:", "---:", "---"] + ["---"] * (len(head) - 7)
    lines = [_line(head), _line(aligned)]
    room -= sum(len(line) + 1 for line in lines) + 100
    for row in rows:
        cells = [
            text(row.name), _whole(verdicts.value(row, row.base)), _whole(verdicts.value(row, row.head)),
            _whole(verdicts.percent(row.change)), _whole(verdicts.interval(row)), str(row.rounds or "-"), _verdict(row),
        ]  # fmt: skip
        cells += [text(row.reason, code=False)] if reasons else []
        cells += [text(row.harness, code=False)] if own else []
        line = _line(cells)
        if len(line.encode()) + 1 > room:
            break
        room -= len(line.encode()) + 1
        lines.append(line)
    missing = len(rows) - (len(lines) - 2)
    if missing:
        lines.append(f"\n{missing} more of these do not fit into a comment; `--format json` has every row.")
    return "\n".join(lines), room


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _whole(value: str) -> str:
    """A number that no line break parts from its unit."""
    return text(value, code=False).replace(" to ", "\0").replace(" ", "&#160;").replace("\0", " to ")


def _verdict(row: Verdict) -> str:
    return f"**{row.verdict}**" if row.verdict in ("slower", "faster") else row.verdict


def _counts(rows: Sequence[Verdict]) -> str:
    words = dict.fromkeys(row.verdict for row in rows)
    return ", ".join(f"{sum(row.verdict == word for row in rows)} {word}" for word in words)


def _after(comparison: Comparison) -> str:
    parts = []
    if comparison.controls:
        parts.append(_controls(comparison.controls))
    if comparison.facts:
        parts.append(_folded("Where this ran", "\n".join(f"- {line}" for line in _facts(comparison.facts))))
    limits = verdicts.limits(comparison)
    if limits:
        parts.append(_folded("What this run cannot catch", "\n".join(f"- {text(line, code=False)}" for line in limits)))
    called = (
        f"Called slower or faster: a change beyond its threshold, beyond what the control arms moved, and beyond its "
        f"interval corrected for {counted(len(comparison.rows), 'row')}, so that equal code gives any call in at most "
        f"{100 * comparison.level:.2g} % of such looks."
    )
    if comparison.rounds > 1:
        parts.append(f"<sub>{called}</sub>")
    return "\n\n".join(parts)


def _controls(controls: Sequence[Verdict]) -> str:
    moved = [row for row in controls if row.verdict == "moved"]
    lines = [_line(["control arm", "change", "95 % interval", "verdict"]), _line(["---", "---:", "---:", "---"])]
    lines += [
        _line([text(row.name), _whole(verdicts.percent(row.change)), _whole(verdicts.interval(row)), row.verdict])
        for row in [*moved, *(row for row in controls if row.verdict != "moved")][:40]
    ]
    held = f"all {len(controls)} held" if len(controls) != 1 else "the only one held"
    summary = f"Control arms: {len(moved)} of {len(controls)} moved" if moved else f"Control arms: {held}"
    return _folded(summary, "\n".join(lines))


def _facts(facts: Mapping[str, object]) -> list[str]:
    lines = []
    for name, value in facts.items():
        if value in (None, "", (), {}, []):
            continue
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        elif isinstance(value, float):
            value = f"{value:.3g}"
        lines.append(f"{text(name.replace('_', ' '), code=False)}: {text(str(value), code=False)}")
    return lines


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"
