"""`hybrid-kernels probe` and `doctor` as a user meets them: the real program, the real device, small sizes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-c", "from hybrid_kernels.cli import main; main()"]
SMALL = ["probe", "--device", "cpu", "--k", "512", "--reps", "5"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_probe_prints_the_table_and_writes_json_and_picture(tmp_path: Path) -> None:
    """One row a size with every promised column; facts above, words below; files whole."""
    got = run(*SMALL, "--sizes", "1,2", "--json", str(tmp_path / "p.json"), "--plot", str(tmp_path / "p.svg"))
    assert got.returncode == 0, got.stderr
    for column in (
        "packed MiB", "N", "resident GB/s", "in place GB/s", "resident / in place", "copy GB/s", "in place / copy",
        "outputs",
    ):  # fmt: skip
        assert column in got.stdout
    assert got.stdout.count("identical") == 2
    assert "only an upper bound" in got.stdout
    assert "Size a cold path with" in got.stdout
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["schema"] == 1
    assert document["complete"] is True
    assert document["facts"]["device"] == "cpu"
    assert {row["strategy"] for row in document["rows"]} >= {"resident", "in_place", "copy"}
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "p.svg"]


def test_plain_lines_where_there_is_no_terminal() -> None:
    """Progress goes to standard error as lines, without a control character."""
    got = run(*SMALL, "--sizes", "1")
    assert "probe: 1.00 MiB packed" in got.stderr
    assert "\x1b" not in got.stderr + got.stdout


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--sizes", "0"], "sizes"),
        (["--sizes", "abc"], "--sizes"),
        (["--sizes", ""], "--sizes"),
        (["--sizes", "100000000"], "sizes"),
        (["--k", "0"], "k"),
        (["--k", "x"], "--k"),
        (["--reps", "0"], "reps"),
        (["--threads", "-1"], "threads"),
        (["--device", "tpu"], "device"),
        (["--scratch", "/nonexistent"], "scratch"),
        (["--variant", "narrow"], "variant"),
        (["--json", "/nonexistent/p.json"], "--json"),
        (["--json", "/"], "--json"),
        (["--plot", "p.bmp"], "--plot"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], names: str, tmp_path: Path) -> None:
    """Out of range, of the wrong kind, or a file that cannot be written: named, and nothing is left."""
    got = subprocess.run(
        [*RUN, *SMALL[:3], *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert got.returncode == 2, got.stderr
    assert names in got.stderr
    assert len(got.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_the_finished_rows(tmp_path: Path) -> None:
    """Interrupted in the second of two sizes: the first is in the file, and the program says so and ends at once."""
    target = tmp_path / "p.json"
    command = [*RUN, *SMALL, "--sizes", "1,64", "--reps", "200", "--json", str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        before = []
        for line in child.stderr:
            before.append(line)
            if "64.0 MiB" in line:
                break
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = child.communicate(timeout=60)
    assert time.monotonic() - start < 10  # a loaded machine: the point is that it does not run to its end
    assert child.returncode == 130, "".join(before) + err
    assert "1 of 2 sizes finished" in err
    assert str(target) in err
    assert "Traceback" not in err
    document = json.loads(target.read_text())
    assert document["complete"] is False
    assert {row["packed_mib"] for row in document["rows"]} == {1.0}
    assert "1.00" in out or " 1 " in out


def test_an_error_in_the_second_size_keeps_the_first(tmp_path: Path) -> None:
    """Pages that stay in memory from the second size on: one line, exit 2, and the finished row is in the file."""
    target = tmp_path / "p.json"
    command = (
        "import sys; from hybrid_kernels.devices import evicted\n"
        "own = evicted.EvictedMapping.evict\n"
        "def evict(mapping):\n"
        "    if mapping._bytes > 3 << 20: raise evicted.ConditionNotMet('scratch: 7 of 9 pages stayed in memory')\n"
        "    own(mapping)\n"
        "evicted.EvictedMapping.evict = evict\n"
        f"sys.argv = ['hybrid-kernels', *{SMALL!r}, '--sizes', '1,4', '--json', {str(target)!r}]\n"
        "from hybrid_kernels.cli import main; main()"
    )
    got = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 2, got.stderr
    assert got.stderr.splitlines()[-2:] == [
        f"hybrid-kernels: ended early: 1 of 2 sizes finished, kept in {target}",
        "hybrid-kernels: scratch: 7 of 9 pages stayed in memory",
    ]
    document = json.loads(target.read_text())
    assert document["complete"] is False
    assert document["error"] == "scratch: 7 of 9 pages stayed in memory"
    assert {row["packed_mib"] for row in document["rows"]} == {1.0}


def test_ctrl_c_before_anything_was_measured_is_said() -> None:
    """A command that has nothing to keep yet still ends with one line and 130, and no traceback."""
    command = (
        "import sys; from hybrid_kernels import devices\n"
        "def open_device(*_, **__): raise KeyboardInterrupt\n"
        "devices.open_device = open_device\n"
        "from hybrid_kernels.cli import main; sys.argv = ['hybrid-kernels', 'probe']; main()"
    )
    got = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert got.returncode == 130
    assert got.stderr == "hybrid-kernels: interrupted\n"


def test_doctor_says_what_can_be_used_and_why_not() -> None:
    """Both devices are listed; one that cannot be used has a reason and something to do."""
    got = run("doctor", "--json")
    rows = {row["device"]: row for row in json.loads(got.stdout)["rows"]}
    assert rows["cpu"]["usable"]
    if not rows["cuda"]["usable"]:
        assert len(rows["cuda"]["detail"]) > 20
    assert "cpu" in run("doctor").stdout


def test_the_gpu_that_is_not_here_is_one_line() -> None:
    """Asking for an absent device says why and ends with 2."""
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("this machine has an NVIDIA GPU")
    got = run("probe", "--device", "cuda")
    assert got.returncode == 2
    assert got.stderr.startswith("hybrid-kernels: device cuda:")
    assert len(got.stderr.strip().splitlines()) == 1
