"""The charts of `report.charts` as the pages load them: `static/charts.js`, compiled for Vega ahead of time.

Compiling costs a second and the descriptions know no data, so the result is a file of the package; a test compares it
with what the descriptions give today. After changing a chart: `python -m hybrid_kernels.report.dashboard.specs`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from hybrid_kernels import files
from hybrid_kernels.report import charts, sweeps

TARGET = Path(__file__).parent / "static" / "charts.js"


def descriptions() -> dict[str, alt.LayerChart]:
    """Every chart that a page draws, by the name it asks for; data sets are named and empty."""
    points, limits = alt.NamedData("points"), alt.NamedData("limits")
    found = {
        f"sweep-{'overlay' if overlay else 'single'}-{'log' if log_y else 'linear'}": charts.sweep_description(
            overlay=overlay, log_y=log_y, points=points, limits=limits, arms=None
        )
        for overlay in (False, True)
        for log_y in (False, True)
    }
    found["series"] = charts.series_description(
        points=points, levels=alt.NamedData("levels"), marks=alt.NamedData("marks")
    )
    return found


def render() -> str:
    """The text of charts.js: `dashboardCharts` with the Vega specifications, their configuration and the two themes.

    Colours are words such as `@ink` in the specifications; a page puts those of its theme in their place.
    """
    looks = charts.theme(["@colors"], ink="@ink", soft="@soft", grid="@grid")
    specs = {name: _compile(chart, looks) for name, chart in descriptions().items()}
    config = [spec.pop("config") for spec in specs.values()].pop()
    light = {"ink": "#1b1f24", "soft": "#57606a", "grid": "#e3e6ea", "colors": charts.LIGHT}
    dark = {"ink": "#e7eaee", "soft": "#a3adb8", "grid": "#2b3138", "colors": charts.DARK}
    content = {"specs": specs, "config": config, "themes": {"light": light, "dark": dark}, "arms": sweeps.ORDER}
    body = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return (
        "// Written by hybrid_kernels/report/dashboard/specs.py from hybrid_kernels/report/charts.py; do not edit.\n"
        f'"use strict";\nconst dashboardCharts = {body};\n'
    )


def _compile(chart: alt.LayerChart, config: dict[str, Any]) -> dict[str, Any]:
    sized = chart.properties(
        width=600, height=340, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"), config=config
    )
    spec: dict[str, Any] = vl_convert.vegalite_to_vega(sized.to_dict())
    spec.pop("$schema", None)
    spec.pop("background", None)
    return spec


if __name__ == "__main__":
    files.replace(TARGET, render().encode())
