"""One unattended night: asv runs suite by suite into a side folder, and only whole result files move into the history.

asv writes a commit's result file in place, once, after its last benchmark: an interrupt at half time leaves nothing,
and a cut file stops the next run of that commit. So each suite (a module of the benchmark folder) is a run of its own,
below `.night` beside the results; a file that parses whole is then moved in, and what was done is noted, so that
whatever ends a night, the next one goes on behind the last finished suite.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import json5

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.measure import facts as facts_of
from hybrid_kernels.records import Mark, Night
from hybrid_kernels.units import MIB, counted, format_bytes

LEAST_FREE_BYTES = 256 * MIB
"""Free space below which a night does not start: asv's environments and result files need some."""
BUSY_SHARE = 0.5
"""Load, as a share of the cores, above which a host is not idle."""
WATCHED = (
    "kernel", "cpu", "cores", "memory_bytes", "python", "driver", "device_name", "link_generation", "link_width",
    "link_generation_max", "link_width_max", "device_memory_bytes", "compute_capability",
)  # fmt: skip
"""Facts that are compared with the night before; those that move by themselves (load, clocks) are not."""

_TIMING = re.compile(r"^\s*def (?:time|timeraw|track|mem|peakmem)_\w+", re.MULTILINE)

Progress = Callable[[int, int, str], None]


class CouldNotRun(HybridKernelsError):
    """The night could not measure at all; the message says why and what to do."""

    exit_code = 2


class Held(HybridKernelsError):
    """Another night is under way: who holds the lock, and since when."""

    exit_code = 0


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the night's lock. Held when another process has it; the lock goes with its process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 4096, 0).decode(errors="replace").strip() or "an unknown process"
            raise Held(f"another night is under way: {holder}; nothing to do") from None
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {platform.node()} since {since}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def busy() -> str | None:
    """What else is running here, in words; None when host and GPUs are idle."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if load > cores * BUSY_SHARE:
        return f"the host is busy: load {load:.2g} on {cores} cores"
    return facts_of.busy_gpu()


def wait_idle(
    limit: float, busy_now: Callable[[], str | None] = busy, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Wait up to `limit` seconds for an idle machine; the reason that is left, or None when it became idle."""
    deadline, pause = time.monotonic() + limit, 1.0
    while (reason := busy_now()) is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            return f"{reason}, and still after waiting {limit:.0f} s"
        sleep(min(pause, left))
        pause = min(pause * 2, 60.0)
    return None


class Project:
    """An asv project on this machine. BadInput names the configuration, branch or repository that cannot be used."""

    def __init__(self, config: Path, branch: str, machine: str | None = None) -> None:
        if not config.is_file():
            raise BadInput(f"--config {config}: no such file; give the project's asv.conf.json")
        self.config, self.folder, self.branch = config.resolve(), config.resolve().parent, branch
        try:
            self.settings: dict[str, Any] = json5.loads(config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"--config {config}: cannot be read ({error}); correct it") from error
        if not isinstance(self.settings, dict) or "repo" not in self.settings:
            raise BadInput(f"--config {config}: names no repo; give the project's asv.conf.json")
        self.results = self._below("results_dir", "results")
        self.side = self.results.parent / ".night"
        self.benchmarks = self._below("benchmark_dir", "benchmarks")
        self.machine = machine or _machine_name()
        repo = str(self.settings["repo"])
        local = (self.folder / repo).resolve()
        self.repository = local if local.exists() else None
        self.repo = str(local) if local.exists() else repo

    def _below(self, key: str, default: str) -> Path:
        return (self.folder / str(self.settings.get(key, default))).resolve()

    def suites(self) -> list[str]:
        """Names of the modules in the benchmark folder that hold benchmarks, in order."""
        if not self.benchmarks.is_dir():
            raise BadInput(f"benchmark_dir: {self.benchmarks} does not exist; correct {self.config.name}")
        found = [
            ".".join(path.relative_to(self.benchmarks).with_suffix("").parts)
            for path in sorted(self.benchmarks.rglob("*.py"))
            if path.name != "__init__.py" and _TIMING.search(path.read_text(encoding="utf-8", errors="replace"))
        ]
        if not found:
            raise BadInput(f"benchmark_dir: {self.benchmarks} holds no benchmarks; correct {self.config.name}")
        return found

    def commits(self) -> list[str]:
        """Hashes of the branch, newest first, along first parents."""
        if self.repository is None:
            raise CouldNotRun(f"repo: {self.repo} is not on this machine; clone it and name the clone")
        got = _git(self.repository, "rev-list", "--first-parent", self.branch, "--")
        if got is None:
            raise BadInput(f"--branch: {self.branch!r} is no branch of {self.repository}; name one that exists")
        return got.split()

    def measured(self) -> set[str]:
        """First eight digits of the commits that have a result file of this machine."""
        folder = self.results / self.machine
        names = (re.match(r"(?:\d+_)?([0-9a-f]{8})-", path.name) for path in folder.glob("*.json"))
        return {name[1] for name in names if name}

    def side_config(self) -> Path:
        """The configuration with results in the side folder and every path absolute, written below it."""
        settings = {
            **self.settings, "repo": self.repo, "benchmark_dir": str(self.benchmarks),
            "env_dir": str(self._below("env_dir", "env")), "html_dir": str(self._below("html_dir", "html")),
            "results_dir": str(self.side / "results"),
        }  # fmt: skip
        self.side.mkdir(parents=True, exist_ok=True)
        path = self.side / "asv.conf.json"
        files.replace(path, json.dumps(settings, indent=1).encode())
        return path


