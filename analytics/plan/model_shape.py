"""What a language model is made of, from a Hugging Face `config.json` or a number of parameters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_bytes

ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2", "modernbert")
"""`model_type` of models that read a text at once: they keep no keys and values, and give no next word."""

_GATED = ("silu", "swish", "swiglu", "geglu")
_GATED_TYPES = ("gemma", "qwen", "chatglm")
"""Their feed-forward layers have a third matrix, whatever the activation is called (or though it is not named)."""

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
}
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_MLP = ("moe_intermediate_size", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")

_MOST_BYTES = 1_000_000
_MOST = 10**9
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmbt]?)", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


@dataclass(frozen=True)
class ModelShape:
    """The layout of a transformer; all its layers are alike.

    `mlp` is the width of one expert's feed-forward layer, `mlp_matrices` 3 where it is gated, else 2. `active_experts` work on
    each token (1 of 1 where there are no experts), and `shared_mlp` beside them. `stated` is the number of parameters where
    somebody states it; `is_typical` says that only that is known, and the layout is that of `name`, a model of about that size.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    vocabulary: int
    mlp_matrices: int = 3
    is_tied: bool = False
    experts: int = 1
    active_experts: int = 1
    shared_mlp: int = 0
    is_encoder: bool = False
    stated: float | None = None
    is_typical: bool = False

    @property
    def embedding(self) -> float:
        """Parameters of the embedding and the output, which quantisation leaves in 16 bits; of a smaller model of this layout its part of them."""
        found = float(self.vocabulary * self.hidden * (1 if self.is_tied or self.is_encoder else 2))
        return found if self.stated is None else found * min(1.0, self.stated / (found + self._layers(self.experts)))

    @property
    def parameters(self) -> float:
        """All of them; as stated, where somebody states it."""
        return self.embedding + self._layers(self.experts) if self.stated is None else self.stated

    @property
    def active(self) -> float:
        """Those that work on each token."""
        blocks = self.parameters - self.embedding
        return self.embedding + blocks * self._layers(self.active_experts) / self._layers(self.experts)

    @property
    def active_mlp(self) -> int:
        """The width of the feed-forward layers that work on each token."""
        return self.mlp * self.active_experts + self.shared_mlp

    @property
    def kv_values_per_token(self) -> int:
        """Keys and values that are kept of each token, over all layers."""
        return 0 if self.is_encoder else 2 * self.layers * self.kv_heads * self.head_size

    @property
    def adapted_per_rank(self) -> int:
        """Parameters of a LoRA adapter of rank 1 on all linear layers: what goes in and out of each."""
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * (self.hidden + query) + 2 * (self.hidden + key)
        return self.layers * (attention + self.mlp_matrices * (self.hidden + self.active_mlp))

    def _layers(self, experts: int) -> float:
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = self.hidden * (2 * query + 2 * key)
        return float(
            self.layers * (attention + self.mlp_matrices * self.hidden * (self.mlp * experts + self.shared_mlp))
        )


TYPICAL = (
    ModelShape("GPT-2", 12, 768, 12, 12, 64, 3072, 50257, mlp_matrices=2, is_tied=True),
    ModelShape("Qwen2.5 0.5B", 24, 896, 14, 2, 64, 4864, 151936, is_tied=True),
    ModelShape("Llama 3.2 1B", 16, 2048, 32, 8, 64, 8192, 128256, is_tied=True),
    ModelShape("Llama 3.2 3B", 28, 3072, 24, 8, 128, 8192, 128256, is_tied=True),
    ModelShape("Llama 3.1 8B", 32, 4096, 32, 8, 128, 14336, 128256),
    ModelShape("Qwen2.5 14B", 48, 5120, 40, 8, 128, 13824, 152064),
    ModelShape("Qwen2.5 32B", 64, 5120, 40, 8, 128, 27648, 152064),
    ModelShape("Llama 3.1 70B", 80, 8192, 64, 8, 128, 28672, 128256),
    ModelShape("Llama 3.1 405B", 126, 16384, 128, 8, 128, 53248, 128256),
)
"""Layouts that stand for a number of parameters (`config.json` of these models on Hugging Face)."""


def typical_shape(parameters: str) -> ModelShape:
    """The layout for a number such as `8B` or `350M`: that of the model in TYPICAL that is nearest; raises UsageError."""
    found = _COUNT.fullmatch(parameters.strip())
    count = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if not 1e6 <= count <= 1e14:
        raise UsageError(
            f"--params {parameters} is no size of a model", "give a number of parameters such as 8B or 350M"
        )
    nearest = min(TYPICAL, key=lambda each: abs(math.log(each.parameters / count)))
    return replace(nearest, stated=count, is_typical=True)


def read_config(path: str) -> Mapping[str, Any]:
    """The content of a Hugging Face `config.json`, that of its language model where it has several; raises UsageError."""
    try:
        content = json.loads(given_bytes("the model's config.json", path, SETTINGS_BYTES, UsageError))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", "give a model's config.json, as Hugging Face has it") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no JSON object", "give a model's config.json, as Hugging Face has it")
    inner = content.get("text_config")
    return {**content, **inner} if isinstance(inner, dict) else content


def missing_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a config lacks that the memory cannot be told without, by the keys that are looked for first."""
    return tuple(names[0] for names in _NAMES.values() if _first(config, names) is None)


def is_compressed(config: Mapping[str, Any]) -> bool:
    """Whether keys and values are kept in another form (DeepSeek's latent attention), which the layout here does not have."""
    return config.get("kv_lora_rank") is not None


def shape_of(config: Mapping[str, Any], name: str) -> ModelShape:
    """The layout that a config without missing keys states."""
    layers, hidden, heads, vocabulary = (_first(config, names) or 0 for names in _NAMES.values())
    kind = str(config.get("model_type", ""))
    activation = str(config.get("hidden_act") or config.get("hidden_activation") or "").lower()
    gated = activation in _GATED or kind.startswith(_GATED_TYPES)
    experts = _first(config, _EXPERTS) or 1
    tied = config.get("tie_word_embeddings")
    # Falcon's larger models say `multi_query` although they have several, by a layout of their own
    has_one_kv_head = config.get("multi_query") and not config.get("new_decoder_architecture")
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if has_one_kv_head else _first(config, _KV_HEADS) or heads,
        head_size=_first(config, ("head_dim",)) or hidden // heads,
        mlp=(_first(config, _MLP) or 4 * hidden) // (2 if kind == "qwen" else 1),  # the first Qwen states both halves
        vocabulary=vocabulary,
        mlp_matrices=3 if gated else 2,
        is_tied=tied if isinstance(tied, bool) else not gated,
        experts=experts,
        active_experts=(_first(config, ("num_experts_per_tok",)) or 2) if experts > 1 else 1,
        shared_mlp=_first(config, ("shared_expert_intermediate_size",)) or 0,
        is_encoder=kind in ENCODERS,
    )


def _first(config: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """The first of some keys that holds a positive whole number (of any size that a model may have)."""
    values = (config.get(name) for name in names)
    return next(
        (each for each in values if isinstance(each, int) and not isinstance(each, bool) and 0 < each <= _MOST), None
    )
