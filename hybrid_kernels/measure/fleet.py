"""The same measurement on every machine of a Dask cluster, gathered into one history.

A machine is a worker that offers the resource `device`. Every unit (a suite of a commit) is a task pinned to its
machine's worker, so that Dask runs one at a time there and nobody else runs it. When a worker is gone, what it had
finished is here already; the rest is submitted again when its machine comes back, under whatever address, and is
reported missing when it does not. The only module that knows `distributed`.
"""

from __future__ import annotations

import contextlib
import platform
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid_kernels.errors import BadInput, NothingMeasured
from hybrid_kernels.measure import fleet_unit, night
from hybrid_kernels.measure.fleet_unit import DONE, NOTHING, Outcome, Unit
from hybrid_kernels.records import FleetMember, FleetRun

RESOURCE = "device"
POLL = 0.2
"""Seconds between two looks at who is there and what is done."""

Progress = Callable[[Sequence[FleetMember]], None]


@dataclass(frozen=True)
class Order:
    """What to measure everywhere: `suites` of `commits` (full hashes), `config` being the project's on the workers."""

    config: str
    commits: tuple[str, ...]
    suites: tuple[str, ...]
    versions: Mapping[str, str]
    benchmark: str | None = None
    limit: float = 3600.0
    named: bool = False  # name machines by their workers: several on one host, to try it out
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def order(
    config: Path,
    commits: Sequence[str],
    *,
    worker_config: str | None = None,
    benchmark: str | None = None,
    limit: float = 3600.0,
    named: bool = False,
) -> tuple[Order, Path]:
    """The order, and the results folder of the project here. BadInput names the configuration or commit at fault."""
    import re

    project = night.Project(config, "HEAD")
    if benchmark is not None:
        try:
            re.compile(benchmark)
        except re.error as error:
            raise BadInput(f"--benchmark: {benchmark!r} is not a regular expression: {error}") from None
    if project.repository is None:
        raise BadInput(f"repo: {project.repo} is not on this machine; clone it and name the clone in {config}")
    found = []
    for name in commits:
        said = night._git(project.repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if said is None:
            raise BadInput(f"commit {name!r}: not found in {project.repository}; fetch it, or check the name")
        found.append(said.strip())
    made = Order(
        worker_config or str(project.config), tuple(dict.fromkeys(found)), tuple(project.suites()),
        fleet_unit.versions(project), benchmark, limit, named,
    )  # fmt: skip
    return made, project.results


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise BadInput("fleet: needs Dask; pip install 'hybrid-kernels[fleet]'") from None
    return distributed


@contextlib.contextmanager
def connected(scheduler: str, patience: float = 30.0) -> Iterator[Any]:
    """A client of the scheduler at this address. BadInput when nobody answers there."""
    distributed = _distributed()
    try:
        client = distributed.Client(scheduler, timeout=patience, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput(f"--scheduler: {scheduler} does not answer ({error}); check address and network") from None
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def local(workers: int) -> Iterator[Any]:
    """A client of a cluster of this many workers on this host, gone at the end."""
    distributed = _distributed()
    if workers < 1:
        raise BadInput(f"--local: {workers} must be 1 or more")
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, resources={RESOURCE: 1}, dashboard_address=None,
            local_directory=folder, silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        yield client


# --- on the workers ---------------------------------------------------------------------------------------------------


def introduce(config: str, commits: list[str], named: bool) -> dict[str, Any]:
    """Who a worker is: its machine, versions, and the commits that it lacks; or `error`, why it cannot measure."""
    from distributed import get_worker

    try:
        project = fleet_unit.project_of(config, f"{platform.node()}-{get_worker().name}" if named else None)
        return {
            "machine": project.machine,
            "versions": fleet_unit.versions(project),
            "lacking": fleet_unit.lacking(project, commits),
        }
    except BadInput as error:
        return {"error": str(error)}


def measure(unit: Unit) -> Outcome:
    """One unit, in a process of its own."""
    return fleet_unit.start(unit)


# --- here -------------------------------------------------------------------------------------------------------------


@dataclass
class _Machine:
    name: str
    worker: tuple[str, str] | None  # address and identity; None: away
    waiting: dict[tuple[str, str], Unit]  # not finished, in order
    since: float  # when its state changed
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    futures: dict[tuple[str, str], Any] = field(default_factory=dict)
    given_up: bool = False

    def seen(self) -> FleetMember:
        state = (
            "done" if not self.waiting else "missing" if self.given_up else "away" if self.worker is None else "runs"
        )
        at = next(iter(self.waiting), None)
        return FleetMember(
            self.name,
            self.worker[0] if self.worker else "",
            state,
            at if state == "runs" else None,
            len(self.outcomes),
            len(self.outcomes) + len(self.waiting),
        )


class _Run:
    """One `fleet run`: who is there, what is done."""

    def __init__(self, client: Any, order: Order, results: Path, wait: float) -> None:
        self.client, self.order, self.results, self.wait = client, order, results, wait
        self.machines: dict[str, _Machine] = {}
        self.refused: dict[str, str] = {}  # by worker
        self.introduced: dict[tuple[str, str], Any] = {}  # worker: future or, when it is known, None
        self.gathered = 0
        self.began = time.monotonic()

    def present(self) -> dict[tuple[str, str], dict[str, Any]]:
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {(address, str(one["id"])): one for address, one in workers.items()}

    def look(self) -> None:
        """Take note of who came, who went and what was finished."""
        there = self.present()
        for machine in self.machines.values():
            self.collect(machine)
            if machine.worker is not None and machine.worker not in there:
                self.leave(machine)
        for worker in [worker for worker in self.introduced if worker not in there]:
            del self.introduced[worker]
        for worker, facts in there.items():
            if worker not in self.introduced:
                self.greet(worker, facts)
            future = self.introduced[worker]
            if future is not None and future.done():
                self.introduced[worker] = None
                self.join(worker, facts, future)
        now = time.monotonic()
        for machine in self.machines.values():
            if machine.worker is None and machine.waiting and now - machine.since > self.wait:
                machine.given_up = True

    def greet(self, worker: tuple[str, str], facts: Mapping[str, Any]) -> None:
        self.introduced[worker] = None
        if not facts.get("resources", {}).get(RESOURCE):
            self.refuse(worker, facts, f"offers no resource {RESOURCE!r}; start it with --resources {RESOURCE}=1")
            return
        self.introduced[worker] = self.client.submit(
            introduce, self.order.config, list(self.order.commits), self.order.named, workers=[worker[0]], pure=False
        )

    def refuse(self, worker: tuple[str, str], facts: Mapping[str, Any], reason: str) -> None:
        self.refused[f"{facts.get('name') or worker[1]} at {worker[0]}"] = reason

    def join(self, worker: tuple[str, str], facts: Mapping[str, Any], future: Any) -> None:
        if future.status != "finished":
            error = future.exception() if future.status == "error" else future.status
            self.refuse(worker, facts, f"has no hybrid_kernels that answers: {error}")
            return
        told = future.result()
        if "error" in told:
            self.refuse(worker, facts, told["error"])
            return
        name = str(told["machine"])
        differing = [
            f"{what} {told['versions'].get(what)} there, {wanted} here"
            for what, wanted in self.order.versions.items()
            if told["versions"].get(what) != wanted
        ]
        if differing:
            self.refuse(worker, facts, f"machine {name} has another version: {'; '.join(differing)}; install the same")
            return
        if told["lacking"]:
            commits = ", ".join(commit[:8] for commit in told["lacking"])
            self.refuse(worker, facts, f"machine {name} lacks commit {commits}; fetch it there")
            return
        machine = self.machines.get(name)
        if machine is not None and machine.worker is not None:
            self.refuse(worker, facts, f"machine {name} is served by the worker at {machine.worker[0]} already")
            return
        if machine is None:
            units = [
                Unit(self.order.run, self.order.config, name, self.order.named, commit, suite, self.order.benchmark,
                     self.order.limit)
                for commit in self.order.commits for suite in self.order.suites
            ]  # fmt: skip
            machine = self.machines[name] = _Machine(name, None, {unit.key: unit for unit in units}, 0.0)
        machine.worker, machine.since, machine.given_up = worker, time.monotonic(), False
        for key in machine.waiting:
            self.submit(machine, key)

    def submit(self, machine: _Machine, key: tuple[str, str]) -> None:
        """Hand a unit to Dask, pinned to the worker of its machine; units run there in the order of submission."""
        assert machine.worker is not None
        machine.futures[key] = self.client.submit(
            measure, machine.waiting[key], workers=[machine.worker[0]], allow_other_workers=False,
            resources={RESOURCE: 1}, pure=False,
        )  # fmt: skip

    def leave(self, machine: _Machine) -> None:
        """Forget what was submitted: it would start again by itself when that very address came back."""
        machine.worker, machine.since = None, time.monotonic()
        self.client.cancel(list(machine.futures.values()))
        machine.futures.clear()

    def collect(self, machine: _Machine) -> None:
        for key, future in list(machine.futures.items()):
            if not future.done() or future.status == "cancelled":
                continue
            error = future.exception() if future.status != "finished" else None
            if type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError"):
                continue  # lost with its worker: `leave` and `join` see to it
            del machine.futures[key]
            if error is not None:
                what = f"could not be measured: {error}"
            else:
                try:
                    outcome: Outcome = future.result()
                except Exception:  # the worker went with the result; the unit knows that it is done, and tells it again
                    if machine.worker is not None:
                        self.submit(machine, key)
                    continue
                self.gathered += fleet_unit.gather(outcome, self.results)
                what = outcome.what
            del machine.waiting[key]
            machine.outcomes[key] = what

    @property
    def over(self) -> bool:
        if any(future is not None for future in self.introduced.values()):
            return False
        if not self.machines:
            return time.monotonic() - self.began > self.wait
        return all(not machine.waiting or machine.given_up for machine in self.machines.values())

    def told(self, interrupted: bool) -> FleetRun:
        failed, missing = [], []
        for machine in self.machines.values():
            failed += [
                (machine.name, *key, what) for key, what in machine.outcomes.items() if what not in (DONE, NOTHING)
            ]
            missing += [(machine.name, *key) for key in machine.waiting]
        nothing = self.machines and all(
            what == NOTHING for machine in self.machines.values() for what in machine.outcomes.values()
        )
        return FleetRun(
            self.order.run, tuple(machine.seen() for machine in self.machines.values()), tuple(failed), tuple(missing),
            tuple(self.refused.items()), self.gathered, interrupted, bool(nothing) and not missing,
        )  # fmt: skip


def run(client: Any, order: Order, results: Path, *, wait: float = 600.0, progress: Progress | None = None) -> FleetRun:
    """Measure `order` on every machine of the cluster and put what they find into the history `results`.

    `wait`: seconds to wait for a first machine, and for one that went away, before its rest is missing. Machines may
    join as long as others are not done. Ctrl-C ends it with what was gathered. NothingMeasured when no machine came,
    naming the workers that were refused.
    """
    state = _Run(client, order, results, wait)
    interrupted = False
    try:
        while True:
            state.look()
            if progress is not None:
                progress([machine.seen() for machine in state.machines.values()])
            if state.over:
                break
            time.sleep(POLL)
    except KeyboardInterrupt:
        interrupted = True
    for machine in state.machines.values():
        with contextlib.suppress(Exception):
            client.cancel(list(machine.futures.values()))
    if not state.machines and not interrupted:
        refused = "; ".join(f"{worker}: {reason}" for worker, reason in state.refused.items())
        raise NothingMeasured(
            f"fleet: nothing measured: no machine joined within {wait:.0f} s{'; refused: ' if refused else ''}{refused}"
        )
    return state.told(interrupted)
