"""Numbers in Markdown documents that come from figures.toml: markers, keeping them true, finding those that are not.

A marker is a pair of HTML comments, so it is invisible once rendered and plain in the source:

    reads at <!-- figure cold_path_read_bandwidth@rtx4060-laptop-wddm -->5.6 GB/s<!-- /figure -->

    ID[@MACHINE][#RECORD] [FIELD]    one value in running text; the machine may be left out when there is only one
    history ID[@MACHINE]             a table of every record of the figure, on lines of its own
    current [MACHINE]                a table of the current record of every figure, on lines of its own

FIELD is `value` (the default: number and unit), `number`, `kind`, `date`, `machine`, `method`, `conditions`, `commit`,
`reason` or `factor`. `#RECORD` quotes one record on purpose, superseded or not; without it the current one is meant.
Only what lies between the two comments is ever rewritten. Markers in code blocks and code spans are text.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from hybrid_kernels import files, units
from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import ledger as books
from hybrid_kernels.judge.backing import Problem
from hybrid_kernels.judge.ledger import Figure, Ledger, Record

FIELDS = ("value", "number", "kind", "date", "machine", "method", "conditions", "commit", "reason", "factor")

_OPEN = re.compile(r"<!--[ \t]*figure[ \t]+([^>]*?)[ \t]*-->")
_CLOSE = re.compile(r"<!--[ \t]*/figure[ \t]*-->")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"(?P<id>[a-z][a-z0-9_]*)(?:@(?P<machine>[^\s#]+))?(?:#(?P<record>\d+))?(?:\s+(?P<field>\S+))?")


@dataclass(frozen=True)
class Finding:
    """Something in a file that is not true any more: where, what, and what to do."""

    file: str
    line: int | None
    what: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.what}; {self.fix}"


@dataclass(frozen=True)
class Marker:
    """One marker of a document: what it asks for, and the text between its comments (start..end in the document)."""

    line: int
    request: str
    start: int
    end: int
    text: str


def _masked(text: str) -> str:
    """`text` with code blocks and code spans blanked out, of the same length, so that offsets keep their meaning."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    masked = list(text)

    def blank(start: int, end: int) -> None:
        for index in range(start, min(end, len(masked))):
            if masked[index] not in "\r\n":
                masked[index] = " "

    # One line for the parser is one line here: it splits at the same places once \r\n and lone \r are alike in length.
    source = re.sub(r"\r(?!\n)", " ", text)
    for token in MarkdownIt("commonmark").parse(source):
        if token.map is None:
            continue
        first, last = token.map
        if token.type in ("fence", "code_block"):
            blank(starts[first], starts[min(last, len(lines))])
        elif token.type == "inline":
            start, end = starts[first], starts[min(last, len(lines))]
            # A comment outranks a code span that starts in it, and the other way round: whichever comes first.
            place = start
            while place < end:
                code = _CODE_SPAN.search(text, place, end)
                comment = _COMMENT.search(text, place, end)
                if code and (comment is None or code.start() < comment.start()):
                    blank(code.start(), code.end())
                    place = code.end()
                elif comment:
                    place = comment.end()
                else:
                    break
    return "".join(masked)


def markers(text: str, name: str = "document") -> list[Marker]:
    """The markers of a document in order. BadInput naming `name` and the line when one is not closed, or nested."""
    masked = _masked(text)
    found: list[Marker] = []
    place = 0
    while opening := _OPEN.search(masked, place):
        line = text.count("\n", 0, opening.start()) + 1
        closing = _CLOSE.search(masked, opening.end())
        inner = _OPEN.search(masked, opening.end())
        if closing is None or (inner is not None and inner.start() < closing.start()):
            raise BadInput(f"{name}:{line}: figure marker is not closed; end it with <!-- /figure -->")
        found.append(Marker(line, opening[1], opening.end(), closing.start(), text[opening.end() : closing.start()]))
        place = closing.end()
    return found


def render(request: str, ledger: Ledger, newline: str = "\n") -> str:
    """What a marker that asks for `request` must hold. BadInput when the ledger has no such thing."""
    words = request.split()
    if words and words[0] in ("history", "current"):
        return newline + newline.join(_table(words, ledger)) + newline
    figure, record, field = _resolve(request, ledger)
    match field:
        case "value":
            return figure.format(record)
        case "number":
            return figure.format(record, unit=False)
        case "date":
            return record.date.isoformat()
        case "method":
            return _inline(record.method.describe())
        case "factor":
            if record.corrects is None:
                raise BadInput(f"record {record.id} of {figure.id!r} corrects none, so it has no factor")
            return units.significant(record.middle / figure.record(record.corrects).middle) + "x"
        case _:
            content = getattr(record, field)
            if content is None:
                raise BadInput(f"record {record.id} of {figure.id!r} states no {field}")
            return _inline(str(content))


