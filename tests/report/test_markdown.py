"""The comment on a pull request: true in one line, readable by a GFM renderer whatever the names, and short enough."""

import dataclasses
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hybrid_kernels.records import Comparison, Verdict
from hybrid_kernels.report import comparison as telling
from hybrid_kernels.report import markdown, verdicts

ROW = Verdict(
    name="reads.time_read(device=cpu, mib=64)", base=1.0e-3, head=1.2e-3, change=0.2, ci_low=0.18, ci_high=0.22,
    rounds=8, verdict="slower", unit="seconds", direction=-1, benchmark="reads.time_read", cell="device=cpu, mib=64",
    threshold=0.03, noise=0.02, called_low=0.15, called_high=0.25,
)  # fmt: skip
SAME = dataclasses.replace(ROW, verdict="same", change=0.001, ci_low=-0.004, ci_high=0.006, reason="within 3 %")
CONTROL = dataclasses.replace(SAME, name="controls.time_copy", verdict="held", control=True)
RESULT = Comparison(
    base="main", head="feature", rows=(ROW, SAME), controls=(CONTROL,), rounds=8, runs=1, level=0.000625,
    facts={"cpu": "Xeon", "load_average": 0.5, "versions": {"numpy": "2.4"}, "driver": None},
)  # fmt: skip


class Cells(HTMLParser):
    """Every table cell's text, row by row, as a browser would show it, and every other tag met."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self.inside = [], [], False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data.replace("\xa0", " ")


def rendered(text):
    """HTML of a comment by a CommonMark renderer with GFM's tables and strikethrough, raw HTML let through."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


def test_moved_rows_are_in_sight_and_the_rest_is_folded():
    """One table outside of any <details> with what moved, and each folded part opens and closes in order."""
    html = rendered(markdown.comment(RESULT))
    outside = html.split("<details>")[0]

    assert "reads" in outside
    assert Cells(outside).rows[1] == [
        "reads.time_read(device=cpu, mib=64)", "1.00 ms", "1.20 ms", "+20.0 %", "+18.0 % to +22.0 %", "8", "slower", "",
    ]  # fmt: skip
    assert html.count("<details>") == html.count("</details>") == 4
    assert [part.split("</summary>")[0] for part in html.split("<summary>")[1:]] == [
        "1 more benchmark: 1 same", "Control arms: the only one held", "Where this ran", "What this run cannot catch",
    ]  # fmt: skip
    assert Cells(html).tags.count("table") == 3


# without code points that are no characters (Cn): the renderer replaces references to some of them
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=60))
@settings(max_examples=150)
def test_any_name_arrives_as_it_is(name):
    """Pipes, backticks, HTML, links, mentions and emphasis in a name are text in one cell, and nothing else changes."""
    name = " ".join(name.split()) or "x"
    row = dataclasses.replace(ROW, name=name, reason=name)
    html = rendered(markdown.comment(dataclasses.replace(RESULT, rows=(row,))))
    cells = Cells(html)
    shown = [cell.replace("\u200b", "") for cell in cells.rows[1]]

    assert (shown[0], shown[-1]) == (name.replace("\u200b", ""), name.replace("\u200b", ""))
    assert set(cells.tags) <= {
        "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li", "sub",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["a|b", "`x`", "<img src=x onerror=y>", "[a](http://b)", "*a* _b_ ~~c~~", "@all", "#1", "a\nb", "-->"]
)
def test_names_that_would_break_a_table_do_not(name):
    """The usual culprits, spelled out: one row, eight cells."""
    html = rendered(markdown.comment(dataclasses.replace(RESULT, rows=(dataclasses.replace(ROW, name=name),))))

    assert [len(row) for row in Cells(html.split("<details>")[0]).rows] == [8, 8]
    assert "<a " not in html
    assert "@all" not in html.replace("<code>@all</code>", "")


