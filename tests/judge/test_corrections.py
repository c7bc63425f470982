"""Correcting a figure appends one record; every earlier byte of figures.toml stays, or nothing is written at all."""

from __future__ import annotations

import datetime
import difflib
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from hybrid_kernels import files
from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge import corrections, ledger

SEED = (Path(__file__).parents[1] / "data/figures.toml").read_text()


def correct(path: Path, figure: str = "cold_path_read_bandwidth", **changed: Any) -> ledger.Record:
    """A valid correction, changed as the test needs."""
    value = changed.pop("value", 8.25)
    low, high = changed.pop("low", value), changed.pop("high", value)
    stated = corrections.Statement(value, low, high, changed.pop("method", ledger.Method(source="a run")))
    given: dict[str, Any] = {
        "kind": "measured",
        "reason": "A wider kernel.",
        "change": "improvement",
        "date": datetime.date(2026, 9, 1),
        "machine": "rtx4060-laptop-wddm",
    }
    return corrections.correct(path, figure, stated, **{**given, **changed})


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A copy of this project's own ledger."""
    path = tmp_path / "figures.toml"
    path.write_text(SEED)
    return path


def added(old: str, new: str) -> list[str]:
    """Lines that `new` has more; fails if any line of `old` went or moved."""
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    assert not [line for line in lines if line.startswith("- ")]
    return [line[2:] for line in lines if line.startswith("+ ")]


def test_record_is_appended_and_nothing_else_changes(book: Path) -> None:
    """The new record stands after its figure's last one, corrects the current one, and reads back as given."""
    record = correct(
        book,
        method=ledger.Method(name="gemv", benchmark="reads.Read.track", version="2", params={"mib": ("256",)}),
        commit="abc123",
        evidence=("results/x.json",),
        conditions="quiet",
    )
    assert (record.id, record.corrects, record.value, record.change) == (3, 2, 8.25, "improvement")
    assert record.method.params == {"mib": ("256",)}
    assert (record.commit, record.evidence, record.conditions) == ("abc123", ("results/x.json",), "quiet")
    new = book.read_text()
    assert added(SEED, new)[0] == "[[figures.cold_path_read_bandwidth.records]]"
    assert new.index("id = 3") < new.index("[figures.mapped_copy_bandwidth]")
    assert ledger.load(book).figure("cold_path_read_bandwidth").current("rtx4060-laptop-wddm") == record


@pytest.mark.parametrize("figure", sorted(ledger.parse(SEED).figures))
def test_every_figure_of_ours_can_be_corrected(book: Path, figure: str) -> None:
    """Wherever a figure stands in the file, with comments before and after, only its record is added."""
    correct(book, figure)
    assert added(SEED, book.read_text())[0] == f"[[figures.{figure}.records]]"


def test_first_record_of_a_machine_corrects_none(book: Path) -> None:
    """A new machine begins its own chain."""
    assert correct(book, machine="other").corrects is None


def test_range_and_awkward_reason_survive(book: Path) -> None:
    """Quotes, line ends, brackets and other letters in a reason, and a range without headline, read back as given."""
    reason = 'He said "no".\n[figures.x]\n# ü = 1'
    record = correct(book, value=None, low=5, high=6.5, reason=reason)
    assert (record.value, record.low, record.high, record.reason) == (None, 5, 6.5, reason)


@pytest.mark.parametrize(
    "text",
    [
        'schema = 1\n[figures.a]\ntitle = "A"\nunit = "x"',
        'schema = 1\r\n[figures.a]\r\ntitle = "A"\r\nunit = "x"\r\n# end\r\n',
        'schema = 1\n[figures.a]\ntitle = """\n[figures.b]\n# A"""\nunit = "x"\n\n'
        '[events]\n# e\ncontrols = [\n"a",\n]\n',
        'schema = 1\n[ figures . a ]  # spaced\ntitle = "A"\nunit = "x"\n[[ figures . a . records ]]\nid = 1\n'
        'date = 2026-01-01\nmachine = "m"\nvalue = 1\nkind = "measured"\nmethod = { source = "s" }\nconditions = """\n'
        '[figures.c]\n# last"""\n# after\n',
    ],
)
def test_any_layout_of_the_file(tmp_path: Path, text: str) -> None:
    """Files without a final line end, with CRLF, texts that look like headers, and spaced headers keep every byte."""
    path = tmp_path / "figures.toml"
    path.write_bytes(text.encode())
    for round_ in (1, 2):
        before = path.read_bytes().decode()
        correct(path, "a", machine="m")
        after = path.read_bytes().decode()
        assert added(before, after), round_
        assert ("\r\n" in after) == ("\r\n" in text)
        assert after.count("\r") in (0, after.count("\n"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reason": "  "}, "--reason"),
        ({"kind": "best"}, "--kind"),
        ({"change": "luck"}, "--change"),
        ({"figure": "cold"}, "no figure 'cold'"),
        ({"read_from": "what it was"}, "changed while this ran"),
    ],
)
def test_refusals_leave_the_file_untouched(book: Path, changed: dict[str, Any], said: str) -> None:
    """No reason, a kind that is none, an unknown figure or a file edited meanwhile: refused, not a byte written."""
    with pytest.raises(BadInput, match=said):
        correct(book, **changed)
    assert book.read_text() == SEED
    assert [p.name for p in book.parent.iterdir()] == ["figures.toml"]


def test_broken_file_is_left_alone(book: Path) -> None:
    """A TOML error is one line with its line number; the file stays as broken as it was."""
    book.write_text(SEED + "\nbroken = \n")
    with pytest.raises(BadInput, match=r"figures\.toml:\d+: not valid TOML"):
        correct(book)
    assert book.read_text() == SEED + "\nbroken = \n"


def test_an_editor_that_saves_in_between_wins(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When someone saves the file after it was read and before it is replaced, theirs stays and we say so."""
    insert = corrections._insert

    def slow(*arguments: Any) -> str:
        book.write_text(SEED + "# theirs\n")
        return insert(*arguments)

    monkeypatch.setattr(corrections, "_insert", slow)
    with pytest.raises(BadInput, match="changed while this ran"):
        correct(book)
    assert book.read_text() == SEED + "# theirs\n"


def _append(path: str, number: int) -> None:
    for index in range(3):
        correct(Path(path), value=number + index / 10, low=number + index / 10, high=number + index / 10)


def test_concurrent_corrections_all_arrive(book: Path) -> None:
    """Four processes that correct one figure at once: every record is there, in one valid chain."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(str(book), number)) for number in range(10, 50, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    chain = ledger.load(book).figure("cold_path_read_bandwidth").chain("rtx4060-laptop-wddm")
    assert len(chain) == 2 + 12
    assert {record.value for record in chain[2:]} == {n + i / 10 for n in range(10, 50, 10) for i in range(3)}


def test_held_lock_is_one_line(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another writer holds the lock, a correction gives up in words, and writes nothing."""
    locked = files.locked
    monkeypatch.setattr(files, "locked", lambda path: locked(path, patience=0.05))
    with locked(book), pytest.raises(BadInput, match="another process"):
        correct(book)
    assert book.read_text() == SEED
