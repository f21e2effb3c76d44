"""How likely a GPU that is idle now stays unused: what a finding promises to whoever takes it back.

Idle spells of the five weeks before are asked at three levels: how fast spells of this age ended in the whole fleet, how many
of the user's that reached it lasted on, and how many of this GPU's own. A promise of less than a week also asks what became of
the user's and the GPU's rests from the same hour of the weeks before. Each level corrects the one before it by what it has
seen, so that a GPU that is used every morning is not promised because others rest for weeks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.intervals import islands
from analytics.language.quantities import Share, Span
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.states import IN_USE, WITHOUT_EVIDENCE
from analytics.workloads.model import HIGH_MIN, MEDIUM_MIN, Context, Outlook, at_most_below, once_per_context
from fallow.clock import DAY_MS, MINUTE_MS, WEEK_MS

HISTORY_MS = 35 * DAY_MS
"""How far back spells are looked at."""
WEIGHT_OF_FLEET, WEIGHT_OF_USER = 4.0, 1.0
"""How many spells of a user's own weigh as much as all of the fleet's, and of a GPU's own as all of its user's."""
WEIGHT_OF_AGE = 4.0
"""How many rests from the same hour of earlier weeks weigh as much as all that the age says; for the user's and for the GPU's."""
OLD_ENOUGH = 0.25
"""Rests of earlier weeks count from so much of the present age on: a short break says nothing of one that was left for good."""
TOGETHER_MS = MINUTE_MS
"""GPUs that one user left within so long of each other were left by one decision, not by several."""

_AGES = np.log(np.geomspace(5 * MINUTE_MS, 64 * DAY_MS, 49))
"""Edges of the ages at which the fleet's rate is estimated, as logarithms: what ends spells does so ever more slowly."""
_BANDWIDTH = 0.5
"""Of the normal kernel over the logarithm of age: spells of 60 % more and less age tell most of what is known."""
_PRIOR_ENDS, _PRIOR_RATE = 0.3, 0.4
"""What is believed before anything was seen: so much of one end, and so many ends for each e-fold of age (five simulated
and measured fleets have 0.2 to 0.9)."""


