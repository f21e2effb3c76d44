"""What a week or any other window came to, in figures, and a week beside the four weeks before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from analytics.ledger.build import Ledger
from analytics.ledger.summary import Totals, ratio, totals_of
from analytics.money.accounts import Account
from analytics.report.coverage import Seen
from analytics.report.figures import Trend
from analytics.report.weeks import Week
from fallow.clock import HOUR_MS, Window
from fallow.schema import STATES

WEEKS_BEFORE = 4
"""Of these the median is taken."""

LATE_MS = HOUR_MS
"""A window whose end was seen up to so long before is over."""

QUARTER_WEEKS = 13
"""So many weeks back a trend and a goal look."""


@dataclass(frozen=True)
class Figures:
    """What a week came to; money is None where nothing has a price, every figure where nothing was seen.

    Unused is without what point samples alone call idle; that stands apart as unconfirmed, so that both add up with the states.

    `seen` is how much of the whole week that is; without it the observed share is that of the ledger's own time.
    """

    totals: Totals
    account: Account
    seen: Seen | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its sums stand for the whole week."""
        return self.seen is not None and self.seen.is_whole

    @property
    def waste_cents(self) -> int | None:
        """What was paid for time in which the GPUs did not work, also for unavailable time and the unused part of low; None without a price."""
        return None if self.account.paid_cents is None else self.account.waste_cents(self.totals)

    @property
    def useful_share(self) -> float | None:
        """Active share of the observed time: low use is not counted."""
        return self.totals.share("active")

    @property
    def unused_share(self) -> float | None:
        """Free, reserved and held share of the observed time, without what is not confirmed."""
        return ratio(self.totals.wasted_ms, self.totals.observed_ms)

    @property
    def idle_gpus(self) -> float | None:
        """How many GPUs went unused in the mean, as far as was observed; None where nothing was."""
        if self.seen is None or not self.totals.observed_ms:
            return None
        return ratio(self.totals.wasted_ms, self.seen.until_ms - self.seen.since_ms)

    def by_name(self) -> Mapping[str, tuple[str, float | None]]:
        """Every figure with its unit, in the order in which they are shown."""
        return {
            name: (unit, value if self.totals.total_ms or name == "observed" else None)
            for name, (unit, value) in self._figures().items()
        }

    def _figures(self) -> Mapping[str, tuple[str, float | None]]:
        totals = self.totals
        paid = self.account.paid_cents
        apart = totals.leaves_open
        money: dict[str, float | None] = {
            "paid": None if paid is None else paid / 100,
            "useful": None if paid is None else self.account.useful_cents / 100,
            "waste": None if self.waste_cents is None else self.waste_cents / 100,
            "unused": None if paid is None else self.account.unused_cents(totals) / 100,
            "unconfirmed": None if paid is None else sum(self.account.open_cents.values()) / 100 if apart else 0.0,
        }
        return {
            "gpus": ("gpus", float(totals.gpus)),
            "observed": ("share", self.totals.coverage if self.seen is None else self.seen.share),
            "total": ("gpu_hours", totals.total_ms / HOUR_MS),
            **{state: ("gpu_hours", totals.state_ms[state] / HOUR_MS) for state in STATES},
            "unused": ("gpu_hours", totals.wasted_ms / HOUR_MS),
            "unconfirmed": ("gpu_hours", totals.open_ms / HOUR_MS if apart else 0.0),
            "unused_share": ("share", self.unused_share),
            **{f"{name}_money": ("money", amount) for name, amount in money.items()},
        }


def figures(inside: Ledger, account: Account, seen: Seen | None = None) -> Figures:
    """Those of a ledger that was clipped to a week and is not empty."""
    return Figures(totals_of(inside.stretches), account, seen)


def trends(now: Figures, earlier: Sequence[Figures | None]) -> tuple[Trend, ...]:
    """Each figure beside those of the weeks before, the newest first; a week that was not seen is None.

    The median is that of the four weeks before, and None unless all four were seen as a whole: that of fewer would move as they
    come in, and a sum over a part of a week is smaller than that of the week.
    """
    last = earlier[0].by_name() if earlier and earlier[0] is not None else {}
    whole = [each.by_name() for each in earlier if each is not None and each.is_whole]
    return tuple(
        Trend(name, unit, value, last.get(name, (unit, None))[1], _median([each[name][1] for each in whole]))
        for name, (unit, value) in now.by_name().items()
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) == WEEKS_BEFORE else None


@dataclass(frozen=True)
class WeekFigures:
    """A week, how much of it was observed as far as it has passed, and its figures: None where nothing was."""

    week: Week
    seen: Seen
    figures: Figures | None

    @property
    def is_over(self) -> bool:
        """Whether it was over when the lake was last written; rows come in with some delay."""
        return self.seen.until_ms >= self.week.until_ms - LATE_MS

    @property
    def is_whole(self) -> bool:
        """Whether its sums can be set beside those of another week."""
        return self.is_over and self.figures is not None and self.figures.is_whole

    @property
    def waste(self) -> float | None:
        """What wasted time cost; None, as of the figures below, where nothing was observed, and where nothing has a price."""
        return None if self.figures is None else _amount(self.figures.waste_cents)

    @property
    def paid(self) -> float | None:
        return None if self.figures is None else _amount(self.figures.account.paid_cents)

    @property
    def useful_share(self) -> float | None:
        return None if self.figures is None else self.figures.useful_share

    @property
    def unused_share(self) -> float | None:
        return None if self.figures is None else self.figures.unused_share

    @property
    def idle_gpus(self) -> float | None:
        return None if self.figures is None else self.figures.idle_gpus


def _amount(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def weeks_up_to(
    last: Week,
    number: int,
    inside: Callable[[Window], Ledger],
    account: Callable[[Ledger], Account],
    seen: Callable[[Window, Ledger], Seen],
) -> tuple[WeekFigures, ...]:
    """A week and so many before it, the newest first; `inside` gives the ledger of a window, narrowed to what is asked for."""
    found = []
    for before in range(number + 1):
        week = last.before(before)
        ledger = inside(week.window)
        looked = seen(week.window, ledger)
        own = figures(ledger, account(ledger), looked) if looked.observed_ms else None
        found.append(WeekFigures(week, looked, own))
    return tuple(found)
