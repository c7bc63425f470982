"""One asv result file, schema 1 or 2, from its bytes.

msgspec decodes the common case with only the fields asked for. It refuses `NaN` and `Infinity`, which asv writes bare,
and so do files that are odd in some other way; those go through the standard library's parser, field by field, losing
only what cannot be a number. A file that is cut off gives the complete results before the cut, marked as partial.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from hybrid_kernels.units import counted

Numbers = list[float | None]


class Row(msgspec.Struct, array_like=True, gc=False):
    """The results of one benchmark in one file, flat over its parameter grid, in asv's order of columns."""

    result: Numbers | float | None = None
    params: msgspec.Raw = msgspec.Raw(b"[]")
    version: str | None = None
    started_at: float | None = None  # ms since 1970
    duration: float | None = None
    ci_low: Numbers | None = None
    ci_high: Numbers | None = None
    q25: Numbers | None = None
    q75: Numbers | None = None
    number: Numbers | None = None
    repeat: Numbers | None = None
    samples: msgspec.Raw = msgspec.Raw(b"null")


# asv's names for the fields above, in the same order: how schema 2 writes its rows.
COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples",
)  # fmt: skip

STATISTICS: tuple[Literal["ci_low", "ci_high", "q25", "q75", "number", "repeat"], ...]
STATISTICS = ("ci_low", "ci_high", "q25", "q75", "number", "repeat")  # fields of Row for COLUMNS[5:11]


class _File(msgspec.Struct, gc=False):
    """A schema 2 file as asv writes it today."""

    commit_hash: str
    params: dict[str, Any]
    result_columns: list[str]
    results: dict[str, Row | None]
    date: float | None = None
    env_name: str | None = None
    python: str | None = None
    requirements: dict[str, Any] | None = None
    env_vars: dict[str, Any] | None = None
    version: int | None = None


@dataclass(slots=True)
class ResultFile:
    """What one file says. `machine`, `env` and `date` are None where it does not say."""

    commit: str
    machine: str | None
    env: str | None
    date: float | None  # of the commit, ms since 1970
    facts: dict[str, Any]  # machine facts and environment parameters (asv's `params`)
    env_vars: dict[str, Any]
    schema: int
    results: dict[str, Row]
    python: str | None = None
    partial: bool = False
    notes: list[str] = field(default_factory=list)


class Unreadable(Exception):
    """The file holds no result that can be read. The message says why, without the file's name."""


_decoder = msgspec.json.Decoder(_File)
_raw_decoder = msgspec.json.Decoder()


def parse(data: bytes | str) -> Any:
    """The JSON in `data`, with half a surrogate pair, which no text can hold, as a question mark.

    ValueError when it is no JSON, RecursionError when it is nested without end.
    """
    content = json.loads(data)
    return _of_text(content) if b"\\ud" in (data if isinstance(data, bytes) else data.encode()).lower() else content


