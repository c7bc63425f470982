"""The series of a history against pandas' own grouping of its frame."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hybrid_kernels.history import store
from hybrid_kernels.judge import series


def test_series_are_the_groups_of_the_frame(kedro):
    """Every cell with values is one series, by first appearance, with its values and points in commit order."""
    loaded = store.load(kedro)
    found = series.from_rows(loaded.rows)
    frame = loaded.frame
    usable = frame[np.isfinite(frame["value"])]
    groups = usable.groupby(["machine", "env", "benchmark", "cell"], observed=True, sort=False)
    assert [(s.machine, s.env, s.benchmark, s.cell) for s in found] == [key for key, _ in groups]
    for s, (_, group) in zip(found, groups, strict=True):
        assert s.params == dict(group["params"].iloc[-1])
        assert (s.unit, s.direction) == (group["unit"].iloc[-1], group["direction"].iloc[-1])
        assert s.order.tolist() == group["order"].tolist()
        for name in ("value", "ci_low", "ci_high"):
            values = s.values if name == "value" else getattr(s, name)
            np.testing.assert_array_equal(values, group[name].to_numpy())
        for name in ("commit", "version", "number", "repeat", "file"):
            expected = [None if pd.isna(one) else one for one in group[name]]
            assert list(s.column(name)) == expected
        assert [pd.Timestamp(date) for date in s.column("date")] == group["date"].tolist()


def test_date_that_no_calendar_has_is_none():
    """What a date cannot hold is no date, and an ordinary one is in UTC."""
    dates = series._Dates()
    assert dates[np.iinfo(np.int64).min] is None
    assert dates[1_000].isoformat() == "1970-01-01T00:00:01+00:00"
