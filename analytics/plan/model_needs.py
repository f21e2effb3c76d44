"""The layout of a language model, the memory that each card needs to serve or train it, and upper bounds of tokens per second.

The layout comes from a Hugging Face `config.json` or a number of parameters. docs/fit.md compares the estimates with
published figures.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from analytics.cards import Card
from fallow.clock import HOUR_MS, SECOND_MS
from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_bytes

ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2", "modernbert")
"""`model_type` of models that read a text at once: they keep no keys and values, and generate no next word."""

_GATED = ("silu", "swish", "swiglu", "geglu", "")
"""Activations of feed-forward layers with a third matrix, in types that are not in the table; without one, the larger layer."""

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
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
    """The layout of a transformer. All its layers are alike, but for the first ones of some models with experts."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    """Width of the feed-forward layer of an expert."""
    vocabulary: int
    mlp_matrices: int = 3
    """3 if the feed-forward layer is gated, else 2."""
    is_tied: bool = False
    experts: int = 1
    active_experts: int = 1
    """Experts that work on each token; 1 of 1 without experts."""
    shared_mlp: int = 0
    """Width of the feed-forward layer beside the experts."""
    dense_layers: int = 0
    """First layers without experts."""
    dense_mlp: int = 0
    """Width of their feed-forward layer."""
    kv_rank: int = 0
    """Width of compressed keys and values (multi-head latent attention); 0 if they are kept as they are."""
    query_rank: int = 0
    """Width of compressed queries; 0 without compression."""
    rope_size: int = 0
    """Part of a head that has the position. With compression, all heads share this part of the key."""
    value_size: int = 0
    """Width of a head's values with compression; else that of the head."""
    is_encoder: bool = False
    stated: float | None = None
    """Stated number of parameters; None if none is stated."""
    is_typical: bool = False
    """True if only the number of parameters is known. The layout is then that of `name`, a model of about that size."""

    @property
    def embedding(self) -> float:
        """Return the parameters of embedding and output, which quantisation leaves in 16 bits.

        For a smaller stated number of parameters, the result is scaled down.
        """
        found = float(self.vocabulary * self.hidden * (1 if self.is_tied or self.is_encoder else 2))
        return found if self.stated is None else found * min(1.0, self.stated / (found + self._layers(self.experts)))

    @property
    def parameters(self) -> float:
        """Return the number of parameters: the stated number, if there is one."""
        return self.embedding + self._layers(self.experts) if self.stated is None else self.stated

    @property
    def active(self) -> float:
        """Return the parameters that work on each token."""
        blocks = self.parameters - self.embedding
        return self.embedding + blocks * self._layers(self.active_experts) / self._layers(self.experts)

    @property
    def active_mlp(self) -> int:
        """Return the width of the feed-forward layers that work on each token."""
        return self.mlp * self.active_experts + self.shared_mlp

    @property
    def kv_values_per_token(self) -> int:
        """Return the keys and values kept per token, over all layers; compressed ones as DeepSeek-V2 keeps them (2.1.3)."""
        width = self.kv_rank + self.rope_size if self.kv_rank else 2 * self.kv_heads * self.head_size
        return 0 if self.is_encoder else self.layers * width

    @property
    def adapted_per_rank(self) -> int:
        """Return the parameters of a LoRA adapter of rank 1 on all linear layers: the inputs and outputs of each layer."""
        attention = sum(width + height for width, height in self._attention)
        return self.layers * (attention + self.mlp_matrices * (self.hidden + self.active_mlp))

    @property
    def _attention(self) -> tuple[tuple[int, int], ...]:
        """Return inputs and outputs of each matrix of an attention layer."""
        hidden, query = self.hidden, self.heads * self.head_size
        if not self.kv_rank:
            key = self.kv_heads * self.head_size
            return (hidden, query), (hidden, key), (hidden, key), (query, hidden)
        value = self.heads * self.value_size
        expanded = self.heads * (self.head_size - self.rope_size) + value
        rank = self.query_rank
        queries = ((hidden, rank), (rank, query)) if rank else ((hidden, query),)
        return *queries, (hidden, self.kv_rank + self.rope_size), (self.kv_rank, expanded), (value, hidden)

    def _layers(self, experts: int) -> float:
        attention = sum(width * height for width, height in self._attention)
        mixed = (self.layers - self.dense_layers) * (self.mlp * experts + self.shared_mlp)
        mlp = self.mlp_matrices * self.hidden * (mixed + self.dense_layers * self.dense_mlp)
        return float(self.layers * attention + mlp)


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
    """Return the layout for a number such as `8B` or `350M`: the nearest model in TYPICAL. Raises UsageError."""
    found = _COUNT.fullmatch(parameters.strip())
    count = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if not 1e6 <= count <= 1e14:
        raise UsageError(
            f"--params {parameters} is no size of a model", "give a number of parameters such as 8B or 350M"
        )
    nearest = min(TYPICAL, key=lambda each: abs(math.log(each.parameters / count)))
    return replace(nearest, stated=count, is_typical=True)