def _of_text(value: Any) -> Any:
    """`value` of JSON, with every text in it one that UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_of_text(one) for one in value]
    if isinstance(value, dict):
        return {_of_text(key): _of_text(one) for key, one in value.items()}
    return value


def decode(data: bytes, name: str) -> ResultFile:
    """The results in `data`, the content of a file called `name` (it may hold the only copy of the commit).

    Unreadable says why nothing could be read.
    """
    try:
        found = _decoder.decode(data)
    except msgspec.MsgspecError:
        return _decode_odd(data, name)
    if tuple(found.result_columns[: len(COLUMNS)]) != COLUMNS:
        return _decode_odd(data, name)
    results = found.results
    if None in results.values():
        results = {key: row or Row() for key, row in results.items()}
    return ResultFile(
        commit=found.commit_hash,
        machine=_text(found.params.get("machine")),
        env=found.env_name,
        date=found.date,
        facts=found.params,
        env_vars=found.env_vars or {},
        schema=found.version or 2,
        python=found.python,
        results=results,  # type: ignore[arg-type]  # no None is left in it
    )


def _decode_odd(data: bytes, name: str) -> ResultFile:
    notes: list[str] = []
    partial = False
    if not data.strip():
        raise Unreadable("is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"is not UTF-8 text (byte {error.start})") from None
    try:
        content = parse(text)
    except RecursionError:
        raise Unreadable("is nested too deeply to be a result file") from None
    except ValueError as error:
        content = _before_the_cut(text)
        if content is None:
            raise Unreadable(f"is not JSON: {error}") from None
        partial = True
        notes.append(f"breaks off ({error}); {counted(len(content['results']), 'complete result')} before that kept")
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise Unreadable("holds no asv results")
    facts = _mapping(content.get("params"))
    commit = _text(content.get("commit_hash")) or _commit_in(name)
    if commit is None:
        raise Unreadable("names no commit, neither inside nor in its file name")
    two = isinstance(content.get("result_columns"), list)
    rows = _rows_of_two(content, notes) if two else _rows_of_one(content, notes)
    return ResultFile(
        commit=commit,
        machine=_text(facts.get("machine")),
        env=_text(content.get("env_name")),
        date=_number(content.get("date")),
        facts=facts,
        env_vars=_mapping(content.get("env_vars")),
        schema=2 if two else 1,
        python=_text(content.get("python")),
        results=rows,
        partial=partial,
        notes=notes,
    )


def _rows_of_two(content: Mapping[str, Any], notes: list[str]) -> dict[str, Row]:
    columns = [str(column) for column in content["result_columns"]]
    unknown = [column for column in columns if column not in COLUMNS and column != "profile"]
    if unknown:
        notes.append(f"has columns that asv does not define, left out: {', '.join(unknown)}")
    return {
        name: _row(dict(zip(columns, row, strict=False)) if isinstance(row, list) else {"result": row}, name, notes)
        for name, row in content["results"].items()
    }


def _rows_of_one(content: Mapping[str, Any], notes: list[str]) -> dict[str, Row]:
    """Schema 1 keeps the value of a benchmark as a number, a list, or an object with `result`, `params`, `stats`."""
    versions = _mapping(content.get("benchmark_version"))
    started, durations = _mapping(content.get("started_at")), _mapping(content.get("duration"))
    rows = {}
    for name, value in content["results"].items():
        given = value if isinstance(value, dict) else {"result": value}
        stats = given.get("stats")
        stats = stats if isinstance(stats, list) else [stats]
        stats = [one if isinstance(one, dict) else {} for one in stats]
        bounds = [one["ci_99"] if isinstance(one.get("ci_99"), list) and len(one["ci_99"]) == 2 else (None, None)
                  for one in stats]  # fmt: skip
        fields = {
            "result": given.get("result"),
            "params": given.get("params"),
            "version": versions.get(name),
            "started_at": started.get(name),
            "duration": durations.get(name),
            "stats_ci_99_a": [low for low, _ in bounds],
            "stats_ci_99_b": [high for _, high in bounds],
            "samples": given.get("samples"),
        }
        for key in ("q_25", "q_75", "number", "repeat"):
            fields[f"stats_{key}"] = [one.get(key) for one in stats]
        rows[name] = _row(fields, name, notes)
    return rows


def _row(fields: Mapping[str, Any], name: str, notes: list[str]) -> Row:
    result = fields.get("result")
    numbers = [_number(one) for one in result] if isinstance(result, list) else [_number(result)]
    given = result if isinstance(result, list) else [result]
    lost = sum(one is not None and number is None for one, number in zip(given, numbers, strict=True))
    if lost:
        notes.append(f"{name}: {lost} of {counted(len(given), 'result')} are not numbers and count as failed")
    params = fields.get("params")
    version = fields.get("version")
    statistics = dict(zip(STATISTICS, (_numbers(fields.get(column)) for column in COLUMNS[5:11]), strict=True))
    return Row(
        result=numbers if result is not None else None,
        params=msgspec.Raw(json.dumps(params if isinstance(params, list) else []).encode()),
        version=None if version is None else str(version),
        started_at=_number(fields.get("started_at")),
        duration=_number(fields.get("duration")),
        samples=msgspec.Raw(json.dumps(fields.get("samples")).encode()),
        **statistics,
    )


def _before_the_cut(text: str) -> dict[str, Any] | None:
    """The head and the complete results of a schema 2 file that breaks off inside its results; None if none is left."""
    start = re.search(r'"results"\s*:\s*\{', text)
    if start is None:
        return None
    try:
        content = parse(text[: start.start()].rstrip().rstrip(",") + "}")
    except ValueError:
        return None
    results: dict[str, Any] = {}
    decoder, at = json.JSONDecoder(), start.end()
    while (key := re.compile(r'\s*,?\s*("(?:[^"\\]|\\.)*")\s*:\s*').match(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, key.end())
        except ValueError:
            break
        if not text[at:].strip():  # a bare number at the very end may have lost digits
            break
        results[json.loads(key[1])] = value
    results = _of_text(results)
    return {**content, "results": results} if results and isinstance(content, dict) else None


def samples_of(row: Row) -> list[list[float] | None]:
    """The raw samples of `row`, one list a cell, None for a cell without; empty when the file keeps none."""
    try:
        found = _raw_decoder.decode(row.samples)
    except msgspec.MsgspecError:
        found = json.loads(bytes(row.samples))
    if not isinstance(found, list):
        return []
    if found and not isinstance(found[0], list | None):  # schema 1 may keep one flat list
        found = [found]
    return [
        [number for number in map(_number, one) if number is not None] if isinstance(one, list) else None
        for one in found
    ]


def grid_of(params: bytes) -> list[tuple[str, ...]]:
    """The cells of a parameter grid in asv's order, from the JSON of its axes; one empty cell where there is none."""
    axes = parse(params)
    if not isinstance(axes, list):
        axes = []
    if not all(isinstance(axis, list) for axis in axes):
        axes = [axes]  # one axis given without its outer list
    return list(
        itertools.product(*([one if isinstance(one, str) else json.dumps(one) for one in axis] for axis in axes))
    )


def _commit_in(name: str) -> str | None:
    match = re.search(r"(?:^|_)([0-9a-f]{6,40})-", name)
    return match[1] if match else None


def _numbers(value: Any) -> Numbers | None:
    if isinstance(value, list):
        return [_number(one) for one in value]
    number = _number(value)
    return None if number is None else [number]


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float):  # true and false are 1 and 0, as asv takes them
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond any float
        return math.inf if value > 0 else -math.inf


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def definitions(data: bytes) -> dict[str, dict[str, Any]]:
    """The benchmarks that a `benchmarks.json` defines, by name. Unreadable says why it cannot be used."""
    try:
        content = parse(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Unreadable("holds no benchmark definitions")
    return {name: entry for name, entry in content.items() if isinstance(entry, dict)}


def machine(data: bytes) -> dict[str, Any]:
    """The facts in a `machine.json`. Unreadable says why it cannot be used."""
    try:
        content = parse(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise Unreadable("is not a machine description")
    return content
