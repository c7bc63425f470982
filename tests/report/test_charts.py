"""Charts: what is drawn, from which numbers, and the files it becomes."""

import math
import os
import re
import struct
import xml.etree.ElementTree as ET

import altair as alt
import pandas as pd
import pytest
import vl_convert

from hybrid_kernels import records
from hybrid_kernels.errors import BadInput
from hybrid_kernels.report import charts, sweeps


def sweep(**more):
    rows = [
        {"strategy": strategy, "form": "graph", "packed_mib": size, "gbs": level, "gbs_low": level * 0.9,
         "gbs_high": level * 1.1, "samples": 20, "cold": size > 60, "warnings": (), "machine": "box"}
        for size in (12.5, 64, 256)
        for strategy, level in (("resident", 100 + size), ("in_place", 5.6), ("copy", 11.4))
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**more)


FACTS = {
    "device": "cuda",
    "device_name": "Some GPU",
    "driver": "1.2",
    "link_generation": 4,
    "link_width": 8,
    "cache_bytes": 32 * 2**20,
}


def text_of(svg: str) -> set[str]:
    return {"".join(node.itertext()).strip() for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}


def test_sweep_draws_every_strategy_and_ceiling():
    """All strategies, the link limit, the cache size and named ceilings stand in the drawn picture, with units."""
    svg = vl_convert.vegalite_to_svg(charts.sweep_chart(sweep(), FACTS, {"memory": 200.0}).to_dict())
    words = text_of(svg)
    assert {"resident", "in place", "copy", "link, PCIe 4 x8", "L2 32.0 MiB", "memory"} <= words
    assert {"packed MiB", "GB/s of packed bytes", "Some GPU · driver 1.2"} <= words


def test_size_axis_is_logarithmic():
    """Packed size is drawn on a log axis: equal factors, equal distances."""
    frame = sweep()[lambda f: f.strategy == "copy"].assign(packed_mib=[16.0, 64.0, 256.0])
    spec = charts.sweep_chart(frame).to_dict()
    svg = ET.fromstring(vl_convert.vegalite_to_svg(spec))
    places = [
        float(re.search(r"translate\(([\d.]+)", node.get("transform"))[1])
        for group in svg.iter("{http://www.w3.org/2000/svg}g")
        if "mark-symbol role-mark" in (group.get("class") or "")
        for node in group.iter("{http://www.w3.org/2000/svg}path")
    ]
    places = sorted(set(places))
    assert len(places) == 3
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], rel=1e-3)


def test_points_keep_value_interval_and_state():
    """A point carries its value and interval as measured; cached and warned readings are marked as such."""
    frame = sweep()
    frame.at[0, "warnings"] = ("throttled",)
    points = sweeps.points(frame.to_dict("records"))
    assert points[0]["state"] == "warned"
    assert points[0]["note"] == "throttled"
    assert points[1]["state"] == "cached"
    assert points[8] == {
        "arm": "copy", "role": "bound", "series": "box", "form": "graph", "state": "cold", "packed_mib": 256.0,
        "gbs": 11.4, "low": pytest.approx(11.4 * 0.9), "high": pytest.approx(11.4 * 1.1), "n": 20, "note": "",
    }  # fmt: skip


def test_rows_without_a_number_are_not_drawn():
    """NaN is left out, and a sweep of nothing else is refused with what to look at."""
    frame = sweep()
    frame.loc[0, "gbs"] = math.nan
    assert len(sweeps.points(frame.to_dict("records"))) == 8
    with pytest.raises(BadInput, match="nothing to draw"):
        charts.sweep_chart(frame.assign(gbs=math.nan))


def test_a_hundredfold_range_gets_a_logarithmic_axis():
    """Where resident is far above in place, both stay readable: the axis turns logarithmic."""
    y = charts.sweep_chart(sweep()).to_dict()["layer"][4]["encoding"]["y"]
    assert y["scale"]["type"] == "log"
    near = charts.sweep_chart(sweep()[lambda f: f.strategy != "resident"]).to_dict()["layer"][4]["encoding"]["y"]
    assert near["scale"].get("zero") is True


