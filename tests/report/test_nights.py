"""A night's summary says what was measured, what went wrong and what changed, the same in both forms."""

from __future__ import annotations

from markdown_it import MarkdownIt

from hybrid_kernels.records import Mark, Night
from hybrid_kernels.report import nights

COMMIT = "0123456789" * 4
FINE = Night("2026-12-01T02:30:00+00:00", "box", (COMMIT,), (), (), 3, ())
ROUGH = Night(
    "2026-12-01T02:30:00+00:00", "box", (), (COMMIT,), (Mark(COMMIT, "reads", "1 benchmark failed: <b>x|y</b>"),), 1,
    (("driver", "580.1", "590.2"),), None, True,
)  # fmt: skip


def test_a_fine_night_is_one_line_and_its_commits() -> None:
    """Nothing needs anybody, and nothing else is said."""
    assert nights.text(FINE, [], []) == "box: 1 commit measured\n- measured 0123456789\n"


def test_a_rough_night_names_everything() -> None:
    """Suites that went wrong, what is left, what changed about the machine, failed checks."""
    told = nights.text(ROUGH, [], ["figures.toml:3: out of date"], ["published: site/index.html"])
    assert told.splitlines()[0] == (
        "box: no commit was due, 1 check failed, 1 suite went wrong, interrupted, 1 commit left for the next night"
    )
    assert "- the machine changed: driver was 580.1, is 590.2" in told
    assert "- check failed: figures.toml:3: out of date" in told
    assert told.endswith("- published: site/index.html\n")


def test_an_idle_night_says_why() -> None:
    """Nothing was measured, and the reason stands in the first line."""
    night = Night("2026-12-01T02:30:00+00:00", "box", (), (COMMIT,), (), 0, (), "the host is busy: load 9 on 2 cores")
    assert nights.text(night, [], []).startswith("box: nothing measured (the host is busy: load 9 on 2 cores)")


def test_markdown_shows_names_as_text() -> None:
    """HTML and table pipes in a benchmark's name stay text when GitHub renders them."""
    html = MarkdownIt("gfm-like", {"linkify": False}).render(nights.as_markdown(ROUGH, [], []))
    assert "<b>" not in html
    assert "&lt;b&gt;x|y&lt;/b&gt;" in html
    assert "<h3>box: no commit was due" in html
