"""The layout of a language model, from a Hugging Face `config.json` or from a number of parameters."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_bytes

_NEEDED = ("layers", "hidden", "heads", "vocabulary")
_MOST = 10**9
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmbt]?)", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_BITS = re.compile(
    r'"n?bits": (\d+)|"weights?": (?:\[?\{[^{}]*"(?:num_bits|dtype)": )?"?(?:fp|int)?(\d+)'
    r'|load_in_(\d+)bit": true|"quant_\w+": "[^"]*?(?:fp|int|nf|w)(\d+)'
)

STORED_BITS = {16: 16.0, 8: 8.0, 4: 4.25}
"""Stored bits of a weight. 4-bit weights include a scale and a zero point per group of 64 to 128 (GPTQ, AWQ, NF4)."""


@dataclass(frozen=True)
class ModelShape:
    """The layout of a transformer. Its layers are alike, but for those that are counted apart."""

    name: str
    layers: int
    """All layers: of an encoder and its decoder together."""
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
    """Layers without experts in a model with experts."""
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
    """True if it reads a text or picture at once, keeps no keys and values, and generates no next word."""
    encoder_layers: int = 0
    """Layers of an encoder before a decoder, whose layers have a second attention to its result."""
    state_layers: int = 0
    """Layers with a state of one size for any number of tokens instead of attention (Mamba, linear attention)."""
    state_width: int = 0
    """Width of the values within such a layer."""
    window_layers: int = 0
    """Layers whose attention reaches back `window` tokens only."""
    window: int = 0
    beside: float | None = 0.0
    """Parameters of parts for pictures and sound, and of each layer's embeddings; None if a part is not described."""
    most_tokens: int | None = None
    """Most tokens that the model takes at once; None if a config does not say it."""
    file_bits: int | None = None
    """Bits of a weight in the model's own files: 16, 8 or 4; None if a config does not say it."""
    is_file_quantized: bool = False
    """Whether the model's own files hold quantized weights, of whatever bits."""
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
    def blocks(self) -> float:
        """Return the parameters of all layers, which quantisation packs."""
        return self._layers(self.experts) if self.stated is None else self.stated - self.embedding

    @property
    def parameters(self) -> float:
        """Return the number of parameters: the stated number, if there is one."""
        return self.embedding + self.blocks + (self.beside or 0.0)

    @property
    def active(self) -> float:
        """Return the parameters that work on each token."""
        return self.embedding + self.blocks * self._layers(self.active_experts) / self._layers(self.experts)

    @property
    def active_mlp(self) -> int:
        """Return the width of the feed-forward layers that work on each token."""
        return self.mlp * self.active_experts + self.shared_mlp

    def kv_values(self, tokens: int) -> int:
        """Return the keys and values kept for a request in all layers; compressed ones as in DeepSeek-V2 (2.1.3)."""
        width = self.kv_rank + self.rope_size if self.kv_rank else 2 * self.kv_heads * self.head_size
        keeping = 0 if self.is_encoder else self.layers - self.encoder_layers - self.state_layers
        within = min(self.window_layers, keeping)
        return width * ((keeping - within) * tokens + within * min(tokens, self.window))

    @property
    def adapted_per_rank(self) -> int:
        """Return the parameters of a LoRA adapter of rank 1 on all linear layers: each layer's inputs and outputs."""
        attention = sum(width + height for width, height in self._attention)
        state = self.state_layers * (2 * self.hidden + 3 * self.state_width)
        return self._attentions * attention + state + self.layers * self.mlp_matrices * (self.hidden + self.active_mlp)

    @property
    def _attentions(self) -> int:
        crossing = self.layers - self.encoder_layers if self.encoder_layers else 0
        return self.layers - self.state_layers + crossing

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
        attention = self._attentions * sum(width * height for width, height in self._attention)
        state = self.state_layers * 3 * self.hidden * self.state_width
        mixed = (self.layers - self.dense_layers) * (self.mlp * experts + self.shared_mlp)
        mlp = self.mlp_matrices * self.hidden * (mixed + self.dense_layers * self.dense_mlp)
        return float(attention + state + mlp)