def _machine_name() -> str:
    """The machine's name in asv's own file, else the host name, as asv takes it."""
    path = Path.home() / ".asv-machine.json"
    with contextlib.suppress(OSError, ValueError):
        names = [name for name in json.loads(path.read_text()) if name != "version"]
        if platform.node() in names or len(names) != 1:
            return platform.node()
        return str(names[0])
    return platform.node()


def _git(repository: Path, *arguments: str) -> str | None:
    got = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=False)
    return got.stdout if got.returncode == 0 else None


class State:
    """What is done, by commit and suite: a JSON file written whole after each suite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = {"commits": {}, "facts": {}}
        with contextlib.suppress(OSError, ValueError):  # cut or absent: the results folder still tells most
            loaded = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(loaded, dict):
                self.data.update(loaded)

    def done(self, machine: str, commit: str) -> dict[str, str]:
        """{suite: `done` or what went wrong} of a commit."""
        found: dict[str, str] = self.data["commits"].setdefault(machine, {}).setdefault(commit, {})
        return found

    def save(self) -> None:
        """Write it whole; on a full disk the last one stays, and the next night measures what it does not hold."""
        with contextlib.suppress(BadInput):
            files.replace(self.path, json.dumps(self.data, indent=1, sort_keys=True).encode())


class Dated(Protocol):
    """What identifies an event, wherever it was judged."""

    @property
    def kind(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def env(self) -> str: ...
    @property
    def benchmark(self) -> str: ...
    @property
    def cell(self) -> str: ...
    @property
    def commit(self) -> str: ...


Event = TypeVar("Event", bound=Dated)


def new_events(project: Project, events: Sequence[Event], measured: Sequence[str]) -> list[Event]:
    """Those of `events` that the night before did not know; in a first night, those at commits measured in it.

    All of them are known from then on.
    """
    path = project.side / "events.json"
    known = _whole(path)
    keys = ["\t".join((e.kind, e.machine, e.env, e.benchmark, e.cell, e.commit)) for e in events]
    if isinstance(known, list):
        seen = set(known)
        fresh = [event for event, key in zip(events, keys, strict=True) if key not in seen]
    else:
        fresh = [event for event in events if any(commit.startswith(event.commit[:8]) for commit in measured)]
    with contextlib.suppress(BadInput):  # a full disk: they are told again
        files.replace(path, json.dumps(keys, indent=0).encode())
    return fresh


def choose(project: Project, state: State, suites: Sequence[str], backfill: int) -> list[str]:
    """Commits to measure, in the order of measuring: unfinished ones, new ones (newest first), then older gaps.

    New are those after the newest measured commit; with none measured yet, the newest one. A backfill of N adds up to N
    commits, each the middle of the longest stretch without a measurement then.
    """
    line = project.commits()
    have = project.measured()
    begun = {
        commit
        for commit, done in state.data["commits"].get(project.machine, {}).items()
        if not all(suite in done for suite in suites)
    }
    finished = [commit[:8] in have and commit not in begun for commit in line]
    newest = next((place for place, is_done in enumerate(finished) if is_done), None)
    new = line[:newest] if newest is not None else line[:1]
    chosen = [commit for commit in line if commit in begun] + [commit for commit in new if commit not in begun]
    taken = [is_done or commit in chosen for commit, is_done in zip(line, finished, strict=True)]
    for _ in range(backfill):
        gap = _longest_gap(taken)
        if gap is None:
            break
        taken[gap] = True
        chosen.append(line[gap])
    return chosen


def _longest_gap(taken: Sequence[bool]) -> int | None:
    best: tuple[int, int] | None = None  # length, middle
    start = None
    for place, is_taken in enumerate([*taken, True]):
        if not is_taken and start is None:
            start = place
        elif is_taken and start is not None:
            length = place - start
            if best is None or length > best[0]:
                best = (length, start + length // 2)
            start = None
    return None if best is None else best[1]


def run(
    project: Project,
    *,
    backfill: int = 0,
    idle_limit: float = 1800.0,
    suite_limit: float = 3600.0,
    attributes: Sequence[str] = (),
    facts: dict[str, Any] | None = None,
    progress: Progress | None = None,
    busy_now: Callable[[], str | None] = busy,
) -> Night:
    """Measure what is due, and move every finished result file into the history.

    `facts`: of the machine now, compared with the night before. `attributes`: for asv's --attribute, such as
    `rounds=1`. CouldNotRun when nothing can be measured or written. Ctrl-C ends the night after what was finished.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    project.results.mkdir(parents=True, exist_ok=True)
    project.side.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(project.results).free
    if free < LEAST_FREE_BYTES:
        raise CouldNotRun(
            f"{project.results}: {format_bytes(free)} are free, {format_bytes(LEAST_FREE_BYTES)} are needed; make room"
        )
    state = State(project.side / "state.json")
    now = {name: value for name, value in (facts or {}).items() if name in WATCHED}
    before = state.data["facts"].get(project.machine, {})
    changed = tuple((name, before[name], now[name]) for name in WATCHED if name in before and name in now
                    and before[name] != now[name])  # fmt: skip
    suites = project.suites()
    due = choose(project, state, suites, backfill)
    if due and (reason := wait_idle(idle_limit, busy_now)) is not None:
        return Night(started, project.machine, (), tuple(due), (), 0, changed, idle=reason)
    if now:
        state.data["facts"][project.machine] = now
        state.save()
    side_config = project.side_config()
    measured, marks, moved, interrupted = list[str](), list[Mark](), 0, False
    total, count = len(due) * len(suites), 0
    for commit in due:
        done = state.done(project.machine, commit)
        try:
            _seed(project, commit)
        except OSError as error:
            marks.append(Mark(commit, "", f"{_UNWRITTEN} ({error.strerror}): make room in {project.side}"))
            break
        try:
            for suite in suites:
                count += 1
                if suite in done:
                    continue
                if progress is not None:
                    progress(count, total, f"{commit[:8]} {suite}")
                outcome, files_moved = _suite(project, side_config, commit, suite, suite_limit, attributes)
                moved += files_moved
                if outcome != "done":
                    marks.append(Mark(commit, suite, outcome))
                if outcome.startswith(_UNWRITTEN):  # no fault of the suite: it stays due
                    continue
                done[suite] = outcome
                state.save()
                if outcome.startswith("build failed"):
                    done.update({other: outcome for other in suites if other not in done})
                    marks[-1] = Mark(commit, "", outcome)
                    state.save()
                    break
        except KeyboardInterrupt:
            interrupted = True
            break
        if all(done.get(suite) is not None for suite in suites):
            measured.append(commit)
    left = tuple(commit for commit in due if commit not in measured)
    return Night(started, project.machine, tuple(measured), left, tuple(marks), moved, changed, None, interrupted)


