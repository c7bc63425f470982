"""What other harnesses measured, and what our own rounds kept, as one tidy frame of samples.

Every reader here returns a `Side`: plain `Sampled` records, the harness's facts about the host, and warnings. `frame`
turns records of both sides into the frame that `judge.verdict` reads, and nothing after it knows where they came from.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from hybrid_kernels.errors import BadInput
from hybrid_kernels.history import asv_files, directions
from hybrid_kernels.records import CONTROL_NAMES, Sampled
from hybrid_kernels.units import counted

COLUMNS = (
    "name", "side", "run", "round", "benchmark", "cell", "value", "unit", "direction", "version", "control", "error",
)  # fmt: skip

Interval = tuple[float, float, float]  # change, low, high; each a ratio minus 1


@dataclass
class Side:
    """One side of a comparison as another harness left it: a `Sampled` per benchmark and run, in order of the runs."""

    samples: list[Sampled] = field(default_factory=list)
    facts: list[dict[str, str]] = field(default_factory=list)  # one a run; what differs makes sides incomparable
    warnings: list[str] = field(default_factory=list)
    intervals: dict[str, Interval] = field(default_factory=dict)  # the harness's own opinion of base against head

    def told(self) -> dict[str, str]:
        """Each fact once, with all the values that the runs of this side have."""
        keys = dict.fromkeys(key for facts in self.facts for key in facts)
        return {key: ", ".join(sorted({facts[key] for facts in self.facts if key in facts})) for key in keys}


def frame(samples: Iterable[Sampled]) -> pd.DataFrame:
    """One row a sample, columns COLUMNS; a record without samples is one row with value NaN.

    A record whose direction is 0 takes the one that its unit implies, if any.
    """
    rows: list[tuple[Any, ...]] = []
    for s in samples:
        direction = s.direction or directions.of_unit(s.unit)
        name = f"{s.benchmark}({s.cell})" if s.cell else s.benchmark
        rows.extend(
            (name, s.side, s.run, s.round, s.benchmark, s.cell, value, s.unit, direction, s.version, s.control, s.error)
            for value in (s.samples or (math.nan,))
        )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table["value"] = table["value"].astype(float).where(lambda v: v.abs() != math.inf)
    return table


def read(
    harness: str, base: Sequence[Path], head: Sequence[Path], controls: str = CONTROL_NAMES
) -> tuple[Side, Side, str]:
    """Both sides as `harness` (criterion, pytest-benchmark, asv) left them, and why they do not compare ("": they do).

    Each path is one run of its side, or, for pytest-benchmark, a folder of runs. Runs of the two sides are paired in
    the order given. BadInput names the path that cannot be read and what was expected there.
    """
    if harness not in _READERS:
        raise BadInput(f"--import: unknown harness {harness!r}; use one of {', '.join(sorted(_READERS))}")
    for path in (*base, *head):
        if not path.exists():
            raise BadInput(f"{path}: no such file or folder; give what {harness} wrote for one side")
    try:
        control = re.compile(controls)
    except re.error as error:
        raise BadInput(f"--controls: {controls!r} is not a regular expression ({error})") from error
    sides = _READERS[harness](base, head)
    for side, name in zip(sides, ("base", "head"), strict=True):
        side.samples = [
            replace(sample, side=name, control=sample.control or bool(control.search(sample.benchmark)))
            for sample in side.samples
        ]
    counts = [len({sample.round for sample in side.samples}) for side in sides]
    if min(counts) and counts[0] != counts[1]:
        sides[1].warnings.append(
            f"base has {counts[0]} run(s) and head {counts[1]}: runs are paired in order, so the rest is left out"
        )
    return sides[0], sides[1], _incomparable(sides[0], sides[1])


# --- rounds that `compare --keep` wrote -------------------------------------------------------------------------------


def kept(folders: Sequence[Path]) -> tuple[list[Sampled], list[dict[str, Any]]]:
    """The rounds in each of `folders`, and each folder's plan.json with the host's facts of its first round.

    A folder is one run: one sitting of a machine.

    BadInput for a folder without rounds, a file that cannot be read, or folders that compared other commits.
    """
    samples: list[Sampled] = []
    plans: list[dict[str, Any]] = []
    for number, folder in enumerate(folders, 1):
        plan = _plan(folder / "plan.json")
        rounds = sorted(folder.glob("round-*.json"))
        if not rounds:
            raise BadInput(f"{folder}: holds no finished round (round-*.json); nothing to judge")
        plans.append(plan)
        for path in rounds:
            stored = _json(path, "a round that `compare --keep` wrote")
            plan["facts"] = plan["facts"] or _mapping(stored.get("facts"))
            run = f"{number:03d}" if len(folders) > 1 else ""
            for row in _listed(stored.get("rows")):
                read = {**_mapping(row), "samples": _numbers(_mapping(row).get("samples")), "run": run}
                try:
                    samples.append(msgspec.convert(read, Sampled))
                except msgspec.ValidationError as error:
                    raise BadInput(f"{path}: is not a round that `compare --keep` wrote ({error})") from error
    pairs = {(plan.get("base"), plan.get("head")) for plan in plans}
    if len(pairs) > 1:
        told = "; ".join(
            f"{folder} has {p.get('base')} and {p.get('head')}" for folder, p in zip(folders, plans, strict=True)
        )
        raise BadInput(f"--join: the folders compared different commits ({told}); join runs of the same pair")
    return samples, plans


def _plan(path: Path) -> dict[str, Any]:
    plan = {"sequential": False, "untouched": False, "unselected": [], "facts": {}, "machine": "", "environment": ""}
    plan |= _json(path, "a folder that `compare --keep` wrote")
    wanted = {**dict.fromkeys(("base", "head", "machine", "environment"), str), "unselected": list, "facts": dict}
    for key, kind in wanted.items():
        if not isinstance(plan.get(key), kind):
            raise BadInput(f"{path}: {key!r} is {plan.get(key)!r}; expected a plan that `compare --keep` wrote")
    return plan


# --- criterion --------------------------------------------------------------------------------------------------------


def _criterion(base: Sequence[Path], head: Sequence[Path]) -> tuple[Side, Side]:
    """Folders as criterion.rs leaves them: <root>/<group>/.../<baseline>/{benchmark,estimates,sample}.json.

    `change/` holds criterion's own comparison and is never a baseline. When both sides are the same folder the head is
    `new`, and the base is `base` or the one other baseline, whatever it is called. In two folders each side is
    `new`, or its one baseline.
    """
    sides = Side(), Side()
    together = [path.resolve() for path in base] == [path.resolve() for path in head]
    for side, paths, is_head in zip(sides, (base, head), (False, True), strict=True):
        for run, path in enumerate(paths, 1):
            found = _criterion_run(side, path, run, is_head, together)
            if not found:
                side.warnings.append(f"{path}: no criterion estimates found below it")
            side.facts.append({})
    return sides


def _criterion_run(side: Side, root: Path, run: int, is_head: bool, together: bool) -> int:
    found = 0
    cases = sorted({path.parent.parent for path in root.rglob("estimates.json") if path.parent.name != "report"})
    for case in cases:
        name = case.relative_to(root).as_posix()
        baselines = {
            path.parent.name: path.parent
            for path in case.glob("*/estimates.json")
            if path.parent.name not in ("change", "report")
        }
        change = case / "change" / "estimates.json"
        if is_head and change.exists():
            interval = _criterion_change(side, change)
            name_of_change = _criterion_name(baselines, name)
            if interval is not None:
                side.intervals[name_of_change] = interval
        if not baselines:
            side.warnings.append(
                f"{name}: only `change` is present, without the two measurements it came from; left out"
            )
            continue
        chosen = _baseline(baselines, is_head, together)
        if chosen is None:
            wanted = "`new`" if is_head else "a baseline beside `new`"
            side.warnings.append(f"{name}: {wanted} is missing (found {', '.join(sorted(baselines))}); left out")
            continue
        value = _criterion_value(chosen)
        if not value:
            side.warnings.append(f"{name}: {chosen.name}/estimates.json has neither slope nor mean; left out")
            continue
        found += 1
        side.samples.append(Sampled("", run, _criterion_name(baselines, name), "", value, "seconds", directions.LOWER))
    return found


def _baseline(baselines: Mapping[str, Path], is_head: bool, together: bool) -> Path | None:
    """Which measurement in a case's folder is meant; None when it is not there."""
    others = sorted(name for name in baselines if name != "new")
    if "new" in baselines and (is_head or not together):
        return baselines["new"]
    if is_head and together:
        return None
    if "base" in baselines:
        return baselines["base"]
    if len(others) > 1:
        raise BadInput(
            f"{baselines[others[0]].parent}: several baselines ({', '.join(others)}) and none called base; "
            "give two folders, each with the one that is meant"
        )
    return baselines[others[0]] if others else None