@cache
def _data() -> Mapping[str, Mapping[str, Any]]:
    """Return the names of keys, what Transformers takes where a config has none, and common layouts."""
    return tomllib.loads(resources.files(__package__).joinpath("architectures.toml").read_text(encoding="utf-8"))


def has_experts(served: str) -> bool:
    """Return whether a model's name is one with experts: `8x7B`, `MoE`, or an architecture that always has them."""
    name = served.rpartition("/")[2].lower().replace("-", "_")
    kinds = tuple(
        kind for kind, keys in _data()["all"].items() if any(key in keys for key in _data()["keys"]["experts"])
    )
    return name.startswith(kinds) or "moe" in name or re.search(r"\dx\d", name) is not None


@cache
def typical_shapes() -> tuple[ModelShape, ...]:
    """Return the layouts that stand for a number of parameters (`config.json` of these models on Hugging Face)."""
    names = ("layers", "hidden", "heads", "kv_heads", "head_size", "mlp", "vocabulary", "mlp_matrices", "is_tied")
    return tuple(ModelShape(name, **dict(zip(names, row, strict=True))) for name, row in _data()["typical"].items())


def typical_shape(parameters: str) -> ModelShape:
    """Return the layout for a number such as `8B` or `350M`: the nearest common model. Raises UsageError."""
    found = _COUNT.fullmatch(parameters.strip())
    count = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if not 1e6 <= count <= 1e14:
        raise UsageError(
            f"--params {parameters} is no size of a model", "give a number of parameters such as 8B or 350M"
        )
    nearest = min(typical_shapes(), key=lambda each: abs(math.log(each.parameters / count)))
    return replace(nearest, stated=count, is_typical=True)


def read_config(path: str) -> Mapping[str, Any]:
    """Return the content of a Hugging Face `config.json`: of its language model, among several. Raises UsageError."""
    try:
        content = json.loads(given_bytes("the model's config.json", path, SETTINGS_BYTES, UsageError))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", "give a model's config.json, as Hugging Face has it") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no JSON object", "give a model's config.json, as Hugging Face has it")
    return _language_model(content)


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config with the keys of the parts that describe its language model.

    Files leave out what Transformers takes anyway, but only within such parts.
    """
    for name in _data()["parts"]["language"]:
        inner = config.get(name)
        if isinstance(inner, dict):
            outer = {key: value for key, value in config.items() if key != name}
            return _language_model({**_defaults(inner, "nested"), **outer, **inner})
    parts = [part for name in _data()["parts"]["inner"] if isinstance(part := config.get(name), dict)]
    return {key: value for part in (*parts, config) for key, value in part.items()}


def missing_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that the memory estimate needs and that a config lacks; of alternative keys, the first."""
    layout = _Layout(config)
    return tuple(_data()["keys"][each][0] for each in _NEEDED if layout.number(each) is None)


def uneven_key(config: Mapping[str, Any]) -> str | None:
    """Return what says that a model's layers differ in ways that the estimate does not know; None without."""
    kind, parts = str(config.get("model_type", "")), _data()["parts"]
    keys = [key for key in parts["uneven"] if config.get(key)]
    return next(iter(keys), f"model_type {kind}" if kind.startswith(tuple(parts["uneven_types"])) else None)


