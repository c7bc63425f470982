"""Alternating rounds of two commits: fresh processes of each side, in turn, on one machine, every sample kept.

Two parts. `measure` is the loop: which process runs next, what is written after each round, when to stop. It knows only
the `Laboratory` it is given. `AsvLaboratory` is asv behind that interface: it builds each commit as asv would, in an
environment of its own, and runs one benchmark cell in one fresh process.

Within a round the two sides of each benchmark cell run back to back, so that whatever the machine does for longer than
that meets both; the side that goes first changes from round to round (A B B A), so that a steady drift cancels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import logging
import math
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from hybrid_kernels import files
from hybrid_kernels.devices import cuda_absence, open_device
from hybrid_kernels.errors import BadInput, HybridKernelsError, NothingMeasured
from hybrid_kernels.measure import diffs
from hybrid_kernels.measure.facts import host_facts, under_load
from hybrid_kernels.records import CONTROL_NAMES, SCHEMA, Sampled, plain

SIDES = ("base", "head")

Progress = Callable[[str, int, int, Sequence[str]], None]
"""Called with what is being done, how much of it is done, out of how much, and the rows still unsettled."""


class StopRule(Protocol):
    """When enough is known. `looks` are the rounds after which it wants to be asked; the last one ends the run."""

    looks: tuple[int, ...]

    def __call__(self, samples: Sequence[Sampled]) -> list[str]:
        """Names of what more rounds could still settle; an empty list stops the run."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One benchmark at one parameter combination, on the sides that have it."""

    benchmark: str
    place: int | None  # in the product of the parameters; None without parameters
    cell: str
    sides: tuple[str, ...]


