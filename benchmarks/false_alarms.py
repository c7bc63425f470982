"""How often a comparison cries wolf, and what it finds: the tables of docs/method.md, from rounds recorded here.

Not an asv suite. `record` measures rounds on this machine and keeps every sample; `tables` resamples them:

    python -m benchmarks.false_alarms record FOLDER --what equal|planted|neighbour|clock --rounds 32
    python -m benchmarks.false_alarms record FOLDER --what asv --comparisons 30
    python -m benchmarks.false_alarms tables FOLDER
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

SHARES = (0.03, 0.05, 0.10, 0.30)
ROWS = 59  # of a simulated report: as many as the comparison that was switched off
REPORTS = 1000
_CLOCK_FALLS_BY = 0.33  # of the speed, from the first to the last process

_PROCESS = """
import json, sys, time
import numpy as np
from hybrid_kernels.kernels import cpu
what, share, extra = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
clock = {"wall": time.perf_counter, "cpu": time.process_time}[sys.argv[4]]
rng = np.random.default_rng(0)
n, k = 2560, 5120
if what == "copy":
    source = rng.integers(0, 255, 16 << 20, np.uint8); target = np.zeros_like(source)
    def once():
        np.copyto(target, source)
        if extra:
            np.copyto(target[: int(extra * target.size)], source[: int(extra * target.size)])