def _defaults(config: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    kind, known = str(config.get("model_type", "")), _data()[table]
    found: Mapping[str, Any] = known.get(max(filter(kind.startswith, known), key=len, default=""), {})
    return found


class _Layout:
    """The keys of a config, with the architecture's values for those that it has under none of their names."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.defaults = _defaults(config, "all")

    def value(self, thing: str) -> Any:
        """Return the value of a key, by any of the names in the data; None without any."""
        names = _data()["keys"].get(thing, (thing,))
        for given in (self.config, self.defaults):
            if found := [given[name] for name in names if name in given]:
                return next((each for each in found if each is not None), None)
        return None

    def number(self, thing: str) -> int | None:
        """Return a positive whole number that a model may have; of a list for each layer, its mean rounded up."""
        found = self.value(thing)
        if isinstance(found, list) and found and all(type(each) is int and 0 <= each <= _MOST for each in found):
            found = math.ceil(sum(found) / len(found))
        return found if type(found) is int and 0 < found <= _MOST else None

    def is_gated(self) -> bool:
        """Return whether the feed-forward layers have a third matrix."""
        known, activation = self.value("gated"), str(self.value("activation") or "").lower()
        if known is None or activation.startswith("gated-"):
            return activation in _data()["parts"]["gated"]
        return bool(known)

    def kinds(self, layers: int) -> tuple[int, int]:
        """Return how many layers have a state instead of attention, and how many a window."""
        listed = self.value("layer_kinds")
        if isinstance(listed, list) and listed:
            words = [("full" if each == 1 else "state") if isinstance(each, int) else str(each) for each in listed]
            # a kind of layer that is not known keeps all keys and values, and so does a window of no known length
            windowed = sum("sliding" in word or "chunked" in word for word in words) if self.window() else 0
            stateful = sum(any(kind in word for kind in _data()["parts"]["stateful"]) for word in words)
            return stateful * layers // len(words), windowed * layers // len(words)
        every = self.number("attention_interval")
        attention = self.value("attention_layers")
        if self.value("stateful"):
            return layers, 0
        if every or isinstance(attention, list):
            return layers - (layers // every if every else len(attention)), 0
        return 0, self._windowed(layers) if self.window() and not self.value("encoder_only") else 0

    def _windowed(self, layers: int) -> int:
        pattern = self.value("window_pattern")
        if isinstance(pattern, str) and pattern:
            return layers * pattern.count("L") // len(pattern)
        if isinstance(pattern, int) and pattern > 1:
            return layers - layers // pattern
        return max(0, layers - (self.number("max_window_layers") or 0))

    def window(self) -> int:
        """Return the tokens that an attention with a window reaches back; 0 without one."""
        return 0 if self.value("use_sliding_window") is False else self.number("window") or 0

    def dense(self, layers: int) -> int:
        """Return how many layers of a model with experts have none."""
        if isinstance(listed := self.value("expert_layers"), list):
            return listed.count(0) + listed.count("dense")
        every = self.number("experts_interval") or 1
        first = self.number("dense_layers") or 0
        listed = self.value("mlp_only_layers")
        return min(layers, max(first, layers - layers // every, len(listed) if isinstance(listed, list) else 0))


def shape_of(config: Mapping[str, Any], name: str) -> ModelShape:
    """Return the layout in a config without missing keys. Other keys have the values of the architecture."""
    layout, number = _Layout(config), _Layout(config).number
    layers, hidden, heads, vocabulary = (number(each) or 0 for each in _NEEDED)
    encoder_layers = 0
    if layout.value("is_encoder_decoder"):
        encoder_layers = number("encoder_layers") or layers
        layers = encoder_layers + (number("decoder_layers") or layers)
    gated, experts = layout.is_gated(), number("experts") or 1
    tied = layout.value("tie_word_embeddings")
    # the first Qwen and Molmo state both halves of their feed-forward layer
    halves = 2 if config.get("model_type") in ("qwen", "molmo") else 1
    width = number("mlp") or _multiplied(layout, hidden) or 4 * hidden
    mlp = (number("expert_mlp") if experts > 1 else None) or width // halves
    rank, rope = (number(key) or 0 for key in ("kv_lora_rank", "qk_rope_head_dim"))
    head = (number("qk_nope_head_dim") or 0) + rope if rank else number("head_size")
    # Falcon's larger models say `multi_query` although they have several, by a layout of their own
    has_one_kv_head = layout.value("multi_query") and not layout.value("new_decoder_architecture")
    state_layers, window_layers = layout.kinds(layers)
    state = (number("linear_num_value_heads") or 0) * (number("linear_value_head_dim") or 0)
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if has_one_kv_head or rank else number("kv_heads") or heads,
        head_size=head or hidden // heads,
        mlp=0 if layout.value("stateful") else mlp,
        vocabulary=vocabulary,
        mlp_matrices=3 if gated else 2,
        is_tied=tied if isinstance(tied, bool) else not gated,
        experts=experts,
        active_experts=(number("active_experts") or 2) if experts > 1 else 1,
        shared_mlp=(number("shared_mlp") or (number("shared_experts") or 0) * mlp) if experts > 1 else 0,
        dense_layers=layout.dense(layers) if experts > 1 else 0,
        dense_mlp=number("dense_mlp") or 0,
        kv_rank=rank,
        query_rank=(number("q_lora_rank") or 0) if rank else 0,
        rope_size=rope if rank else 0,
        value_size=(number("value_size") or 0) if rank else 0,
        is_encoder=bool(layout.value("encoder_only")),
        encoder_layers=encoder_layers,
        state_layers=state_layers,
        state_width=state or hidden * (number("expand") or 2) if state_layers else 0,
        window_layers=window_layers,
        window=layout.window(),
        beside=_beside(config),
        most_tokens=number("most_tokens"),
        file_bits=_file_bits(config),
        is_file_quantized=bool(_quantization(config)),
    )


def _multiplied(layout: _Layout, hidden: int) -> int | None:
    """Return the mean width of feed-forward layers that a config states as multiples of the model's width."""
    factors = layout.value("multiples")
    listed = factors if isinstance(factors, list) else [factors]
    if listed and all(map(_is_factor, listed)):
        return math.ceil(sum(listed) / len(listed) * hidden)
    if (step := layout.number("multiple_of")) is None:
        return None
    factor = layout.value("ffn_dim_multiplier")  # Meta's own params.json
    return step * math.ceil(int(8 * hidden / 3) * (factor if _is_factor(factor) else 1) / step)


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value <= _MOST


def _beside(config: Mapping[str, Any]) -> float | None:
    """Return the parameters beside embedding, layers and output, or None if a part is not described.

    They are the layers of parts for pictures and sound, and embeddings that each layer has of its own (Gemma 3n).
    """
    own = [_Layout(config).number(f"{each}_per_layer_input") for each in ("vocab_size", "hidden_size")]
    layers = _Layout(config).number("num_hidden_layers") or 0
    found = 0.0 if None in own else float(math.prod(filter(None, own)) * layers)
    for tower in (tower for name in _data()["parts"]["towers"] if isinstance(tower := config.get(name), dict)):
        layout = _Layout({key: value for key, value in tower.items() if key != "model_type"})
        layers = layout.number("tower_layers") or 0
        hidden = layout.number("tower_hidden") or 0
        if not layers or not hidden:
            return None
        ratio = layout.value("mlp_ratio")
        mlp = layout.number("mlp") or (ratio if _is_factor(ratio) else 4) * hidden
        matrices = 3 if str(layout.value("activation")).lower() in _data()["parts"]["gated"] else 2
        found += layers * hidden * (4 * hidden + matrices * mlp)
    return found


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a config says of quantized weights in the model's files; nothing if it says nothing."""
    stored = config.get("quantization_config") or config.get("compression_config")
    return stored if isinstance(stored, dict) else {}


def _file_bits(config: Mapping[str, Any]) -> int | None:
    """Return the bits of a weight in the model's files, rounded up to STORED_BITS; None if a config omits them."""
    found = _BITS.findall(json.dumps(_quantization(config)).lower())
    bits = [int(each) for groups in found for each in groups if each]
    return min((width for width in STORED_BITS if bits and width >= bits[0] > 0), default=None)
