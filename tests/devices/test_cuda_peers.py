"""The GPU's side of the comparison with peers, with a made-up GPU and a made-up peer."""

import json

import numpy as np
import pytest

from benchmarks import peers, peers_cuda
from hybrid_kernels.devices.base import Arm
from hybrid_kernels.errors import BadInput, ConditionNotMet
from hybrid_kernels.layout import reference


class Peer(Arm):
    """Multiplies rightly, or not, and takes twice the made-up GPU's time."""

    label, form, variant, right = "tinygemm", "graph", "made up", True

    def __init__(self, weights, x, copies):
        super().__init__()
        self.pass_bytes = self.total_bytes = weights.packed_bytes
        self.copies, self.y = copies, reference.gemv(weights, x)

    def _time(self, passes):
        return 2e-9 * self.pass_bytes * passes

    def output(self):
        return self.y.astype(np.float32) if self.right else np.zeros_like(self.y)

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(peers_cuda, "TinyGemm", Peer)
    monkeypatch.setattr(peers, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(peers.sampling, "ramp", lambda *a, **k: 0.0)
    monkeypatch.setattr(peers.facts, "under_load", peers.facts.collect)


def test_the_gpu_is_compared_with_torch_and_the_streaming_read(gpu, tmp_path, capsys):
    """Ratios are peer seconds over own seconds; each size is a line an arm, and all is given back."""
    file = tmp_path / "peers.json"

    assert peers.main(["--device", "cuda", "--sizes", "0.02", "--k", "512", "--reps", "3", "--json", str(file)]) == 0

    ours, peer, stream = json.loads(file.read_text())["rows"]
    assert (ours["arm"], peer["arm"], stream["arm"]) == ("resident", "tinygemm", "stream_resident")
    assert ours["ratios"]["tinygemm"]["ratio"] == pytest.approx(2.0)
    assert ours["ratios"]["stream_resident"]["ratio"] == pytest.approx(1.0)
    assert sum(line.startswith("| 0.02 MiB |") for line in capsys.readouterr().out.splitlines()) == 3


def test_a_peer_that_does_not_agree_is_not_timed(gpu, monkeypatch):
    """Two kernels that give different products have no speed to compare."""
    monkeypatch.setattr(Peer, "right", False)
    with pytest.raises(ConditionNotMet, match="tinygemm differs from ours"), peers_cuda.arms(64, 512):
        pass


def test_a_model_is_its_distinct_projections(capsys):
    """Each shape of a model once, under the first projection's name; the CPU's side has no such option."""
    names = {name: (n, k) for name, n, k in peers_cuda.shapes([], 0, "qwen2.5-14b")}

    assert names["k"] == (1024, 5120)
    assert names["down"] == (5120, 13824)
    assert len(set(names.values())) == len(names)
    assert peers.main(["--model", "qwen2.5-14b"]) == BadInput.exit_code
    assert "--model" in capsys.readouterr().err
