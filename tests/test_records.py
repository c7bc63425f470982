"""What crosses rows becomes plain JSON: no NaN, no NumPy, one shape for every document."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid_kernels import records


@dataclasses.dataclass(frozen=True)
class Point:
    """A record with one field of each kind that records have."""

    name: str
    value: float
    reason: str | None
    parts: tuple[float, ...]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (-math.inf, None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        (True, True),
        (None, None),
        ("nan", "nan"),
        ((1, 2.5), [1, 2.5]),
        ({1: math.inf}, {"1": None}),
        (Path("folder"), "folder"),
        (
            Point("a", math.nan, None, (1.0, math.inf)),
            {"name": "a", "value": None, "reason": None, "parts": [1.0, None]},
        ),
    ],
    ids=repr,
)
def test_values_become_plain_json(value: Any, expected: Any) -> None:
    """NaN and infinities are null, NumPy's numbers are numbers, records are objects, the rest is text."""
    plain = records.plain(value)

    assert plain == expected
    assert type(plain) is type(expected)


def test_a_document_has_schema_facts_and_rows() -> None:
    """Every `--json` file is one object, valid for a strict reader, whatever the numbers are."""
    document = records.document({"cores": np.int32(2)}, [Point("a", math.nan, "too few samples", ())], note="x")

    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "schema": records.SCHEMA,
        "facts": {"cores": 2},
        "rows": [{"name": "a", "value": None, "reason": "too few samples", "parts": []}],
        "note": "x",
    }


def test_records_cannot_be_changed() -> None:
    """What one row hands to another stays what it was."""
    for record in (records.Facts, records.Reading):
        assert dataclasses.fields(record)
        assert record.__dataclass_params__.frozen
