"""The files of our pages: a document for each and its data as scripts. Bytes by path, for the caller to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from hybrid_kernels.report.dashboard.gather import Content
from hybrid_kernels.report.dashboard.kept import PUBLISHED
from hybrid_kernels.report.dashboard.links import Project


@dataclass(frozen=True)
class Page:
    """One page: `name` of its script, `data` it loads first."""

    name: str
    file: str
    link: str
    title: str
    lead: str
    data: str


PAGES = (
    Page(
        "figures",
        "figures.html",
        "Figures",
        "Figures",
        "The numbers that designs are sized with, as they are known now. A struck value was published once and has "
        "been superseded; open a figure for the reason.",
        "figures",
    ),
    Page(
        "corrections",
        "corrections.html",
        "Corrections",
        "Corrections and other events",
        "Every change of level in the history, and what it was: a correction changed only what is known, a regression "
        "or an improvement the code, an environment change the machine.",
        "events",
    ),
    Page(
        "sweeps",
        "sweeps.html",
        "Sweeps",
        "Sweeps",
        "Bandwidth of packed bytes by size, for every strategy, with the ceilings that none can pass.",
        "sweeps",
    ),
    Page(
        "machines",
        "machines.html",
        "Machines",
        "Machines",
        "What each machine is, when that changed, and when it last reported.",
        "machines",
    ),
)


def render(contents: Mapping[str, Content], project: Project, counted: str) -> dict[str, bytes]:
    """Every file of our pages; `PUBLISHED` stands for when. contents: by the name of what a page loads first."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    template = environment.get_template("page.html.j2")
    made: dict[str, bytes] = {}
    for page in PAGES:
        document = template.render(
            name=page.name,
            title=page.title,
            lead=page.lead,
            pages=PAGES,
            project=project.name,
            project_url=project.url,
            published=PUBLISHED,
            counted=counted,
        )
        made[page.file] = document.encode()
        content = contents[page.data]
        for name, data in {page.data: content.page, **content.chunks}.items():
            made[f"dashboard/data/{name}.js"] = script(name, data)
    return made


def script(name: str, data: Any) -> bytes:
    """Data as a script that a page can load from a file: one call that hands it over. NaN becomes null."""
    return b'"use strict";\ndashboard.receive("' + name.encode() + b'", ' + msgspec.json.encode(data) + b");\n"
