"""The command line: parse, call, print, exit code. No logic; nothing heavy is imported before a command needs it.

A module a group of commands; importing it adds them to `app`.
"""

from __future__ import annotations

import sys

import typer

from hybrid_kernels.cli import compare, events, figures, fleet, history, nightly, probe, publish, walk
from hybrid_kernels.cli.app import app
from hybrid_kernels.errors import HybridKernelsError

__all__ = ["app", "compare", "events", "figures", "fleet", "history", "main", "nightly", "probe", "publish", "walk"]


def main() -> None:
    """Entry point: errors that users can act on become one line and an exit code, never a traceback."""
    try:
        status = app(standalone_mode=False)
    except typer.Exit as stop:
        status = stop.exit_code
    except HybridKernelsError as error:
        print(f"hybrid-kernels: {' '.join(str(error).split())}", file=sys.stderr)
        status = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("hybrid-kernels: interrupted", file=sys.stderr)
        status = 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors carry their own one line
            raise
        print(f"hybrid-kernels: {error.format_message()}", file=sys.stderr)
        status = 2
    sys.exit(status if isinstance(status, int) else 0)