def _seed(project: Project, commit: str) -> None:
    """Begin the side folder of a commit with what the history has, so that asv adds to it; cut leftovers go."""
    side = project.side / "results" / project.machine
    shutil.rmtree(project.side / "results", ignore_errors=True)
    side.mkdir(parents=True)
    for path in (project.results / project.machine).glob(f"*{commit[:8]}-*.json"):
        if _whole(path) is not None:
            shutil.copy2(path, side / path.name)
    for name in (f"{project.machine}/machine.json", "benchmarks.json"):
        if _whole(project.results / name) is not None:
            shutil.copy2(project.results / name, project.side / "results" / name)


def _whole(path: Path) -> Any:
    """The JSON in a file, or None when it is absent or cut."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


_UNWRITTEN = "the disk is full or cannot be written"


def _suite(
    project: Project,
    config: Path,
    commit: str,
    suite: str,
    limit: float,
    attributes: Sequence[str],
    benchmark: str | None = None,
) -> tuple[str, int]:
    """As `_run_suite`; an outcome that begins with _UNWRITTEN where the log or the history could not be written."""
    try:
        return _run_suite(project, config, commit, suite, limit, attributes, benchmark)
    except OSError as error:
        return f"{_UNWRITTEN} ({error.strerror})", 0
    except BadInput as error:
        return f"{_UNWRITTEN} ({error})", 0


def _run_suite(
    project: Project,
    config: Path,
    commit: str,
    suite: str,
    limit: float,
    attributes: Sequence[str],
    benchmark: str | None = None,
) -> tuple[str, int]:
    """Run one suite of one commit into the side folder and move what is whole. Returns (outcome, files moved).

    `benchmark`: a regular expression, for a part of the suite.
    """
    chosen = rf"^{re.escape(suite)}\." if benchmark is None else rf"^(?={re.escape(suite)}\.)(?=.*?(?:{benchmark}))"
    command = [
        sys.executable, "-m", "asv", "run", "--config", str(config), "--machine", project.machine, "--record-samples",
        "--bench", chosen, *(word for pair in attributes for word in ("--attribute", pair)),
        f"{commit}^!",
    ]  # fmt: skip
    log = project.side / f"{commit[:8]}-{suite}.log"
    with open(log, "wb") as out:
        # asv works in the folder of its configuration: plugins that lie in the project's have to be found from there
        path = os.pathsep.join(filter(None, (str(project.folder), os.environ.get("PYTHONPATH"))))
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            _end(child)
            return f"took longer than {limit:.0f} s and was ended (log: {log})", _move(project, commit)
        except BaseException:
            _end(child)
            raise
    said = log.read_text(encoding="utf-8", errors="replace")
    moved = _move(project, commit)
    if "No space left on device" in said:
        return f"{_UNWRITTEN} (log: {log})", moved
    if "Failed to build" in said or "Failed: trying different" in said:
        return f"build failed (log: {log})", moved
    failed = _failed(project, commit, suite)
    if failed:
        return (
            f"{counted(len(failed), 'benchmark')} failed: {', '.join(failed[:3])}{' ...' if len(failed) > 3 else ''}",
            moved,
        )
    if child.returncode not in (0, 2):  # 2: asv's word for benchmarks that failed, which the file tells better
        return f"asv ended with {child.returncode} (log: {log})", moved
    log.unlink(missing_ok=True)
    return "done", moved


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a run and everything that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _move(project: Project, commit: str) -> int:
    """Move whole files of the side folder into the history, each in one step; returns how many results moved."""
    side, moved = project.side / "results", 0
    (project.results / project.machine).mkdir(parents=True, exist_ok=True)
    for path in sorted((side / project.machine).glob(f"*{commit[:8]}-*.json")):
        if _whole(path) is not None:
            target = project.results / project.machine / path.name
            if not target.exists() or target.read_bytes() != path.read_bytes():
                files.replace(target, path.read_bytes())
                moved += 1
    for name in (f"{project.machine}/machine.json", "benchmarks.json"):
        if _whole(side / name) is not None:
            files.replace(project.results / name, (side / name).read_bytes())
    return moved


def _failed(project: Project, commit: str, suite: str) -> list[str]:
    """Benchmarks of the suite with a failed cell (null; a skipped one is NaN) in the files of a commit."""
    failed = []
    for path in (project.results / project.machine).glob(f"*{commit[:8]}-*.json"):
        data = _whole(path) or {}
        for name, row in data.get("results", {}).items():
            cells = row[0] if isinstance(row, list) and row else row
            if name.startswith(f"{suite}.") and (cells is None or (isinstance(cells, list) and None in cells)):
                failed.append(name)
    return sorted(set(failed))


def share(project: Project, night: Night, branch: str | None, push: bool) -> str:
    """Commit the results, into `branch` when given (without touching the checkout), and push; what was done, in words.

    CouldNotRun, with git's own last line, when git refuses.
    """
    where = project.results

    def git(*arguments: str, folder: Path = where) -> str:
        got = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False)
        if got.returncode != 0:
            last = (got.stderr.strip() or got.stdout.strip() or "no message").splitlines()[-1]
            raise CouldNotRun(f"git {arguments[0]} in {folder}: {last}")
        return got.stdout.strip()

    top = Path(git("rev-parse", "--show-toplevel"))
    message = f"Results of {night.machine}: {', '.join(commit[:8] for commit in night.measured) or 'a part'}"
    folder, inside = top, where
    if branch is not None:
        folder = project.side / "branch"
        if not (folder / ".git").exists():
            exists = _git(top, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") is not None
            git("worktree", "prune", folder=top)
            git("worktree", "add", *(() if exists else ("-b", branch)), str(folder), *((branch,) if exists else ()),
                folder=top)  # fmt: skip
        inside = folder / where.relative_to(top)
        shutil.copytree(where, inside, dirs_exist_ok=True)
    git("add", "--", str(inside), folder=folder)
    if _git(folder, "diff", "--cached", "--quiet") is not None:
        return "no new results to commit"
    git("commit", "--quiet", "-m", message, "--", str(inside), folder=folder)
    if not push:
        return f"committed: {message}"
    git("push", "--quiet", *(("origin", f"HEAD:{branch}") if branch else ()), folder=folder)
    return f"committed and pushed: {message}"