def _criterion_name(baselines: Mapping[str, Path], folder: str) -> str:
    """criterion's own full id, which keeps the characters that a folder name cannot."""
    for path in baselines.values():
        described = path / "benchmark.json"
        if described.exists():
            full = _json(described, "criterion's description of a benchmark").get("full_id")
            if isinstance(full, str) and full:
                return full
    return folder


def _criterion_value(folder: Path) -> tuple[float, ...]:
    """Seconds a call: the raw samples if criterion kept them, else its estimate (the mean where slope is null)."""
    raw = folder / "sample.json"
    if raw.exists():
        data = _json(raw, "criterion's samples")
        pairs = zip(_listed(data.get("times")), _listed(data.get("iters")), strict=False)
        known = [pair for pair in pairs if len(_numbers(pair)) == 2 and pair[1] > 0]
        if known:
            return tuple(float(time) / float(count) * 1e-9 for time, count in known)
    estimates = _json(folder / "estimates.json", "criterion's estimates")
    for key in ("slope", "mean", "median"):
        for point in _numbers([_mapping(estimates.get(key)).get("point_estimate")]):
            return (point * 1e-9,)
    return ()


def _criterion_change(side: Side, path: Path) -> Interval | None:
    mean = _mapping(_json(path, "criterion's change").get("mean"))
    bounds = _mapping(mean.get("confidence_interval"))
    values = _numbers([mean.get("point_estimate"), bounds.get("lower_bound"), bounds.get("upper_bound")])
    if len(values) < 3:
        side.warnings.append(f"{path}: no mean with an interval in it; criterion's own opinion is left out")
        return None
    return values[0], values[1], values[2]


