"""The asv plugin: `"plugins": [".hybrid_kernels.report.dashboard.plugin"]` in asv.conf.json, with the leading dot.

asv then writes our pages beside its own on every `asv publish`. This module is imported on every asv command, so it
imports nothing that takes time.
"""

from __future__ import annotations

import datetime
import itertools
import math
import sys
from pathlib import Path
from typing import Any

from asv.config import Config
from asv.console import log
from asv.publishing import OutputPublisher
from asv.util import UserError

PUBLISHING = ("publish", "gh-pages")


def setup() -> None:
    """Called by asv when it has loaded the plugin. A command that will publish gets a head start with our pages.

    asv hands a plugin neither its command nor its configuration at this point, so the command line is looked at, and
    the configuration read once more: asv has changed to its folder.
    """
    arguments = sys.argv[1:]
    if not any(word in PUBLISHING for word in arguments):
        return
    given = [after for word, after in itertools.pairwise(arguments) if word == "--config"]
    given += [word.partition("=")[2] for word in arguments if word.startswith("--config=")]
    try:
        conf = Config.load(Path(given[-1]).name if given else None)
        begin(conf)
    except (UserError, ValueError, OSError):
        pass  # asv itself says what is wrong with its configuration


def begin(conf: Any) -> None:
    """Start building the pages for the publish of asv's configuration `conf` that is about to run."""
    from hybrid_kernels.report.dashboard import headstart

    headstart.start(_source(conf))


def _source(conf: Any) -> Any:
    from hybrid_kernels.report.dashboard.kept import Source
    from hybrid_kernels.report.dashboard.links import Project

    return Source(Path(conf.results_dir), Project.of(conf), Path("figures.toml"))


class Dashboard(OutputPublisher):  # type: ignore[misc]  # asv has no types
    """Figures, Corrections, Sweeps, Machines and the feed, in the folder that asv publishes to."""

    name = "dashboard"
    button_label = "Figures"
    description = "Published figures, corrections and other events, sweeps, machines"
    order = math.inf  # after asv's own pages

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Write the pages and amend asv's index.html. UserError, which asv prints, when figures.toml is broken."""
        from hybrid_kernels.errors import HybridKernelsError
        from hybrid_kernels.report.dashboard import asv_site, commits, headstart, kept

        html = Path(conf.html_dir)
        headstart.finish()
        try:
            built = kept.pages(_source(conf), datetime.datetime.now(datetime.UTC))
        except HybridKernelsError as error:
            raise UserError(str(error)) from error
        asv_site.copy_static(html)
        (html / "dashboard" / "data").mkdir()
        built.files["dashboard/data/commits.js"] = commits.subjects(repo, built.commits)
        for path, data in built.files.items():
            (html / path).write_bytes(data)
        index = html / "index.html"
        text, problems = asv_site.amend(index.read_text(encoding="utf-8"), front=built.figures > 0)
        index.write_text(text, encoding="utf-8")
        for warning in [*built.warnings, *problems]:
            log.warning(warning)
