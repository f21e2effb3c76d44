"""A window beside those before it: a week beside the four weeks before, any window beside the one just before it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from analytics.language.quantities import Number, Share
from analytics.language.sentences import say
from analytics.ledger.summary import Totals, clip_ledger, ratio, totals_by
from analytics.report.figures import Trend
from analytics.states import IN_USE, UNUSED
from fallow.clock import HOUR_MS, Window
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from analytics.ledger.build import Ledger
    from analytics.money.accounts import Account
    from analytics.money.window_money import Money
    from analytics.report.coverage import Seen
    from analytics.report.model import Asked, Report, Whole
    from analytics.report.weeks import Week

WEEKS_BEFORE = 4


@dataclass(frozen=True)
class Figures:
    """What a week came to; money is None where nothing has a price, every figure where nothing was seen.

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
        wasted_ms = sum(totals.state_ms[state] for state in UNUSED)
        money: dict[str, float | None] = {
            "paid": None if paid is None else paid / 100,
            "used": None if paid is None else sum(cents[state] for state in IN_USE) / 100,
            "unused": None if paid is None else sum(cents[state] for state in UNUSED) / 100,
        }
        return {
            "gpus": ("gpus", float(totals.gpus)),
            "observed": ("share", self.totals.coverage if self.seen is None else self.seen.share),
            "total": ("gpu_hours", totals.total_ms / HOUR_MS),
            **{state: ("gpu_hours", totals.state_ms[state] / HOUR_MS) for state in STATES},
            "unused": ("gpu_hours", wasted_ms / HOUR_MS),
            "unused_share": ("share", wasted_ms / totals.observed_ms if totals.observed_ms else None),
            **{f"{name}_money": ("money", amount) for name, amount in money.items()},
        }


def figures(inside: Ledger, account: Account, seen: Seen | None = None) -> Figures:
    """Those of a ledger that was clipped to a week and is not empty."""
    spans = inside.stretches.select("gpu", "state", "time", "end", "gpu_share")
    return Figures(totals_by(spans, "'all'")["all"], account, seen)


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


def looked_back(whole: Whole, asked: Asked, money: Money) -> list[tuple[Seen, Figures | None]]:
    """What `weeks_before` finds of the week and the scope that are asked for; nothing where the window is no week."""
    if asked.week is None:
        return []
    return weeks_before(
        whole.ledger.whole,
        asked.week,
        lambda ledger: whole.narrowed(ledger, asked.scope),
        lambda inside: money.of(inside, whole.inventory).accounts.total,
        lambda window, inside: whole.seen(window, inside, asked.scope),
    )


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


@dataclass(frozen=True)
class Change:
    """One figure of the window and of the window before; `before` is None where it is not known or cannot be compared.

    `unit` is `share`, `gpu_hours`, `money` (in the report's currency) or `gpus`.
    """

    unit: str
    now: float | None
    before: float | None

    @property
    def difference(self) -> float | None:
        """In points for shares, else relative to before; None where that is not known or there was nothing before."""
        if self.now is None or self.before is None:
            return None
        if self.unit == "share":
            return 100 * (self.now - self.before)
        return ratio(self.now - self.before, self.before)

    @property
    def sentence(self) -> str:
        """`+1.2 points` or `-3.4 %`; empty where there is no difference to tell of."""
        if (difference := self.difference) is None:
            return ""
        if self.unit == "share":
            return say("{sign}{points} points", sign=_sign(difference), points=Number(abs(difference), 1))
        return say("{sign}{share}", sign=_sign(100 * difference), share=Share(abs(difference)))


@dataclass(frozen=True)
class Changes:
    """How much was seen of a window and of the one before it, and the figures by name, without a `before` unless both were."""

    seen: Seen
    seen_before: Seen
    figures: Mapping[str, Change]

    @property
    def is_comparable(self) -> bool:
        """Whether so much of both was observed that a change is not one of what was seen."""
        return self.seen.is_whole and self.seen_before.is_whole


def window_before(window: Window) -> Window:
    """The window of the same length that ends where this one begins; raises ValueError for one without both ends."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    return Window(2 * window.since_ms - window.until_ms, window.since_ms)


def changes(whole: Whole, report: Report) -> Changes:
    """The figures of a report, beside those of the same scope in the window before."""
    scope, seen = report.scope, report.seen
    earlier = window_before(Window(seen.since_ms, seen.until_ms))
    inside = whole.narrowed(clip_ledger(whole.ledger.whole, earlier), scope)
    looked = whole.seen(earlier, inside, scope)
    now = named(Figures(report.summary.totals, report.money.accounts.total, seen))
    old: Mapping[str, tuple[str, float | None]] = {}
    if seen.is_whole and looked.is_whole and not inside.stretches.is_empty():
        account = whole.money.of(inside, whole.inventory).accounts.total
        old = named(figures(inside, account, looked))
    return Changes(
        seen,
        looked,
        {name: Change(unit, value, old[name][1] if name in old else None) for name, (unit, value) in now.items()},
    )


def named(of: Figures) -> Mapping[str, tuple[str, float | None]]:
    """Every figure by name with its unit: those of the weekly report, and each state's share and money."""
    priced = of.account.paid_cents is not None
    return {
        **of.by_name(),
        **{f"{state}_share": ("share", of.totals.share(state)) for state in STATES if state != "unknown"},
        **{f"{state}_money": ("money", of.account.state_cents[state] / 100 if priced else None) for state in STATES},
    }


def _sign(change: float) -> str:
    rounded = round(change, 1)
    return "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else "±"
