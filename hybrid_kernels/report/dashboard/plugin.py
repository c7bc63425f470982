"""The asv plugin: `"plugins": [".hybrid_kernels.report.dashboard.plugin"]` in asv.conf.json, with the leading dot.

asv then writes our pages beside its own on every `asv publish`. This module is imported on every asv command, so it
imports nothing that takes time.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

from asv.console import log
from asv.publishing import OutputPublisher
from asv.util import UserError


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
        from hybrid_kernels.report.dashboard import asv_site, commits, kept
        from hybrid_kernels.report.dashboard.links import Project

        html = Path(conf.html_dir)
        try:
            built = kept.pages(
                Path(conf.results_dir),
                Project.of(conf),
                Path("figures.toml"),
                dict(benchmarks),
                datetime.datetime.now(datetime.UTC),
            )
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
