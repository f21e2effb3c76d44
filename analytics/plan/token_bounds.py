"""How many tokens per second a card can generate or train on at most: by what has to be read, and by what has to be computed."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.money.cards import Card
from analytics.plan.memory_need import STORED_BITS, Serving, Training
from analytics.plan.model_shape import ModelShape
from fallow.clock import HOUR_MS, SECOND_MS

MILLION = 1e6
_KILOWATT_HOUR_J = 3.6e6


@dataclass(frozen=True)
class TokenBounds:
    """Upper bounds for the card or cards together; None where a rate of the card is not known.

    `per_s` are tokens that are generated, or trained on; `prompt_per_s` those of prompts, None for training. `number_format` is the one whose peak rate counts, `watts` the power limit of all of them.
    """

    per_s: float | None
    prompt_per_s: float | None
    number_format: str | None
    watts: float | None

    @property
    def kwh_per_million(self) -> float | None:
        """Energy of a million tokens at the power limit and the highest rate; no lower bound, for cards may draw less."""
        if self.watts is None or self.per_s is None:
            return None
        return self.watts / self.per_s * MILLION / _KILOWATT_HOUR_J

    def cost_per_million(self, hourly: float | None) -> float | None:
        """What a million tokens cost at least, at a price of an hour of all cards."""
        if hourly is None or self.per_s is None:
            return None
        return hourly * SECOND_MS / HOUR_MS / self.per_s * MILLION


def serving_bounds(
    shape: ModelShape, serving: Serving, card: Card, cards: int = 1, *, sm_share: float = 1.0, memory_share: float = 1.0
) -> TokenBounds:
    """The roofline (Williams et al. 2009) of some cards, or of a part of one, without what they have to tell each other.

    A step reads the weights that work on a token once (of experts, as if all requests took the same), and the cache of each
    request, at its full length; it gives each request one token, for 2 operations a parameter. Of the embedding it reads and
    computes the output alone. A prompt's tokens are bound by the operations.
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
    if flow is not None and peak is not None and not shape.is_encoder:
        decode = serving.requests / max(read / flow, operations * serving.requests / peak)
    watts = None if card.tdp_w is None else card.tdp_w * sm_share * cards
    return TokenBounds(decode, None if peak is None else peak / (2 * layers), number_format, watts)


def training_bounds(
    shape: ModelShape, training: Training, card: Card, cards: int = 1, *, sm_share: float = 1.0
) -> TokenBounds:
    """What some cards, or a part of one, can train on at most, each on its own sequences, by what has to be computed.

    Operations for each parameter and token (Korthikanti et al. 2022, appendix A): 2 forward, 2 backward to what came in, 2 for
    the gradient of weights that are trained, and 2 more where the forward pass is done again.
    """
    rate, number_format = peak_rate(card, 16)
    if training.precision == "fp32":  # of 32-bit rates the table of cards says nothing
        rate = number_format = None
    operations = 4 + 2 * (training.method == "full") + 2 * training.is_checkpointed
    per_s = None if rate is None else rate * 1e12 * sm_share * cards / (operations * shape.active)
    return TokenBounds(per_s, None, number_format, None if card.tdp_w is None else card.tdp_w * sm_share * cards)


def peak_rate(card: Card, bits: int) -> tuple[float | None, str | None]:
    """The dense rate in TFLOP/s of the format that weights of so many bits are multiplied in, and its name.

    4-bit and 8-bit weights are unpacked to 16 bits where the card has no FP4 or FP8 (or its rate is not known).
    """
    if bits == 4 and card.fp4_tflops is not None:
        return card.fp4_tflops, "FP4"
    if bits == 8 and card.fp8_tflops is not None:
        return card.fp8_tflops, "FP8"
    wide = next((name for name in ("BF16", "FP16") if name in card.formats), None)
    return card.fp16_tflops, wide if card.fp16_tflops is not None else None
