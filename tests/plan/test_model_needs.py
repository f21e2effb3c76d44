"""A model's config.json, the memory it needs, and its most tokens per second: by hand and as published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analytics.cards import Card, card
from analytics.plan.model_needs import (
    RUNTIME_BYTES,
    MemoryNeed,
    Serving,
    TokenBounds,
    Training,
    activation_bytes,
    peak_rate,
    serving_bounds,
    serving_need,
    training_bounds,
    training_need,
    weight_bytes,
)
from analytics.plan.model_shapes import (
    ModelShape,
    missing_keys,
    read_config,
    shape_of,
    typical_shape,
    typical_shapes,
    uneven_key,
)
from fallow.errors import UsageError
from tests.plan.published_memory import MEASUREMENTS, PAGE, SHAPES, with_table

CONFIGS = json.loads(Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8"))
"""Layouts as their files on Hugging Face state them, with the sizes on the models' own pages. `active` counts embedding
and output, which some makers leave out; `kv` was computed by hand from the layout."""
LLAMA2_7B, LLAMA3_8B = SHAPES["Llama 2 7B"], SHAPES["Llama 3 8B"]


def config(kind: str, layers: int, hidden: int, heads: int, **more: object) -> dict[str, Any]:
    names = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    return {"model_type": kind, **names, "vocab_size": 32000} | more


UNTIED, GELU = {"tie_word_embeddings": False}, {"hidden_act": "gelu"}
LLAMA_LAYOUT = {"num_key_value_heads": 8, "intermediate_size": 14336, "hidden_act": "silu", **UNTIED}
LLAMA = config("llama", 32, 4096, 32, vocab_size=128256, **LLAMA_LAYOUT)
MIXTRAL = config("mixtral", 32, 4096, 32, num_local_experts=8, num_experts_per_tok=2, **LLAMA_LAYOUT)
GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
GPT2 |= {"activation_function": "gelu_new"}
FALCON = config("falcon", 32, 4544, 71, vocab_size=65024, multi_query=True, num_kv_heads=71)
GEMMA_HEADS = {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384, "tie_word_embeddings": True}
GEMMA = config("gemma", 18, 2048, 8, vocab_size=256000, **GEMMA_HEADS, **GELU)
QWEN = config("qwen", 32, 4096, 32, vocab_size=151936, intermediate_size=22016, **UNTIED)
BLOOM = {"model_type": "bloom", "n_layer": 70, "n_embed": 14336, "num_attention_heads": 112, "vocab_size": 250880}
MISTRAL = config("mistral", 32, 4096, 32)
DEEPSEEK = config("deepseek_v3", 61, 7168, 128, vocab_size=129280)
KIMI = config("kimi_k2", 61, 7168, 64, vocab_size=163840)
LITE = {
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
}
LITE |= {"intermediate_size": 10944, "moe_intermediate_size": 1408, "first_k_dense_replace": 1}
DEEPSEEK_LITE = config("deepseek_v2", 27, 2048, 16, vocab_size=102400, **LITE)
BERT = config("bert", 24, 1024, 16, vocab_size=30522, intermediate_size=4096, **GELU)


@pytest.mark.parametrize(
    ("layout", "billions", "active", "kv_per_token"),
    [
        (LLAMA, 8.03, 8.03, 2 * 32 * 8 * 128),
        (MIXTRAL, 46.7, 12.9, 2 * 32 * 8 * 128),
        (GPT2, 0.124, 0.124, 2 * 12 * 768),
        (FALCON, 6.92, 6.92, 2 * 32 * 64),  # one head of keys and values
        (GEMMA, 2.51, 2.51, 2 * 18 * 256),  # its heads together are as wide as the model, but one keeps
        (QWEN, 7.72, 7.72, 2 * 32 * 4096),  # its feed-forward width counts both halves
        (BERT, 0.335, 0.335, 0),
        (BLOOM, 176.2, 176.2, 2 * 70 * 14336),
        (MISTRAL, 7.24, 7.24, 2 * 32 * 8 * 128),  # 8 of 32 heads and 14,336 wide, as Transformers has it
        (DEEPSEEK, 671, 37, 61 * (512 + 64)),
        (KIMI, 1026, 32.7, 61 * (512 + 64)),
        (DEEPSEEK_LITE, 15.7, 2.7, 27 * (512 + 64)),  # queries as they are
    ],
    ids=lambda value: f"{value['model_type']}-{value['vocab_size']}" if isinstance(value, dict) else None,
)
def test_parameters_are_those_that_the_makers_state(
    layout: dict[str, Any], billions: float, active: float, kv_per_token: int
) -> None:
    shape = shape_of(layout, "it")
    assert (shape.parameters / 1e9, shape.active / 1e9) == pytest.approx((billions, active), rel=0.02)
    assert shape.kv_values(1) == kv_per_token


@pytest.mark.parametrize("published", CONFIGS, ids=lambda each: each["name"])
def test_published_configs_have_the_sizes_that_their_makers_state(published: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(published["config"]))
    content = read_config(str(file))
    assert missing_keys(content) == ()
    shape = shape_of(content, "it")
    stated = published["billions"], published["active"]
    assert (shape.parameters / 1e9, shape.active / 1e9) == pytest.approx(stated, rel=0.05)
    assert (shape.kv_values(1), shape.file_bits) == (published["kv"], published.get("bits"))


def test_layers_with_a_window_keep_its_tokens_only() -> None:
    gemma = next(each["config"] for each in CONFIGS if each["name"] == "Gemma 2 9B")
    shape = shape_of(gemma, "it")
    assert shape.kv_values(8192) == shape.kv_values(1) // 2 * (8192 + 4096)  # every second layer has a window
    wide = shape_of(gemma | {"sliding_window": None}, "it")
    assert (wide.window_layers, wide.kv_values(8192)) == (0, shape.kv_values(1) * 8192)


@pytest.mark.parametrize(
    ("stored", "bits"),
    [
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4),
        ({"quant_method": "gptq", "bits": 3}, 4),
        ({"quant_method": "mxfp4"}, 4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, 4),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, 4),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"group_size": 64, "nbits": 4}}}, 4),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, 4),
        ({"quant_method": "heard_of_by_nobody"}, None),
        (None, None),
    ],
)
def test_the_files_own_bits_are_taken(stored: dict[str, Any] | None, bits: int | None) -> None:
    assert shape_of(LLAMA | {"quantization_config": stored}, "it").file_bits == bits


def test_a_quantization_of_unknown_bits_is_noted() -> None:
    shape = shape_of(LLAMA | {"quantization_config": {"quant_method": "aqlm"}}, "it")
    assert (shape.file_bits, shape.is_file_quantized) == (None, True)
    assert not shape_of(LLAMA, "it").is_file_quantized


def test_parts_for_pictures_that_a_file_does_not_describe_are_unknown() -> None:
    assert shape_of(LLAMA | {"vision_config": {"model_type": "clip_vision_model"}}, "it").beside is None
    assert shape_of(LLAMA, "it").beside == 0


def test_a_kind_of_layer_that_nobody_knows_keeps_its_keys_and_values() -> None:
    kinds = {"layer_types": ["full_attention", "a_new_attention", "linear_attention", "sliding_attention"]}
    found = shape_of(LLAMA | kinds, "it")
    assert (found.state_layers, found.window_layers) == (8, 0), "the window has no known length"
    assert shape_of(LLAMA | kinds | {"sliding_window": 512}, "it").window_layers == 8
    assert found.kv_values(1) == shape_of(LLAMA, "it").kv_values(1) * 24 // 32


ODD = (None, "x", -1, 0, 1.5, True, [], ["a"], [-1], [1.5], {}, {"a": {"weights": 3}}, 10**30, float("inf"))
ODD_KEYS = {
    "layer_types",
    "sliding_window_pattern",
    "quantization_config",
    "vision_config",
    "mlp_only_layers",
    "text_config",
}
ODD_KEYS |= {
    "moe_layer_freq",
    "full_attn_layers",
    "ffn_multipliers",
    "is_encoder_decoder",
    "encoder_layers",
    "multiple_of",
}


@pytest.mark.parametrize("name", ["DeepSeek V3", "Gemma 3 27B", "Whisper large v3", "Jamba v0.1"])
def test_no_value_of_any_key_ends_in_an_error(name: str, tmp_path: Path) -> None:
    plain = next(each["config"] for each in CONFIGS if each["name"] == name)
    file = tmp_path / "config.json"
    for key in {*plain, *ODD_KEYS}:
        for value in (*ODD, {"config_groups": list(ODD)}, {"mlp_ratio": "x", "depth": 2, "hidden_size": 8}):
            file.write_text(json.dumps({**plain, key: value}))
            content = read_config(str(file))
            if missing_keys(content) == ():
                shape = shape_of(content, "it")
                assert serving_need(shape, Serving(), 2).total > 0
                assert all(size > 0 for _, size in training_need(shape, Training()).parts)


def test_what_a_config_lacks_is_named() -> None:
    lacking = {key: value for key, value in LLAMA.items() if key not in ("vocab_size", "hidden_size")}
    assert missing_keys(lacking) == ("hidden_size", "vocab_size")
    for wrong in ("many", -1, 0, True, 1.5, 10**30, None):
        assert missing_keys(LLAMA | {"num_hidden_layers": wrong}) == ("num_hidden_layers",)
    assert missing_keys(GPT2) == ()
    assert [uneven_key(LLAMA | more) for more in ({}, {"block_configs": [{}]}, {"model_type": "nemotron_h"})] == [
        None,
        "block_configs",
        "model_type nemotron_h",
    ]


@pytest.mark.parametrize("kind", ["llama", "mistral", "", "heard_of_by_nobody"])
def test_without_an_activation_a_feed_forward_layer_has_its_third_matrix(kind: str) -> None:
    bare = {key: value for key, value in LLAMA.items() if key != "hidden_act"} | {"model_type": kind}
    assert shape_of(bare, "it").parameters / 1e9 == pytest.approx(8.03, rel=0.01)


def test_a_cache_of_compressed_keys_is_narrow_and_whole_on_each_card() -> None:
    shape = shape_of(DEEPSEEK, "it")
    one, eight = (parts(serving_need(shape, Serving(), cards)) for cards in (1, 8))
    assert one["kv_cache"] == eight["kv_cache"] == 61 * 576 * 2 * 8 * 4096
    assert shape.adapted_per_rank > 61 * 2 * 7168


def test_of_several_models_the_language_model_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llava", "vision_config": {"hidden_size": 1024}, "text_config": LLAMA}))
    assert shape_of(read_config(str(file)), "it").parameters / 1e9 == pytest.approx(8.03, rel=0.01)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", None])
def test_a_file_that_is_no_config_is_said_so(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "config.json"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.json" if content is not None else "cannot read"):
        read_config(str(file))


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("8B", "Llama 3.1 8B"),
        ("7b", "Llama 3.1 8B"),
        ("350M", "Qwen2.5 0.5B"),
        ("100 M", "GPT-2"),
        ("1T", "Llama 3.1 405B"),
    ],
)
def test_a_number_of_parameters_takes_the_layout_of_the_nearest_model(asked: str, name: str) -> None:
    shape = typical_shape(asked)
    assert (shape.name, shape.is_typical) == (name, True)
    assert 0 < shape.embedding < shape.parameters == shape.stated
    assert shape.active == pytest.approx(shape.parameters)


@pytest.mark.parametrize("wrong", ["", "big", "-8B", "8X", "0", "1e9", "10", "9999T"])
def test_what_is_no_size_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="--params"):
        typical_shape(wrong)


def test_the_layouts_have_the_sizes_in_their_names() -> None:
    sizes = [round(shape.parameters / 1e9, 2) for shape in typical_shapes()]
    assert sizes == [0.12, 0.49, 1.24, 3.21, 8.03, 14.77, 32.76, 70.55, 405.85]


TINY = ModelShape("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, mlp=16, vocabulary=32)
# a layer: 8 x (2 x 8 + 2 x 4) attention and 3 x 8 x 16 feed-forward = 576; embedding and output: 2 x 256


def parts(need: MemoryNeed) -> dict[str, float]:
    return dict(need.parts)


def test_at_least_twelve_published_measurements_are_met_out_of_sample_in_serving_and_training_each() -> None:
    tested = [each for each in MEASUREMENTS if not each.in_sample]
    for kind, as_today in ((Serving, 23), (Training, 53)):
        own = [each for each in tested if isinstance(each.work, kind)]
        hits = [each for each in own if each.is_hit]
        assert as_today <= len(hits) < len(own), "misses are shown too"
        assert len({each.source for each in hits}) >= 3
        assert sum(each.is_unsafe for each in own) <= 2, "a card that fits is large enough for all others"


def test_the_page_shows_every_measurement_as_it_is_estimated_today() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "`make docs` writes it again"
    assert all(each.source.startswith("https://") for each in MEASUREMENTS)


def test_a_shape_adds_up_by_hand() -> None:
    assert (TINY.parameters, TINY.embedding) == (2 * 576 + 512, 512)
    assert weight_bytes(TINY, 16) == 2 * 1664
    assert weight_bytes(TINY, 4) == 1152 * 4.25 / 8 + 2 * 512  # the embedding keeps 16 bits
    need = serving_need(TINY, Serving(16, context=10, requests=3))
    assert parts(need) == {
        "weights": 3328.0,
        "kv_cache": 2 * 2 * 1 * 4 * 30 * 2.0,  # keys and values, layers, one head of 4, tokens, bytes
        "working": 2 * 30 * (4 * 8 + 3 * 16) + 4.0 * 3 * 32,
        "runtime": RUNTIME_BYTES,
    }
    assert need.high == pytest.approx(1.15 * need.total)


def test_cards_share_weights_but_no_head_of_keys_and_values_is_divided() -> None:
    one, eight = (parts(serving_need(LLAMA3_8B, Serving(), cards)) for cards in (1, 8))
    assert (eight["weights"], eight["kv_cache"]) == (one["weights"] / 8, one["kv_cache"] / 8)
    assert eight["runtime"] == RUNTIME_BYTES
    single = replace(LLAMA3_8B, kv_heads=1)
    assert len({parts(serving_need(single, Serving(), cards))["kv_cache"] for cards in (1, 8)}) == 1


@pytest.mark.parametrize(
    ("training", "per_parameter"),
    [
        (Training("full"), 16),
        (Training("full", precision="bf16"), 8),
        (Training("full", precision="fp32"), 16),
        (Training("full", optimizer="adamw8bit"), 10),
    ],
)
def test_full_training_takes_so_many_bytes_a_parameter(training: Training, per_parameter: int) -> None:
    found = parts(training_need(LLAMA3_8B, training))
    states = found["weights"] + found["gradients"] + found["optimizer"]
    assert states == pytest.approx(per_parameter * LLAMA3_8B.parameters)


def test_an_update_of_all_weights_at_once_counts_where_it_exceeds_the_pass_before() -> None:
    """ms-swift: 73.4 GiB for 7.7 billion parameters in bf16 at 512 tokens; 10 bytes for each are 71.9."""
    short, long = (
        parts(training_need(SHAPES["Qwen 7B"], Training("full", each, precision="bf16"))) for each in (1, 8192)
    )
    assert short["updating"] == pytest.approx(2 * SHAPES["Qwen 7B"].parameters, rel=0.001)
    assert "updating" not in long
    assert "updating" not in parts(training_need(SHAPES["Qwen 7B"], Training("full", 1, optimizer="adamw8bit")))


def test_the_safe_size_counts_the_most_free_blocks_of_texts_of_many_lengths() -> None:
    many, packed = (training_need(LLAMA3_8B, Training(is_packed=each)) for each in (False, True))
    for need, share in ((many, 0.4), (packed, 0.1)):
        passing = parts(need)["activations"] + parts(need)["logits"]
        assert need.high == pytest.approx(1.15 * (need.total + share * passing))


def test_adapters_cost_little_and_qlora_quarters_the_frozen_weights() -> None:
    lora, qlora = (parts(training_need(LLAMA3_8B, Training(method, rank=16))) for method in ("lora", "qlora"))
    assert lora["adapters"] == qlora["adapters"] == 16 * 16 * LLAMA3_8B.adapted_per_rank
    assert LLAMA3_8B.adapted_per_rank * 16 == 41_943_040  # what PEFT prints for rank 16 on all linear layers
    # PEFT keeps embedding and output in 32 bits, and autocast a copy of the output in 16
    kept = 4 * LLAMA3_8B.embedding
    assert qlora["weights"] - kept - LLAMA3_8B.embedding == pytest.approx(4.5 / 16 * (lora["weights"] - kept / 2))
    assert "gradients" not in lora


def test_activations_of_the_papers_layout_are_theirs_but_for_norms_and_dropout() -> None:
    """Korthikanti et al. 2022: 34 sbh + 5 as2b per layer; 4 sbh of it norms (16 here), 2 sbh dropout masks."""
    layout = ModelShape("paper", 1, 64, 4, 4, 16, 256, 100, mlp_matrices=2)
    kept = Training("full", sequence=32, batch=2, is_checkpointed=False, has_flash=False)
    tokens = 32 * 2 * 64
    assert activation_bytes(layout, kept) == (34 - 4 - 2 + 16) * tokens + 5 * 4 * 32**2 * 2
    again = activation_bytes(replace(layout, layers=10), replace(kept, is_checkpointed=True))
    assert again == activation_bytes(layout, kept) + 10 * 2 * tokens


def known(name: str) -> Card:
    found = card(name)
    assert found is not None
    return found


def rate(bounds: TokenBounds) -> float:
    assert bounds.per_s is not None
    return bounds.per_s


def test_one_request_is_bound_by_what_is_read_and_many_by_what_is_computed() -> None:
    h100 = known("H100 SXM")
    layers, output = LLAMA3_8B.parameters - LLAMA3_8B.embedding, LLAMA3_8B.embedding / 2
    read = 2 * (layers + output) + 2 * LLAMA3_8B.kv_values(1000)
    assert serving_bounds(LLAMA3_8B, Serving(16, 1000, 1), h100).per_s == pytest.approx(3350e9 / read)
    many = serving_bounds(LLAMA3_8B, Serving(16, 1, 10_000), h100)
    assert many.per_s == pytest.approx(989.4e12 / (2 * (layers + output)))
    assert many.prompt_per_s == pytest.approx(989.4e12 / (2 * layers))


def test_published_rates_stay_below_the_bound() -> None:
    """AutoAWQ on an RTX 4090 (README, one request): 198.8 tokens/s of Vicuna 7B, 133.2 with 4,096 tokens, in 4 bits."""
    for tokens, measured in ((128, 198.848), (4096, 133.191)):
        assert measured < rate(serving_bounds(LLAMA2_7B, Serving(4, tokens, 1), known("RTX 4090"))) < 2 * measured


def test_several_cards_are_faster_and_a_part_is_slower() -> None:
    a100, alone = known("A100 SXM 80GB"), Serving(requests=1)
    one, four = (serving_bounds(LLAMA3_8B, Serving(), a100, cards) for cards in (1, 4))
    assert (four.per_s, four.watts) == (pytest.approx(4 * rate(one)), 1600)
    part = serving_bounds(LLAMA3_8B, alone, a100, sm_share=1 / 7, memory_share=1 / 8)
    assert part.per_s == pytest.approx(rate(serving_bounds(LLAMA3_8B, alone, a100)) / 8)


@pytest.mark.parametrize(
    ("name", "bits", "expected"),
    [
        ("H100 SXM", 16, (989.4, "BF16")),
        ("H100 SXM", 8, (1978.9, "FP8")),
        ("A100 SXM 80GB", 8, (312.0, "BF16")),  # unpacked: no FP8
        ("V100 SXM2 32GB", 4, (125.0, "FP16")),
        ("B200", 4, (9000.0, "FP4")),
        ("P40", 16, (None, None)),
    ],
)
def test_the_rate_is_of_a_format_that_the_card_has(
    name: str, bits: int, expected: tuple[float | None, str | None]
) -> None:
    assert peak_rate(known(name), bits) == expected


def test_without_a_rate_nothing_is_promised() -> None:
    found = serving_bounds(LLAMA3_8B, Serving(), known("P40"))
    assert found.per_s is not None, "memory bandwidth is a bound of its own"
    assert found.prompt_per_s is None
    found = serving_bounds(LLAMA3_8B, Serving(), known("RTX 5050 Laptop"))
    assert (found.per_s, found.prompt_per_s, found.kwh_per_million, found.cost_per_million(1.0)) == (None,) * 4
    encoder = serving_bounds(SHAPES["BERT large"], Serving(), known("T4"))
    assert (encoder.per_s is None, encoder.prompt_per_s is None) == (True, False)


def test_training_is_bound_by_its_operations() -> None:
    a100, lora = known("A100 SXM 80GB"), Training("lora", is_checkpointed=False)
    again = rate(training_bounds(LLAMA3_8B, Training("full"), a100))
    assert again == pytest.approx(312e12 / (8 * LLAMA3_8B.parameters))
    assert training_bounds(LLAMA3_8B, lora, a100).per_s == pytest.approx(2 * again)
    assert training_bounds(LLAMA3_8B, replace(lora, method="full", precision="fp32"), a100).per_s is None


def test_energy_and_cost_of_a_million_tokens() -> None:
    found = TokenBounds(per_s=1000.0, prompt_per_s=None, number_format="BF16", watts=360.0)
    assert (found.kwh_per_million, found.cost_per_million(3.6)) == pytest.approx((0.1, 1.0))
    assert replace(found, watts=None).kwh_per_million is None
    assert found.cost_per_million(None) is None