def _resolve(request: str, ledger: Ledger) -> tuple[Figure, Record, str]:
    match = _TARGET.fullmatch(request.strip())
    if match is None:
        raise BadInput(f"{request!r} is no figure marker; write ID[@MACHINE][#RECORD] [FIELD]")
    figure = ledger.figure(match["id"])
    field = match["field"] or "value"
    if field not in FIELDS:
        near = difflib.get_close_matches(field, FIELDS, n=1)
        raise BadInput(f"no field {field!r}; " + (f"did you mean {near[0]}?" if near else f"use {', '.join(FIELDS)}"))
    if match["record"]:
        record = figure.record(int(match["record"]))
        if match["machine"] not in (None, record.machine):
            raise BadInput(f"record {record.id} of {figure.id!r} is of machine {record.machine!r}")
        return figure, record, field
    current = figure.current(ledger.machine(figure, match["machine"]))
    assert current is not None  # machine() has checked that it has records
    return figure, current, field


def _inline(text: str) -> str:
    """Text that stays text inside a paragraph or a table cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def _table(words: list[str], ledger: Ledger) -> list[str]:
    if words[0] == "current":
        machine = " ".join(words[1:])
        known = list(dict.fromkeys(m for figure in ledger.figures.values() for m in figure.machines()))
        if machine and machine not in known:
            raise BadInput(f"no record of machine {machine!r}; there are: {', '.join(known) or 'none'}")
        header = ["figure", *([] if machine else ["machine"]), "value", "kind", "date", "method"]
        rows = [
            [figure.title, *([] if machine else [name]), figure.format(record), record.kind, record.date.isoformat(),
             record.method.describe()]
            for figure in ledger.figures.values()
            for name in figure.machines()
            if machine in ("", name) and (record := figure.current(name)) is not None
        ]  # fmt: skip
    else:
        if len(words) != 2:
            raise BadInput(f"{' '.join(words)!r}: write history ID or history ID@MACHINE")
        name, _, machine = words[1].partition("@")
        figure = ledger.figure(name)
        chain = figure.chain(ledger.machine(figure, machine)) if machine else figure.records
        header = ["record", "date", "machine", "value", "kind", "method", "what became of it"]
        rows = [
            [str(r.id), r.date.isoformat(), r.machine, figure.format(r), r.kind, r.method.describe(), _fate(figure, r)]
            for r in chain
        ]
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return lines + ["| " + " | ".join(_inline(cell) for cell in row) + " |" for row in rows]


def _fate(figure: Figure, record: Record) -> str:
    newer = figure.superseded_by(record)
    if newer is None:
        return "current"
    factor = units.significant(newer.middle / record.middle) + "x" if record.middle else "-"
    return f"superseded {newer.date.isoformat()} by record {newer.id} ({newer.change}, {factor}): {newer.reason}"


def synced(text: str, ledger: Ledger, name: str = "document") -> tuple[str, list[Finding]]:
    """`text` with every marker holding what the ledger says now, and a finding for each that held something else.

    Everything outside the markers is kept byte for byte. BadInput naming `name` and the line for a marker that asks
    for what is not there.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    pieces: list[str] = []
    stale: list[Finding] = []
    place = 0
    for marker in markers(text, name):
        try:
            wanted = render(marker.request, ledger, newline)
        except BadInput as error:
            raise BadInput(f"{name}:{marker.line}: figure marker {marker.request!r}: {error}") from error
        pieces += [text[place : marker.start], wanted]
        place = marker.end
        if wanted != marker.text:
            what = f"marker holds {_short(marker.text)} but {marker.request!r} is {_short(wanted)} now"
            stale.append(Finding(name, marker.line, what, f"run `hybrid-kernels figures sync {name}`"))
    return "".join([*pieces, text[place:]]), stale


def misplaced(text: str, name: str = "document") -> list[Finding]:
    """Value markers that begin a line: Markdown takes such a line for HTML, and what follows on it is not formatted."""
    found = []
    for marker in markers(text, name):
        opening = text.rindex("<!--", 0, marker.start)
        before = text[text.rfind("\n", 0, opening) + 1 : opening]
        block = marker.request.split()[:1] in (["history"], ["current"])
        if not block and re.fullmatch(r"[\s>*+-]*(?:\d+[.)]\s*)?", before):
            what = "a value marker begins the line, which Markdown then takes for HTML"
            found.append(Finding(name, marker.line, what, "put a word before it"))
    return found


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 40 else text[:37] + "...")