class Laboratory(Protocol):
    """Where cells are measured. `plan` identifies what is measured: rounds kept under another plan are not resumed."""

    plan: dict[str, Any]
    cells: list[Cell]

    def measure(self, side: str, cell: Cell, round_number: int) -> Sampled:
        """Run `cell` of `side` in a fresh process. A failure is a `Sampled` with `error`, never an exception."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """What a run left: every sample of every finished round, and how it ended."""

    folder: Path
    plan: dict[str, Any]
    samples: tuple[Sampled, ...]
    rounds: int
    resumed: int = 0  # rounds that were there already
    sequential: bool = False  # somebody looked before the end: now, or in a run that this one resumed
    interrupted: bool = False
    out_of_time: bool = False
    warnings: tuple[str, ...] = ()
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def measure(
    laboratory: Laboratory,
    keep: Path,
    *,
    rounds: int | None = None,
    stop: StopRule | None = None,
    time_limit: float = 1200.0,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Kept:
    """Measure `rounds` rounds, or until `stop` is content, or until `time_limit` seconds would be passed.

    Each finished round is written whole to `keep`/round-NNN.json; rounds found there under the same plan are
    counted and not measured again. Ctrl-C ends the run with the rounds finished so far. BadInput when `keep` holds
    another plan.
    """
    if (rounds is None) == (stop is None):
        raise BadInput("rounds: give a number of rounds or a stopping rule, not both and not neither")
    samples, done, sequential = _resume(keep, laboratory.plan, stop is not None)
    resumed, interrupted, out_of_time = done, False, False
    unsettled: list[str] = []
    started, longest = clock(), 0.0
    most = rounds if rounds is not None else stop.looks[-1] if stop is not None else 0
    facts = machine_facts()
    while done < most:
        if stop is not None and done in stop.looks:
            unsettled = stop(samples)
            if not unsettled:
                break
        if done and clock() - started + longest > time_limit:
            out_of_time = True
            break
        began = clock()
        try:
            rows = _one_round(laboratory, _alive(laboratory.cells, samples), done + 1, most, unsettled, progress)
        except KeyboardInterrupt:
            interrupted = True
            break
        done += 1
        longest = max(longest, clock() - began)
        _write_round(keep, done, rows, clock() - began)
        samples.extend(rows)
    return Kept(keep, laboratory.plan, tuple(samples), done, resumed, sequential, interrupted, out_of_time, (), facts)


def machine_facts() -> dict[str, Any]:
    """Facts of the host, and of its GPU under a short load where there is one; read before anything is measured."""
    if cuda_absence() is not None:
        return host_facts()
    try:
        with open_device("cuda") as device:
            return dict(plain(under_load(device)))
    except HybridKernelsError as error:  # the GPU is the project's business, not ours: its absence stops nothing
        return host_facts() | {"device": f"cuda, not readable: {error}"}


def _alive(cells: Sequence[Cell], samples: Sequence[Sampled]) -> list[Cell]:
    """Cells worth a process: those that skipped themselves on every side, in every round so far, are left out."""
    met = {(sample.benchmark, sample.cell) for sample in samples}
    spoke = {(sample.benchmark, sample.cell) for sample in samples if sample.samples or sample.error}
    return [cell for cell in cells if (key := (cell.benchmark, cell.cell)) in spoke or key not in met]


def _one_round(
    laboratory: Laboratory,
    cells: Sequence[Cell],
    number: int,
    most: int,
    unsettled: Sequence[str],
    progress: Progress | None,
) -> list[Sampled]:
    order = SIDES if number % 2 else SIDES[::-1]
    rows = []
    for place, cell in enumerate(cells):
        if progress is not None:
            progress(f"round {number} of at most {most}", place, len(cells), unsettled)
        rows += [laboratory.measure(side, cell, number) for side in order if side in cell.sides]
    return rows


def _write_round(keep: Path, number: int, rows: Sequence[Sampled], seconds: float) -> None:
    data = {
        "schema": SCHEMA, "round": number, "order": list(SIDES if number % 2 else SIDES[::-1]), "seconds": seconds,
        "facts": plain(host_facts()), "rows": [plain(row) for row in rows],
    }  # fmt: skip
    files.replace(keep / f"round-{number:03d}.json", (json.dumps(data, allow_nan=False) + "\n").encode())


def _resume(keep: Path, plan: dict[str, Any], sequential: bool) -> tuple[list[Sampled], int, bool]:
    """Samples and number of the rounds already in `keep`, and whether any run there stopped by what it saw.

    Writes the plan there when it is new.
    """
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / "plan.json"
    identity = plain(plan)
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"{path}: cannot be read ({error}); give another folder to --keep") from error
        differing = [key for key in identity if known.get(key) != identity[key]]
        if differing:
            raise BadInput(
                f"--keep {keep}: holds rounds of another comparison ({', '.join(differing)} differ); "
                "give another folder, or remove that one"
            )
    else:
        known = identity | {"schema": SCHEMA, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    told = known | {"sequential": sequential or bool(known.get("sequential"))}
    if not path.exists() or told != known:
        files.replace(path, (json.dumps(told, allow_nan=False, indent=1) + "\n").encode())
    samples: list[Sampled] = []
    for done in itertools.count(1):
        round_file = keep / f"round-{done:03d}.json"
        if not round_file.exists():
            return samples, done - 1, told["sequential"]
        try:
            rows = json.loads(round_file.read_text(encoding="utf-8"))["rows"]
            samples += [Sampled(**{**row, "samples": tuple(row["samples"])}) for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{round_file}: is not a round that this version wrote ({error!r}); remove it") from error
    raise AssertionError("unreachable")


# --- asv --------------------------------------------------------------------------------------------------------------


class AsvLaboratory:
    """Two commits of an asv project, each built in an environment of its own below the project's `env_dir`.

    Each side runs the benchmark suite of its own commit, so that a benchmark that the change adds, removes or redefines
    is seen as such; a commit without a suite runs the one in the working tree. BadInput names what cannot be used: the
    configuration, a commit, an environment, a commit that does not build (with the last line of its output).
    """

    def __init__(
        self,
        config: Path,
        base: str,
        head: str,
        *,
        benchmark: Sequence[str] = (),
        controls: str = CONTROL_NAMES,
        attributes: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self.unselected: tuple[str, ...] = ()
        self._stack = contextlib.ExitStack()
        self._progress = progress
        self._attributes = dict(attributes or {})  # of every benchmark, instead of its own: asv's --attribute
        self._caches: dict[tuple[str, str], tuple[str | None, str]] = {}
        self._benchmark = [_pattern(text, "--benchmark") for text in benchmark]
        self._controls = _pattern(controls, "--controls")
        self.folder = config.resolve().parent
        if not config.is_file():
            raise BadInput(f"--config {config}: no such file; give the project's asv.conf.json")
        try:
            with self._asv():
                self._open(config, base, head)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def kept_folder(self) -> Path:
        """Where rounds are kept when nobody says: a folder of this very plan, so that running twice resumes."""
        digest = hashlib.sha256(json.dumps(plain(self.plan), sort_keys=True).encode()).hexdigest()[:12]
        pair = "-".join(commit[:8] for commit in self.commits.values())
        return self._environments / "compare-kept" / f"{pair}-{digest}"

    def _open(self, config: Path, base: str, head: str) -> None:
        from asv.config import Config
        from asv.plugin_manager import plugin_manager
        from asv.repo import get_repo

        conf = Config.load(str(config.resolve()))
        for plugin in conf.plugins:
            try:
                plugin_manager.import_plugin(plugin)
            except ImportError as error:
                raise BadInput(
                    f"--config: plugin {plugin} cannot be imported ({error}); install it beside asv"
                ) from error
        self.results = (self.folder / conf.results_dir).resolve()
        self.machine = _machine()
        self._environments = (self.folder / str(conf.env_dir)).resolve()
        repo = get_repo(conf)
        repo.pull()
        self.repository = Path(repo._path)  # asv offers no public name for the clone it works in
        self.commits = {"base": self._commit(repo, base), "head": self._commit(repo, head)}
        scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        self._suites, self._envs, found = {}, {}, {}
        self._suite_in_repository = self._place_of_suite(conf)
        for done, side in enumerate(SIDES):
            if self._progress is not None:
                self._progress(f"building {side} {self.commits[side][:8]}", done, len(SIDES), ())
            self._suites[side] = self._suite(conf, side, scratch)
            self._envs[side] = self._environment(conf, repo, side)
            found[side] = self._discover(conf, side)
        self._benchmarks: dict[str, dict[str, dict[str, Any]]] = found
        self.cells = self._select()
        self.touched = diffs.changed(self.repository, *self.commits.values())
        tree = diffs.git(self.repository, "ls-tree", "-r", "--name-only", "-z", self.commits["head"]).split("\0")
        self.untouched = self.commits["base"] != self.commits["head"] and diffs.out_of_reach(
            self.touched, tree, self._suite_in_repository, diffs.imports(self._suites["head"])
        )
        self.plan = {
            "project": str(conf.project),
            "base": self.commits["base"],
            "head": self.commits["head"],
            "machine": self.machine,
            "environment": self._envs["head"].name,
            "attributes": self._attributes,
            "untouched": self.untouched,
            "unselected": self.unselected,
            "cells": [[cell.benchmark, cell.cell, *self._versions(cell)] for cell in self.cells],
        }

    def _versions(self, cell: Cell) -> list[str | None]:
        return [str(self._benchmarks[side].get(cell.benchmark, {}).get("version")) for side in SIDES]

    def _commit(self, repo: Any, name: str) -> str:
        from asv.repo import NoSuchNameError
        from asv.util import ProcessError

        try:
            return str(repo.get_hash_from_name(name))
        except (NoSuchNameError, ProcessError) as error:
            raise BadInput(f"commit {name!r}: not found in {self.repository}; fetch it, or check the name") from error

    def _place_of_suite(self, conf: Any) -> str:
        """The benchmark folder's path inside the repository under test; "" when it lies somewhere else."""
        suite = (self.folder / str(conf.benchmark_dir)).resolve()
        with contextlib.suppress(ValueError):
            return suite.relative_to(self.repository.resolve()).as_posix()
        return ""

    def _suite(self, conf: Any, side: str, scratch: Path) -> Path:
        """The benchmark folder of a side's own commit, unpacked beside the other's under a path of the same length."""
        there: Path = (self.folder / str(conf.benchmark_dir)).resolve()
        place = self._suite_in_repository
        if not place:
            return there
        archive = subprocess.run(
            ["git", "-C", str(self.repository), "archive", "--format=tar", self.commits[side], "--", place],
            capture_output=True,
            check=False,
        )
        if archive.returncode != 0:
            self.warnings.append(f"{side} has no folder {place}: it runs the benchmarks of the working tree")
            return there
        target = scratch / side
        target.mkdir()
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as content:
            content.extractall(target, filter="data")
        return target / place

    def _environment(self, conf: Any, repo: Any, side: str) -> Any:
        from asv import environment, util

        own = _copy(conf, env_dir=str(Path(conf.env_dir) / f"compare-{side}"))
        environments = list(environment.get_environments(own, None, verbose=False))
        if not environments:
            raise BadInput(f"--config: no environment of type {conf.environment_type!r} for Python {conf.pythons} here")
        chosen = environments[0]
        if not chosen.can_install_project():
            raise BadInput(
                "--config: environment_type `existing` cannot build a commit; set virtualenv, conda or another that can"
            )
        if len(environments) > 1 and side == "head":
            self.warnings.append(f"measured in {chosen.name} only; the matrix has {len(environments)} environments")
        try:
            chosen.create()
            chosen.install_project(own, repo, self.commits[side])
        except (util.ProcessError, util.UserError, OSError) as error:  # OSError: a build command that is not there
            raise BadInput(f"{side} {self.commits[side][:8]}: does not build: {_last_line(error)}") from error
        return chosen

    def _discover(self, conf: Any, side: str) -> dict[str, dict[str, Any]]:
        """Entries of benchmarks.json as this side's own suite gives them: asv's discovery, with its error kept."""
        from asv import runner, util

        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "found.json"
            command = [runner.BENCHMARK_RUN_SCRIPT, "discover", str(self._suites[side]), str(found)]
            env = dict(os.environ, **self._envs[side].env_vars)
            try:
                self._envs[side].run(command, cwd=folder, env=env, dots=False, display_error=False)
                entries = json.loads(found.read_text(encoding="utf-8"))
            except (util.ProcessError, OSError, ValueError) as error:
                raise BadInput(
                    f"{side} {self.commits[side][:8]}: its benchmarks cannot be imported: {_last_line(error)}"
                ) from error
        for entry in entries:
            if entry.get("timeout") is None:
                entry["timeout"] = conf.default_benchmark_timeout
        return {entry["name"]: entry for entry in entries}

    def _select(self) -> list[Cell]:
        cells: dict[tuple[str, str], Cell] = {}
        left_out: dict[str, None] = {}
        wanted = 0
        for side in SIDES:
            for name, entry in sorted(self._benchmarks[side].items()):
                for place, values in _grid(entry):
                    cell = _cell(entry.get("param_names") or [], values)
                    label = f"{name}({', '.join(values)})" if values else name
                    texts = (label, f"{name}({cell})" if cell else name)
                    chosen = not self._benchmark or any(p.search(text) for p in self._benchmark for text in texts)
                    if not chosen and not self._is_control(entry):
                        left_out[texts[1]] = None
                        continue
                    wanted += chosen
                    known = cells.get((name, cell))
                    sides = (*known.sides, side) if known else (side,)
                    cells[name, cell] = Cell(name, place, cell, sides)
        if not any(self._benchmarks.values()):
            raise NothingMeasured("nothing measured: neither commit has a benchmark; check benchmark_dir")
        if not wanted:
            names = sorted(set().union(*self._benchmarks.values()))
            raise BadInput(
                f"--benchmark: matches none of {len(names)} benchmarks; there are for example {', '.join(names[:3])}"
            )
        self.unselected = tuple(left_out)
        return [cells[key] for key in sorted(cells)]

    def _is_control(self, entry: dict[str, Any]) -> bool:
        return entry.get("control") is True or bool(self._controls.search(entry["name"]))

    def measure(self, side: str, cell: Cell, round_number: int) -> Sampled:
        """One fresh process of one side: what asv's runner starts for one benchmark and parameter combination."""
        from asv import runner, util

        entry = self._benchmarks[side][cell.benchmark]
        place = self._place(entry, cell)
        sampled = Sampled(
            side=side, round=round_number, benchmark=cell.benchmark, cell=cell.cell, samples=(),
            unit=str(entry.get("unit") or "unit"), direction=_direction(entry), version=entry.get("version"),
            control=self._is_control(entry),
        )  # fmt: skip
        with self._asv():
            spawner = runner.get_spawner(self._envs[side], str(self._suites[side]), "spawn")
            cwd, error = self._cache(spawner, side, entry)
            if error:
                return dataclasses.replace(sampled, error=error)
            try:
                chosen = None if place is None else {place}
                got = runner.run_benchmark(
                    entry, spawner, profile=False, selected_idx=chosen, extra_params=self._attributes, cwd=cwd
                )
            except util.UserError as stopped:  # asv turns Ctrl-C into an error of its own
                raise KeyboardInterrupt from stopped
            finally:
                spawner.close()
        at = place or 0
        result, raw, number = got.result[at], got.samples[at], got.number[at]
        if result is None:
            return dataclasses.replace(sampled, error=got.stderr.strip() or f"exit status {got.errcode}")
        values = raw if raw is not None else [result]
        finite = tuple(float(value) for value in values if isinstance(value, int | float) and math.isfinite(value))
        return dataclasses.replace(sampled, samples=finite, number=number)

    def _place(self, entry: dict[str, Any], cell: Cell) -> int | None:
        """Where the cell lies in this side's own parameter grid, which need not be the other side's."""
        for place, values in _grid(entry):
            if _cell(entry.get("param_names") or [], values) == cell.cell:
                return place
        raise AssertionError(f"{cell} was found in {entry['name']} before")

    def _cache(self, spawner: Any, side: str, entry: dict[str, Any]) -> tuple[str | None, str]:
        """The folder of a benchmark's setup_cache, made once a side, and why it could not be made."""
        from asv.util import long_path_rmtree

        key = entry.get("setup_cache_key")
        if key is None:
            return None, ""
        if (side, key) not in self._caches:
            seconds = entry.get("setup_cache_timeout") or entry["timeout"]
            folder, error = spawner.create_setup_cache(entry["name"], seconds, json.dumps({}))
            if folder is not None:
                self._stack.callback(long_path_rmtree, folder, True)
            self._caches[side, key] = folder, "" if folder else f"setup_cache failed\n{error}"
        return self._caches[side, key]

    @contextlib.contextmanager
    def _asv(self) -> Iterator[None]:
        """asv works in the folder of its configuration and talks on the terminal; here it keeps silent."""
        from asv.console import log
        from asv.util import UserError

        try:
            silent = log.set_level(logging.CRITICAL + 1)
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()), silent:
                yield
        except UserError as error:
            raise BadInput(f"asv: {_last_line(error)}") from error


