"""Building the pages in a process of its own while asv still collates its graphs.

asv runs a plugin's output last, and most of a publish keeps one core busy: what takes us time (importing modules,
judging the history) is done by then. The process only fills the file that `kept` keeps; asv's process takes the pages
from there, or builds them itself where that did not work out.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from hybrid_kernels.report.dashboard import kept
from hybrid_kernels.report.dashboard.links import Project

_running: subprocess.Popen[bytes] | None = None


def start(source: kept.Source) -> None:
    """Begin to build the pages of `source`, unless they are kept or being built already."""
    global _running
    if _running is not None or kept.is_kept(source):
        return
    project = json.dumps(dataclasses.asdict(source.project))
    command = [sys.executable, "-m", __name__, os.fspath(source.results), project, os.fspath(source.figures)]
    package = os.fspath(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    _running = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    atexit.register(_running.kill)


def finish() -> None:
    """Wait for what `start` began. Whether it worked shows in what is kept then."""
    global _running
    if _running is not None:
        _running.wait()
        atexit.unregister(_running.kill)
        _running = None


if __name__ == "__main__":
    os.nice(10)
    kept.refresh(kept.Source(Path(sys.argv[1]), Project(**json.loads(sys.argv[2])), Path(sys.argv[3])))
