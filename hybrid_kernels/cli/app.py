"""The one application that every command module adds to."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="hybrid-kernels",
    help="Measure what a machine reads int4 weights at, keep the history, know a correction from a regression.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
