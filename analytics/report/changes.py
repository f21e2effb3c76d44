"""Any window beside the one of the same length just before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
from analytics.ledger.summary import ratio
from analytics.report.coverage import Seen
from analytics.report.model import Report, Whole
from analytics.report.trends import Figures, figures
from fallow.clock import Window
from fallow.schema import STATES


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
            return tr("{sign}{points} points", sign=_sign(difference), points=Number(abs(difference), 1))
        return tr("{sign}{share}", sign=_sign(100 * difference), share=Share(abs(difference)))


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
    inside = whole.inside(earlier, scope)
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
