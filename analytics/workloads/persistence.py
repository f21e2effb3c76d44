"""How likely an idle spell lasts on: Kaplan-Meier over past spells of the holder, or of everybody where those are few.

`S = P(spell >= age + 60 min | spell >= age)`. Whoever takes a GPU back wants to know it before the holder comes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.language.language import Sentence
from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Span
from analytics.language.sentences import tr, tr_many
from analytics.states import WITHOUT_EVIDENCE
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.wording import floored
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

HORIZON_MS = HOUR_MS
"""How much longer the spell has to last: long enough for somebody else to make use of it."""
HISTORY_MS = 28 * DAY_MS
SPELLS_MIN = 30
"""Under so many spells of the holder's that lasted as long, those of the whole fleet are asked instead."""
LIKELY_MIN = 0.5
Z_90 = 1.6448536269514722
"""Standard normal quantile of a two-sided 90 % interval."""
TOGETHER_MS = MINUTE_MS
"""GPUs that one holder left and took up again within so long of each other are one decision, not several."""

_UNNAMED = "\0"
"""Before the UUID that stands for a holder without a name, lest somebody be called so."""


@dataclass(frozen=True)
class Outlook:
    """How likely it is that an idle interval of some age lasts `HORIZON_MS` more, with its 90 % interval."""

    age_ms: int
    spell_count: int  # spells that lasted at least as long as the age
    ended_count: int  # those of them that were seen to end before age + horizon
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class IdleSpells:
    """Idle intervals: length (so far), the age from which each was followed, and whether its end was seen."""

    length_ms: NDArray[np.int64]
    entry_ms: NDArray[np.int64]
    ended: NDArray[np.bool_]

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        return np.sort(self.length_ms)

    @cached_property
    def _entries(self) -> NDArray[np.int64]:
        return np.sort(self.entry_ms)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.sort(self.length_ms[self.ended])

    @cached_property
    def _well_known_ages(self) -> NDArray[np.int64]:
        """The lengths, in order, that at least `SPELLS_MIN` intervals reached."""
        return self._lengths[self.at_risk(self._lengths) >= SPELLS_MIN]

    def at_risk(self, ages_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many intervals were followed at each age: entered before it and not over by then."""
        reached = len(self._lengths) - np.searchsorted(self._lengths, ages_ms, side="left")
        later = len(self._entries) - np.searchsorted(self._entries, ages_ms, side="left")
        return np.asarray(reached - later, np.int64)

    def outlook(self, age_ms: int) -> Outlook:
        """Kaplan-Meier's share of spells of that age that last `HORIZON_MS` more, and how far off it may be.

        The interval is Wilson's score interval (1927) with an effective number in the place of n, after Rothman (J
        Chronic Dis 1978, 31:557). The effective number is that of Peto's standard error (Br J Cancer 1977, 35:1):
        spells at risk at the end over the share, which is the plain number where none was lost from sight.
        """
        first, last = np.searchsorted(self._ends, (age_ms, age_ms + HORIZON_MS))
        ages_ms, ends = np.unique(self._ends[first:last], return_counts=True)
        share = float(np.prod(1 - ends / self.at_risk(ages_ms)))
        begun, left = (int(number) for number in self.at_risk(np.array([age_ms, age_ms + HORIZON_MS])))
        low, high = wilson(share, left / share if share else begun)
        return Outlook(age_ms, begun, int(ends.sum()), share, low, high)

    def oldest_age_ms(self, at_most_ms: int) -> int | None:
        """The greatest age up to a limit that `SPELLS_MIN` intervals reached; None where there are too few."""
        if int(self.at_risk(np.array([at_most_ms]))[0]) >= SPELLS_MIN:
            return at_most_ms
        younger = int(np.searchsorted(self._well_known_ages, at_most_ms, side="right"))
        return int(self._well_known_ages[younger - 1]) if younger else None


def wilson(share: float, number: float) -> tuple[float, float]:
    """Wilson's score interval at 90 % for a share of so many; (0, 1) of nothing."""
    if number <= 0:
        return 0.0, 1.0
    spread = Z_90**2 / number
    middle = (share + spread / 2) / (1 + spread)
    reach = Z_90 / (1 + spread) * math.sqrt(share * (1 - share) / number + spread / (4 * number))
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True)
class Persistence:
    fleet: IdleSpells
    holders: Mapping[str, IdleSpells]

    def outlook(self, whom: str, age_ms: int) -> tuple[Outlook | None, bool]:
        """The outlook of a spell, and whether it rests on the whole fleet's.

        Where even in the fleet few spells lasted as long, the greatest age that enough of them reached is judged: the
        longer a spell has lasted, the likelier it lasts on. None where the fleet has too few spells of any age.
        """
        own = self.holders.get(whom)
        if own is not None and int(own.at_risk(np.array([age_ms]))[0]) >= SPELLS_MIN:
            return own.outlook(age_ms), False
        age = self.fleet.oldest_age_ms(age_ms)
        return (None if age is None else self.fleet.outlook(age)), True


@once_per_context
def persistence(context: Context) -> Persistence:
    """The idle intervals of the last 28 days, as known at the window's end."""
    spells = idle_spells(context.whole.stretches, context.until_ms)
    by_holder = spells.sort("whom").partition_by("whom", as_dict=True, maintain_order=True)
    return Persistence(_spells(spells), {str(whom): _spells(own) for (whom,), own in by_holder.items()})