@dataclass(frozen=True)
class IdleSpells:
    """Idle spells: start, length (so far), whether use by the user asked about ended it, its user, its GPU, and its weight.

    Spells that one user began on several GPUs together share a weight of 1.
    """

    began_ms: NDArray[np.float64]
    length_ms: NDArray[np.float64]
    ended: NDArray[np.bool_]
    user: NDArray[np.object_]
    gpu: NDArray[np.object_]
    weight: NDArray[np.float64]

    def rates(self) -> NDArray[np.float64]:
        """Ends per e-fold of age in each age of _AGES, smoothed over its neighbours."""
        bins = len(_AGES) - 1
        ages = np.clip(np.log(np.maximum(self.length_ms, 1.0)), _AGES[0], _AGES[-1])
        at = np.clip(np.searchsorted(_AGES, ages, "right") - 1, 0, bins - 1)

        def by_age(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(at, weights=values, minlength=bins).astype(np.float64)

        ends = by_age(self.weight * (self.ended & (ages > _AGES[0])))
        # each was followed through the ages before its own, and into its own
        reached = by_age(self.weight)
        longer = np.cumsum(reached[::-1])[::-1] - reached
        followed = longer * np.diff(_AGES) + by_age(self.weight * (ages - _AGES[at]))
        middles = (_AGES[:-1] + _AGES[1:]) / 2
        kernel = np.exp(-0.5 * ((middles[:, None] - middles) / _BANDWIDTH) ** 2)
        rates: NDArray[np.float64] = (kernel @ ends + _PRIOR_ENDS) / (kernel @ followed + _PRIOR_ENDS / _PRIOR_RATE)
        return rates


class Persistence:
    """What is known of a fleet's idle spells at a moment, made once for all questions about them."""

    def __init__(self, spells: IdleSpells, until_ms: int) -> None:
        self._spells, self._until_ms, self._rates = spells, until_ms, spells.rates()
        self._of_user, self._of_gpu = _places(spells.user), _places(spells.gpu)
        self._alone = np.ones(len(spells.weight))

    def lasting(self, user: str, gpu: str, age_ms: int, horizon_ms: int) -> float:
        """The probability that an idle spell of that age lasts `horizon_ms` more."""
        own = self._of_user.get(user, _NONE)
        here = np.intersect1d(own, self._of_gpu.get(gpu, _NONE))
        share = self._of_fleet(age_ms, horizon_ms)
        for places, weight, prior in ((own, self._spells.weight, WEIGHT_OF_FLEET), (here, self._alone, WEIGHT_OF_USER)):
            lasted, judged = self._counted(places, weight, np.array([[float(age_ms)]]), horizon_ms)
            share = (lasted + prior * share) / (judged + prior)
        if horizon_ms >= WEEK_MS:  # every hour of the week is in it
            return share
        of_the_week = self.lasting(user, gpu, age_ms, WEEK_MS)
        for places, weight in ((own, self._spells.weight), (here, self._alone)):
            ages_ms = self._until_ms - _WEEKS_BACK_MS - self._spells.began_ms[places]
            ages_ms = np.where(ages_ms >= OLD_ENOUGH * age_ms, ages_ms, np.inf)
            lasted, judged = self._counted(places, weight, ages_ms, horizon_ms)
            share = (lasted + WEIGHT_OF_AGE * share) / (judged + WEIGHT_OF_AGE)
        return max(share, of_the_week)  # what lasts a week lasts every part of it

    def _of_fleet(self, age_ms: int, horizon_ms: int) -> float:
        first, last = (math.log(max(moment, 1)) for moment in (age_ms, age_ms + horizon_ms))
        span = np.clip(np.minimum(last, _AGES[1:]) - np.maximum(first, _AGES[:-1]), 0.0, None)
        beyond = max(0.0, last - max(first, float(_AGES[-1])))
        return float(np.exp(-(span @ self._rates + beyond * self._rates[-1])))

    def _counted(
        self, places: NDArray[np.int64], weight: NDArray[np.float64], ages_ms: NDArray[np.float64], horizon_ms: int
    ) -> tuple[float, float]:
        """Of the spells there that reached these ages (one row for each time that they are asked), how many lasted on, and of how many."""
        length, ended, own = self._spells.length_ms[places], self._spells.ended[places], weight[places]
        lasted = length >= ages_ms + horizon_ms
        # one that was lost from sight before the horizon says nothing of it
        judged = (length >= ages_ms) & (lasted | ended)
        return float((lasted @ own).sum()), float((judged @ own).sum())


_WEEKS_BACK_MS = np.arange(WEEK_MS, HISTORY_MS + 1, WEEK_MS, dtype=np.float64)[:, None]
_NONE = np.empty(0, np.int64)
ANYBODY = ""
"""The user of spells that use by anybody ends."""


def _places(names: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        found[name].append(place)
    return {name: np.array(places, np.int64) for name, places in found.items()}


@dataclass(frozen=True)
class _Fleet:
    """The spells that use by their own user ends, those that use by anybody ends, and how long each GPU has been idle."""

    of_users: Persistence
    of_anybody: Persistence
    idle_ms: Mapping[str, int]


@once_per_context
def persistence(context: Context) -> _Fleet:
    """What the idle spells of the five weeks before the window's end say."""
    spells = idle_spells(context.whole.stretches, context.until_ms)
    known = spells.filter(pl.col("user").is_not_null())
    idle = spells.filter("is_last").select("gpu", "length_ms").iter_rows()
    return _Fleet(
        Persistence(spells_of(known, "ended_by_user", known["user"]), context.until_ms),
        Persistence(spells_of(spells, "ended", pl.repeat(ANYBODY, len(spells), eager=True)), context.until_ms),
        {str(gpu): int(length_ms) for gpu, length_ms in idle},
    )


def spells_of(frame: pl.DataFrame, ended: str, user: pl.Series) -> IdleSpells:
    """Rows of `idle_spells`, each with the user that is asked about, and the column that says whether use ended it."""
    began, length = (frame[name].to_numpy().astype(np.float64) for name in ("time", "length_ms"))
    return IdleSpells(
        began, length, frame[ended].to_numpy(), user.to_numpy(), frame["gpu"].to_numpy(), frame["weight"].to_numpy()
    )


def idle_spells(stretches: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Times without a kernel in the five weeks before `until_ms`, whatever else the GPU was: free, reserved or held.

    Columns: `gpu`; `time`, when it began; `user`, who used it before (null where nobody was seen to); `length_ms`; `ended`, whether use ended it;
    `ended_by_user`, whether that user's or that of somebody unknown did; `is_last`; `weight`. What was not observed ends a
    spell without an end that was seen, and another begins after it.
    """
    since_ms = until_ms - HISTORY_MS
    rows = (
        stretches.filter((pl.col("end") > since_ms) & (pl.col("time") < until_ms))
        .select(
            "gpu",
            time=pl.max_horizontal("time", pl.lit(since_ms)),
            end=pl.min_horizontal("end", pl.lit(until_ms)),
            kind=pl.when(pl.col("state").is_in(IN_USE))
            .then(pl.lit("used"))
            .when(pl.col("state").is_in(WITHOUT_EVIDENCE))
            .then(pl.lit("unknown"))
            .otherwise(pl.lit("idle")),
            user=pl.when(pl.col("state").is_in(IN_USE)).then(pl.col("holder").fill_null(ANYBODY)),
        )
        .sort("gpu", "time")
    )
    spells = (
        rows.with_columns(spell=islands(("gpu", "kind", "user")))
        .group_by("spell", maintain_order=True)
        .agg(pl.col("gpu", "kind", "user", "time").first(), pl.col("end").last())
    )
    is_last = (pl.col("gpu").shift(-1) != pl.col("gpu")).fill_null(value=True)
    found = spells.with_columns(user=_neighbour(1), next_user=_neighbour(-1), is_last=is_last).filter(
        pl.col("kind") == "idle"
    )
    begun = pl.struct("user", pl.col("time") // TOGETHER_MS)
    return found.select(
        "gpu",
        "time",
        "user",
        "is_last",
        length_ms=pl.col("end") - pl.col("time"),
        ended=pl.col("next_user").is_not_null(),
        ended_by_user=_is_one_of_them(pl.col("user"), pl.col("next_user")).fill_null(value=False),
        weight=1.0 / pl.len().over(begun),
    )


def _neighbour(step: int) -> pl.Expr:
    """Who used the GPU right before (1) or after (-1) a row; null where nobody did."""
    here, there = ("time", "end") if step > 0 else ("end", "time")
    touches = (pl.col("gpu").shift(step) == pl.col("gpu")) & (pl.col(there).shift(step) == pl.col(here))
    return pl.when(touches).then(pl.col("user").shift(step))


def _is_one_of_them(user: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Whether joint users have one in common; somebody unknown may be anybody."""
    both = user.str.split(JOINER).list.set_intersection(other.str.split(JOINER)).list.len() > 0
    return both | (user == ANYBODY) | (other == ANYBODY)


def outlook(context: Context, gpus: Iterable[str], user: str | None) -> Outlook:
    """The worst of what is promised of these GPUs; nothing where one of them is in use or was not observed.

    Of GPUs on which the user's processes are, it is that the user does not use them; of others, that nobody does.
    """
    known, horizon_ms = persistence(context), context.settings.horizon_ms
    of, name = (known.of_anybody, ANYBODY) if user is None else (known.of_users, user)
    ages = {gpu: known.idle_ms.get(gpu) for gpu in gpus}
    promised = [(of.lasting(name, gpu, age, horizon_ms), age) for gpu, age in ages.items() if age is not None]
    if len(promised) < len(ages) or not promised:
        return Outlook(None, None, horizon_ms)
    share, age_ms = min(promised)
    return Outlook(share, age_ms, horizon_ms)


def promise(found: Outlook) -> list[str]:
    """What is said where the promise is not worth a high confidence."""
    if found.probability is None or found.age_ms is None:
        return [tr("whether it stays unused is not known: at the end it was in use or not observed")]
    if found.probability >= HIGH_MIN:
        return []
    if found.is_doubtful:
        return [
            tr(
                "the probability of staying unused for another {horizon} is {share}: below {wanted}, ask first",
                horizon=Span(found.horizon_ms),
                share=at_most_below(found.probability),
                wanted=Share(MEDIUM_MIN, 0),
            )
        ]
    return [
        tr(
            "the probability of staying unused for another {horizon} is {share}, high confidence needs {wanted}",
            horizon=Span(found.horizon_ms),
            share=at_most_below(found.probability),
            wanted=Share(HIGH_MIN, 0),
        )
    ]
