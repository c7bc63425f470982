"""The GPU's side of `python -m benchmarks.peers --device cuda`: torch's int4 kernel (tinygemm) beside ours, one run.

The same matrix for both: tinygemm multiplies (code - 8) * scale + zero in bfloat16, so its zero is (8 - zero point) *
scale. Its weights are repacked before timing, as it wants them; ours lie as MatMulNBits stores them. Both rotate over
enough distinct buffers to be read cold and are replayed from a captured graph of one rotation. Outputs must agree, to
what bfloat16 can hold, before anything is timed. The streaming read of the same packed bytes is the ceiling.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hybrid_kernels.devices import cuda  # the module: asv takes every class it finds here for a suite
from hybrid_kernels.devices.base import Arm
from hybrid_kernels.errors import BadInput, ConditionNotMet, DeviceUnavailable
from hybrid_kernels.layout.models import find
from hybrid_kernels.layout.weights import Int4Weights, unpack_nibbles
from hybrid_kernels.units import MIB

INNER_TILES = 8
"""How many k-tiles torch interleaves; of 2, 4 and 8 the widest loads."""
AGREEMENT = 2e-2
"""Relative L2 distance allowed between the two: scales, zeros and output of the peer are bfloat16 (8 bits)."""


class TinyGemm(Arm):
    """torch's `_weight_int4pack_mm` at M = 1 over `copies` repacked weights, replayed from a graph of one rotation."""

    label, form, variant = "tinygemm", "graph", "bf16, repacked"

    def __init__(self, weights: Int4Weights, x: npt.NDArray[np.float16], copies: int) -> None:
        super().__init__()
        self.pass_bytes, self.copies = weights.packed_bytes, copies
        self._torch = torch = _torch()
        if weights.n % 8 or weights.k % (16 * INNER_TILES):
            raise BadInput(
                f"tinygemm needs n of whole 8s and k of whole {16 * INNER_TILES}s, not {weights.n}, {weights.k}"
            )
        scales = torch.from_numpy(weights.scales.astype(np.float32)).cuda()
        zeros = torch.from_numpy(weights.zeros().astype(np.float32)).cuda()
        pairs = torch.stack([scales, (8 - zeros) * scales], dim=-1).transpose(0, 1).contiguous().to(torch.bfloat16)
        codes = unpack_nibbles(weights.packed.reshape(weights.n, -1))
        high_first = torch.from_numpy((codes[:, ::2] << np.uint8(4)) | codes[:, 1::2]).cuda()
        packed = torch._convert_weight_to_int4pack(high_first, INNER_TILES)
        self._weights = [packed] + [packed.clone() for _ in range(copies - 1)]
        self._pairs = [pairs] + [pairs.clone() for _ in range(copies - 1)]
        self._x = torch.from_numpy(x.astype(np.float32)).cuda().to(torch.bfloat16).reshape(1, -1)
        self._block = weights.block
        self.total_bytes = packed.nbytes + pairs.nbytes
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._rotate()  # loads the module before the capture
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._y = self._rotate()
        self.captures = 1

    def _rotate(self) -> Any:
        y = None
        for packed, pairs in zip(self._weights, self._pairs, strict=True):
            y = self._torch._weight_int4pack_mm(self._x, packed, self._block, pairs)
        return y

    def _time(self, passes: int) -> float:
        rotations = -(-passes // self.copies)
        self._begin.record()
        for _ in range(rotations):
            self._graph.replay()
        self._end.record()
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) * 1e-3 * passes / (rotations * self.copies)

    def output(self) -> npt.NDArray[np.float32]:
        """float32 [n] of the last pass."""
        self._torch.cuda.synchronize()
        return self._y.float().cpu().numpy().reshape(-1)

    def close(self) -> None:
        """Give the peer's memory back to the device."""
        self._graph = self._y = self._x = None
        self._weights, self._pairs = [], []
        self._torch.cuda.empty_cache()


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise DeviceUnavailable("torch is not installed; pip install torch to compare with its int4 kernel") from error
    if not hasattr(torch, "_weight_int4pack_mm") or not torch.cuda.is_available():
        raise DeviceUnavailable("torch has no int4 kernel for CUDA here; install a build of torch for CUDA")
    return torch


@contextlib.contextmanager
def arms(n: int, k: int) -> Iterator[tuple[list[Arm], list[tuple[str, str]]]]:
    """Ours, tinygemm and the streaming read over one [n, k] matrix, and who is compared with whom (by label).

    ConditionNotMet when the two kernels do not agree. Everything is given back at the end.
    """
    weights = Int4Weights.random(n, k, 32, seed=0)
    x = np.random.default_rng(0).standard_normal(k).astype(np.float16)
    with cuda.CudaDevice() as device:
        copies = device.cold_copies(weights.packed_bytes)
        placed = device.place(weights, "resident", copies=copies)
        ours, stream = device.read_arm(placed, x, "graph"), device.stream_arm(placed, "graph")
        with TinyGemm(weights, x, copies) as peer:
            ours.run(copies)
            peer.run(copies)
            y, theirs = ours.output(), peer.output()
            off = float(np.linalg.norm(y - theirs) / np.linalg.norm(y))
            if not off <= AGREEMENT:
                raise ConditionNotMet(f"tinygemm differs from ours by {off:.1e} of the output; nothing was timed")
            yield [ours, peer, stream], [(ours.label, peer.label), (ours.label, stream.label)]


def shapes(sizes_mib: Sequence[float], k: int, model: str | None) -> list[tuple[str, int, int]]:
    """(name, n, k) of each matrix: every distinct projection of a model, or sizes in MiB of packed bytes.

    n is rounded to whole 64s, and BadInput says so when tinygemm cannot take a shape.
    """
    if model is not None:
        distinct: dict[tuple[int, int], str] = {}
        for projection in find(model).projections(lm_head=True):
            distinct.setdefault((projection.n, projection.k), projection.name.rpartition(".")[2])
        return [(name, n, k) for (n, k), name in distinct.items()]
    return [(f"{mib:g} MiB", max(round(mib * MIB / (k / 2) / 64), 1) * 64, k) for mib in sizes_mib]
