"""The most tokens per second: by hand for the memory and for the arithmetic, and what no rate is known for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytics.money.cards import Card, card
from analytics.plan.model_needs import Serving, TokenBounds, Training, peak_rate, serving_bounds, training_bounds
from analytics.plan.model_shape import ModelShape
from tests.plan.published_memory import LLAMA2_7B, LLAMA3_8B


def known(name: str) -> Card:
    found = card(name)
    assert found is not None
    return found


def test_one_request_is_bound_by_what_is_read_and_many_by_what_is_computed() -> None:
    h100 = known("H100 SXM")
    layers, output = LLAMA3_8B.parameters - LLAMA3_8B.embedding, LLAMA3_8B.embedding / 2
    read = 2 * (layers + output) + 2 * LLAMA3_8B.kv_values_per_token * 1000
    assert serving_bounds(LLAMA3_8B, Serving(16, 1000, 1), h100).per_s == pytest.approx(3350e9 / read)
    many = serving_bounds(LLAMA3_8B, Serving(16, 1, 10_000), h100)
    assert many.per_s == pytest.approx(989.4e12 / (2 * (layers + output)))
    assert many.prompt_per_s == pytest.approx(989.4e12 / (2 * layers))


def test_published_rates_stay_below_the_bound() -> None:
    """AutoAWQ on an RTX 4090 (README, one request): 198.8 tokens/s of Vicuna 7B and 133.2 with 4,096 tokens, in 4 bits."""
    rtx = known("RTX 4090")
    for tokens, measured in ((128, 198.848), (4096, 133.191)):
        bound = serving_bounds(LLAMA2_7B, Serving(4, tokens, 1), rtx).per_s
        assert bound is not None
        assert measured < bound < 2 * measured


def test_several_cards_are_faster_and_a_part_is_slower() -> None:
    a100 = known("A100 SXM 80GB")
    one, four = (serving_bounds(LLAMA3_8B, Serving(), a100, cards) for cards in (1, 4))
    assert one.per_s is not None
    assert (four.per_s, four.watts) == (pytest.approx(4 * one.per_s), 1600)
    part = serving_bounds(LLAMA3_8B, Serving(requests=1), a100, sm_share=1 / 7, memory_share=1 / 8)
    whole = serving_bounds(LLAMA3_8B, Serving(requests=1), a100)
    assert part.per_s == pytest.approx((whole.per_s or 0) / 8)


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
    assert (found.per_s, found.prompt_per_s, found.kwh_per_million, found.cost_per_million(1.0)) == (None,) * 4
    reads = ModelShape("bert", 24, 1024, 16, 16, 64, 4096, 30522, mlp_matrices=2, is_encoder=True)
    encoder = serving_bounds(reads, Serving(), known("T4"))
    assert encoder.per_s is None
    assert encoder.prompt_per_s is not None


def test_training_is_bound_by_its_operations() -> None:
    a100 = known("A100 SXM 80GB")
    again = training_bounds(LLAMA3_8B, Training("full"), a100).per_s
    assert again == pytest.approx(312e12 / (8 * LLAMA3_8B.parameters))
    lora = Training("lora", is_checkpointed=False)
    assert training_bounds(LLAMA3_8B, lora, a100).per_s == pytest.approx(2 * (again or 0))
    assert training_bounds(LLAMA3_8B, replace(lora, method="full", precision="fp32"), a100).per_s is None


def test_energy_and_cost_of_a_million_tokens() -> None:
    found = TokenBounds(per_s=1000.0, prompt_per_s=None, number_format="BF16", watts=360.0)
    assert found.kwh_per_million == pytest.approx(0.1)
    assert found.cost_per_million(3.6) == pytest.approx(1.0)
    assert replace(found, watts=None).kwh_per_million is None
    assert found.cost_per_million(None) is None