else:
    packed = rng.integers(0, 255, (n, k // 32, 16), np.uint8)
    scales = rng.uniform(0.001, 0.01, (n, k // 32)).astype(np.float32)
    x = rng.standard_normal(k).astype(np.float32); out = np.empty(n, np.float32)
    def once():
        cpu.gemv(packed, scales, None, x, block=32, threads=int(what), out=out, repeat_share=min(share + extra, 1.0))
for _ in range(3): once()
begun = clock(); once(); passes = max(1, round(0.02 / (clock() - begun)))
samples = []
for _ in range(9):
    begun = clock()
    for _ in range(passes): once()
    samples.append((clock() - begun) / passes)
print(json.dumps(samples))
"""


class KernelLaboratory:
    """The CPU kernel in fresh processes, with work done again on a share of its rows: a slowdown of known size.

    `what`: equal (no side slower), planted (the head slower by each of SHARES), neighbour (equal, beside a process that
    comes and goes), clock (equal, but every process slower than the one before, as under a falling clock).
    """

    def __init__(self, what: str, processes: int, clock: str) -> None:
        from hybrid_kernels.measure.rounds import Cell

        self.what, self.done, self.processes, self.clock = what, 0, processes, clock
        self.neighbour: subprocess.Popen[bytes] | None = None
        names = [f"planted.gemv_{100 * share:.0f}" for share in SHARES] if what == "planted" else []
        names += ["equal.gemv_1_thread", "equal.gemv_2_threads", "controls.copy"]
        self.cells = [Cell(name, None, "", ("base", "head")) for name in names]
        self.plan: dict[str, Any] = {"base": "equal", "head": what, "clock": clock, "cells": names}

    def measure(self, side: str, cell: Any, round_number: int) -> Any:
        """One process; a planted slowdown is on the head only, a falling clock on both."""
        from hybrid_kernels.records import Sampled

        share = int(cell.benchmark.rpartition("_")[2]) / 100 if "planted" in cell.benchmark and side == "head" else 0.0
        kind = "copy" if cell.benchmark == "controls.copy" else "2" if "2_threads" in cell.benchmark else "1"
        extra = _CLOCK_FALLS_BY / (1 - _CLOCK_FALLS_BY) * self.done / self.processes if self.what == "clock" else 0.0
        self._neighbour()
        command = [sys.executable, "-c", _PROCESS, kind, str(share), str(extra), self.clock]
        samples = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        self.done += 1
        return Sampled(
            side, round_number, cell.benchmark, "", tuple(samples), "seconds", -1, "1", control=kind == "copy"
        )

    def _neighbour(self) -> None:
        """A second process that computes for five of our processes, then rests for seven."""
        wanted = self.what == "neighbour" and self.done % 12 < 5
        if wanted and self.neighbour is None:
            self.neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        if not wanted and self.neighbour is not None:
            self.close()

    def close(self) -> None:
        """End the neighbour, if it runs."""
        if self.neighbour is not None:
            self.neighbour.kill()
            self.neighbour.wait()
            self.neighbour = None


def record(folder: Path, what: str, rounds: int, clock: str) -> None:
    """Record `rounds` rounds of the kernel laboratory to `folder`/`what`-`clock`."""
    from hybrid_kernels.measure import rounds as measuring

    laboratory = KernelLaboratory(what, 2 * rounds * 3, clock)
    try:
        measuring.measure(laboratory, folder / f"{what}-{clock}", rounds=rounds, time_limit=3600)
    finally:
        laboratory.close()


def record_asv(folder: Path, numbers: range, config: Path, seconds: float) -> None:
    """Compare the checked-out commit with itself, once for each of `numbers`, as `hybrid-kernels compare` would."""
    from hybrid_kernels.judge import verdict
    from hybrid_kernels.measure import rounds as measuring

    quick = {"repeat": 5, "warmup_time": 0.05}
    suite = [r"^reads\.Seconds.*cpu.*resident.*12\.5"]
    with measuring.AsvLaboratory(
        config, "HEAD", "HEAD", benchmark=suite, controls=r"^controls\.NumpyCopy", attributes=quick
    ) as laboratory:
        for number in numbers:
            keep = folder / "asv" / f"comparison-{number:02d}"
            begun = time.monotonic()
            kept = measuring.measure(laboratory, keep, stop=verdict.Settled(), time_limit=seconds)
            print(f"{keep}: {kept.rounds} rounds in {time.monotonic() - begun:.0f} s", flush=True)


# --- tables

Pair = tuple[tuple[float, ...], tuple[float, ...]]
Rounds = list[dict[str, tuple[float, ...]]]


def _pools(folder: Path) -> dict[str, dict[str, Rounds]]:
    """Per recording and benchmark: each round's samples by side, in order."""
    from hybrid_kernels.history import importers

    found: dict[str, dict[str, Rounds]] = {}
    places = [(path.parent.name, path.parent) for path in sorted(folder.glob("*/plan.json"))]
    places += [("asv", path.parent) for path in sorted(folder.glob("asv/*/plan.json"))]
    for what, place in places:
        by_round: dict[tuple[str, int], dict[str, tuple[float, ...]]] = {}
        for sample in importers.kept([place])[0]:
            if sample.samples:
                by_round.setdefault((f"{sample.benchmark}({sample.cell})", sample.round), {})[sample.side] = (
                    sample.samples
                )
        for (name, _), sides in sorted(by_round.items()):
            if len(sides) == 2:
                found.setdefault(what, {}).setdefault(name, []).append(sides)
    return found


def _ours(reports: Callable[[], Sequence[Callable[[int], Pair]]], count: int, planted: int = 0) -> dict[str, float]:
    """Reports of `--rounds auto` over rows given as functions from a round to a pair: what they called, and when."""
    import numpy as np

    from hybrid_kernels.judge import stats

    called = wrong = 0
    hits: list[int] = []
    margin = np.log1p(stats.DEFAULT_THRESHOLD)
    for _ in range(count):
        rows = reports()
        d = np.array(
            [[np.log(np.median(h) / np.median(b)) for b, h in map(row, range(stats.LOOKS[-1]))] for row in rows]
        )
        found, false = 0, False
        for look in stats.LOOKS:
            known = [stats.estimate(row[:look]) for row in d]
            level = stats.allowance(stats.FALSE_REPORTS, look, stats.LOOKS)
            flags = stats.called([k.p_value() for k in known], level)
            slower = [bool(flag) and abs(k.mean) >= margin for flag, k in zip(flags, known, strict=True)]
            false = false or any(slower[planted:])
            if planted and slower[0] and known[0].mean > 0 and not found:
                found = look
        wrong += false
        called += bool(found)
        if found:
            hits.append(found)
    return {"wrong": wrong / count, "found": called / count, "rounds": float(np.median(hits)) if hits else float("nan")}


def _draw(rng: Any, pool: Rounds, swap: bool = True) -> Callable[[int], Pair]:
    """Rounds of a benchmark drawn anew; those of equal code with the sides exchanged at random, as they have none."""
    picks = rng.integers(0, len(pool), 64)
    turns = rng.random(64) < 0.5 if swap else [False] * 64

    def at(number: int) -> Pair:
        sides = pool[picks[number]]
        return (sides["head"], sides["base"]) if turns[number] else (sides["base"], sides["head"])

    return at


def _pair_rule(rng: Any, pools: list[Rounds], limit: float) -> bool:
    """One process before, one after: whether any of ROWS rows is slower by more than `limit`."""
    import numpy as np

    for row in range(ROWS):
        base, head = _draw(rng, pools[row % len(pools)])(0)
        if np.median(head) > (1 + limit) * np.median(base):
            return True
    return False


def _asv_rule(rng: Any, pools: list[Rounds]) -> bool:
    """`asv continuous` with its defaults: two processes of one side, then two of the other, five samples each."""
    from asv.commands.compare import _is_result_better
    from asv_runner.statistics import compute_stats

    for row in range(ROWS):
        pool = pools[row % len(pools)]
        start = int(rng.integers(0, len(pool) - 3))
        sides = []
        for first in (start, start + 2):
            raw = [value for sides_ in pool[first : first + 2] for value in sides_["base"][:5]]
            result, stats = compute_stats(raw, 1)
            sides.append((result, (stats, raw)))
        (before, before_stats), (after, after_stats) = sides if rng.random() < 0.5 else sides[::-1]
        if _is_result_better(before, after, before_stats, after_stats, 1.1, use_stats=True):
            return True
    return False


def _power(rng: Any, name: str, pool: Rounds, others: list[Rounds], share: float) -> None:
    """One line: how often a row drawn from `pool`, with its head slowed by `share` more, is found among equal rows."""
    import numpy as np

    def slowed(number: int, draw: Callable[[int], Pair]) -> Pair:
        base, head = draw(number)
        return base, tuple(value * (1 + share) for value in head)

    def rows() -> list[Callable[[int], Pair]]:
        planted = partial(slowed, draw=_draw(rng, pool, swap=share > 0))
        return [planted, *(_draw(rng, others[row % len(others)]) for row in range(ROWS - 1))]

    measured = np.exp(np.mean([np.log(np.median(s["head"]) / np.median(s["base"])) for s in pool])) - 1
    true = share or measured
    got = _ours(rows, REPORTS // 2, planted=1)
    print(
        f"{name:<34} {100 * true:+6.1f} %  found {got['found']:.3f}  median rounds {got['rounds']:.0f}  "
        f"wrong {got['wrong']:.3f}"
    )


def tables(folder: Path) -> None:
    """Print the tables: false alarms of three ways on the same rounds, power, drift, and the real comparisons."""
    import numpy as np

    from hybrid_kernels.history import importers
    from hybrid_kernels.judge import stats, verdict

    rng = np.random.default_rng(20)
    pools = _pools(folder)
    print(f"{'recording':<12}{'rounds':>7}{'noise of a round':>30}")
    for what, rows in pools.items():
        for name, pool in rows.items():
            d = [np.log(np.median(sides["head"]) / np.median(sides["base"])) for sides in pool]
            print(f"{what:<12}{len(pool):>7}  {name:<44} mean {np.mean(d):+.3f} sd {np.std(d):.3f}")
    print("\nfalse alarms: share of reports of equal code that call anything", f"({REPORTS} reports of {ROWS} rows)")
    for what, rows in pools.items():
        equal = [pool for name, pool in rows.items() if not name.startswith("planted")]
        single = [sum((_pair_rule(rng, equal, limit) for _ in range(REPORTS)), 0) / REPORTS for limit in (0.15, 0.30)]
        usable = [pool for pool in equal if len(pool) > 4]
        asv = sum(_asv_rule(rng, usable) for _ in range(200)) / 200 if usable else float("nan")
        ours = _ours(lambda equal=equal: [_draw(rng, equal[row % len(equal)]) for row in range(ROWS)], REPORTS)
        print(
            f"{what:<12} ours {ours['wrong']:.3f}  pair 15 % {single[0]:.3f}  pair 30 % {single[1]:.3f}  asv {asv:.3f}"
        )
    for what in [what for what in pools if what.startswith("planted")]:
        print(f"\npower, {what}: one row of {ROWS} slower, {REPORTS // 2} reports of --rounds auto, threshold 3 %")
        equal = [pool for name, pool in pools[what].items() if not name.startswith("planted")]
        for name, pool in pools[what].items():
            if name.startswith("planted"):
                _power(rng, f"{name}, as measured", pool, equal, 0.0)
        for share in SHARES:
            _power(rng, "equal.gemv_1_thread, exactly", pools[what]["equal.gemv_1_thread()"], equal, share)
    print("\nrecorded runs judged as they are")
    for place in [path.parent for path in sorted(folder.glob("**/plan.json"))]:
        samples, _ = importers.kept([place])
        result = verdict.judge(importers.frame(samples), looks=stats.LOOKS)
        words = [row.verdict for row in result.rows if not row.name.startswith("planted")]
        told = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        print(
            f"{place.relative_to(folder)}: {result.rounds} rounds: {told}; controls {[row.verdict for row in result.controls]}"
        )


def main() -> None:
    """Parse and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["record", "tables"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--what", choices=["equal", "planted", "neighbour", "clock", "asv"], default="equal")
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: time that the process computed")
    parser.add_argument("--comparisons", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first comparison")
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--config", type=Path, default=Path("asv.conf.json"))
    asked = parser.parse_args()
    if asked.do == "tables":
        tables(asked.folder)
    elif asked.what == "asv":
        record_asv(asked.folder, range(asked.first, asked.first + asked.comparisons), asked.config, asked.seconds)
    else:
        record(asked.folder, asked.what, asked.rounds, asked.clock)


if __name__ == "__main__":
    main()