# --- pytest-benchmark -------------------------------------------------------------------------------------------------


def _pytest_benchmark(base: Sequence[Path], head: Sequence[Path]) -> tuple[Side, Side]:
    """JSON files of `--benchmark-json` or `--benchmark-autosave`; a folder is one run for each file below it."""
    sides = Side(), Side()
    for side, paths in zip(sides, (base, head), strict=True):
        files = [file for path in paths for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
        for run, path in enumerate(files, 1):
            data = _json(path, "a pytest-benchmark file")
            if not isinstance(data.get("benchmarks"), list):
                raise BadInput(
                    f"{path}: has no list `benchmarks`; expected a file of pytest-benchmark --benchmark-json"
                )
            side.facts.append(_pytest_facts(side, path, data))
            for place, entry in enumerate(map(_mapping, data["benchmarks"]), 1):
                name, stats = entry.get("fullname") or entry.get("name"), _mapping(entry.get("stats"))
                if not isinstance(name, str):
                    side.warnings.append(f"{path.name}: entry {place} of `benchmarks` has no name; left out")
                    continue
                values = _numbers(stats.get("data")) or _numbers([stats.get("median"), stats.get("mean")])[:1]
                side.samples.append(
                    Sampled(
                        "", run, name, "", tuple(values), "seconds", directions.LOWER,
                        error=None if values else "no statistics in the file",
                    )
                )  # fmt: skip
    return sides


def _pytest_facts(side: Side, path: Path, data: Mapping[str, Any]) -> dict[str, str]:
    machine = _mapping(data.get("machine_info"))
    cpu = machine.get("cpu") or {}
    if not isinstance(cpu, Mapping):  # older files hold one string
        cpu = {"brand_raw": str(cpu)}
    commit = _mapping(data.get("commit_info"))
    if commit.get("dirty"):
        side.warnings.append(
            f"{path.name}: measured with uncommitted changes (dirty: true); its commit id says too little"
        )
    brand = cpu.get("brand_raw") or cpu.get("brand")
    if not brand:
        side.warnings.append(f"{path.name}: names no CPU, so nobody can tell whether both sides ran on the same one")
    facts = {
        "CPU": brand,
        "architecture": machine.get("machine"),
        "Python": machine.get("python_version"),
        "pytest-benchmark": data.get("version"),
        "host": machine.get("node"),
    }
    return {key: str(value) for key, value in facts.items() if value}


# --- asv --------------------------------------------------------------------------------------------------------------


def _asv(base: Sequence[Path], head: Sequence[Path]) -> tuple[Side, Side]:
    """asv result files, or folders that hold the results of one commit and environment a machine folder.

    Units and directions come from `benchmarks.json` in a folder above the file, where there is one.
    """
    sides = Side(), Side()
    for side, paths in zip(sides, (base, head), strict=True):
        files = [(given, _asv_files(given)) for given in paths]
        side.warnings += [
            f"{given}: holds no asv result file (<machine>/<commit>-<env>.json)" for given, f in files if not f
        ]
        for run, path in enumerate((file for _, found in files for file in found), 1):
            _asv_file(side, path, run)
    return sides


def _asv_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = [file for file in sorted(path.rglob("*.json")) if file.name not in ("machine.json", "benchmarks.json")]
    commits = {_asv_content(file).commit for file in files}
    if len(commits) > 1:
        raise BadInput(
            f"{path}: holds results of {counted(len(commits), 'commit')}; give the file of the one that is meant"
        )
    return files


def _asv_file(side: Side, path: Path, run: int) -> None:
    content = _asv_content(path)
    side.warnings += [f"{path.name}: {note}" for note in content.notes]
    definitions = _asv_definitions(path)
    facts = {
        "CPU": content.facts.get("cpu"),
        "architecture": content.facts.get("arch"),
        "operating system": content.facts.get("os"),
        "Python": content.python or content.facts.get("python"),
        "host": content.facts.get("machine"),
    }
    side.facts.append({key: str(value) for key, value in facts.items() if value})
    for name, row in content.results.items():
        definition = definitions.get(name, {})
        names = [str(one) for one in _listed(definition.get("param_names"))]
        results = row.result if isinstance(row.result, list) else [row.result]
        samples = asv_files.samples_of(row)
        unit = str(definition.get("unit") or directions.type_of(name)[1] or "unit")
        version = row.version or definition.get("version")
        for place, values in enumerate(asv_files.grid_of(bytes(row.params))):
            result = results[place] if place < len(results) else None
            raw = samples[place] if place < len(samples) else None
            side.samples.append(
                Sampled(
                    "", run, name, cell(names, values), tuple(_numbers(raw) or _numbers([result])), unit,
                    directions.of(definition, name), version=str(version) if version else None,
                    control=definition.get("control") is True, error="failed" if result is None else None,
                )
            )  # fmt: skip


def _asv_content(path: Path) -> asv_files.ResultFile:
    try:
        return asv_files.decode(path.read_bytes(), path.name)
    except (OSError, asv_files.Unreadable) as error:
        raise BadInput(f"{path}: {error}; expected an asv result file") from error


def _asv_definitions(path: Path) -> Mapping[str, Any]:
    for folder in list(path.parents)[:3]:
        file = folder / "benchmarks.json"
        if file.exists():
            try:
                return asv_files.definitions(file.read_bytes())
            except (OSError, asv_files.Unreadable) as error:
                raise BadInput(f"{file}: {error}; expected asv's benchmarks.json") from error
    return {}


def cell(names: Sequence[str], values: Sequence[Any]) -> str:
    """`device=cpu, mib=64`: one parameter cell as people read it. asv stores each value as its repr."""
    told = []
    for place, value in enumerate(values):
        text = str(value)
        text = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
        told.append(f"{names[place]}={text}" if place < len(names) else text)
    return ", ".join(told)


# --- shared -----------------------------------------------------------------------------------------------------------


def _incomparable(base: Side, head: Side) -> str:
    """Why the two sides do not compare: a fact other than the host's name that differs between or within them."""
    reasons = []
    keys = {key: None for facts in (*base.facts, *head.facts) for key in facts}
    for key in keys:
        values = [sorted({facts[key] for facts in side.facts if key in facts}) for side in (base, head)]
        if not values[0] or not values[1] or (values[0] == values[1] and len(values[0]) == 1):
            continue
        told = f"{' and '.join(values[0])} at base, {' and '.join(values[1])} at head"
        if key == "host":
            head.warnings.append(f"host differs: {told}")
        else:
            reasons.append(f"{key} differs: {told}")
    return f"the two sides are not comparable: {'; '.join(reasons)}" if reasons else ""


def _json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a file, with the NaN and Infinity that real files hold read as they are. BadInput otherwise."""
    try:
        data = asv_files.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read as {expected} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, an endless number, nested without end
        raise BadInput(f"{path}: cannot be read as {expected} ({error})") from error
    if not isinstance(data, dict):
        raise BadInput(f"{path}: is not a JSON object; expected {expected}")
    return data


def _mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object; an empty one for anything else that a file may hold in its place."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(values: Any) -> list[float]:
    """The finite numbers among `values`; none when it is not a list."""
    return [
        float(value)
        for value in (values if isinstance(values, list | tuple) else ())
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    ]


_READERS: dict[str, Callable[[Sequence[Path], Sequence[Path]], tuple[Side, Side]]] = {
    "criterion": _criterion,
    "pytest-benchmark": _pytest_benchmark,
    "asv": _asv,
}
