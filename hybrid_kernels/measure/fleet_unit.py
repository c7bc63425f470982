"""One unit of a fleet's work on one machine: a suite of a commit, in a process that dies with the worker it serves.

    python -m hybrid_kernels.measure.fleet_unit      the unit as JSON on standard input, the outcome on standard output

All of it lies in `.fleet/MACHINE` beside the project's results, environments included, so that neither a history nor
another machine on the same file system is touched. What was finished there in the same run is not measured again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput, HybridKernelsError
from hybrid_kernels.measure import night

PATIENCE = 60.0
"""Seconds to wait for another unit on this machine to end."""

DONE, NOTHING = "done", "no such benchmark"


@dataclass(frozen=True)
class Unit:
    """What to measure and where: a suite of a commit, on the machine of this name and no other."""

    run: str  # of one `fleet run`; what another run measured counts for nothing here
    config: str  # the project's asv.conf.json on that machine
    machine: str
    named: bool  # whether the machine has this name for the run only (workers that try the fleet out on one host)
    commit: str
    suite: str
    benchmark: str | None
    limit: float  # seconds

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other units of its machine."""
        return self.commit, self.suite


@dataclass(frozen=True)
class Outcome:
    """What became of a unit: `done`, `no such benchmark`, or what went wrong; and the result files as they are then."""

    what: str
    contents: dict[str, bytes]  # by path below the results folder


def project_of(config: str, machine: str | None) -> night.Project:
    """The project with everything that is written below `.fleet/MACHINE`. BadInput when it cannot be used."""
    project = night.Project(Path(config), "HEAD", machine)
    project.side = project.results.parent / ".fleet" / project.machine
    project.results = project.side / "history"
    project.settings["env_dir"] = str(project.side / "env")
    return project


def digest(folder: Path) -> str:
    """The Python sources below `folder`, as ten hexadecimal digits."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:10]


def versions(project: night.Project) -> dict[str, str]:
    """What has to be the same on every machine for their results to be one history."""
    from importlib.metadata import version

    from hybrid_kernels.records import SCHEMA

    return {
        "hybrid_kernels": digest(Path(__file__).parents[1]),
        "schema": str(SCHEMA),
        "asv": version("asv"),
        "project": str(project.settings.get("project")),
        "benchmarks": digest(project.benchmarks),
    }


def lacking(project: night.Project, commits: list[str]) -> list[str]:
    """Those of `commits` that the project's repository does not have, after fetching once."""

    def missing() -> list[str]:
        if project.repository is None:  # asv clones it
            return []
        return [one for one in commits if night._git(project.repository, "cat-file", "-e", f"{one}^{{commit}}") is None]

    found = missing()
    if found and project.repository is not None:
        night._git(project.repository, "fetch", "--quiet")
        found = missing()
    return found


def measure(unit: Unit) -> Outcome:
    """Run the unit here, unless this run has done so already. BadInput when this machine has another name."""
    project = project_of(unit.config, unit.machine if unit.named else None)
    if project.machine != unit.machine:
        raise BadInput(f"this is {project.machine}, not {unit.machine}: measured nothing")
    project.side.mkdir(parents=True, exist_ok=True)
    with _alone(project):
        state = night.State(project.side / f"{unit.run}.json")
        done = state.done(unit.machine, unit.commit)
        if unit.suite not in done:
            _introduce(project)
            night._seed(project, unit.commit)
            what, _ = night._suite(
                project, project.side_config(), unit.commit, unit.suite, unit.limit, (), unit.benchmark
            )
            log = project.side / f"{unit.commit[:8]}-{unit.suite}.log"
            if log.exists() and "No benchmarks selected" in log.read_text(encoding="utf-8", errors="replace"):
                what = NOTHING
            done[unit.suite] = what
            state.save()
    return Outcome(done[unit.suite], _contents(project, unit.commit))


@contextlib.contextmanager
def _alone(project: night.Project) -> Iterator[None]:
    """Nobody else measures here for a fleet. The process of a worker that is gone is given time to end."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(night.lock(project.side / "lock"))
                break
            except night.Held:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield


def _introduce(project: night.Project) -> None:
    """Let asv know this machine by its name without asking, and without writing into the user's own file."""
    home = project.side / "home"
    with contextlib.suppress(OSError, ValueError):
        if project.machine in json.loads((Path.home() / ".asv-machine.json").read_text(encoding="utf-8")):
            return
    os.environ.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache/pip"))
    os.environ["HOME"] = str(home)
    if not (home / ".asv-machine.json").exists():
        home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "asv", "machine", "--yes", "--machine", project.machine]
        path = os.pathsep.join(filter(None, (str(project.folder), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [*command, "--config", str(project.config)], capture_output=True, text=True, check=False,
            cwd=project.folder, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
            raise HybridKernelsError(f"asv machine, for {project.machine}: {last}")


def _contents(project: night.Project, commit: str) -> dict[str, bytes]:
    folder = project.results / project.machine
    paths = [*folder.glob(f"*{commit[:8]}-*.json"), folder / "machine.json", project.results / "benchmarks.json"]
    return {path.relative_to(project.results).as_posix(): path.read_bytes() for path in paths if path.exists()}


def gather(outcome: Outcome, results: Path) -> int:
    """Put the files of an outcome into the history `results`, each in one step; how many have changed.

    What a file there holds of other benchmarks is kept.
    """
    changed = 0
    for name, data in outcome.contents.items():
        target = results / name
        target.parent.mkdir(parents=True, exist_ok=True)
        new = data if target.name == "machine.json" else _joined(target, data)
        if not target.exists() or target.read_bytes() != new:
            files.replace(target, new)
            changed += 1
    return changed


def _joined(target: Path, data: bytes) -> bytes:
    """`data`, with the benchmarks that only the file at `target` has."""
    old: Any = night._whole(target)
    new: Any = json.loads(data)
    if not isinstance(old, dict):
        return data
    if target.name == "benchmarks.json":
        joined = {**old, **new}
    elif old.get("result_columns") == new.get("result_columns") and isinstance(old.get("results"), dict):
        joined = {**new, "results": {**old["results"], **new["results"]},
                  "durations": {**old.get("durations", {}), **new.get("durations", {})}}  # fmt: skip
    else:
        return data
    return data if joined == new else json.dumps(joined).encode()


def start(unit: Unit, environment: dict[str, str] | None = None) -> Outcome:
    """Run the unit in a process of its own, which ends when this one does. HybridKernelsError says how it failed."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", __name__], input=json.dumps(asdict(unit)), capture_output=True, text=True, check=False,
        env={**os.environ, **(environment or {}), "PYTHONPATH": path, "HYBRID_KERNELS_PARENT": str(os.getpid())},
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        raise HybridKernelsError(f"{unit.suite} of {unit.commit[:8]}: {last}")
    told = json.loads(done.stdout)
    return Outcome(told["what"], {name: base64.b64decode(data) for name, data in told["contents"].items()})


def _end_with(parent: int) -> None:
    """Interrupt this process when the worker that started it is gone: nobody would hear of what it measures."""
    while os.getppid() == parent:
        time.sleep(0.25)
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """The process: a unit in, an outcome out."""
    unit = Unit(**json.loads(sys.stdin.read()))
    parent = int(os.environ.get("HYBRID_KERNELS_PARENT", os.getppid()))
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        outcome = measure(unit)
    except HybridKernelsError as error:
        sys.exit(str(error))
    contents = {name: base64.b64encode(data).decode() for name, data in outcome.contents.items()}
    sys.stdout.write(json.dumps({"what": outcome.what, "contents": contents}))


if __name__ == "__main__":
    main()
