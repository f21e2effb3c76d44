"""Figures of a week or another window, and a week beside the four weeks before."""

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
"""Number of weeks in the median."""

LATE_MS = HOUR_MS
"""A window is over if its end was observed up to this long before."""

QUARTER_WEEKS = 13
"""Weeks that a trend and a goal look back."""


@dataclass(frozen=True)
class Figures:
    """Figures of a week; money is None if nothing has a price, every figure is None if nothing was observed.

    Unused time leaves out time that only point samples show as idle; unconfirmed time has it, so that both add up with
    the states. `seen` is the observed share of the whole week; without it the observed share is that of the ledger's
    own time.
    """

    totals: Totals
    account: Account
    seen: Seen | None = None

    @property
    def is_whole(self) -> bool:
        """Return True if its sums count for the whole week."""
        return self.seen is not None and self.seen.is_whole

    @property
    def waste_cents(self) -> int | None:
        """Return the cost of time without work: idle, down, and the unused part of low use; None without a price."""
        return None if self.account.paid_cents is None else self.account.waste_cents(self.totals)

    @property
    def busy_share(self) -> float | None:
        """Return the busy share of the observed time, without low use."""
        return self.totals.share("active")

    @property
    def unused_share(self) -> float | None:
        """Return the confirmed share of observed time that was `free`, `reserved`, `held` or `stalled`."""
        return ratio(self.totals.wasted_ms, self.totals.observed_ms)

    @property
    def idle_gpus(self) -> float | None:
        """Return the mean number of unused GPUs in observed time; None if nothing was observed."""
        if self.seen is None or not self.totals.observed_ms:
            return None
        return ratio(self.totals.wasted_ms, self.seen.until_ms - self.seen.since_ms)

    def by_name(self) -> Mapping[str, tuple[str, float | None]]:
        """Return every figure with its unit, in the order of display."""
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
            "effective": None if paid is None else self.account.effective_cents / 100,
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
    """Return the figures of a ledger that is clipped to a week and not empty."""
    return Figures(totals_of(inside.segments), account, seen)


def trends(now: Figures, earlier: Sequence[Figures | None]) -> tuple[Trend, ...]:
    """Return each figure beside those of the weeks before, the newest first; None for a week that was not observed.

    The median covers the four weeks before. It is None unless all four were fully observed: a median of fewer weeks
    would change as they arrive, and a sum over a part of a week is smaller than that of the week.
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
    """A week, its observed share up to now, and its figures (None if nothing was observed)."""

    week: Week
    seen: Seen
    figures: Figures | None

    @property
    def is_over(self) -> bool:
        """Return True if the week was over when the lake was last written; rows arrive with some delay."""
        return self.seen.until_ms >= self.week.until_ms - LATE_MS

    @property
    def is_whole(self) -> bool:
        """Return True if its sums can be compared with those of another week."""
        return self.is_over and self.figures is not None and self.figures.is_whole

    @property
    def waste(self) -> float | None:
        """Return the cost of waste; None, as for the figures below, if nothing was observed or nothing has a price."""
        return None if self.figures is None else _amount(self.figures.waste_cents)

    @property
    def paid(self) -> float | None:
        return None if self.figures is None else _amount(self.figures.account.paid_cents)

    @property
    def busy_share(self) -> float | None:
        return None if self.figures is None else self.figures.busy_share

    @property
    def unused_share(self) -> float | None:
        return None if self.figures is None else self.figures.unused_share

    @property
    def idle_gpus(self) -> float | None:
        return None if self.figures is None else self.figures.idle_gpus


def _amount(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def week_figures(
    week: Week,
    inside: Callable[[Window], Ledger],
    account: Callable[[Ledger], Account],
    seen: Callable[[Window, Ledger], Seen],
) -> WeekFigures:
    """Return the figures of a week. `inside` returns the ledger of a window, narrowed to the scope."""
    ledger = inside(week.window)
    looked = seen(week.window, ledger)
    own = figures(ledger, account(ledger), looked) if looked.observed_ms else None
    return WeekFigures(week, looked, own)
