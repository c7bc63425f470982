"""publish: the history as static pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hybrid_kernels.cli.app import app


@app.command()
def publish(
    html_dir: Annotated[Path | None, typer.Option(help="Folder of the site; else html_dir of the project.")] = None,
    config: Annotated[Path, typer.Option(help="Configuration of the asv project.")] = Path("asv.conf.json"),
    results: Annotated[
        str | None, typer.Option(help="Results in another place: a folder or an address; else those of the project.")
    ] = None,
    pull: Annotated[bool, typer.Option("--pull/--no-pull", help="Fetch the project's repository first.")] = True,
) -> None:
    """Publish the history as static pages, asv's and ours: written beside the old site, then swapped in."""
    from hybrid_kernels.report.dashboard import publish as publishing

    site = publishing.publish(config, html_dir, results=results, pull=pull)
    print(f"published: {site / 'index.html'}")
