"""Charts of readings: bandwidth by packed size, step time by resident fraction. One description for files and pages.

A chart is described once (altair) apart from its data. `sweep_chart` and `walk_chart` fill the description from a frame
and `save` writes it as a picture or a page; the dashboard fills the same description in the browser.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput
from hybrid_kernels.report import sweeps
from hybrid_kernels.report.sweeps import ORDER

# Okabe and Ito, "Color Universal Design" (2008): told apart with any common colour vision. The yellow, too pale for a
# line on white, is left out; every line differs in dash or point as well.
LIGHT = ["#0072B2", "#D55E00", "#009E73", "#B0518B", "#8A6D00", "#555555", "#2F8FBF", "#A65A00", "#6A4C9C"]
DARK = ["#56B4E9", "#F0803C", "#2CC295", "#E59AC5", "#E6C229", "#B8B8B8", "#9AD4F5", "#F5B26B", "#BBA3E8"]
ENDINGS = (".png", ".svg", ".html")
# Where a logarithmic axis has its marks; those outside the data are not drawn.
DOUBLINGS = [2.0**power for power in range(-4, 18)]
DECADES = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]


def sweep_chart(
    frame: pd.DataFrame,
    facts: Any = None,
    ceilings: Mapping[str, float] | None = None,
    title: str = "Bandwidth by packed size",
) -> alt.LayerChart:
    """GB/s of packed bytes against packed MiB, every strategy of `frame`, with intervals and ceilings.

    frame: fields of `records.Reading` with gbs, gbs_low, gbs_high (GB/s), packed_mib, and optionally `series`, by which
    several sweeps are laid over one another. facts: of the machine (Facts or a mapping), for the link limit and the
    cache size. ceilings: further levels in GB/s by label. BadInput when no row holds a number.
    """
    points = sweeps.points(frame.to_dict("records"))
    if not points:
        raise BadInput("plot: no row of the sweep holds a number, so there is nothing to draw; see the `reason` column")
    levels = [row["gbs"] for row in points]
    chart = sweep_description(
        overlay=len({row["series"] for row in points}) > 1,
        log_y=max(levels) > 12 * min(levels),
        points=alt.InlineData(values=points),
        limits=alt.InlineData(values=sweeps.limits_of(facts, ceilings)),
        arms=[arm for arm in ORDER if any(row["arm"] == arm for row in points)]
        + sorted({row["arm"] for row in points} - set(ORDER)),
    )
    return chart.properties(
        title=alt.TitleParams(title, subtitle=_subtitle(facts)), width=640, height=380, config=theme(LIGHT)
    )


def _subtitle(facts: Any) -> str:
    if facts is None:
        return ""
    name, driver, version = (sweeps.fact(facts, key) for key in ("device_name", "driver", "version"))
    words = [name, driver and f"driver {driver}", version and f"hybrid-kernels {version}"]
    return " · ".join(str(word) for word in words if word)


def sweep_description(
    *, overlay: bool, log_y: bool, points: Any, limits: Any, arms: list[str] | None = None
) -> alt.LayerChart:
    """The sweep chart apart from its data, which has the columns that `sweeps.points` and `sweeps.limits_of` write.

    points, limits: altair data, `alt.NamedData` where a page fills them in. overlay: several series, each its dash.
    """
    scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X(
        "packed_mib:Q", scale=scale, axis=alt.Axis(title="packed MiB", grid=False, values=DOUBLINGS, format=",~g")
    )
    scale_y = alt.Scale(type="log", nice=True) if log_y else alt.Scale(zero=True, nice=True)
    ticks: dict[str, Any] = {"values": DECADES} if log_y else {"tickCount": 6}
    y = alt.Y("gbs:Q", scale=scale_y, axis=alt.Axis(title="GB/s of packed bytes", format=",~g", **ticks))
    color = alt.Color(
        "arm:N",
        scale=alt.Scale(domain=arms, range=[LIGHT[ORDER.index(arm)] if arm in ORDER else LIGHT[-1] for arm in arms])
        if arms
        else alt.Scale(domain=ORDER),
        legend=alt.Legend(title=None, orient="bottom", columns=4, symbolType="stroke", labelLimit=220),
    )
    tooltip = [
        alt.Tooltip("arm:N", title="strategy"),
        alt.Tooltip("series:N", title="from"),
        alt.Tooltip("packed_mib:Q", title="packed MiB", format=",.4~g"),
        alt.Tooltip("gbs:Q", title="GB/s", format=",.3~r"),
        alt.Tooltip("low:Q", title="interval from", format=",.3~r"),
        alt.Tooltip("high:Q", title="to", format=",.3~r"),
        alt.Tooltip("n:Q", title="samples"),
        alt.Tooltip("state:N", title="read"),
        alt.Tooltip("note:N", title="warnings"),
    ]
    dash = (
        alt.StrokeDash(
            "series:N",
            sort=None,
            scale=alt.Scale(range=[[1, 0], [7, 4], [2, 3], [9, 3, 2, 3]]),
            legend=alt.Legend(title=None, orient="bottom", labelLimit=320, symbolSize=400),
        )
        if overlay
        else alt.StrokeDash("role:N", scale=alt.Scale(domain=["arm", "bound"], range=[[1, 0], [5, 4]]), legend=None)
    )
    shape = alt.Shape(
        "state:N",
        scale=alt.Scale(domain=["cold", "cached", "warned"], range=["circle", "square", "triangle-up"]),
        legend=alt.Legend(title=None, orient="bottom", symbolType="circle"),
    )
    base = alt.Chart(points)
    lines = base.mark_line().encode(
        x,
        y,
        color,
        dash,
        alt.Detail(["series:N", "form:N"]),
        strokeWidth=alt.when(alt.datum.role == "arm").then(alt.value(2.2)).otherwise(alt.value(1.3)),
    )
    bars = (
        base.transform_filter(alt.datum.high > alt.datum.low)
        .mark_rule(strokeWidth=1.4)
        .encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), alt.Color("arm:N"))
    )
    dots = base.mark_point(size=42, filled=True, opacity=1).encode(
        x,
        y,
        alt.Color("arm:N"),
        shape,
        tooltip=tooltip,
        size=alt.when(alt.datum.role == "arm").then(alt.value(46)).otherwise(alt.value(18)),
    )
    level = alt.Chart(limits).transform_filter("isValid(datum.gbs)")
    place = alt.Chart(limits).transform_filter("isValid(datum.packed_mib)")
    rule: dict[str, Any] = {"strokeDash": [2, 3], "strokeWidth": 1.2, "style": "limit"}
    words: dict[str, Any] = {"fontSize": 11, "style": "limit-label", "clip": True}
    beyond = "scale('x', datum.packed_mib) > width / 2"  # a label right of a line near the edge would be cut
    return alt.LayerChart(
        layer=[
            level.mark_rule(**rule).encode(alt.Y("gbs:Q")),
            level.mark_text(align="left", dx=4, dy=-6, **words).encode(
                alt.Y("gbs:Q"), alt.Text("label:N"), x=alt.value(0)
            ),
            place.mark_rule(**rule).encode(alt.X("packed_mib:Q")),
            place.mark_text(
                align=alt.ExprRef(f"{beyond} ? 'right' : 'left'"),
                dx=alt.ExprRef(f"{beyond} ? -4 : 4"),
                baseline="top",
                dy=4,
                **words,
            ).encode(alt.X("packed_mib:Q"), alt.Text("label:N"), y=alt.value(0)),
            lines,
            bars,
            dots,
        ]
    )


SCHEDULES = ("serial", "overlapped")


def walk_points(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of walks as the chart takes them, times in milliseconds: measured, its interval, predicted and floor."""
    rows = []
    for row in frame.to_dict("records"):
        plain = {
            to: _milliseconds(row.get(of))
            for to, of in (
                ("measured", "seconds"), ("low", "seconds_low"), ("high", "seconds_high"),
                ("predicted", "predicted_seconds"), ("floor", "floor_seconds"),
            )
        }  # fmt: skip
        if any(value is not None for value in plain.values()):
            rows.append(
                {"resident_fraction": float(row["resident_fraction"]), "schedule": str(row["schedule"]), **plain}
            )
    return rows


