"""A window beside another one: every key figure of both, and their difference where both allow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo

from analytics.language.sentences import Number, Share, tr
from analytics.ledger.summary import ratio
from analytics.report.coverage import Seen
from analytics.report.model import Whole
from analytics.report.parts import LedgerFigures
from analytics.report.trends import QUARTER_WEEKS, Figures, figures
from analytics.report.weeks import day_window, days_between
from analytics.scope import Scope
from fallow.clock import HOUR_MS, Window, from_ms, to_ms
from fallow.errors import UsageError
from fallow.schema import STATES


@dataclass(frozen=True)
class Change:
    """One figure of the window and of the window before; `before` is None if it is unknown or not comparable.

    `unit` is `share`, `gpu_hours`, `money` (in the report's currency) or `gpus`.
    """

    unit: str
    now: float | None
    before: float | None

    @property
    def difference(self) -> float | None:
        """Return the difference, in points for shares, else relative to before. None if unknown or if before is 0."""
        if self.now is None or self.before is None:
            return None
        if self.unit == "share":
            return 100 * (self.now - self.before)
        return ratio(self.now - self.before, self.before)

    @property
    def sentence(self) -> str:
        """Return the difference in words: `+1.2 points` or `-3.4 %`; empty if there is none."""
        if (difference := self.difference) is None:
            return ""
        if self.unit == "share":
            return tr("{sign}{points} points", sign=_sign(difference), points=Number(abs(difference), 1))
        return tr("{sign}{share}", sign=_sign(100 * difference), share=Share(abs(difference)))


@dataclass(frozen=True)
class Changes:
    """Observed shares of a window and of the one before it, and figures by name.

    Figures have a `before` only if enough of both windows was observed.
    """

    seen: Seen
    seen_before: Seen
    figures: Mapping[str, Change]

    @property
    def is_comparable(self) -> bool:
        """Return True if enough of both windows was observed, so that changes are not caused by missing data."""
        return self.seen.is_whole and self.seen_before.is_whole


def window_before(window: Window) -> Window:
    """Return the window of the same length that ends where this one begins. Raises ValueError without both ends."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    return Window(2 * window.since_ms - window.until_ms, window.since_ms)


def changes(whole: Whole, ledger: LedgerFigures) -> Changes:
    """Return the figures of a ledger, beside those of the same scope in the window before."""
    scope, seen = ledger.scope, ledger.seen
    earlier = window_before(Window(seen.since_ms, seen.until_ms))
    inside = whole.inside(earlier, scope)
    looked = whole.seen(earlier, inside, scope)
    now = named(Figures(ledger.summary.totals, ledger.money.accounts.total, seen))
    old: Mapping[str, tuple[str, float | None]] = {}
    if seen.is_whole and looked.is_whole and not inside.segments.is_empty():
        account = whole.money.of(inside, whole.inventory).accounts.total
        old = named(figures(inside, account, looked))
    return Changes(
        seen,
        looked,
        {name: Change(unit, value, old[name][1] if name in old else None) for name, (unit, value) in now.items()},
    )


def named(of: Figures) -> Mapping[str, tuple[str, float | None]]:
    """Return every figure by name with its unit: the figures of the weekly report, and each state's share and money."""
    priced = of.account.paid_cents is not None
    return {
        **of.by_name(),
        **{f"{state}_share": ("share", of.totals.share(state)) for state in STATES if state != "unknown"},
        **{f"{state}_money": ("money", of.account.state_cents[state] / 100 if priced else None) for state in STATES},
    }


def _sign(change: float) -> str:
    rounded = round(change, 1)
    return "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else "±"


FIGURES = {
    "waste_money": tr("waste"),
    "paid_money": tr("paid"),
    "effective_money": tr("cost of effective time"),
    "free_money": tr("cost of unallocated time"),
    "reserved_money": tr("cost of allocated, unused time"),
    "held_money": tr("cost of held idle time"),
    "stalled_money": tr("cost of stalled time"),
    "unavailable_money": tr("cost of down time"),
    "unused_share": tr("unused share"),
    "free_share": tr("unallocated share"),
    "reserved_share": tr("allocated, unused share"),
    "held_share": tr("held idle share"),
    "stalled_share": tr("stalled share"),
    "active_share": tr("busy share"),
    "efficiency": tr("efficiency"),
    "idle_gpus": tr("unused GPUs, mean"),
    "gpus": tr("GPUs"),
    "observed": tr("observed share"),
}
"""Compared figures, in their order, with their names for people."""

OF_POOLS = ("waste_money", "paid_money", "unused_share", "active_share", "idle_gpus", "observed")
"""Compared figures of each pool."""

_FLEET_ONLY = ("free_money", "unavailable_money", "free_share")
"""Figures that an edition for people leaves out."""
_SUMS, _AS_LONG_MS = ("money", "gpu_hours"), HOUR_MS


@dataclass(frozen=True)
class Side:
    """One window, its observed share, and its figures by name with their unit (empty if nothing was observed)."""

    seen: Seen
    figures: Mapping[str, tuple[str, float | None]]

    @property
    def length_ms(self) -> int:
        return self.seen.until_ms - self.seen.since_ms


@dataclass(frozen=True)
class Compared:
    """One figure of both windows.

    `change` has a difference only if both windows were fully observed and, for a sum, have the same length.
    """

    name: str
    unit: str
    now: float | None
    before: float | None
    change: Change

    @property
    def difference(self) -> float | None:
        """Return the difference in the figure's unit; of shares a ratio."""
        if self.change.now is None or self.change.before is None:
            return None
        return self.change.now - self.change.before


@dataclass(frozen=True)
class Comparison:
    """A scope in two windows: `now` and the window `before` that it is compared with. `names` are its figures."""

    now: Side
    before: Side
    names: tuple[str, ...]

    @property
    def figures(self) -> Mapping[str, Compared]:
        return {each.name: each for each in self.rows(self.names)}

    @property
    def is_comparable(self) -> bool:
        """Return True if enough of both windows was observed, so that differences are not caused by missing data."""
        return self.now.seen.is_whole and self.before.seen.is_whole

    @property
    def is_as_long(self) -> bool:
        """Return True if sums can be compared: clock changes make some days an hour longer or shorter."""
        return abs(self.now.length_ms - self.before.length_ms) <= _AS_LONG_MS

    def rows(self, names: tuple[str, ...]) -> Iterator[Compared]:
        """Return the figures that either window has."""
        units = {**self.before.figures, **self.now.figures}
        for name in (each for each in names if each in units):
            unit = units[name][0]
            now, before = (side.figures.get(name, (unit, None))[1] for side in (self.now, self.before))
            allowed = name == "observed" or (self.is_comparable and (self.is_as_long or unit not in _SUMS))
            yield Compared(name, unit, now, before, Change(unit, now, before if allowed else None))


@dataclass(frozen=True)
class Comparisons:
    """The comparison of a scope, and of each pool with data in either window."""

    scope: Scope
    currency: str
    whole: Comparison
    pools: Mapping[str, Comparison]


def compare(whole: Whole, scope: Scope, now: Window, before: Window) -> Comparisons:
    pools = [scope.pool] if scope.pool else sorted({whole.inventory.pool(gpu) for gpu in whole.inventory.devices})

    names = tuple(each for each in FIGURES if not (scope.is_personal and each in _FLEET_ONLY))
    of_pools = tuple(each for each in OF_POOLS if each in names)

    def both(own: Scope, named: tuple[str, ...]) -> Comparison:
        return Comparison(_side(whole, own, now), _side(whole, own, before), named)

    found = {pool: both(replace(scope, pool=pool), of_pools) for pool in pools} if len(pools) > 1 else {}
    known = {pool: each for pool, each in found.items() if each.now.figures or each.before.figures}
    return Comparisons(scope, whole.money.currency, both(scope, names), known)


def _side(whole: Whole, scope: Scope, window: Window) -> Side:
    inside = whole.inside(window, scope)
    seen = whole.seen(window, inside, scope)
    if not seen.observed_ms:
        return Side(seen, {})
    own = figures(inside, whole.money.of(inside, whole.inventory).accounts.total, seen)
    return Side(seen, {**named(own), **_more(own)})


def _more(own: Figures) -> Mapping[str, tuple[str, float | None]]:
    """Return figures that only a comparison has."""
    account = own.account
    return {
        "idle_gpus": ("gpus", own.idle_gpus),
        # what samples leave open would pass for a change
        "efficiency": ("share", account.efficiency if account.efficiency_bound is None else None),
    }


AGAINST = ("before", "13w")
"""Default comparisons: the same length of time just before, or the same 13 weeks earlier."""


def window_against(window: Window, against: str, zone: tzinfo) -> Window:
    """Return the window to compare with: one of AGAINST, or days as `2026-08-10..2026-08-16`. Raises UsageError."""
    if against in AGAINST:
        return as_long_before(window, zone) if against == "before" else same_time_before(window, zone)
    days = days_against(against)
    if days is None:
        raise UsageError(
            f"'{against}' is not what a window can be compared with",
            f"take {', '.join(AGAINST)}, or two days such as 2026-08-10..2026-08-16",
        )
    return day_window(*days, zone)


def days_against(against: str) -> tuple[date, date] | None:
    """Return the two named days; None if no days are named. Raises UsageError for invalid days."""
    if ".." not in against:
        return None
    first, last = days_between(*against.partition("..")[::2])
    return None if first is None or last is None else (first, last)


def same_time_before(window: Window, zone: tzinfo) -> Window:
    """Return the same days and hours, in local time, a quarter earlier. Raises ValueError without both ends."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    return Window(*(_earlier(moment, 7 * QUARTER_WEEKS, zone) for moment in (window.since_ms, window.until_ms)))


def as_long_before(window: Window, zone: tzinfo) -> Window:
    """Return the window just before: as many days for whole local days, else as much time."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    first, last = (from_ms(moment).astimezone(zone) for moment in (window.since_ms, window.until_ms))
    if (first.hour, first.minute, first.second) != (0, 0, 0) or first.time() != last.time():
        return window_before(window)
    return Window(_earlier(window.since_ms, (last.date() - first.date()).days, zone), window.since_ms)


def _earlier(moment_ms: int, days: int, zone: tzinfo) -> int:
    local = from_ms(moment_ms).astimezone(zone)
    return to_ms(datetime.combine(local.date() - timedelta(days=days), local.time(), zone))
