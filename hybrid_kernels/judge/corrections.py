"""Append a correcting record to figures.toml: comments, order and every earlier byte stay as they are.

The new record is put after the last one of its figure. Before anything is written the result is parsed again and must
be the old data and one record more; the file is replaced whole, under a lock, only if it still is what was read.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Table

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.judge import ledger as books
from hybrid_kernels.judge.ledger import Figure, Ledger, Method, Record


@dataclass(frozen=True)
class Statement:
    """A value to record and what it rests on. `value` None: the range `low`..`high` alone is stated."""

    value: float | None
    low: float
    high: float
    method: Method
    kind: str | None = None
    change: str | None = None  # what the step from the current record was
    conditions: str | None = None
    commit: str | None = None
    evidence: tuple[str, ...] = ()


def correct(
    path: Path,
    figure_id: str,
    stated: Statement,
    *,
    reason: str,
    date: datetime.date,
    machine: str,
    kind: str | None = None,
    change: str | None = None,
    conditions: str | None = None,
    commit: str | None = None,
    evidence: tuple[str, ...] = (),
    read_from: str | None = None,
) -> Record:
    """Append a record of what is `stated` to `figure_id` in the file `path` and return it as read back.

    It corrects the record of `machine` that holds now; the first record of a machine corrects none. What is given by
    name goes before what the statement says. `read_from` is the text that the caller's decision rests on: when the file
    has become another since, nothing is written. BadInput, with the file untouched, for an unknown figure or kind, a
    missing reason, a broken file, or a file that changed.
    """
    value, low, high, method = stated.value, stated.low, stated.high, stated.method
    kind = kind or stated.kind or method.kind
    change = change or stated.change or "correction"
    conditions, commit = conditions or stated.conditions, commit or stated.commit
    evidence = evidence or stated.evidence
    if not reason.strip():
        raise BadInput("--reason: a correction without a reason is not recorded; say why the number changed")
    if kind not in books.KINDS:
        raise BadInput(f"--kind: {kind!r} is not one of: {', '.join(books.KINDS)}")
    if change not in books.CHANGES:
        raise BadInput(f"--change: {change!r} is not one of: {', '.join(books.CHANGES)}")
    with files.locked(path):
        text = books.read_text(path)
        if read_from is not None and text != read_from:
            raise BadInput(f"{path}: changed while this ran; nothing was written, look at it and run again")
        before = books.parse(text, path)
        figure = before.figure(figure_id)
        current = figure.current(machine)
        table = tomlkit.table()
        table.add("id", max((record.id for record in figure.records), default=0) + 1)
        table.add("date", date)
        table.add("machine", machine)
        if value is not None:
            table.add("value", _plain(value))
        if value is None or (low, high) != (value, value):
            table.add("range", [_plain(low), _plain(high)])
        table.add("kind", kind)
        table.add("method", _method(method))
        for key, content in (("conditions", conditions), ("commit", commit), ("evidence", list(evidence))):
            if content:
                table.add(key, content)
        if current is not None:
            table.add("corrects", current.id)
            if change != "correction":
                table.add("change", change)
        table.add("reason", reason.strip())
        after = _insert(text, before, figure, table)
        if books.read_text(path) != text:
            raise BadInput(f"{path}: changed while this ran; nothing was written, look at it and run again")
        files.replace(path, after.encode())
    return books.parse(after, path).figure(figure_id).records[-1]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def _method(method: Method) -> InlineTable:
    table = tomlkit.inline_table()
    for key in ("name", "source", "expression", "benchmark", "version"):
        content = getattr(method, key)
        if content is not None:
            table.add(key, content)
    if method.params:
        params = tomlkit.inline_table()
        for name, values in method.params.items():
            params.add(name, values[0] if len(values) == 1 else list(values))
        table.add("params", params)
    if method.benchmark is not None:
        table.add("statistic", method.statistic)
    return table


def _insert(text: str, before: Ledger, figure: Figure, table: Table) -> str:
    """`text` with one record more. Tries after the last line of content, then after the comments that follow it."""
    name = f"figures.{figure.id}.records"
    newline = "\r\n" if "\r\n" in text else "\n"
    block = f"[[{name}]]\n{table.as_string().strip()}\n".replace("\n", newline)
    wanted: dict[str, Any] = tomllib.loads(text)
    wanted["figures"][figure.id].setdefault("records", []).append(
        tomllib.loads(block)["figures"][figure.id]["records"][0]
    )
    for place in _places(text, figure):
        head, tail = text[:place], text[place:]
        gap = "" if head.endswith(newline * 2) else newline if head.endswith(newline) else newline * 2
        rest = tail if not tail or tail.startswith(("\r\n", "\n")) else newline + tail
        candidate = head + gap + block + rest
        try:
            got = tomllib.loads(candidate)
        except tomllib.TOMLDecodeError:
            continue
        if got == wanted:
            books.parse(candidate, before.path)  # the whole ledger is still valid
            return candidate
    raise HybridKernelsError(
        f"{before.path}: no place found for a record of {figure.id!r}; write its records as [[{name}]] tables"
    )


def _places(text: str, figure: Figure) -> list[int]:
    """Offsets where a record may go: after the figure's last table, first without and then with trailing comments."""
    header = re.compile(
        rf"^[ \t]*\[{{1,2}}\s*figures\s*\.\s*[\"']?{figure.id}[\"']?\s*(?:\.[^\]]*)?\]{{1,2}}", re.MULTILINE
    )
    following = re.compile(r"^[ \t]*\[", re.MULTILINE)
    places: list[int] = []
    for match in reversed(list(header.finditer(text))):
        ends = [found.start() for found in following.finditer(text, match.end())] + [len(text)]
        for end in ends:
            places += [_content_end(text, match.end(), end), end]
    return list(dict.fromkeys(places))


def _content_end(text: str, start: int, end: int) -> int:
    """The offset after the last line in start..end that is neither blank nor a comment."""
    place = end
    for line in reversed(text[start:end].splitlines(keepends=True)):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return place
        place -= len(line)
    return start + text[start:].find("\n") + 1 if "\n" in text[start:] else len(text)
