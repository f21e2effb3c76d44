"""The memory that each card needs to serve or train a language model, and upper bounds of tokens per second.

docs/fit.md compares the estimates with published figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from analytics.cards import Card
from analytics.plan.model_shapes import STORED_BITS, ModelShape
from fallow.clock import HOUR_MS, SECOND_MS

ERROR = 0.15
"""Error margin of the estimate. docs/fit.md shows how often the error is larger, on published measurements."""

RUNTIME_BYTES = 2**30
"""CUDA context, kernels and communication of a process on each card (0.3 to 1.8 GiB in the figures of docs/fit.md)."""

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
"""Bytes per token and word: 16-bit scores and their gradient, and the loss's copies in 32 or 16 bits, or of a chunk."""
_FREE_SHARE = {True: 0.1, False: 0.7}
"""Free parts of the blocks that PyTorch's allocator holds, as a share of what comes and goes in a step: with sequences
of one length, and of many (in-sample, docs/fit.md)."""
_MOST_FREE = {True: 0.2, False: 1.1}
"""The same, at most: the largest of the figures that set it."""
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
    """A training step on `batch` sequences per card. The cards split weights, gradients and states (ZeRO-3, FSDP)."""

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
    """`fp32`: scores of words in 32 bits, as Transformers; what PEFT trains or does not quantise too. `bf16`: in 16
    bits. `chunked`: for a part of the tokens at a time (Liger, Unsloth, torchtune, LitGPT)."""
    is_packed: bool = False
    """True if all sequences have one length."""

    @property
    def residual_width(self) -> int:
        """Return 2 if values between layers have 32 bits, else 1: PEFT keeps a quantised model's embedding so."""
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
        return sum(size for _, size in self.parts)


def serving_need(shape: ModelShape, serving: Serving, cards: int = 1) -> MemoryNeed:
    """Return the share of each card with tensor parallelism; parts: weights, kv_cache, working, runtime.

    A card has at least one head of keys and values, so with more cards than heads the cache is not divided further.
    """
    kept = 2.0 * shape.kv_values(serving.context) * serving.requests
    return _need(
        ("weights", weight_bytes(shape, serving.bits) / cards),
        ("kv_cache", kept / min(cards, shape.kv_heads)),
        ("working", _working_bytes(shape, serving, cards)),
        ("runtime", RUNTIME_BYTES),
    )


def training_need(shape: ModelShape, training: Training, cards: int = 1) -> MemoryNeed:
    """Return the share of each card.

    Parts: weights, gathered, gradients, optimizer, adapters, activations, logits, free, updating, runtime. Bytes per
    parameter as in ZeRO (Rajbhandari et al. 2020, section 3.1), activations as in Korthikanti et al. 2022 (section 4),
    with the layout's own widths. An update comes after the backward pass, and the allocator reuses its blocks.
    """
    parameters = shape.parameters
    if training.method == "full":
        eight_bit = training.optimizer == "adamw8bit"
        states = _EIGHT_BIT_STATES if eight_bit else _STATES[training.precision]
        # PyTorch's AdamW updates all parameters at once (`foreach`), in copies of what it updates
        width = _MASTER[training.precision] or _WEIGHT[training.precision]
        updating = 0.0 if eight_bit else parameters * width / cards
        weights = parameters * _WEIGHT[training.precision]
        gradients = parameters * _GRADIENT[training.precision]
        optimizer, adapters = parameters * (_MASTER[training.precision] + states), 0.0
    else:
        weights = shape.blocks * (_QLORA_BITS / 8 if training.method == "qlora" else 2)
        weights += (shape.parameters - shape.blocks) * 2 * training.residual_width
        gradients = optimizer = updating = 0.0
        if training.residual_width == 2:  # autocast keeps a 16-bit copy of the 32-bit output for the backward pass
            weights += 2 * min(float(shape.vocabulary * shape.hidden), shape.embedding)
        adapters = float(shape.adapted_per_rank * training.rank * _ADAPTER_BYTES[training.optimizer])
    activations, logits = activation_bytes(shape, training), _logit_bytes(shape, training)
    passing = activations + logits
    free = _FREE_SHARE[training.is_packed] * passing
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
        ("free", free),
        ("updating", max(0.0, updating - passing - free)),
        ("runtime", RUNTIME_BYTES),
        perhaps=_MOST_FREE[training.is_packed] * passing - free,
    )


def weight_bytes(shape: ModelShape, bits: int) -> float:
    """Return the bytes of all weights at this number of bits; what is not in the layers stays in 16."""
    return shape.blocks * STORED_BITS[bits] / 8 + (shape.parameters - shape.blocks) * 2


def activation_bytes(shape: ModelShape, training: Training) -> float:
    """Return the bytes kept for the backward pass: of all layers, or of one and all inputs if layers are recomputed.

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


def _need(*parts: tuple[str, float], perhaps: float = 0.0) -> MemoryNeed:
    kept = tuple(part for part in parts if part[1])
    return MemoryNeed(kept, (sum(size for _, size in kept) + perhaps) * (1 + ERROR))


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
    """Return the roofline bounds (Williams et al. 2009) of cards, or of a part, without communication between them.

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
    read += 2 * shape.kv_values(serving.context) * serving.requests
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
    """Return the most tokens that cards, or a part of a card, can train on, by operations alone.

    Each card has its own sequences. Operations per parameter and token (Korthikanti et al. 2022, appendix A): 2
    forward, 2 backward to the inputs, 2 for the gradient of trained weights, and 2 more if the forward pass is
    repeated.
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
