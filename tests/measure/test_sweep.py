"""The sweep says what the device does: exact rates, marked implausible points, refused sizes, kept rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.measure import sampling, sweep
from hybrid_kernels.records import document
from tests.fakes import RATES, FakeDevice


@pytest.fixture(autouse=True)
def _no_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "ramp", lambda arm, passes: arm.run(passes))


def measure(device: FakeDevice, sizes: list[float], **more: object):
    return sweep.sweep(device, sizes, k=256, reps=5, **more)


def test_every_arm_comes_back_at_its_rate() -> None:
    """One row a size and arm, in GB/s of packed bytes, exact where the device is."""
    frame = measure(FakeDevice(), [0.5, 1.0])
    assert len(frame) == 2 * len(RATES)
    for _, row in frame.iterrows():
        assert row["gbs"] == pytest.approx(RATES[row["strategy"]] / 1e9)
        assert row["gbs_low"] <= row["gbs"] * (1 + 1e-9)
        assert row["warnings"] == ()
    assert set(frame["packed_mib"]) == {0.5, 1.0}


def test_sizes_become_whole_rows() -> None:
    """A size that is no whole number of rows is rounded to the nearest, and the frame says what was read."""
    frame = measure(FakeDevice(), [0.3])
    n = int(frame["n"].iloc[0])
    assert n == round(0.3 * 2**20 / 128)
    assert (frame["packed_bytes"] == n * 128).all()


def test_outputs_are_compared_bit_by_bit() -> None:
    """One unit in the last place of one value is a difference, and the row carries it."""
    frame = measure(FakeDevice(wrong="in_place"), [0.5]).set_index("strategy")
    assert frame.loc["resident", "outputs_identical"]
    assert not frame.loc["in_place", "outputs_identical"]
    assert "outputs differ" in frame.loc["in_place", "warnings"]


def test_a_wrong_product_is_never_timed() -> None:
    """A kernel whose result is off by a percent stops the sweep."""

    class Wrong(FakeDevice):
        def gemv(self, placed, x):
            return super().gemv(placed, x) * np.float32(1.01)

    with pytest.raises(ConditionNotMet, match="float64 reference"):
        measure(Wrong(), [0.5])


def test_reads_above_the_streaming_read_are_implausible() -> None:
    """A GEMV at twice the rate at which the same bytes can be read at all is marked and kept."""
    frame = measure(FakeDevice(rates={"resident": 220e9}), [0.5]).set_index("strategy")
    assert frame.loc["resident", "warnings"] == ("implausible",)
    assert frame.loc["in_place", "warnings"] == ()


def test_reads_above_the_link_are_implausible() -> None:
    """In place at 10 GB/s over a link that carries 8 is marked."""
    frame = measure(FakeDevice(limit=8.0), [0.5]).set_index("strategy")
    assert "implausible" in frame.loc["in_place", "warnings"]


def test_times_out_of_order_are_implausible() -> None:
    """A larger matrix that takes less time than a smaller one marks both."""

    class Faster(FakeDevice):
        def _arm(self, label, placed):
            arm = super()._arm(label, placed)
            nbytes = placed.packed_bytes
            arm.seconds = lambda: 1e-3 if nbytes < 2**20 else 5e-4
            return arm

    frame = measure(Faster(), [0.5, 2.0])
    reads = frame[frame["strategy"] == "resident"]
    assert all("implausible" in row for row in reads["warnings"])


def test_small_sizes_are_read_cold() -> None:
    """Enough buffers are rotated over to leave a cache of 4 MiB, and the row says how many."""
    frame = measure(FakeDevice(cache=4 * 2**20), [0.5]).set_index("strategy")
    assert frame.loc["resident", "copies"] == 8
    assert frame.loc["resident", "cold"]


def test_a_cached_reading_is_called_one() -> None:
    """Where memory does not allow the buffers, the row is not cold."""
    frame = measure(FakeDevice(cache=64 * 2**20, free=4 * 2**20), [0.5]).set_index("strategy")
    assert frame.loc["resident", "copies"] == 6
    assert not frame.loc["resident", "cold"]


def test_drift_is_the_first_point_again() -> None:
    """A device that gets 10 % slower for the last measurement drifts by 10 %."""
    device = FakeDevice()
    with pytest.MonkeyPatch.context() as patch:
        real = sweep._drift

        def slower(*args, **more):
            device.rates = {name: rate / 1.1 for name, rate in device.rates.items()}
            return real(*args, **more)

        patch.setattr(sweep, "_drift", slower)
        frame = measure(device, [0.5])
    assert frame["drift"].iloc[0] == pytest.approx(0.1)


def test_rows_are_handed_over_size_by_size_and_everything_is_given_back() -> None:
    """What is finished when Ctrl-C comes is already with the caller, and nothing stays placed."""
    device, rows = FakeDevice(), []

    def stop(done: int, total: int, text: str) -> None:
        if text.startswith("1.00"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(device, [0.5, 1.0], on_rows=rows.extend, progress=stop)
    assert {row.packed_bytes for row in rows} == {2**19}
    device.close()


def test_progress_ends_at_its_total() -> None:
    """The count of samples promised is the count of samples taken."""
    seen: list[tuple[int, int, str]] = []
    measure(FakeDevice(), [0.5, 1.0], progress=lambda *step: seen.append(step))
    assert seen[-1][0] == seen[-1][1] == len(seen)


@pytest.mark.parametrize(
    ("sizes", "more", "names"),
    [
        ([], {}, "sizes"),
        ([0.0], {}, "sizes"),
        ([-1.0], {}, "sizes"),
        ([float("nan")], {}, "sizes"),
        ([1.0], {"block": 48}, "block"),
        ([1.0], {"k": 0}, "k:"),
        ([1.0], {"reps": 1}, "reps"),
    ],
)
def test_bad_arguments_are_named_before_any_work(sizes: list[float], more: dict[str, int], names: str) -> None:
    """Out of range or nothing at all: the argument is named and no weights are placed."""
    device = FakeDevice()
    with pytest.raises(BadInput, match=names):
        sweep.sweep(device, sizes, **{"k": 256, "reps": 5, **more})
    assert device.arms == []


def test_sizes_beyond_memory_are_refused_with_both_numbers() -> None:
    """1 MiB packed needs 3 MiB beside the weights; 2 are free."""
    with pytest.raises(BadInput, match=r"3\.00 MiB.*2\.00 MiB are free"):
        measure(FakeDevice(free=2 * 2**20), [1.0])


def test_json_has_plain_numbers_only() -> None:
    """The document can be read by any JSON parser, and its rows have the frame's numbers."""
    frame = measure(FakeDevice(), [0.5])
    text = json.dumps(document({"device": "fake"}, sweep.with_units(frame)), allow_nan=False)
    back = json.loads(text)
    assert back["schema"] == 1
    assert back["rows"][0]["gbs"] == frame["gbs"].iloc[0]


