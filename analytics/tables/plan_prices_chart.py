"""The demand curve of each pool, and up to which GPU each part of the cheapest mix reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
from analytics.plan.pool_prices import PoolPrices
from analytics.plan.price_mix import Mix
from analytics.tables.line_chart import GoalLine, Line, LineChart, LinePanel
from analytics.tables.names import card_name, place_name

_POINTS = 100
KINDS = {
    "own": tr("as now"), "buy": tr("bought"), "reserved": tr("reserved"), "on_demand": tr("on demand"), "spot": tr("spot"),
}  # fmt: skip
"""How GPUs are had, by kind of offer."""
_COLOURS = {"own": "reserved", "buy": "active", "reserved": "held"}


def mix_chart(found: Sequence[PoolPrices], most: int) -> LineChart | None:
    """A panel for each of the first pools that have a mix and needed anything, at most so many; None where none did."""
    drawn = [(each, each.mix) for each in found if each.mix is not None and each.mix.parts][:most]
    if not drawn:
        return None
    shares = [place / _POINTS for place in range(_POINTS + 1)]
    return LineChart(
        names=tuple(tr("in {share} of the hours", share=Share(each, 0)) for each in shares),
        short=tuple(Share(each, 0) for each in shares),
        whole=(True,) * len(shares),
        panels=tuple(_panel(pool, mix, shares) for pool, mix in drawn),
    )


def _panel(pool: PoolPrices, mix: Mix, shares: Sequence[float]) -> LinePanel:
    need = pool.curve.hours["need"].sort(descending=True)
    values = tuple(float(need[min(int(share * need.len()), need.len() - 1)]) for share in shares)
    return LinePanel(
        tr("{pool}, {model}: {gpus} GPUs there", pool=place_name(pool.curve.pool), model=card_name(pool.curve.model), gpus=Number(pool.curve.gpus)),
        "count",
        (Line(tr("GPUs needed at least"), "low", values, tuple(Number(each) for each in values)),),
        tuple(_levels(mix)),
    )  # fmt: skip


def _levels(mix: Mix) -> Iterator[GoalLine]:
    """A line where each part that is paid for in any case ends; what is above the last one is rented by the hour."""
    gpus = 0
    for part in mix.parts:
        if part.option.is_committed:
            gpus += part.gpus
            kind = part.option.offer.kind
            # its name stands below the line so: the curve begins above it
            yield GoalLine(
                tr("{how}: up to {gpus}", how=KINDS[kind], gpus=Number(gpus)), _COLOURS[kind], gpus, is_reached=False
            )