def _milliseconds(value: Any) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value) * 1e3


def walk_chart(frame: pd.DataFrame, facts: Any = None, title: str = "Step time by resident fraction") -> alt.LayerChart:
    """Step time against the resident fraction of the weights: measured points, predicted line, floor.

    frame: resident_fraction (0 to 1), schedule, seconds, seconds_low, seconds_high, predicted_seconds, floor_seconds;
    a missing or NaN time is not drawn. BadInput when no row holds any time.
    """
    points = walk_points(frame)
    if not points:
        raise BadInput("plot: no walk holds a time, so there is nothing to draw; see the `reason` column")
    return walk_description(points=alt.InlineData(values=points)).properties(
        title=alt.TitleParams(title, subtitle=_subtitle(facts)), width=640, height=380, config=theme(LIGHT)
    )


def walk_description(*, points: Any) -> alt.LayerChart:
    """The walk chart apart from its data, which has the columns that `walk_points` writes."""
    x = alt.X(
        "resident_fraction:Q",
        scale=alt.Scale(domainMax=1, nice=False, padding=10),
        axis=alt.Axis(title="resident fraction of the packed bytes", format="~%", grid=False, tickCount=6),
    )
    axis = alt.Axis(title="ms a step", format=",.3~r", tickCount=6)
    color = alt.Color(
        "schedule:N",
        scale=alt.Scale(domain=list(SCHEDULES)),
        legend=alt.Legend(title=None, orient="bottom", symbolType="stroke"),
    )
    kinds = ["measured", "predicted", "floor"]
    dash = alt.StrokeDash(
        "kind:N",
        scale=alt.Scale(domain=kinds, range=[[0, 1], [1, 0], [2, 3]]),
        legend=alt.Legend(title=None, orient="bottom", values=["predicted", "floor"], symbolSize=400),
    )
    scale_y = alt.Scale(zero=True, nice=True)
    tooltip = [
        alt.Tooltip("schedule:N"),
        alt.Tooltip("resident_fraction:Q", title="resident", format=".1%"),
        alt.Tooltip("measured:Q", title="measured ms", format=",.4~r"),
        alt.Tooltip("low:Q", title="interval from", format=",.4~r"),
        alt.Tooltip("high:Q", title="to", format=",.4~r"),
        alt.Tooltip("predicted:Q", title="predicted ms", format=",.4~r"),
        alt.Tooltip("floor:Q", title="floor ms", format=",.4~r"),
    ]
    base = alt.Chart(points)
    lines = (
        base.transform_fold(["predicted", "floor"], as_=["kind", "ms"])
        .transform_filter("isValid(datum.ms)")
        .mark_line(strokeWidth=1.8)
        .encode(x, alt.Y("ms:Q", scale=scale_y, axis=axis), color, dash)
    )
    seen = base.transform_filter("isValid(datum.measured)")
    bars = (
        seen.transform_filter("isValid(datum.low) && isValid(datum.high)")
        .mark_rule(strokeWidth=1.4)
        .encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), alt.Color("schedule:N"))
    )
    dots = seen.mark_point(size=60, filled=True, opacity=1).encode(
        x, alt.Y("measured:Q"), alt.Color("schedule:N"), alt.Shape("schedule:N", legend=None), tooltip=tooltip
    )
    return alt.LayerChart(layer=[lines, bars, dots])


