"""Model shapes against what the models' own cards say, and against bytes counted by hand."""

from __future__ import annotations

import pytest

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout import models
from hybrid_kernels.layout.weights import Int4Weights

# Parameters of the published checkpoints, as their safetensors files hold them and their pages on Hugging Face say.
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
}


@pytest.mark.parametrize("name", models.MODELS)
def test_shapes_add_up_to_the_published_parameters(name: str) -> None:
    """Projections, an embedding that is not tied, norms and, by family, biases make exactly the published count."""
    model = models.find(name)
    embedding = 0 if model.tied else model.vocabulary * model.hidden
    norms = (2 * model.layers + 1) * model.hidden
    of_family = {
        "Qwen2": model.layers * (model.heads + 2 * model.kv_heads) * model.head_dim,  # biases of q, k and v
        "Qwen3": model.layers * 2 * model.head_dim,  # norms of q and k
        "Llama": 0,
    }

    family = model.source.split("/")[1][:5]
    assert model.parameters() + embedding + norms + of_family[family] == PUBLISHED[name]


def test_qwen_14b_by_hand() -> None:
    """The shapes of one layer, in the order in which a step reads them, and the bytes of a step."""
    model = models.find("qwen2.5-14b")

    assert [(part.name, part.n, part.k) for part in model.layer] == [
        ("q", 5120, 5120), ("k", 1024, 5120), ("v", 1024, 5120), ("o", 5120, 5120),
        ("gate", 13824, 5120), ("up", 13824, 5120), ("down", 5120, 13824),
    ]  # fmt: skip
    layer = 2 * 5120 * 5120 + 2 * 1024 * 5120 + 3 * 13824 * 5120
    assert model.packed_bytes(lm_head=False) == 48 * layer // 2
    assert model.packed_bytes() == 48 * layer // 2 + 152064 * 5120 // 2
    assert model.total_bytes() == model.packed_bytes() * 37 // 32  # 16 packed bytes bring 2 of scale and 0.5 of zero
    assert model.total_bytes(zero_points=False) == model.packed_bytes() * 36 // 32
    assert model.total_bytes(scale_bytes=4) == model.packed_bytes() * 41 // 32


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("block", [16, 32, 128])
def test_a_step_reads_each_projection_once(name: str, block: int) -> None:
    """The projections of a step are seven a layer and the output, and their bytes are the model's."""
    model = models.find(name)
    step = model.projections()

    assert len(step) == len({part.name for part in step}) == 7 * model.layers + 1
    assert sum(part.n * part.k for part in step) == model.parameters()
    assert sum(part.packed_bytes(block) for part in step) == model.packed_bytes(block)
    assert sum(part.total_bytes(block) for part in step) == model.total_bytes(block)
    assert step[:-1] == model.projections(lm_head=False)


def test_bytes_are_those_of_the_weights_themselves() -> None:
    """A projection's count equals what weights of its shape occupy, also when k is no multiple of the block."""
    part = models.Projection("odd", 5, 99)
    for zero_points in (True, False):
        weights = Int4Weights.random(5, 99, 32, zero_points=zero_points)

        assert part.packed_bytes(32) == weights.packed_bytes
        assert part.total_bytes(32, zero_points=zero_points) == weights.total_bytes


@pytest.mark.parametrize("name", ["qwen2.5-7b", "Qwen2.5-7B", " Qwen/Qwen2.5-7B "])
def test_a_model_is_found_by_any_of_its_names(name: str) -> None:
    """Short name, any case, or the repository."""
    assert models.find(name).source == "Qwen/Qwen2.5-7B"


def test_an_unknown_model_is_answered_with_near_names() -> None:
    """A typing error gets the names it may have meant; a name like none gets the whole list."""
    with pytest.raises(BadInput, match=r"^model: 'qwen2.5-14' is not known; did you mean qwen2.5-14b"):
        models.find("qwen2.5-14")
    with pytest.raises(BadInput, match=r"^model: 'zzz' is not known; known: llama-3.1-8b, "):
        models.find("zzz")
