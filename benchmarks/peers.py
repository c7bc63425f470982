"""The compiled kernels beside other people's, in one run: `python -m benchmarks.peers --device cpu`.

On the CPU the peer is ONNX Runtime's MatMulNBits, at accuracy level 0 against the float32 mode and at level 4 against
the int8 mode, with a streaming read of the same bytes (codes, scales and zero points) as the ceiling of all. How it
is kept fair:

- The same weights, activation, number of threads and rotation for all. Every arm rotates over enough distinct
  weights to be at least four last-level caches; with too little memory for that, the table says `cached`.
- ONNX Runtime gets one session whose graph holds one MatMulNBits node a buffer, weights as initializers (so that it
  prepacks them), x and every y bound to memory that it keeps: one call of `run_with_iobinding` is one rotation, and
  its cost from Python is shared by all passes in it. Ours is called from Python once a pass.
- Memory is private and huge pages are asked for on both sides: for ours by madvise, for ONNX Runtime's by glibc
  (GLIBC_TUNABLES=glibc.malloc.hugetlb=1, which the command sets for itself by starting anew).
- Arms take turns, every other round backwards. Before each sample everything rests until no thread spins any more
  (ONNX Runtime's do for 40 ms after a call, on a core that the next arm needs), and the arm does one rotation untimed,
  so that its own threads are awake.
- Nothing is timed before its output agrees with ONNX Runtime's.

A ratio is peer seconds / own seconds of the same round (1.2: ours needs a sixth less time); medians with
distribution-free 95 % intervals.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hybrid_kernels import files, records
from hybrid_kernels.devices import cpu as cpu_device
from hybrid_kernels.devices import open_device
from hybrid_kernels.devices.base import Arm
from hybrid_kernels.errors import BadInput, ConditionNotMet, DeviceUnavailable, HybridKernelsError
from hybrid_kernels.kernels import cpu as kernels
from hybrid_kernels.layout.weights import Int4Weights
from hybrid_kernels.measure import facts, sampling
from hybrid_kernels.units import MIB, format_bytes, gbs, significant

REST_SECONDS = 0.01
REST_LIMIT_SECONDS = 1.0
SAMPLE_SECONDS = 0.03
RAMP_LIMIT_SECONDS = 1.0


@dataclass(frozen=True)
class Contest:
    """What runs at one size: the arms, who is compared with whom, and what their rows must carry."""

    arms: Sequence[Arm]
    pairs: Sequence[tuple[str, str]]  # (ours, peer) by label
    warnings: tuple[str, ...] = ()


def rest() -> None:
    """Sleep until no thread of this process runs any more: ONNX Runtime's spin for 40 ms after a call."""
    for _ in range(round(REST_LIMIT_SECONDS / REST_SECONDS)):
        before = time.process_time()
        time.sleep(REST_SECONDS)
        if time.process_time() - before < REST_SECONDS / 10:
            return


