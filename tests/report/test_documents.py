"""Figure markers: invisible when rendered, kept true, everything else kept byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import ledger
from hybrid_kernels.report import documents

ROOT = Path(__file__).parents[2]
BOOK = ledger.load(ROOT / "tests/data/figures.toml")
COLD = "cold_path_read_bandwidth"


def marked(request: str, text: str) -> str:
    """A marker around `text`."""
    return f"<!-- figure {request} -->{text}<!-- /figure -->"


def visible(markdown: str) -> str:
    """What a reader of the rendered page sees."""
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    return re.sub(r"<!--.*?-->", "", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (COLD, "5.6 GB/s"),
        (f"{COLD}@rtx4060-laptop-wddm", "5.6 GB/s"),
        (f"{COLD}#1", "11.41 GB/s"),
        (f"{COLD} number", "5.6"),
        (f"{COLD}#1 kind", "upper bound"),
        (f"{COLD} factor", "0.491x"),
        (f"{COLD} date", "2026-08-13"),
        ("residency_ratio", "15 to 24x"),
        ("resident_read_bandwidth", "100 to 133 GB/s"),
    ],
)
def test_marker_takes_its_text_from_the_ledger(request_: str, expected: str) -> None:
    """Every field of a figure or of one of its records; the old text is replaced, the page shows the new one only."""
    new, stale = documents.synced(f"It reads at **{marked(request_, 'old')}**.\n", BOOK)
    assert new == f"It reads at **{marked(request_, expected)}**.\n"
    assert visible(new) == f"<p>It reads at <strong>{expected}</strong>.</p>\n"
    assert [finding.line for finding in stale] == [1]
    assert documents.synced(new, BOOK) == (new, [])


def test_tables_render_as_tables() -> None:
    """A history block becomes a table with every record, what became of it and why; a second sync changes nothing."""
    text = f"# H\n\n{marked(f'history {COLD}', '')}\n\nend\n"
    new, _ = documents.synced(text, BOOK)
    html = visible(new)
    assert html.count("<tr>") == 3
    assert "11.41 GB/s" in html
    assert "superseded 2026-08-13 by record 2 (correction, 0.491x): A copy has no kernel" in html
    assert documents.synced(new, BOOK) == (new, [])
    current = visible(documents.synced(f"{marked('current rtx4060-laptop-wddm', '')}\n", BOOK)[0])
    assert current.count("<tr>") == 1 + len(BOOK.figures)


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "**b**",
                "`",
                "``",
                "\n",
                "\r\n",
                "\n\n",
                "    ",
                "```\n",
                "~~~\n",
                "> ",
                "- ",
                "| x |",
                "<!-- c -->",
                "é",
                "\t",
                "<b>",
                "\\",
                marked(COLD, "1 GB/s"),
                marked(COLD + "#1", ""),
            ]
        )
    )
)
def test_outside_markers_every_byte_is_kept(pieces: list[str]) -> None:
    """Whatever surrounds the markers stays; syncing twice is syncing once; markers in code stay as they are."""
    text = "".join(pieces)
    try:
        new, stale = documents.synced(text, BOOK)
    except BadInput:
        return  # a code span may swallow one half of a marker
    found = documents.markers(text)
    outside, place = [], 0
    for marker in found:
        outside.append(text[place : marker.start])
        place = marker.end
    outside.append(text[place:])
    values = [documents.render(marker.request, BOOK) for marker in found]
    assert new == "".join(piece + value for piece, value in zip(outside, [*values, ""], strict=True))
    assert len(stale) == len(found)
    assert documents.synced(new, BOOK) == (new, [])


@pytest.mark.parametrize(
    "text",
    [
        "```\n{}\n```\n",
        "~~~ md\n{}\n~~~\n",
        "    {}\n",
        "see `{}`\n",
        "see ``a ` {}``\n",
        "> ```\n> {}\n> ```\n",
        "- x\n\n      {}\n",
    ],
)
def test_markers_in_code_are_text(text: str) -> None:
    """Documents can show what a marker looks like: in code blocks and code spans nothing is rewritten or checked."""
    shown = text.format(marked(COLD, "1 GB/s") + " 11.41 GB/s")
    assert documents.synced(shown, BOOK) == (shown, [])
    assert documents.superseded_quotes(shown, BOOK) == []


def test_superseded_value_quoted_as_current_is_found() -> None:
    """The old number with its unit in running text is found with its line; in a marker it is not."""
    text = (
        "Weights are read\nat 11.41 GB/s from the host, **11.41** GB/s.\n\n"
        f"It was {marked(COLD + '#1', '11.41 GB/s')}, not 111.41 GB/s or 11.41 GB/sec or 11.415 GB/s or 11.41 ms.\n"
    )
    (finding,) = documents.superseded_quotes(text, BOOK, "README.md")
    assert (finding.file, finding.line) == ("README.md", 2)
    assert "11.41 GB/s, superseded 2026-08-13" in finding.what
    assert "5.6 GB/s now" in finding.what
    assert f"<!-- figure {COLD}#1 -->" in finding.fix


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a <!-- figure cold_path_read_bandwidth --> b", ":1: figure marker is not closed"),
        (f"x\n\na {marked('cold', '')}", ":3: figure marker 'cold': .*no figure 'cold'"),
        (f"a {marked(COLD + '@x', '')}", "no record of machine 'x'"),
        (f"a {marked(COLD + '#9', '')}", "no record 9"),
        (f"a {marked(COLD + ' vlaue', '')}", "did you mean value"),
        (f"a {marked(COLD + '@other#1', '')}", "is of machine 'rtx4060-laptop-wddm'"),
        (f"a {marked('Bad Id', '')}", "is no figure marker"),
        (f"a {marked(COLD + '#1 factor', '')}", "corrects none"),
        (f"a {marked('current nowhere', '')}", "no record of machine 'nowhere'"),
    ],
)
def test_bad_markers_name_file_and_line(text: str, said: str) -> None:
    """A marker that is not closed or asks for what is not there stops with the file and the line."""
    with pytest.raises(BadInput, match=said) as error:
        documents.synced(text, BOOK, "doc.md")
    assert str(error.value).startswith("doc.md:")


def test_marker_at_the_start_of_a_line_is_reported(tmp_path: Path) -> None:
    """There Markdown takes the whole line for HTML, so the rest of it would not be formatted."""
    path = tmp_path / "a.md"
    path.write_text(f"- {marked(COLD, '5.6 GB/s')} and **bold**\n")
    assert "**bold**" in visible(path.read_text())
    (finding,) = documents.check([path], BOOK)
    assert (finding.line, finding.fix) == (1, "put a word before it")


def test_sync_writes_only_what_changed_and_all_or_nothing(tmp_path: Path) -> None:
    """--check writes nothing; a bad marker in one document leaves the others alone; current ones are not touched."""
    good, bad, same = (tmp_path / name for name in ("good.md", "bad.md", "same.md"))
    good.write_bytes(f"a {marked(COLD, '?')}\r\n".encode())
    bad.write_text(f"a {marked('nothing', '')}\n")
    same.write_text(f"a {marked(COLD, '5.6 GB/s')}\n")
    stamp = same.stat().st_ino
    with pytest.raises(BadInput, match=r"bad\.md:1"):
        documents.sync([good, bad], BOOK)
    assert len(documents.sync([good, same], BOOK, check=True)) == 1
    assert b"?" in good.read_bytes()
    assert len(documents.sync([good, same], BOOK)) == 1
    assert good.read_bytes() == f"a {marked(COLD, '5.6 GB/s')}\r\n".encode()
    assert same.stat().st_ino == stamp
    assert documents.sync([good, same], BOOK, check=True) == []
    (finding,) = documents.check([bad], BOOK)
    assert (finding.line, "nothing" in finding.what) == (1, True)


def test_folders_mean_their_documents(tmp_path: Path) -> None:
    """A folder stands for every Markdown file in it; a path that is not there is bad input."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.md").write_text("")
    (tmp_path / "b.txt").write_text("")
    assert documents.documents([tmp_path]) == [tmp_path / "deep" / "a.md"]
    with pytest.raises(BadInput, match="no such document"):
        documents.documents([tmp_path / "no.md"])


def test_our_own_documents_quote_what_is_current() -> None:
    """README.md and docs/ hold the values of figures.toml, and quote no superseded one as current."""
    book = ledger.load(ROOT / "figures.toml")
    found = documents.check(documents.own_documents(book), book)
    assert not found, "\n".join(map(str, found))
