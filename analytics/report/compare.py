"""A window beside the one just before it or any other: every key figure of both, and the difference where both allow one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo

from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
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


def changes(whole: Whole, ledger: LedgerFigures) -> Changes:
    """The figures of a ledger, beside those of the same scope in the window before."""
    scope, seen = ledger.scope, ledger.seen
    earlier = window_before(Window(seen.since_ms, seen.until_ms))
    inside = whole.inside(earlier, scope)
    looked = whole.seen(earlier, inside, scope)
    now = named(Figures(ledger.summary.totals, ledger.money.accounts.total, seen))
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


FIGURES = (
    "waste_money",
    "paid_money",
    "useful_money",
    "free_money",
    "reserved_money",
    "held_money",
    "unavailable_money",
    "unused_share",
    "free_share",
    "reserved_share",
    "held_share",
    "active_share",
    "efficiency",
    "idle_gpus",
    "gpus",
    "observed",
)
"""What is compared, in the order in which it is shown."""

OF_POOLS = ("waste_money", "paid_money", "unused_share", "active_share", "idle_gpus", "observed")
"""What is compared of each pool."""

_OF_NOBODY = ("free_money", "unavailable_money", "free_share")
"""What an edition for people does not have."""
_SUMS, _AS_LONG_MS = ("money", "gpu_hours"), HOUR_MS


@dataclass(frozen=True)
class Side:
    """One window, how much of it was observed, and its figures by name with their unit; without any where nothing was."""

    seen: Seen
    figures: Mapping[str, tuple[str, float | None]]

    @property
    def length_ms(self) -> int:
        return self.seen.until_ms - self.seen.since_ms


@dataclass(frozen=True)
class Compared:
    """One figure of both windows. `change` has a difference only where both were observed as a whole, and are as long for a sum."""

    name: str
    unit: str
    now: float | None
    before: float | None
    change: Change

    @property
    def difference(self) -> float | None:
        """In the figure's own unit; of shares a ratio."""
        if self.change.now is None or self.change.before is None:
            return None
        return self.change.now - self.change.before


@dataclass(frozen=True)
class Comparison:
    """A scope in two windows: `now` is what is asked about, `before` what it is held against; `names` are its figures."""

    now: Side
    before: Side
    names: tuple[str, ...]

    @property
    def figures(self) -> Mapping[str, Compared]:
        """Its figures of `names` by name."""
        return {each.name: each for each in self.rows(self.names)}

    @property
    def is_comparable(self) -> bool:
        """Whether so much of both was observed that a difference is not one of what was seen."""
        return self.now.seen.is_whole and self.before.seen.is_whole

    @property
    def is_as_long(self) -> bool:
        """Whether sums can be compared: clocks that change make days an hour longer or shorter."""
        return abs(self.now.length_ms - self.before.length_ms) <= _AS_LONG_MS

    def rows(self, names: tuple[str, ...]) -> Iterator[Compared]:
        """The figures that either window has."""
        units = {**self.before.figures, **self.now.figures}
        for name in (each for each in names if each in units):
            unit = units[name][0]
            now, before = (side.figures.get(name, (unit, None))[1] for side in (self.now, self.before))
            allowed = name == "observed" or (self.is_comparable and (self.is_as_long or unit not in _SUMS))
            yield Compared(name, unit, now, before, Change(unit, now, before if allowed else None))


@dataclass(frozen=True)
class Comparisons:
    """That of a scope, and of each pool of which either window has something."""

    scope: Scope
    currency: str
    whole: Comparison
    pools: Mapping[str, Comparison]


def compare(whole: Whole, scope: Scope, now: Window, before: Window) -> Comparisons:
    """Two windows, both of which the ledger of `whole` has."""
    pools = [scope.pool] if scope.pool else sorted({whole.inventory.pool(gpu) for gpu in whole.inventory.devices})

    names = tuple(each for each in FIGURES if not (scope.is_personal and each in _OF_NOBODY))
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
    """What only a comparison has."""
    totals = own.totals
    return {
        "idle_gpus": ("gpus", own.idle_gpus),
        # what point samples leave open would pass for a change
        "efficiency": ("share", None if totals.leaves_open else own.account.efficiency),
    }


AGAINST = ("before", "13w")
"""What a window is compared with unless days are named: as much time just before it, or the same 13 weeks earlier."""


def window_against(window: Window, against: str, zone: tzinfo) -> Window:
    """What a window with both ends is compared with: one of AGAINST, or days as `2026-08-10..2026-08-16`; raises UsageError."""
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
    """The two days that are named, None where none are; raises UsageError for what looks like days and is none."""
    if ".." not in against:
        return None
    first, last = days_between(*against.partition("..")[::2])
    return None if first is None or last is None else (first, last)


def same_time_before(window: Window, zone: tzinfo) -> Window:
    """The same days and hours on the clocks of a zone a quarter earlier; raises ValueError without both ends."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    return Window(*(_earlier(moment, 7 * QUARTER_WEEKS, zone) for moment in (window.since_ms, window.until_ms)))


def as_long_before(window: Window, zone: tzinfo) -> Window:
    """The window just before: as many days where it is whole days on the clocks of a zone, else as much time."""
    if window.since_ms is None or window.until_ms is None:
        raise ValueError(window)
    first, last = (from_ms(moment).astimezone(zone) for moment in (window.since_ms, window.until_ms))
    if (first.hour, first.minute, first.second) != (0, 0, 0) or first.time() != last.time():
        return window_before(window)
    return Window(_earlier(window.since_ms, (last.date() - first.date()).days, zone), window.since_ms)


def _earlier(moment_ms: int, days: int, zone: tzinfo) -> int:
    local = from_ms(moment_ms).astimezone(zone)
    return to_ms(datetime.combine(local.date() - timedelta(days=days), local.time(), zone))
