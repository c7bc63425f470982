"""Projection shapes of known models: what one decode step reads.

Every number is a field of the model's public `config.json` on Hugging Face, in the repository that `source` names:
hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim (hidden_size over
heads where the file has none), vocab_size, tie_word_embeddings. All of them are dense decoders with grouped-query
attention and a gated feed-forward network, so a layer has seven projections and the shapes follow from those fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout import weights


@dataclass(frozen=True)
class Projection:
    """One weight matrix [n, k] that a decode step reads once."""

    name: str  # "q" within a layer; "layers.3.q" or "lm_head" within a model
    n: int
    k: int

    def packed_bytes(self, block: int = 32) -> int:
        """Bytes of its int4 codes."""
        return weights.packed_bytes(self.n, self.k, block)

    def total_bytes(self, block: int = 32, *, scale_bytes: int = 2, zero_points: bool = True) -> int:
        """Bytes with scales (`scale_bytes` each, 2: float16) and packed zero points."""
        return weights.total_bytes(self.n, self.k, block, scale_bytes=scale_bytes, zero_points=zero_points)


@dataclass(frozen=True)
class Model:
    """A dense decoder, by the fields of its `config.json`."""

    name: str
    source: str  # repository on Hugging Face
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool  # the output projection shares the embedding's values; a step reads it all the same

    @property
    def layer(self) -> tuple[Projection, ...]:
        """The seven projections of one layer, in the order in which a step reads them."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            Projection("q", query, self.hidden),
            Projection("k", key, self.hidden),
            Projection("v", key, self.hidden),
            Projection("o", self.hidden, query),
            Projection("gate", self.intermediate, self.hidden),
            Projection("up", self.intermediate, self.hidden),
            Projection("down", self.hidden, self.intermediate),
        )

    @property
    def lm_head(self) -> Projection:
        """The projection onto the vocabulary, after the last layer."""
        return Projection("lm_head", self.vocabulary, self.hidden)

    def projections(self, *, lm_head: bool = True) -> tuple[Projection, ...]:
        """Every projection of one decode step in order, named `layers.0.q` ... `layers.0.down`, ..., `lm_head`."""
        layers = tuple(
            Projection(f"layers.{index}.{part.name}", part.n, part.k)
            for index in range(self.layers)
            for part in self.layer
        )
        return (*layers, self.lm_head) if lm_head else layers

    def parameters(self, *, lm_head: bool = True) -> int:
        """Weights that one decode step reads."""
        return self.layers * sum(part.n * part.k for part in self.layer) + lm_head * self.lm_head.n * self.lm_head.k

    def packed_bytes(self, block: int = 32, *, lm_head: bool = True) -> int:
        """Bytes of int4 codes that one decode step reads."""
        layer = sum(part.packed_bytes(block) for part in self.layer)
        return self.layers * layer + lm_head * self.lm_head.packed_bytes(block)

    def total_bytes(
        self, block: int = 32, *, scale_bytes: int = 2, zero_points: bool = True, lm_head: bool = True
    ) -> int:
        """Bytes that one decode step reads: codes, scales (`scale_bytes` each, 2: float16) and packed zero points."""
        layer = sum(part.total_bytes(block, scale_bytes=scale_bytes, zero_points=zero_points) for part in self.layer)
        head = self.lm_head.total_bytes(block, scale_bytes=scale_bytes, zero_points=zero_points)
        return self.layers * layer + lm_head * head


# fmt: off
_MODELS = (
    #     name            source                      hidden  inter. layers heads kv  dim  vocab.  tied
    Model("llama-3.1-8b", "meta-llama/Llama-3.1-8B",    4096, 14336, 32, 32, 8, 128, 128256, False),
    Model("llama-3.1-70b", "meta-llama/Llama-3.1-70B",  8192, 28672, 80, 64, 8, 128, 128256, False),
    Model("llama-3.2-3b", "meta-llama/Llama-3.2-3B",    3072, 8192, 28, 24, 8, 128, 128256, True),
    Model("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B",          896, 4864, 24, 14, 2, 64, 151936, True),
    Model("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B",          1536, 8960, 28, 12, 2, 128, 151936, True),
    Model("qwen2.5-3b", "Qwen/Qwen2.5-3B",              2048, 11008, 36, 16, 2, 128, 151936, True),
    Model("qwen2.5-7b", "Qwen/Qwen2.5-7B",              3584, 18944, 28, 28, 4, 128, 152064, False),
    Model("qwen2.5-14b", "Qwen/Qwen2.5-14B",            5120, 13824, 48, 40, 8, 128, 152064, False),
    Model("qwen2.5-32b", "Qwen/Qwen2.5-32B",            5120, 27648, 64, 40, 8, 128, 152064, False),
    Model("qwen2.5-72b", "Qwen/Qwen2.5-72B",            8192, 29568, 80, 64, 8, 128, 152064, False),
    Model("qwen3-8b", "Qwen/Qwen3-8B",                  4096, 12288, 36, 32, 8, 128, 151936, False),
    Model("qwen3-14b", "Qwen/Qwen3-14B",                5120, 17408, 40, 40, 8, 128, 151936, False),
    Model("qwen3-32b", "Qwen/Qwen3-32B",                5120, 25600, 64, 64, 8, 128, 151936, False),
)
# fmt: on

MODELS: Mapping[str, Model] = MappingProxyType({model.name: model for model in _MODELS})
"""Known models by name."""


def find(name: str) -> Model:
    """The model called `name`, in any case, by its short name or its repository. BadInput with near names otherwise."""
    wanted = name.strip().lower()
    for model in _MODELS:
        if wanted in (model.name, model.source.lower()):
            return model
    near = difflib.get_close_matches(wanted.rpartition("/")[2], MODELS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(MODELS)}"
    raise BadInput(f"model: {name!r} is not known; {hint}")