def read_config(path: str) -> Mapping[str, Any]:
    """Return the content of a Hugging Face `config.json`, of its language model if it has several models. Raises UsageError."""
    try:
        content = json.loads(given_bytes("the model's config.json", path, SETTINGS_BYTES, UsageError))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", "give a model's config.json, as Hugging Face has it") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no JSON object", "give a model's config.json, as Hugging Face has it")
    inner = content.get("text_config")
    return {**content, **inner} if isinstance(inner, dict) else content


def missing_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that the memory estimate needs and that a config lacks; of alternative keys, the first."""
    return tuple(names[0] for names in _NAMES.values() if _first(config, names) is None)


@cache
def _architectures() -> Mapping[str, Mapping[str, Any]]:
    """Return what Transformers takes where a config has no such key, by the beginning of `model_type`."""
    return tomllib.loads(resources.files(__package__).joinpath("architectures.toml").read_text(encoding="utf-8"))


def shape_of(config: Mapping[str, Any], name: str) -> ModelShape:
    """Return the layout in a config without missing keys. Other keys have the values of the architecture."""
    kind = str(config.get("model_type", ""))
    known = max((each for each in _architectures() if kind.startswith(each)), key=len, default="")
    config = {**_architectures().get(known, {}), **config}
    layers, hidden, heads, vocabulary = (_first(config, names) or 0 for names in _NAMES.values())
    activation = str(config.get("hidden_act") or config.get("hidden_activation") or "").lower()
    gated = config.get("gated", activation in _GATED)
    experts = _first(config, _EXPERTS) or 1
    tied = config.get("tie_word_embeddings")
    # Falcon's larger models say `multi_query` although they have several, by a layout of their own
    has_one_kv_head = config.get("multi_query") and not config.get("new_decoder_architecture")
    # the first Qwen states both halves of its feed-forward layer
    mlp = (_first(config, _MLP if experts > 1 else _MLP[1:]) or 4 * hidden) // (2 if kind == "qwen" else 1)
    rank, rope = (_first(config, (key,)) or 0 for key in ("kv_lora_rank", "qk_rope_head_dim"))
    head = (_first(config, ("qk_nope_head_dim",)) or 0) + rope if rank else _first(config, ("head_dim",))
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if has_one_kv_head or rank else _first(config, _KV_HEADS) or heads,
        head_size=head or hidden // heads,
        mlp=mlp,
        vocabulary=vocabulary,
        mlp_matrices=3 if gated else 2,
        is_tied=tied if isinstance(tied, bool) else not gated,
        experts=experts,
        active_experts=(_first(config, ("num_experts_per_tok",)) or 2) if experts > 1 else 1,
        shared_mlp=_first(config, ("shared_expert_intermediate_size",))
        or (_first(config, ("n_shared_experts",)) or 0) * mlp,
        dense_layers=(_first(config, ("first_k_dense_replace",)) or 0) if experts > 1 else 0,
        dense_mlp=_first(config, ("intermediate_size",)) or 0,
        kv_rank=rank,
        query_rank=(_first(config, ("q_lora_rank",)) or 0) if rank else 0,
        rope_size=rope if rank else 0,
        value_size=(_first(config, ("v_head_dim",)) or 0) if rank else 0,
        is_encoder=kind in ENCODERS,
    )


def _first(config: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return the first of some keys with a positive whole number, of any size that a model may have."""
    values = (config.get(name) for name in names)
    return next(
        (each for each in values if isinstance(each, int) and not isinstance(each, bool) and 0 < each <= _MOST), None
    )


ERROR = 0.15
"""Error margin of the estimate. docs/fit.md shows how often the error is larger, on published measurements."""

