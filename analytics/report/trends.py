"""The week beside last week and the median of the four weeks before."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from analytics.ledger.summary import Totals, clip, totals_by
from analytics.money.accounts import USED
from analytics.report.parts import Trend
from fallow.clock import HOUR_MS
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analytics.ledger.build import Ledger
    from analytics.money.accounts import Account
    from analytics.report.weeks import Week

WASTED = ("free", "reserved", "held")
WEEKS_BEFORE = 4
_LATE_MS = HOUR_MS
"""By which a lake may begin within a week that counts as seen from its start."""


@dataclass(frozen=True)
class Figures:
    """What one week came to; money is None where nothing has a price."""

    totals: Totals
    account: Account

    def by_name(self) -> Mapping[str, tuple[str, float | None]]:
        """Every figure with its unit, in the order in which they are shown."""
        totals = self.totals
        paid = self.account.paid_cents
        cents = self.account.state_cents
        wasted_ms = sum(totals.state_ms[state] for state in WASTED)
        money: dict[str, float | None] = {
            "paid": None if paid is None else paid / 100,
            "used": None if paid is None else sum(cents[state] for state in USED) / 100,
            "unused": None if paid is None else sum(cents[state] for state in WASTED) / 100,
        }
        return {
            "gpus": ("gpus", float(totals.gpus)),
            "observed": ("share", totals.coverage),
            "total": ("gpu_hours", totals.total_ms / HOUR_MS),
            **{state: ("gpu_hours", totals.state_ms[state] / HOUR_MS) for state in STATES},
            "unused": ("gpu_hours", wasted_ms / HOUR_MS),
            "unused_share": ("share", wasted_ms / totals.observed_ms if totals.observed_ms else None),
            **{f"{name}_money": ("money", amount) for name, amount in money.items()},
        }


def figures(inside: Ledger, account: Account) -> Figures:
    """Those of a ledger that was clipped to a week and is not empty."""
    spans = inside.stretches.select("gpu", "state", "time", "end", "gpu_share")
    return Figures(totals_by(spans, "'all'")["all"], account)


def trends(now: Figures, before: Sequence[Figures | None]) -> tuple[Trend, ...]:
    """Each figure beside those of the weeks before, the newest first; a week that was not seen is None.

    The median is that of the four weeks before, and None unless all four were seen: that of fewer would move as they come in.
    """
    names = now.by_name()
    earlier = [None if each is None else each.by_name() for each in before]
    return tuple(Trend(name, unit, value, *_beside(name, earlier)) for name, (unit, value) in names.items())


def _beside(
    name: str, earlier: Sequence[Mapping[str, tuple[str, float | None]] | None]
) -> tuple[float | None, float | None]:
    values = [None if each is None else each[name][1] for each in earlier]
    known = [value for value in values if value is not None]
    last = values[0] if values else None
    return last, median(known) if len(known) == WEEKS_BEFORE else None


def weeks_before(
    whole: Ledger, week: Week, narrowed: Callable[[Ledger], Ledger], account: Callable[[Ledger], Account]
) -> list[Figures | None]:
    """The figures of the four weeks before, the newest first; None for a week that the ledger does not have from end to end.

    Two days of a lake that began on a Saturday are no week to be compared with.
    """
    first_ms = whole.stretches["time"].min()
    found: list[Figures | None] = []
    for number in range(1, WEEKS_BEFORE + 1):
        earlier = week.before(number)
        inside = narrowed(clip(whole, earlier.window))
        seen = isinstance(first_ms, int) and first_ms <= earlier.since_ms + _LATE_MS
        found.append(figures(inside, account(inside)) if seen and not inside.stretches.is_empty() else None)
    return found