def series_description(*, points: Any, levels: Any, marks: Any) -> alt.LayerChart:
    """The history of one series apart from its data: values by date, one colour a method, levels, and what happened.

    points: t (ms since 1970), value, low, high, method, note. levels: t0, t1, value, method. marks: t, label. The title
    of the value axis is `@unit`, for the page to fill in.
    """
    x = alt.X("t:T", scale=alt.Scale(padding=14), axis=alt.Axis(title=None, grid=False, tickCount=6))
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=True, padding=12),
              axis=alt.Axis(title="@unit", format=",.4~r", tickCount=5))  # fmt: skip
    color = alt.Color(
        "method:N",
        sort=None,
        legend=alt.Legend(title=None, orient="bottom", columns=2, labelLimit=300, symbolType="circle"),
    )
    tooltip = [
        alt.Tooltip("t:T", title="date", format="%Y-%m-%d"),
        alt.Tooltip("note:N", title="commit"),
        alt.Tooltip("value:Q", title="value", format=",.4~r"),
        alt.Tooltip("low:Q", title="interval from", format=",.4~r"),
        alt.Tooltip("high:Q", title="to", format=",.4~r"),
        alt.Tooltip("method:N", title="method"),
    ]
    base, level, mark = alt.Chart(points), alt.Chart(levels), alt.Chart(marks)
    return alt.LayerChart(
        layer=[
            mark.mark_rule(strokeDash=[2, 3], strokeWidth=1.2, style="limit").encode(alt.X("t:T")),
            mark.mark_text(align="left", baseline="top", dx=4, fontSize=11, style="limit-label").encode(
                alt.X("t:T"), alt.Text("label:N"), y=alt.value(0)
            ),
            level.mark_rule(strokeWidth=2.5, opacity=0.55).encode(
                alt.X("t0:T"), alt.Y("value:Q"), alt.X2("t1:T"), alt.Color("method:N")
            ),
            base.transform_filter("isValid(datum.low) && isValid(datum.high)")
            .mark_rule(strokeWidth=1.2, opacity=0.7)
            .encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), alt.Color("method:N")),
            base.mark_point(filled=True, size=38, opacity=1).encode(
                x, y, color, alt.Shape("method:N", sort=None, legend=None), tooltip=tooltip
            ),
        ]
    )