def _spells(frame: pl.DataFrame) -> IdleSpells:
    return IdleSpells(*(frame[name].to_numpy() for name in ("length_ms", "entry_ms", "ended")))


def idle_spells(stretches: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Held spells that ran in the 28 days before `until_ms`: `whom`, `length_ms`, `entry_ms` and `ended`.

    `stretches` are a ledger's, sorted by GPU and time as they are.

    A spell that still runs, or that `unknown` or `unavailable` follows, has not ended: it is right-censored. One whose
    beginning nobody saw has no known age and is left out. One that began before the 28 days is followed from the age that
    it had then (delayed entry).
    """
    since_ms = until_ms - HISTORY_MS
    neighbours = stretches.select(
        "host", "gpu", "time", "end", "stretch_end",
        held=pl.col("state") == "held",
        seen=~pl.col("state").is_in(WITHOUT_EVIDENCE),
        whom=pl.coalesce("holder", pl.lit(_UNNAMED) + pl.col("gpu")),
    ).with_columns(follows=_follows())  # fmt: skip
    goes_on = pl.col("follows") & pl.col("held").shift(1) & (pl.col("whom") == pl.col("whom").shift(1))
    pieces = neighbours.with_columns(
        goes_on=goes_on,
        begun=pl.col("follows") & pl.col("seen").shift(1),
        ended=pl.col("follows").shift(-1) & pl.col("seen").shift(-1),
    ).filter(pl.col("held") & (pl.col("stretch_end") > since_ms))
    followed = (
        pieces.with_columns(spell=(~pl.col("goes_on").fill_null(value=False)).cum_sum())
        .group_by("spell", maintain_order=True)
        .agg(pl.col("whom", "time", "begun").first(), pl.col("end", "ended").last())
        .filter(pl.col("begun").fill_null(value=False))
        .with_columns(pl.col("ended").fill_null(value=False))
    )
    return _decisions(followed).select(
        "whom",
        length_ms=pl.col("end") - pl.col("time"),
        entry_ms=pl.max_horizontal(pl.lit(0), since_ms - pl.col("time")),
        ended="ended",
    )


def _follows() -> pl.Expr:
    """Whether a row of the ledger, sorted by GPU and time, begins where the row before it ends."""
    same = (pl.col("gpu") == pl.col("gpu").shift(1)) & (pl.col("host") == pl.col("host").shift(1))
    return (same & (pl.col("time") == pl.col("end").shift(1))).fill_null(value=False)


def _decisions(spells: pl.DataFrame) -> pl.DataFrame:
    """One interval for those that one user began together and ended together, on however many GPUs."""

    def gaps(name: str, *within: str) -> pl.Expr:
        new = pl.any_horizontal(pl.col(each) != pl.col(each).shift(1) for each in within)
        far = pl.col(name) - pl.col(name).shift(1) > TOGETHER_MS
        return (new | far).fill_null(value=True).cum_sum()

    begun = spells.sort("whom", "time", "end").with_columns(begun=gaps("time", "whom"))
    both = begun.sort("begun", "end").with_columns(both=gaps("end", "begun"))
    return both.group_by("both", maintain_order=True).agg(
        pl.col("whom").first(), pl.col("time").min(), pl.col("end").max(), pl.col("ended").any()
    )


def lasting(context: Context, holder: str | None, gpu: str, so_far_ms: int) -> list[str]:
    """Failure to be likely to last: the lower end of the 90 % interval of S is below 0.5, or nothing is known of it."""
    known = persistence(context)
    outlook, pooled = known.outlook(_UNNAMED + gpu if holder is None else holder, so_far_ms)
    if outlook is None:
        return [
            tr_many(
                "only {number} idle interval of the whole fleet has a known start: how long one lasts is not known, {wanted} are needed",
                "only {number} idle intervals of the whole fleet have a known start: how long one lasts is not known, {wanted} are needed",
                len(known.fleet.length_ms),
                wanted=Number(SPELLS_MIN),
            )
        ]
    if outlook.low >= LIKELY_MIN:
        return []
    return [outlook_sentence(outlook, _whose(holder, pooled=pooled))]


def _whose(holder: str | None, *, pooled: bool) -> Sentence:
    if pooled:
        return tr("of the whole fleet")
    return tr("of this GPU's") if holder is None else tr("of {holder}'s", holder=plain(holder))


def outlook_sentence(outlook: Outlook, whose: str) -> Sentence:
    """The outlook as one sentence that can be checked against the ledger."""
    return tr_many(
        "of {number} idle interval {whose} that lasted {age}, {ended} ended within the next hour: the probability of 60 more minutes is {low} to {high} (90 %), at least {wanted} is needed",
        "of {number} idle intervals {whose} that lasted {age}, {ended} ended within the next hour: the probability of 60 more minutes is {low} to {high} (90 %), at least {wanted} is needed",
        outlook.spell_count,
        whose=whose,
        age=Span(outlook.age_ms - outlook.age_ms % MINUTE_MS),
        ended=Number(outlook.ended_count),
        low=floored(outlook.low, 2),
        high=Number(outlook.high, 2),
        wanted=Number(LIKELY_MIN, 1),
    )