RUNTIME_BYTES = 2**30
"""CUDA context, kernels and communication of a process on each card (0.3 to 1.8 GiB in the figures of docs/fit.md)."""

STORED_BITS = {16: 16.0, 8: 8.0, 4: 4.25}
"""Stored bits of a weight. 4-bit weights include a scale and a zero point per group of 64 to 128 (GPTQ, AWQ, NF4)."""

PREFILL_TOKENS = 8192
"""Most prompt tokens that servers process at once (vLLM's max_num_batched_tokens)."""

METHODS = ("full", "lora", "qlora")
OPTIMIZERS = ("adamw", "adamw8bit")
PRECISIONS = ("mixed", "bf16", "fp32")
LOSSES = ("fp32", "bf16", "chunked")

_WEIGHT = {"mixed": 2, "bf16": 2, "fp32": 4}
_MASTER = {"mixed": 4, "bf16": 0, "fp32": 0}
_GRADIENT = {"mixed": 2, "bf16": 2, "fp32": 4}
_STATES = {"mixed": 8, "bf16": 4, "fp32": 8}
_EIGHT_BIT_STATES = 2
_ADAPTER_BYTES = {"adamw": 16, "adamw8bit": 10}
"""Weight, gradient and optimizer states of an adapter's parameter, which is trained in 32 bits."""
_LOGIT_BYTES = {"fp32": 16, "bf16": 10, "chunked": 4}
"""For each token and word: 16-bit scores and their gradient; with them the loss's copies in 32 or 16 bits, or of a chunk only."""
_FREE_SHARE = {True: 0.1, False: 0.7}
"""Free parts of the blocks that PyTorch's allocator holds, as a share of what comes and goes in a step: with sequences of one
length, and of many (in-sample, docs/fit.md)."""
_QLORA_BITS = 4.5
"""Bits of a weight in NF4 with a 32-bit scale for 64 of them, as bitsandbytes stores them by default."""


@dataclass(frozen=True)
class Serving:
    """How a model is served."""

    bits: int = 16
    """Bits of a weight; the cache has 16."""
    context: int = 4096
    """Tokens of a request, prompt and answer together."""
    requests: int = 8
    """Requests that are served at once."""