def test_a_sweep_beside_keeps_its_rounds_apart() -> None:
    """Every round has the passes of that round alone, and what was copied in it; everything is given back."""
    with FakeDevice() as device:
        with sweep.Beside(device, [(64, 128), (32, 256)], ["copy"]) as beside:
            assert [arm.label for arm in beside.arms] == ["resident", "in_place", "copy"] * 2
            taken = [sampling.Samples(np.array([1.0, 2.0]) * (index + 1), 1) for index in range(6)]
            beside.keep(taken, np.array([7.0, 9.0]), [(1.5, 1.1), (1.6, 1.2)])
            first, second = beside.rounds
            beside.keep(taken)
            assert [(one.copy_seconds, one.slowdowns) for one in beside.rounds] == [(None, (1.0, 1.0))] * 2
        assert device.open == 0
    assert first.passes["seconds"].tolist() == [1, 2, 3, 4, 5, 6]
    assert second.passes["seconds"].tolist() == [2, 4, 6, 8, 10, 12]
    assert second.passes[["n", "k"]].to_numpy().tolist() == [[64, 128]] * 3 + [[32, 256]] * 3
    assert (first.copy_seconds, first.slowdowns) == (7.0, (1.5, 1.1))
    assert (second.copy_seconds, second.slowdowns) == (9.0, (1.6, 1.2))


def test_a_sweep_beside_that_fails_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second matrix is refused: the first one's memory is given back."""
    with FakeDevice() as device:
        place = device.place

        def refuse(weights, strategy, *, copies=1):
            if weights.k == 256:
                raise BadInput("weights: no room")
            return place(weights, strategy, copies=copies)

        monkeypatch.setattr(device, "place", refuse)
        with pytest.raises(BadInput, match="no room"):
            sweep.Beside(device, [(64, 128), (32, 256)], ["copy"])
        assert device.open == 0
