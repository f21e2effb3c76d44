"""How much memory a model needs: by hand, and against what others measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytics.plan.model_needs import (
    RUNTIME_BYTES,
    Serving,
    Training,
    activation_bytes,
    serving_need,
    training_need,
    weight_bytes,
)
from analytics.plan.model_shape import ModelShape
from tests.plan.published_memory import LLAMA3_8B, LLAMA31_405B, MEASUREMENTS, PAGE, with_table

TINY = ModelShape("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, mlp=16, vocabulary=32)
# a layer: 8 x (2 x 8 + 2 x 4) attention and 3 x 8 x 16 feed-forward = 576; embedding and output: 2 x 256


def parts(need: object) -> dict[str, float]:
    return dict(need.parts)  # type: ignore[attr-defined]


def test_at_least_twelve_published_measurements_are_met_out_of_sample_in_serving_and_training_each() -> None:
    tested = [each for each in MEASUREMENTS if not each.in_sample]
    for kind in (Serving, Training):
        own = [each for each in tested if isinstance(each.work, kind)]
        hits = [each for each in own if each.is_hit]
        assert len(hits) >= {Serving: 22, Training: 20}[kind], "as many as today"
        assert len({each.source for each in hits}) >= 3
        assert [each for each in own if not each.is_hit], "misses are shown too"


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
    assert eight["weights"] == one["weights"] / 8
    assert eight["kv_cache"] == one["kv_cache"] / 8
    single = replace(LLAMA3_8B, kv_heads=1)
    assert (
        parts(serving_need(single, Serving(), 8))["kv_cache"] == parts(serving_need(single, Serving(), 1))["kv_cache"]
    )
    assert parts(serving_need(LLAMA31_405B, Serving(), 8))["runtime"] == RUNTIME_BYTES


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


def test_adapters_cost_little_and_qlora_quarters_the_frozen_weights() -> None:
    lora, qlora = (parts(training_need(LLAMA3_8B, Training(method, rank=16))) for method in ("lora", "qlora"))
    assert lora["adapters"] == qlora["adapters"] == 16 * 16 * LLAMA3_8B.adapted_per_rank
    assert LLAMA3_8B.adapted_per_rank * 16 == 41_943_040  # what PEFT prints for rank 16 on all linear layers
    assert qlora["weights"] < 0.4 * lora["weights"]
    assert "gradients" not in lora


def test_activations_of_the_papers_layout_are_theirs_but_for_norms_and_dropout() -> None:
    """Korthikanti et al. 2022: 34 sbh + 5 as2b a layer, 4 sbh of it norms and 2 sbh masks of dropout; norms here keep 16."""
    layout = ModelShape("paper", 1, 64, 4, 4, 16, 256, 100, mlp_matrices=2)
    kept = Training("full", sequence=32, batch=2, is_checkpointed=False, has_flash=False)
    tokens = 32 * 2 * 64
    assert activation_bytes(layout, kept) == (34 - 4 - 2 + 16) * tokens + 5 * 4 * 32**2 * 2
    again = activation_bytes(replace(layout, layers=10), replace(kept, is_checkpointed=True))
    assert again == activation_bytes(layout, kept) + 10 * 2 * tokens
