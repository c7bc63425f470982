"""The one application that every command module adds to."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from hybrid_kernels.errors import Interrupted


class _Commands(TyperGroup):
    """Ctrl-C in a command is said: typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


app = typer.Typer(
    name="hybrid-kernels",
    help="Measure what a machine reads int4 weights at, keep the history, know a correction from a regression.",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
