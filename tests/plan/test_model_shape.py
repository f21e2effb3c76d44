"""What a config.json says of a model, what it does not, and what stands for a number of parameters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.plan.model_shape import TYPICAL, is_compressed, missing_keys, read_config, shape_of, typical_shape
from fallow.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "activation_function": "gelu_new"}  # fmt: skip
FALCON = {
    "model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True,
    "vocab_size": 65024, "num_kv_heads": 71,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma", "num_hidden_layers": 18, "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 1,
    "head_dim": 256, "intermediate_size": 16384, "vocab_size": 256000, "hidden_act": "gelu", "tie_word_embeddings": True,
}  # fmt: skip
QWEN = {
    "model_type": "qwen", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 22016,
    "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
BERT = {
    "model_type": "bert", "num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "vocab_size": 30522,
    "intermediate_size": 4096, "hidden_act": "gelu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions", "active", "kv_per_token"),
    [
        (LLAMA, 8.03, 8.03, 2 * 32 * 8 * 128),
        (MIXTRAL, 46.7, 12.9, 2 * 32 * 8 * 128),
        (GPT2, 0.124, 0.124, 2 * 12 * 768),
        (FALCON, 6.92, 6.92, 2 * 32 * 64),  # one head of keys and values
        (GEMMA, 2.51, 2.51, 2 * 18 * 256),  # its heads together are as wide as the model, but one keeps
        (QWEN, 7.72, 7.72, 2 * 32 * 4096),  # its feed-forward width counts both halves
        (BERT, 0.335, 0.335, 0),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_parameters_are_those_that_the_makers_state(
    config: dict[str, Any], billions: float, active: float, kv_per_token: int
) -> None:
    shape = shape_of(config, "it")
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert shape.active / 1e9 == pytest.approx(active, rel=0.02)
    assert shape.kv_values_per_token == kv_per_token


def test_what_a_config_lacks_is_named_and_a_compressed_cache_is_said() -> None:
    lacking = {key: value for key, value in LLAMA.items() if key not in ("vocab_size", "hidden_size")}
    assert missing_keys(lacking) == ("hidden_size", "vocab_size")
    for wrong in ("many", -1, 0, True, 1.5, 10**30, None):
        assert missing_keys(LLAMA | {"num_hidden_layers": wrong}) == ("num_hidden_layers",)
    assert missing_keys(GPT2) == ()
    assert is_compressed(LLAMA | {"kv_lora_rank": 512})
    assert not is_compressed(LLAMA)


def test_of_several_models_the_language_model_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llava", "vision_config": {"hidden_size": 1024}, "text_config": LLAMA}))
    assert shape_of(read_config(str(file)), "it").parameters / 1e9 == pytest.approx(8.03, rel=0.01)


@pytest.mark.parametrize("content", ["", "[1]", "{", "\udcff"])
def test_a_file_that_is_no_config_is_said_so(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"config\.json"):
        read_config(str(file))
    with pytest.raises(UsageError, match="cannot read"):
        read_config(str(tmp_path))


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
    sizes = [round(shape.parameters / 1e9, 2) for shape in TYPICAL]
    assert sizes == [0.12, 0.49, 1.24, 3.21, 8.03, 14.77, 32.76, 70.55, 405.85]
