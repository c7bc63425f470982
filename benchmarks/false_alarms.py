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

    with measuring.AsvLaboratory(config, "HEAD", "HEAD", benchmark=[r"^quick\..*gemv"], controls="^$") as laboratory:
        for number in numbers:
            keep = folder / "asv" / f"comparison-{number:02d}"
            begun = time.monotonic()
            kept = measuring.measure(laboratory, keep, stop=verdict.Settled(), time_limit=seconds)
            print(f"{keep}: {kept.rounds} rounds in {time.monotonic() - begun:.0f} s", flush=True)


# --- tables

Rounds = list[dict[str, tuple[float, ...]]]


def _pools(folder: Path) -> dict[str, dict[str, Rounds]]:
    """Per recording and benchmark: each round's samples by side, in order."""
    from hybrid_kernels.history import importers

    found: dict[str, dict[str, Rounds]] = {}
    places = [(path.parent.name, path.parent) for path in sorted(folder.glob("*/round-001.json"))]
    places += [("asv", path.parent) for path in sorted(folder.glob("asv/*/round-001.json"))]
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


def _ours(report: Callable[[], Any], count: int, planted: int = 0) -> dict[str, float]:
    """`count` reports of `--rounds auto`: what share calls an equal row, or finds the planted first one, and when.

    `report` gives log-ratios [rows, rounds]. The statistics are those of `judge.stats`, all rows at once.
    """
    import numpy as np
    from scipy.stats import t

    from hybrid_kernels.judge import stats

    margin = np.log1p(stats.DEFAULT_THRESHOLD)
    wrong = 0
    hits: list[int] = []
    for _ in range(count):
        d = report()
        found, false = 0, False
        for look in stats.LOOKS:
            mean, error = d[:, :look].mean(axis=1), d[:, :look].std(axis=1, ddof=1) / np.sqrt(look)
            level = stats.allowance(stats.FALSE_REPORTS, look, stats.LOOKS)
            called = stats.called(2 * t.sf(np.abs(mean) / error, look - 1), level) & (np.abs(mean) >= margin)
            false = false or bool(called[planted:].any())
            if planted and called[0] and mean[0] > 0 and not found:
                found = look
        wrong += false
        if found:
            hits.append(found)
    return {
        "wrong": wrong / count, "found": len(hits) / count,
        "rounds": float(np.median(hits)) if hits else float("nan"),
        "late": float(np.percentile(hits, 95)) if hits else float("nan"),
    }  # fmt: skip


def _differences(pool: Rounds) -> Any:
    """log(head / base) of the medians of each round."""
    import numpy as np

    return np.array([np.log(np.median(sides["head"]) / np.median(sides["base"])) for sides in pool])


def _equal(rng: Any, differences: Sequence[Any], rows: int) -> Any:
    """Log-ratios [rows, rounds] from rounds of equal code, in another order and with the sides exchanged at random.

    Equal code has no sides. Each recorded round is used once a row: drawing with repetition would now and then put the
    same round four times into a row, which looks free of noise and is nothing that can happen.
    """
    import numpy as np

    from hybrid_kernels.judge import stats

    most = stats.LOOKS[-1]
    drawn = [rng.permutation(differences[row % len(differences)])[:most] for row in range(rows)]
    return np.array(drawn) * rng.choice([-1.0, 1.0], (rows, most))


def _pair_rule(rng: Any, pools: list[Rounds], limit: float) -> bool:
    """One process before, one after: whether any of ROWS rows is slower by more than `limit`."""
    import numpy as np

    for row in range(ROWS):
        pool = pools[row % len(pools)]
        sides = pool[int(rng.integers(0, len(pool)))]
        base, head = (sides["base"], sides["head"]) if rng.random() < 0.5 else (sides["head"], sides["base"])
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


def _power(rng: Any, name: str, planted: Any, others: Sequence[Any], share: float | None) -> None:
    """One line: how often a row drawn from `planted` is found among equal rows.

    `share`: the rounds are of equal code and the head is slowed by exactly that; None: they were measured slowed.
    """
    import numpy as np

    from hybrid_kernels.judge import stats

    def report() -> Any:
        rows = _equal(rng, others, ROWS)
        if share is None:
            rows[0] = rng.permutation(planted)[: stats.LOOKS[-1]]
        else:
            rows[0] = _equal(rng, [planted], 1)[0] + np.log1p(share)
        return rows

    true = np.expm1(planted.mean()) if share is None else share
    got = _ours(report, REPORTS, planted=1)
    print(
        f"{name:<40} {100 * true:+6.1f} %  found {got['found']:.3f}  rounds {got['rounds']:.0f} (95 of 100: "
        f"{got['late']:.0f})  wrong {got['wrong']:.3f}"
    )


def tables(folder: Path) -> None:
    """Print the tables: false alarms of three ways on the same rounds, power, drift, and the real comparisons."""
    import numpy as np

    from hybrid_kernels.history import importers
    from hybrid_kernels.judge import stats, verdict

    rng = np.random.default_rng(20)
    pools = _pools(folder)
    print("recording, rounds, benchmark, log-ratio of a round")
    for what, rows in pools.items():
        for name, pool in rows.items():
            d = _differences(pool)
            print(f"{what:<14}{len(pool):>5}  {name:<72} mean {d.mean():+.3f} sd {d.std():.3f}")
    print("\nfalse alarms: share of reports of equal code that call anything", f"({REPORTS} reports of {ROWS} rows)")
    for what, rows in pools.items():
        equal = [pool for name, pool in rows.items() if not name.startswith("planted") and len(pool) >= 32]
        if not equal:
            continue
        single = [sum(_pair_rule(rng, equal, limit) for _ in range(REPORTS)) / REPORTS for limit in (0.15, 0.30)]
        asv = sum(_asv_rule(rng, equal) for _ in range(REPORTS)) / REPORTS
        equal_d = [_differences(pool) for pool in equal]
        ours = _ours(lambda equal_d=equal_d: _equal(rng, equal_d, ROWS), REPORTS)
        print(
            f"{what:<14} ours {ours['wrong']:.3f}  pair 15 % {single[0]:.3f}  pair 30 % {single[1]:.3f}  asv {asv:.3f}"
        )
    print(f"\npower: one row of {ROWS} slower, {REPORTS} reports of --rounds auto, threshold 3 %")
    for what, rows in pools.items():
        equal_d = {
            name: _differences(pool) for name, pool in rows.items() if name.startswith("equal") and len(pool) >= 32
        }
        for name, pool in rows.items():
            if name.startswith("planted") and equal_d:
                _power(rng, f"{what} {name[8:-2]} as measured", _differences(pool), list(equal_d.values()), None)
        for name, d in equal_d.items():
            for share in SHARES:
                _power(rng, f"{what} {name[6:-2]} exactly", d, list(equal_d.values()), share)
    print("\nrecorded runs judged as they are")
    for place in [path.parent for path in sorted(folder.glob("**/round-001.json"))]:
        samples, _ = importers.kept([place])
        result = verdict.judge(importers.frame(samples), looks=stats.LOOKS)
        words = [row.verdict for row in result.rows if not row.name.startswith("planted")]
        told = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        held = ", ".join(row.verdict for row in result.controls)
        print(f"{place.relative_to(folder)}: {result.rounds} rounds: {told or 'nothing'}; control arms {held}")


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