def _pattern(text: str, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise BadInput(f"{option}: {text!r} is not a regular expression ({error})") from error


def _machine() -> str:
    """The name under which asv files this machine's results."""
    from asv.machine import Machine, MachineCollection
    from asv.util import UserError

    name = str(Machine.get_unique_machine_name())
    try:
        return str(MachineCollection.load(name)["machine"])
    except UserError:
        return name


def _copy(conf: Any, **changes: Any) -> Any:
    own = type(conf)()
    own.__dict__.update(conf.__dict__, **changes)
    return own


def _grid(entry: dict[str, Any]) -> Iterator[tuple[int | None, tuple[str, ...]]]:
    if not entry.get("params"):
        yield None, ()
    else:
        yield from enumerate(itertools.product(*entry["params"]))


def _cell(names: Sequence[str], values: Sequence[str]) -> str:
    told = [value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value for value in values]
    return ", ".join(f"{names[k]}={text}" if k < len(names) else text for k, text in enumerate(told))


def _direction(entry: dict[str, Any]) -> int:
    """What the benchmark itself says: `higher_is_better`, or being a time or a memory; 0 leaves it to the unit."""
    declared = entry.get("higher_is_better")
    if isinstance(declared, bool):
        return 1 if declared else -1
    return -1 if entry.get("type") in ("time", "timeraw", "memory", "peakmemory") else 0


def _last_line(error: Exception) -> str:
    said = "\n".join(str(text) for text in (getattr(error, "stdout", ""), getattr(error, "stderr", "")) if text)
    lines = (said.strip() or str(error)).splitlines() or ["no message"]
    return lines[-1].strip()
