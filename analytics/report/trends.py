"""A window beside those before it: a week beside the four weeks before, any window beside the one just before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from analytics.ledger.build import Ledger
from analytics.ledger.summary import Totals, clip_ledger, ratio, totals_by
from analytics.money.accounts import Account
from analytics.report.coverage import Seen
from analytics.report.figures import Trend
from analytics.report.weeks import Week
from analytics.states import IN_USE
from fallow.clock import HOUR_MS, Window
from fallow.schema import STATES

WEEKS_BEFORE = 4


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

    def by_name(self) -> Mapping[str, tuple[str, float | None]]:
        """Every figure with its unit, in the order in which they are shown."""
        return {
            name: (unit, value if self.totals.total_ms or name == "observed" else None)
            for name, (unit, value) in self._figures().items()
        }

    def _figures(self) -> Mapping[str, tuple[str, float | None]]:
        totals = self.totals
        paid = self.account.paid_cents
        cents = self.account.state_cents
        apart = totals.leaves_open
        money: dict[str, float | None] = {
            "paid": None if paid is None else paid / 100,
            "used": None if paid is None else sum(cents[state] for state in IN_USE) / 100,
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
            "unused_share": ("share", ratio(totals.wasted_ms, totals.observed_ms)),
            **{f"{name}_money": ("money", amount) for name, amount in money.items()},
        }


def figures(inside: Ledger, account: Account, seen: Seen | None = None) -> Figures:
    """Those of a ledger that was clipped to a week and is not empty."""
    return Figures(totals_by(inside.stretches, "'all'")["all"], account, seen)


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


def weeks_before(
    whole: Ledger,
    week: Week,
    narrowed: Callable[[Ledger], Ledger],
    account: Callable[[Ledger], Account],
    seen: Callable[[Window, Ledger], Seen],
) -> list[tuple[Seen, Figures | None]]:
    """How much was seen of the four weeks before, the newest first, and their figures: None for one of which nothing was."""
    found: list[tuple[Seen, Figures | None]] = []
    for number in range(1, WEEKS_BEFORE + 1):
        earlier = week.before(number)
        inside = narrowed(clip_ledger(whole, earlier.window))
        looked = seen(earlier.window, inside)
        found.append((looked, figures(inside, account(inside), looked) if looked.observed_ms else None))
    return found