@dataclass(frozen=True)
class Training:
    """A training step on `batch` sequences per card. Weights, gradients and states are split over the cards (ZeRO-3, FSDP)."""

    method: str = "lora"
    sequence: int = 2048
    batch: int = 1
    optimizer: str = "adamw"
    precision: str = "mixed"
    """`mixed` (16-bit weights and gradients beside 32-bit ones and states), or `bf16` or `fp32` throughout."""
    rank: int = 16
    """Rank of adapters on all linear layers."""
    is_checkpointed: bool = True
    """True if only the inputs of layers are kept and the rest is recomputed."""
    has_flash: bool = True
    """True if attention keeps no matrix of scores."""
    loss: str = "fp32"
    """`fp32`: scores of words in 32 bits, as Transformers; what PEFT trains or does not quantise too. `bf16`: in 16 bits.
    `chunked`: for a part of the tokens at a time (Liger, Unsloth, torchtune, LitGPT)."""
    is_packed: bool = False
    """True if all sequences have one length."""

    @property
    def residual_width(self) -> int:
        """Return 2 if the values between layers have 32 bits, else 1: PEFT keeps the embedding of a quantised model so."""
        by_peft = self.method == "qlora" and self.loss == "fp32" and self.precision == "mixed"
        return 2 if self.precision == "fp32" or by_peft else 1


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that each of some cards needs, by part."""

    parts: tuple[tuple[str, float], ...]
    high: float
    """Memory of a card that fits with certainty."""

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return sum(size for _, size in self.parts)


def serving_need(shape: ModelShape, serving: Serving, cards: int = 1) -> MemoryNeed:
    """Return the share of each card with tensor parallelism; parts: weights, kv_cache, working, runtime.

    A card has at least one head of keys and values, so with more cards than heads the cache is not divided further.
    """
    tokens = serving.context * serving.requests
    kept = 2.0 * shape.kv_values_per_token * tokens
    return _need(
        ("weights", weight_bytes(shape, serving.bits) / cards),
        ("kv_cache", kept / min(cards, shape.kv_heads)),
        ("working", _working_bytes(shape, serving, cards)),
        ("runtime", RUNTIME_BYTES),
    )


def training_need(shape: ModelShape, training: Training, cards: int = 1) -> MemoryNeed:
    """Return the share of each card; parts: weights, gradients, optimizer, adapters, activations, logits, free, runtime.

    Bytes per parameter as in ZeRO (Rajbhandari et al. 2020, section 3.1), activations as in Korthikanti et al. 2022
    (section 4), with the layout's own widths.
    """
    parameters = shape.parameters
    if training.method == "full":
        eight_bit = training.optimizer == "adamw8bit"
        states = _EIGHT_BIT_STATES if eight_bit else _STATES[training.precision]
        weights = parameters * _WEIGHT[training.precision]
        gradients = parameters * _GRADIENT[training.precision]
        optimizer, adapters = parameters * (_MASTER[training.precision] + states), 0.0
    else:
        blocks = shape.parameters - shape.embedding
        weights = blocks * (_QLORA_BITS / 8 if training.method == "qlora" else 2)
        weights += shape.embedding * 2 * training.residual_width
        gradients = optimizer = 0.0
        adapters = float(shape.adapted_per_rank * training.rank * _ADAPTER_BYTES[training.optimizer])
    activations, logits = activation_bytes(shape, training), _logit_bytes(shape, training)
    # of split weights, a card holds two whole layers and the embedding while it works on them
    gathered = (2 * (weights - 2 * shape.embedding) / shape.layers + 2 * shape.embedding) * (1 - 1 / cards)
    return _need(
        ("weights", weights / cards),
        ("gathered", gathered),
        ("gradients", gradients / cards),
        ("optimizer", optimizer / cards),
        ("adapters", adapters / cards),
        ("activations", activations),
        ("logits", logits),
        ("free", _FREE_SHARE[training.is_packed] * (activations + logits)),
        ("runtime", RUNTIME_BYTES),
    )


def weight_bytes(shape: ModelShape, bits: int) -> float:
    """Return the bytes of all weights at this number of bits; embedding and output stay in 16."""
    return (shape.parameters - shape.embedding) * STORED_BITS[bits] / 8 + shape.embedding * 2


def activation_bytes(shape: ModelShape, training: Training) -> float:
    """Return the bytes kept for the backward pass: over all layers, or over one layer and all inputs if layers are recomputed.

    Per token in 16 bits: the inputs of attention and feed-forward layer, queries, keys, values and their result, 4
    (gated) or 2 values per unit of the feed-forward layer's width, and the norms, which keep their input and their
    result in 32 bits. In 32 bits everything is twice as large, but the norms keep only one of the two. Adapters in 32
    bits keep a copy of their input.
    """
    wide = 2 if training.precision == "fp32" else 1
    query = shape.heads * shape.head_size
    key = query if shape.kv_rank else shape.kv_heads * shape.head_size
    linear = 2 * (2 * shape.hidden + 2 * query + 2 * key)
    if training.method != "full" and training.loss == "fp32" and training.precision != "bf16":
        linear += 4 * ((2 + shape.mlp_matrices) * shape.hidden + query + shape.active_mlp)
    norms = (16 if wide == 1 else 8) * shape.hidden
    mlp = 2 * (4 if shape.mlp_matrices == 3 else 2) * shape.active_mlp
    scores = 0 if training.has_flash else shape.heads * training.sequence * (4 * wide + 1)
    tokens = training.sequence * training.batch
    layer = tokens * ((linear + mlp) * wide + norms + scores)
    inputs = tokens * 2 * training.residual_width * shape.hidden
    return float(layer + inputs * shape.layers if training.is_checkpointed else layer * shape.layers)


def _logit_bytes(shape: ModelShape, training: Training) -> float:
    """Return the bytes of the scores of every word for every token, and of what the loss makes of them."""
    if shape.is_encoder:
        return 0.0
    return float(training.sequence * training.batch * shape.vocabulary * _LOGIT_BYTES[training.loss])


def _working_bytes(shape: ModelShape, serving: Serving, cards: int) -> float:
    """Return the bytes that a pass over prompts needs beside weights and cache, with the scores of the next words."""
    tokens = min(serving.context * serving.requests, PREFILL_TOKENS)
    passing = 2 * tokens * (4 * shape.hidden + shape.mlp_matrices * shape.active_mlp / cards)
    words = 0 if shape.is_encoder else 4 * serving.requests * shape.vocabulary
    return float(passing + words)


def _need(*parts: tuple[str, float]) -> MemoryNeed:
    kept = tuple(part for part in parts if part[1])
    return MemoryNeed(kept, sum(size for _, size in kept) * (1 + ERROR))


MILLION = 1e6
_KILOWATT_HOUR_J = 3.6e6


@dataclass(frozen=True)
class TokenBounds:
    """Upper bounds for a card or several cards together; None if a rate of the card is unknown."""

    per_s: float | None
    """Tokens per second, generated or trained on."""
    prompt_per_s: float | None
    """Prompt tokens per second; None for training."""
    number_format: str | None
    """Number format whose peak rate counts."""
    watts: float | None
    """Power limit of all cards."""

    @property
    def kwh_per_million(self) -> float | None:
        """Return the energy of a million tokens at the power limit and the highest rate.

        Not a lower bound: cards may draw less.
        """
        if self.watts is None or self.per_s is None:
            return None
        return self.watts / self.per_s * MILLION / _KILOWATT_HOUR_J

    def cost_per_million(self, hourly: float | None) -> float | None:
        """Return the least cost of a million tokens, at an hourly price of all cards."""
        if hourly is None or self.per_s is None:
            return None
        return hourly * SECOND_MS / HOUR_MS / self.per_s * MILLION


def serving_bounds(
    shape: ModelShape, serving: Serving, card: Card, cards: int = 1, *, sm_share: float = 1.0, memory_share: float = 1.0
) -> TokenBounds:
    """Return the roofline bounds (Williams et al. 2009) of some cards, or of a part of a card, without communication between them.

    A step reads once the weights that work on a token (with experts, as if all requests used the same ones), and the
    whole cache of each request. Each request gets one token, at 2 operations per parameter. Of the embedding, a step
    reads and computes only the output. The operations limit prompt tokens.
    """
    rate, number_format = peak_rate(card, serving.bits)
    flow = None if card.bandwidth_gb_per_s is None else card.bandwidth_gb_per_s * 1e9 * memory_share * cards
    peak = None if rate is None else rate * 1e12 * sm_share * cards
    output = min(float(shape.vocabulary * shape.hidden), shape.embedding)
    layers = shape.active - shape.embedding
    read = layers * STORED_BITS[serving.bits] / 8 + 2 * output
    read += 2 * shape.kv_values_per_token * serving.context * serving.requests
    operations = 2 * (layers + output)
    decode = None
    if flow is not None and not shape.is_encoder:
        computed = 0.0 if peak is None else operations * serving.requests / peak
        decode = serving.requests / max(read / flow, computed)
    watts = None if card.tdp_w is None else card.tdp_w * sm_share * cards
    return TokenBounds(decode, None if peak is None else peak / (2 * layers), number_format, watts)


def training_bounds(
    shape: ModelShape, training: Training, card: Card, cards: int = 1, *, sm_share: float = 1.0
) -> TokenBounds:
    """Return the most tokens that some cards, or a part of a card, can train on, by operations alone. Each card has its own sequences.

    Operations per parameter and token (Korthikanti et al. 2022, appendix A): 2 forward, 2 backward to the inputs, 2 for
    the gradient of trained weights, and 2 more if the forward pass is repeated.
    """
    rate, number_format = peak_rate(card, 16)
    if training.precision == "fp32":  # the table of cards has no 32-bit rates
        rate = number_format = None
    operations = 4 + 2 * (training.method == "full") + 2 * training.is_checkpointed
    per_s = None if rate is None else rate * 1e12 * sm_share * cards / (operations * shape.active)
    return TokenBounds(per_s, None, number_format, None if card.tdp_w is None else card.tdp_w * sm_share * cards)


def peak_rate(card: Card, bits: int) -> tuple[float | None, str | None]:
    """Return the dense rate in TFLOP/s of the number format for weights of these bits, and the format's name.

    4-bit and 8-bit weights are unpacked to 16 bits if the card has no FP4 or FP8, or if its rate is unknown.
    """
    if bits == 4 and card.fp4_tflops is not None:
        return card.fp4_tflops, "FP4"
    if bits == 8 and card.fp8_tflops is not None:
        return card.fp8_tflops, "FP8"
    wide = next((name for name in ("BF16", "FP16") if name in card.formats), None)
    return card.fp16_tflops, wide if card.fp16_tflops is not None else None