def superseded_quotes(text: str, ledger: Ledger, name: str = "document") -> list[Finding]:
    """Places outside markers and code that quote a superseded value, number and unit, as if it were current."""
    masked = _masked(text)
    for marker in markers(text, name):
        masked = masked[: marker.start] + " " * (marker.end - marker.start) + masked[marker.end :]
    masked = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), masked)
    found: list[Finding] = []
    for figure in ledger.figures.values():
        for record in figure.records:
            newer = figure.superseded_by(record)
            if newer is None:
                continue
            for place in _quotes(masked, figure, record):
                line = text.count("\n", 0, place) + 1
                current = figure.current(record.machine)
                now = figure.format(current) if current is not None else "-"
                target = f"{figure.id}@{record.machine}"
                others = [
                    f"{other.id}@{r.machine}"
                    for other in ledger.figures.values()
                    if other.unit == figure.unit
                    for r in other.records
                    if other.superseded_by(r) is None and (r.low, r.high) == (record.low, record.high)
                ]
                also = f", or for {others[0]}, which has that value: <!-- figure {others[0]} -->" if others else ""
                found.append(
                    Finding(
                        name,
                        line,
                        f"quotes {figure.format(record)}, superseded {newer.date.isoformat()} on {record.machine} "
                        f"({now} now: {figure.id})",
                        f"write <!-- figure {target} -->{now}<!-- /figure -->, or where the old value is meant "
                        f"<!-- figure {figure.id}#{record.id} -->{also}",
                    )
                )
    unique = {(finding.file, finding.line, finding.what): finding for finding in found}
    return sorted(unique.values(), key=lambda finding: finding.line or 0)


def _quotes(text: str, figure: Figure, record: Record) -> Iterator[int]:
    if record.value is not None:
        values = re.escape(books.number(record.value)).replace(",", ",?")
    else:
        ends = (re.escape(books.number(end)).replace(",", ",?") for end in (record.low, record.high))
        values = r"\s*(?:to|-|–|—|\.\.|and)\s*".join(ends)
    unit = {"x": "[x×]"}.get(figure.unit, re.escape(figure.unit))
    pattern = re.compile(rf"(?<![\d.,]){values}0*[\s\u00a0*_]*{unit}(?![\w/])")
    yield from (match.start() for match in pattern.finditer(text))


def ledger_findings(ledger: Ledger, problems: Iterable[Problem]) -> list[Finding]:
    """What is wrong with figures.toml: what the history contradicts, and cross-checks that do not close."""
    name = str(ledger.path)
    found = [Finding(name, problem.line, problem.what, problem.fix) for problem in problems]
    for closure in ledger.closures():
        if closure.closes:
            continue
        check = closure.check
        if closure.computed is None or closure.ratio is None:
            what = f"cross-check {check.id!r} cannot be made: {closure.problem}"
        else:
            what = (
                f"cross-check {check.id!r} does not close: {check.figure} is {units.significant(closure.ratio)} times "
                f"{check.expression}, allowed is {units.significant(check.factor)}"
            )
        fix = "measure the quantities it names again and correct the one that is wrong; do not widen the factor"
        found.append(Finding(name, check.line, what, fix))
    return found


def documents(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Markdown files of `paths`; a folder means every .md in it. BadInput for a path that is not there."""
    found: list[Path] = []
    for item in paths:
        path = Path(item)
        if path.is_dir():
            found += sorted(path.rglob("*.md"))
        elif path.is_file():
            found.append(path)
        else:
            raise BadInput(f"{path}: no such document; name Markdown files or folders of them")
    return list(dict.fromkeys(found))


def own_documents(ledger: Ledger) -> list[Path]:
    """The documents that figures.toml names, relative to it."""
    root = ledger.path.parent
    return list(dict.fromkeys(path for pattern in ledger.documents for path in sorted(root.glob(pattern))))


def sync(paths: Iterable[Path], ledger: Ledger, check: bool = False) -> list[Finding]:
    """Bring the markers of `paths` up to date, each file replaced whole; with `check` nothing is written.

    Returns a finding for each marker that was, or is, out of date. Every document is read and rendered before the first
    is written, so a bad marker in one leaves all untouched.
    """
    changed: list[tuple[Path, str, str]] = []
    stale: list[Finding] = []
    for path in paths:
        text = books.read_text(path)
        new, found = synced(text, ledger, str(path))
        stale += found
        if new != text:
            changed.append((path, text, new))
    if not check:
        for path, was, new in changed:
            with files.locked(path):
                if books.read_text(path) != was:
                    raise BadInput(f"{path}: changed while this ran; run `hybrid-kernels figures sync` again")
                files.replace(path, new.encode())
    return stale


def check(paths: Iterable[Path], ledger: Ledger) -> list[Finding]:
    """Markers out of date or misplaced, and superseded values quoted as current, in the order of files and lines."""
    found: list[Finding] = []
    for path in paths:
        text = books.read_text(path)
        try:
            found += sorted(
                [
                    *synced(text, ledger, str(path))[1],
                    *superseded_quotes(text, ledger, str(path)),
                    *misplaced(text, str(path)),
                ],
                key=lambda finding: finding.line or 0,
            )
        except BadInput as error:
            place, _, what = str(error).removeprefix(f"{path}:").partition(": ")
            found.append(Finding(str(path), int(place), what, "mend the marker"))
    return found