def theme(colors: list[str], ink: str = "#1b1f24", soft: str = "#6a737d", grid: str = "#e3e6ea") -> dict[str, Any]:
    """The look of every chart as a Vega-Lite config: `colors` for categories, `ink` for text, `soft` for limits."""
    return {
        "font": "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "range": {"category": colors},
        "view": {"stroke": None},
        "title": {"anchor": "start", "fontSize": 15, "fontWeight": 600, "color": ink, "subtitleColor": soft,
                  "subtitleFontSize": 12, "offset": 14},
        "axis": {"labelColor": ink, "titleColor": soft, "titleFontWeight": "normal", "labelFontSize": 12,
                 "titleFontSize": 12, "domainColor": soft, "tickColor": soft, "gridColor": grid, "labelOverlap": True},
        "legend": {"labelColor": ink, "labelFontSize": 12, "symbolStrokeWidth": 2.5, "padding": 2},
        "style": {"limit": {"color": soft}, "limit-label": {"color": soft}},
    }  # fmt: skip


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write `chart` as .png, .svg or .html by the ending of `path`; the page holds everything it needs.

    The file appears whole or not at all. BadInput for another ending or a place that cannot be written.
    """
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"plot: {str(target)!r} ends in {ending or 'nothing'}; use one of {', '.join(ENDINGS)}")
    if target.is_dir() or not target.parent.is_dir():
        wrong = "is a folder" if target.is_dir() else f"stands in no folder {str(target.parent)!r}"
        raise BadInput(f"plot: {str(target)!r} {wrong}; name a file in a folder that exists")
    files.replace(target, _render(chart, ending))


def _render(chart: alt.TopLevelMixin, ending: str) -> bytes:
    import vl_convert

    spec = chart.to_dict()
    if ending == ".png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=2))
    if ending == ".svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    return str(vl_convert.vegalite_to_html(spec, bundle=True)).encode()