@pytest.mark.parametrize("length", [20, 400])
@pytest.mark.parametrize("word", ["slower", "same"])
def test_500_rows_fit_into_a_comment(word, length):
    """Under the limit whatever the names; what does not fit is counted, and nothing is cut in the middle."""
    rows = tuple(
        dataclasses.replace(ROW, name=f"{k:03d}" + "_|" * (length // 2), verdict=word, reason="r" * length)
        for k in range(500)
    )
    text = markdown.comment(dataclasses.replace(RESULT, rows=rows), always=True)
    html = rendered(text)

    assert len(text.encode()) < 65_000
    assert html.count("<details>") == html.count("</details>")
    listed = sum(len(row) == (8 if word == "slower" else 7) for row in Cells(html).rows) - 1
    assert listed == 500 or f"{500 - listed} more of these do not fit" in html


def test_the_marker_comes_first_and_is_invisible():
    """The next run finds its comment by the first line, which no reader sees."""
    text = markdown.comment(RESULT)

    assert text.splitlines()[0] == markdown.MARKER
    assert markdown.nothing_measured("x").startswith(markdown.MARKER)
    assert Cells(rendered(markdown.MARKER)).tags == []


def test_nothing_to_say_is_no_comment_unless_asked():
    """All the same, or out of the change's reach: silence. A moved control arm or an open row is worth a line."""
    quiet = dataclasses.replace(RESULT, rows=(SAME, SAME))
    unsettled = dataclasses.replace(SAME, verdict="unsettled", reason="about 4 more rounds would settle it")
    moved = dataclasses.replace(CONTROL, verdict="moved")

    assert markdown.comment(quiet) is None
    assert telling.render(quiet, "markdown") == ""
    assert "No change: all 2 benchmarks shown to be the same." in markdown.comment(quiet, always=True)
    assert markdown.comment(dataclasses.replace(quiet, untouched=True)) is None
    assert markdown.comment(dataclasses.replace(quiet, rows=(SAME, unsettled))) is not None
    assert markdown.comment(dataclasses.replace(quiet, controls=(moved,))) is not None
    assert markdown.comment(dataclasses.replace(quiet, interrupted=True)) is not None


FAILED = dataclasses.replace(
    ROW, verdict="unadjudicable", change=None, reason="nothing measured at head (ValueError: x)"
)
ONE_RUN = dataclasses.replace(ROW, verdict="unadjudicable", reason="one run a side: the noise ...", rounds=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "1 benchmark of 2 slower, the worst reads.time_read(device=cpu, mib=64) by +20.0 %."),
        (
            {"rows": (dataclasses.replace(ROW, verdict="faster", change=-0.1), SAME)},
            "1 benchmark of 2 faster, the most ",
        ),
        (
            {"rows": (SAME, dataclasses.replace(SAME, verdict="unsettled"))},
            "Nothing called slower or faster: 1 of 2 shown",
        ),
        ({"rows": (SAME, FAILED)}, "1 benchmark measured nothing on one side or both."),
        ({"rows": (SAME,), "interrupted": True, "rounds": 5}, "Interrupted after 5 rounds: No change: 1 benchmark"),
        ({"rows": ()}, "Only control arms were measured"),
        (
            {"rows": (SAME, dataclasses.replace(SAME, verdict="added", change=None))},
            "1 of 2 shown to be the same, 1 added",
        ),
        ({"rows": (SAME,), "untouched": True}, "This change touches nothing that the benchmarks import"),
        (
            {"rows": (ONE_RUN,), "rounds": 1, "spread": {"least": -0.28, "most": 1.16, "typical": 0.05}},
            "one run a side cannot tell a change from noise. Single runs of these 1 row differ by -28.0 % to +116",
        ),
        (
            {"rows": (dataclasses.replace(ROW, verdict="unadjudicable", reason="control arm c moved by 9 %"),)},
            "No verdict: control arm c moved by 9 %.",
        ),
    ],
)
def test_headlines_say_what_the_rows_say(changes, expected):
    """One line for each kind of outcome; the word slower appears as a finding only when a row is slower."""
    line = verdicts.headline(dataclasses.replace(RESULT, **changes))

    assert expected in line
    assert "\n" not in line
    if changes:
        assert " slower, the worst" not in line


def test_limits_follow_from_what_the_run_did():
    """What was skipped, left out, uncalibrated or too noisy is named; what was not, is not."""
    loud = dataclasses.replace(ROW, called_low=-0.3, called_high=0.4)
    gpu = tuple((f"reads.time_read(device=cuda, mib={mib})", "no GPU") for mib in (64, 256))
    full = dataclasses.replace(
        RESULT, rows=(loud, dataclasses.replace(SAME, learned_from=16, threshold=0.01)), skipped=gpu,
        unselected=("walks.time_walk(model=x)",), controls=(),
    )  # fmt: skip
    said = "\n".join(verdicts.limits(full))

    assert "What skips itself here (2 benchmark cells): all with device=cuda, mib=256." in said
    assert "What the filter left out (1 benchmark cell): all with model=x; the whole of walks." in said
    assert "Changes under 3.0 % in 1 of 2 rows: the default threshold" in said
    assert "1.0 % to 1.0 %, by row, for 1 row" in said
    assert "A change of 10 % in 1 of 2 rows" in said
    assert "no control arm was measured" in said
    assert "one sitting" in said or "sitting of this machine" in said
    assert "control arm" not in "\n".join(verdicts.limits(RESULT))
    assert "sitting" not in "\n".join(verdicts.limits(dataclasses.replace(RESULT, runs=3)))


def test_the_host_is_described_and_unknown_facts_are_left_out():
    """CPU, load and versions are in the comment; a fact that could not be read is not."""
    html = rendered(markdown.comment(RESULT))

    assert "<li>cpu: Xeon</li>" in html
    assert "<li>versions: numpy 2.4</li>" in html
    assert "driver" not in html


def test_json_has_the_contract_and_no_nan():
    """Rows have name, base, head, change, ci_low, ci_high, rounds, verdict; what is unknown is null."""
    import json

    odd = dataclasses.replace(ROW, ci_low=float("nan"))
    told = json.loads(telling.render(dataclasses.replace(RESULT, rows=(odd,)), "json"))

    assert told["schema"] == 1
    assert {"name", "base", "head", "change", "ci_low", "ci_high", "rounds", "verdict"} <= set(told["rows"][0])
    assert told["rows"][0]["ci_low"] is None
    assert told["headline"].startswith("1 benchmark of 1 slower")
    assert told["controls"][0]["verdict"] == "held"


def test_the_table_shows_markup_as_text(capsys):
    """Square brackets in a name are a name, and every row is there."""
    text = telling.render(dataclasses.replace(RESULT, rows=(dataclasses.replace(ROW, name="a[red]b"), SAME)), "table")

    assert "a[red]b" in text
    assert "same" in text
    assert "What this run cannot catch" in text