class Rotation(Arm):
    """`rotate()` passes once over every buffer; `run` counts passes and times whole rotations."""

    def __init__(self, label: str, rotate: Callable[[], None], copies: int, weights: Int4Weights, variant: str) -> None:
        super().__init__()
        self.label, self.rotate, self.copies, self.variant = label, rotate, copies, variant
        self.pass_bytes, self.total_bytes = weights.packed_bytes, area_bytes(weights)

    def _time(self, passes: int) -> float:
        rest()
        self.rotate()
        start = time.perf_counter()
        for _ in range(passes // self.copies):
            self.rotate()
        return time.perf_counter() - start

    def close(self) -> None:
        """Nothing to give back beyond memory."""


# ---- CPU: ONNX Runtime ---------------------------------------------------------------------------------------------


def area_bytes(weights: Int4Weights) -> int:
    """Bytes that a pass reads: codes, float32 scales, zero points."""
    return weights.packed.nbytes + weights.scales.size * 4 + weights.zero_points.nbytes


def area(weights: Int4Weights) -> tuple[npt.NDArray[np.uint8], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Codes, scales and zero points one after another in memory of their own, and the three as arrays."""
    parts = (weights.packed, weights.scales.astype(np.float32), weights.zero_points)
    whole = cpu_device.anonymous(np.concatenate([part.reshape(-1).view(np.uint8) for part in parts]))
    ends = np.cumsum([part.nbytes for part in parts])
    packed, scales, zeros = (
        whole[end - part.nbytes : end].view(part.dtype).reshape(part.shape)
        for part, end in zip(parts, ends, strict=True)
    )
    return whole, (packed, scales, zeros)


def onnx_session(weights: Sequence[Int4Weights], x: np.ndarray, level: int, threads: int):
    """A rotation over `weights` in one ONNX Runtime session, and its outputs [copy] -> float32 [n]."""
    import onnx
    import onnxruntime

    make, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes, initializers, outputs = [], [], []
    for i, w in enumerate(weights):
        arrays = {
            f"B{i}": w.packed, f"s{i}": w.scales.astype(np.float32).reshape(-1), f"z{i}": w.zero_points.reshape(-1),
        }  # fmt: skip
        initializers += [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
        outputs.append(make.make_tensor_value_info(f"y{i}", floats, [1, w.n]))
        nodes.append(
            make.make_node(
                "MatMulNBits", ["x", *arrays], [f"y{i}"], domain="com.microsoft",
                K=w.k, N=w.n, bits=4, block_size=w.block, accuracy_level=level,
            )
        )  # fmt: skip
    graph = make.make_graph(
        nodes, "rotation", [make.make_tensor_value_info("x", floats, [1, x.size])], outputs, initializers
    )
    opsets = [make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)]
    model = make.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x.reshape(1, -1)))
    y = [onnxruntime.OrtValue.ortvalue_from_numpy(np.full((1, w.n), np.nan, np.float32)) for w in weights]
    for i, value in enumerate(y):
        binding.bind_ortvalue_output(f"y{i}", value)
    return (lambda: session.run_with_iobinding(binding)), (lambda: [value.numpy()[0] for value in y])


def agree(label: str, ours: np.ndarray, peer: np.ndarray, tolerance: float) -> None:
    """ConditionNotMet unless the two are within `tolerance` of the largest output."""
    off = float(np.abs(ours - peer).max() / np.abs(peer).max())
    if not off <= tolerance:
        raise ConditionNotMet(
            f"{label}: differs from ONNX Runtime by {off:.1e} of the largest output; nothing was timed"
        )


def cpu(mib: float, k: int, threads: int) -> Contest:
    """Float32 and int8 modes against ONNX Runtime at levels 0 and 4, and the streaming read of the same bytes."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DeviceUnavailable("onnxruntime is not installed; pip install '.[test]'") from error

    n, block = max(round(mib * MIB / (k / 2)), 1), 32
    with cpu_device.CpuDevice(threads=threads) as device:
        free, wanted = device.free_bytes("resident"), device.cold_copies(n * (k // 2))
    first = Int4Weights.random(n, k, block, seed=0)
    # Ours once; for each of two ONNX Runtime sessions: initializers, their serialised form, prepacked weights.
    copies = min(wanted, int(free / (8 * area_bytes(first))))
    if copies < 1:
        raise BadInput(f"--sizes: {mib} MiB needs {format_bytes(8 * area_bytes(first))}, {format_bytes(free)} are free")
    warnings = () if copies == wanted else (f"cached: memory allows {copies} of {wanted} buffers",)
    weights = [first, *(Int4Weights.random(n, k, block, seed=seed) for seed in range(1, copies))]
    x = np.random.default_rng(0).standard_normal(k, np.float32)
    areas = [area(w) for w in weights]
    y = [np.full(n, np.nan, np.float32) for _ in weights]

    def stream() -> None:
        for whole, _ in areas:
            kernels.stream_read(whole, threads=threads)

    arms, pairs = [Rotation("stream", stream, copies, first, "all bytes")], []
    for mode, level, tolerance in (("f32", 0, 1e-5), ("i8", 4, 1e-2)):

        def rotate(mode: kernels.Mode = mode) -> None:
            for (_, arrays), out in zip(areas, y, strict=True):
                kernels.gemv(*arrays, x, block=block, mode=mode, threads=threads, out=out)

        peer, outputs = onnx_session(weights, x, level, threads)
        rotate()
        peer()
        for ours, theirs in zip(y, outputs(), strict=True):
            agree(mode, ours, theirs, tolerance)
        arms.append(Rotation(mode, rotate, copies, first, kernels.chosen(mode)))
        arms.append(Rotation(f"onnxruntime level {level}", peer, copies, first, onnxruntime.__version__))
        pairs.append((mode, f"onnxruntime level {level}"))
    pairs += [(mode, "stream") for mode in kernels.MODES]
    return Contest(arms, pairs, warnings)


# ---- Any device ----------------------------------------------------------------------------------------------------

DEVICES = ("cpu", "cuda")


def contests(options: argparse.Namespace) -> Iterator[tuple[str, float, Contest]]:
    """(name, packed MiB, contest) of everything that the command was asked to measure, each closed after its turn."""
    if options.device == "cuda":
        from benchmarks import peers_cuda

        for name, n, k in peers_cuda.shapes(sizes(options.sizes), options.k, options.model):
            with peers_cuda.arms(n, k) as (arms, pairs):
                yield name, arms[0].pass_bytes / MIB, Contest(arms, pairs)
        return
    if options.model is not None:
        raise BadInput(
            "--model: the CPU's peers are measured by --sizes and --k; use --device cuda for a model's shapes"
        )
    for mib in sizes(options.sizes):
        yield f"{mib:g} MiB", mib, cpu(mib, options.k, options.threads)


def measure(contest: Contest, reps: int) -> list[dict]:
    """One row an arm: its bandwidths, and its ratio to each arm it is paired with."""
    passes = []
    for arm in contest.arms:
        arm.run(arm.copies)
        rotations = SAMPLE_SECONDS / max(arm.run(arm.copies), 1e-9)
        most = max(sampling.MAX_BATCH // arm.copies, 1)  # a graph of very many passes does not wait behind a gate
        passes.append(min(max(math.ceil(rotations), 1), most) * arm.copies)
    for arm, count in zip(contest.arms, passes, strict=True):
        sampling.ramp(arm, count, limit=RAMP_LIMIT_SECONDS)
    samples = dict(
        zip((arm.label for arm in contest.arms), sampling.interleave(contest.arms, reps, passes), strict=True)
    )
    rows = []
    for arm in contest.arms:
        own = samples[arm.label]
        low, high = own.interval()
        row = {
            "arm": arm.label, "variant": arm.variant, "packed_bytes": arm.pass_bytes, "total_bytes": arm.total_bytes,
            "copies": arm.copies, "samples": len(own.seconds), "passes": own.passes,
            "seconds": own.median, "seconds_low": low, "seconds_high": high, "seconds_best": own.best,
            "gbs": gbs(arm.pass_bytes, own.median), "total_gbs": gbs(arm.total_bytes, own.median),
            "warnings": contest.warnings, "ratios": {},
        }  # fmt: skip
        for ours, peer in contest.pairs:
            if ours == arm.label:
                ratios = samples[peer].seconds / own.seconds
                low, high = sampling.median_interval(ratios)
                row["ratios"][peer] = {"ratio": float(np.median(ratios)), "ratio_low": low, "ratio_high": high}
        rows.append(row)
    return rows


def lines(name: str, rows: Sequence[dict]) -> list[str]:
    """The rows of one matrix as lines of a table."""
    texts = []
    for row in rows:
        ratios = "; ".join(
            f"{significant(r['ratio'])} [{significant(r['ratio_low'])}, {significant(r['ratio_high'])}] x {peer}"
            for peer, r in row["ratios"].items()
        )
        interval = (
            f"[{gbs(row['packed_bytes'], row['seconds_high']):.1f}, {gbs(row['packed_bytes'], row['seconds_low']):.1f}]"
        )
        cells = [
            name, row["arm"], row["variant"] or "-", f"{row['gbs']:.1f} {interval}", f"{row['total_gbs']:.1f}",
            str(row["copies"]), str(row["samples"]), "; ".join([ratios, *row["warnings"]]).strip("; "),
        ]  # fmt: skip
        texts.append("| " + " | ".join(cells) + " |")
    return texts


def sizes(text: str) -> list[float]:
    """Positive MiB from `12.5,64`; BadInput otherwise."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < 1e6 for value in values):
        raise BadInput(
            f"--sizes: {text!r} must be positive numbers of MiB with commas between; write for example 12.5,64"
        )
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints the table as it grows, writes `--json`; 0, or 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--sizes", default="12.5,64,256", help="packed MiB, with commas between")
    parser.add_argument("--k", type=int, default=5120)
    parser.add_argument("--model", help="on the GPU: every distinct projection of this model instead of --sizes")
    parser.add_argument("--threads", type=int, default=2, help="of every arm on the CPU")
    parser.add_argument("--reps", type=int, default=21, help="samples of every arm")
    parser.add_argument("--json", metavar="FILE", help="schema, facts and rows")
    options = parser.parse_args(arguments)
    try:
        sizes(options.sizes)
        if options.k < 1 or options.reps < 1:
            raise BadInput(f"--k, --reps: {options.k}, {options.reps}; both must be 1 or more")
        target: Path | None = files.check_writable(options.json, "--json") if options.json else None
        with open_device(options.device, threads=options.threads) as device:
            found = facts.under_load(device)
        cache = format_bytes(found.cache_bytes or 0)
        threads = f", {options.threads} threads of {found.cores}" if options.device == "cpu" else ""
        print(f"{found.device_name}{threads}, cache {cache}, {found.started_at}")
        print("| matrix | arm | variant | packed GB/s | all GB/s | buffers | n | speed against |")
        print("| --- | --- | --- | ---: | ---: | ---: | ---: | --- |", flush=True)
        rows: list[dict] = []
        for name, mib, contest in contests(options):
            taken = measure(contest, options.reps)
            rows += [{"name": name, "packed_mib": mib, **row} for row in taken]
            print("\n".join(lines(name, taken)), flush=True)
        if target is not None:
            import json

            files.replace(target, json.dumps(records.document(found, rows), indent=1).encode())
    except HybridKernelsError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def with_huge_pages() -> None:
    """Start this command again with glibc's allocator asking for huge pages, unless it does already."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" not in tunables:
        both = ":".join(part for part in (tunables, "glibc.malloc.hugetlb=1") if part)
        command = [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"GLIBC_TUNABLES": both})


if __name__ == "__main__":
    with_huge_pages()
    sys.exit(main())