def test_two_machines_are_laid_over_each_other():
    """Rows of two series give one chart in which the series are told apart by dash, not by colour alone."""
    frame = pd.concat([sweep(), sweep(machine="other")])
    words = text_of(vl_convert.vegalite_to_svg(charts.sweep_chart(frame).to_dict()))
    assert {"box", "other"} <= words


@pytest.mark.parametrize(
    ("generation", "width", "limit"),
    [(1, 16, 4.0), (3, 16, 15.754), (4, 8, 15.754), (5, 16, 63.015), (None, 16, None), (9, 16, None)],
)
def test_link_limit_is_the_published_rate(generation, width, limit):
    """The rates printed in the PCI Express specifications, and none where the link is not known."""
    found = sweeps.link_limit({"link_generation": generation, "link_width": width})
    assert found == (None if limit is None else pytest.approx(limit, rel=1e-3))


def test_facts_may_be_a_record():
    """Facts as the dataclass and as its JSON give the same limits."""
    facts = records.Facts(
        device="cpu", device_name="c", machine="m", os="o", kernel="k", arch="a", cpu="c", cores=2, memory_bytes=1,
        cache_bytes=2**25, python="3", version="0", commit=None,
    )  # fmt: skip
    assert sweeps.limits_of(facts) == sweeps.limits_of(records.plain(facts)) != []


def walks():
    return pd.DataFrame(
        {
            "resident_fraction": [0.0, 0.5, 1.0] * 2,
            "schedule": ["serial"] * 3 + ["overlapped"] * 3,
            "seconds": [0.3, 0.2, 0.1, 0.2, math.nan, 0.1],
            "seconds_low": [0.29, 0.19, 0.09, 0.19, math.nan, 0.09],
            "seconds_high": [0.31, 0.21, 0.11, 0.21, math.nan, 0.11],
            "predicted_seconds": [0.3, 0.2, 0.1, 0.2, 0.15, 0.1],
            "floor_seconds": [0.25, 0.15, 0.05, None, None, None],
        }
    )


def test_walk_draws_measured_predicted_and_floor():
    """Both schedules, the predicted line and the floor are drawn in milliseconds; unmeasured points are left out."""
    chart = charts.walk_chart(walks(), FACTS)
    words = text_of(vl_convert.vegalite_to_svg(chart.to_dict()))
    assert {"serial", "overlapped", "predicted", "floor", "ms a step", "300"} <= words
    assert charts.walk_points(walks())[4]["measured"] is None
    with pytest.raises(BadInput, match="nothing to draw"):
        charts.walk_chart(walks().assign(seconds=None, seconds_low=None, seconds_high=None, predicted_seconds=None,
                                         floor_seconds=None))  # fmt: skip


def test_save_writes_picture_and_page(tmp_path):
    """A .png is a PNG of the chart's size, a .svg parses, a .html asks no other host for anything."""
    chart = charts.sweep_chart(sweep(), FACTS)
    for name in ("a.png", "a.svg", "a.HTML"):
        charts.save(chart, tmp_path / name)
    png = (tmp_path / "a.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">2I", png[16:24]) > (1200, 700)
    assert "resident" in text_of((tmp_path / "a.svg").read_text())
    page = (tmp_path / "a.HTML").read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert "vegaEmbed" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.HTML", "a.png", "a.svg"]


@pytest.mark.parametrize("name", ["chart.pdf", "chart", "missing/chart.png"])
def test_save_refuses_other_endings_and_places(tmp_path, name):
    """An ending we do not write, or a folder that is not there: one line that says so, and no file."""
    with pytest.raises(BadInput, match=r"^plot: "):
        charts.save(alt.Chart(sweep()).mark_point(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    """When writing fails, the file that stood there stands unchanged and nothing is left beside it."""
    (tmp_path / "a.svg").write_text("old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BadInput, match="No space left"):
        charts.save(charts.sweep_chart(sweep()), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.svg"]
