"""Kinds of numbers in sentences, so that each language writes them in its own way.

`str()` of a quantity is its English form, as in the commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from analytics.language.language import ENGLISH, Language
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS, from_ms


class Quantity(ABC):
    """A value that languages write differently."""

    @abstractmethod
    def shown(self, language: Language) -> str:
        """Return the text in this language."""

    def __str__(self) -> str:
        return self.shown(ENGLISH)


def from_cents(whole: int | None) -> Decimal | None:
    """Return whole cents as an amount; None stays unknown."""
    return None if whole is None else Decimal(whole) / 100


@dataclass(frozen=True)
class Number(Quantity):
    """A number with a fixed number of decimals; None is unknown: `1,234.5`."""

    value: float | Decimal | None
    digits: int = 0

    @classmethod
    def as_given(cls, value: float) -> Number:
        """Return a figure of the settings with the decimals that it needs, at most six."""
        return cls(value, len(f"{value:.6f}".rstrip("0").partition(".")[2]))

    def shown(self, language: Language) -> str:
        return language.number(self.value, self.digits)


@dataclass(frozen=True)
class Share(Quantity):
    """A ratio as percent; None is unknown: `12.3 %`."""

    ratio: float | None
    digits: int = 1

    def shown(self, language: Language) -> str:
        return language.percent(self.ratio, self.digits)


@dataclass(frozen=True)
class GpuHours(Quantity):
    """GPU time in milliseconds, written as hours with one decimal: `1,234.5`."""

    milliseconds: float

    def shown(self, language: Language) -> str:
        return language.hours(self.milliseconds)


@dataclass(frozen=True)
class Amount(Quantity):
    """Money with its ISO 4217 currency, in cents: `1,234.50 USD`."""

    value: float | Decimal | None
    currency: str | None

    def shown(self, language: Language) -> str:
        return language.money(self.value, self.currency)


@dataclass(frozen=True)
class Moment(Quantity):
    """A moment in milliseconds since the epoch, to the minute in the language's time zone: `2026-11-20 06:00 UTC`."""

    moment_ms: int

    def shown(self, language: Language) -> str:
        return language.moment(self.moment_ms)


@dataclass(frozen=True)
class Day(Quantity):
    """The day of a moment in the language's time zone: `20 Nov 2026`."""

    moment_ms: int

    def shown(self, language: Language) -> str:
        return language.day(self.moment_ms)


@dataclass(frozen=True)
class Date(Quantity):
    """A calendar day, the same in every time zone: `20 Nov 2026`."""

    date: date

    def shown(self, language: Language) -> str:
        return language.date(self.date)


@dataclass(frozen=True)
class WeekHour(Quantity):
    """An hour of the week, counted from midnight of a weekday (0 is Monday); hours above 24 are in the following days: `Sat 06:00`."""

    weekday: int
    hour: int

    def shown(self, language: Language) -> str:
        return f"{language.weekday((self.weekday + self.hour // 24) % 7)} {self.hour % 24:02}:00"


@dataclass(frozen=True)
class ShortDay(Quantity):
    """A calendar day short enough for the label of a bar: `Mon 9`."""

    date: date

    def shown(self, language: Language) -> str:
        return f"{language.weekday(self.date.weekday())} {self.date.day}"


@dataclass(frozen=True)
class ShortDate(Quantity):
    """A calendar day short enough for the label of one of many points: `20 Nov`."""

    date: date

    def shown(self, language: Language) -> str:
        return language.short_date(self.date)


@dataclass(frozen=True)
class ShortHour(Quantity):
    """A moment in milliseconds since the epoch, short enough for the label of a bar, in the language's time zone: `Mon 9 06:00`."""

    moment_ms: int

    def shown(self, language: Language) -> str:
        local = from_ms(self.moment_ms).astimezone(language.zone)
        return f"{language.weekday(local.weekday())} {local.day} {local:%H:%M}"


@dataclass(frozen=True)
class Minutes(Quantity):
    """A duration in milliseconds as whole minutes, so that several compare at a glance: `90 min`."""

    milliseconds: int

    def shown(self, language: Language) -> str:
        return language.minutes(self.milliseconds)


@dataclass(frozen=True)
class Span(Quantity):
    """A duration in milliseconds: `1h 30min`."""

    milliseconds: int

    def shown(self, language: Language) -> str:
        return language.duration(self.milliseconds)


def rounded_span(milliseconds: float) -> Span:
    """Return a duration to the second, or from an hour on to the minute."""
    unit_ms = MINUTE_MS if milliseconds >= HOUR_MS else SECOND_MS
    return Span(round(milliseconds / unit_ms) * unit_ms)


@dataclass(frozen=True)
class Bytes(Quantity):
    """A size in bytes: `23.4 GiB`."""

    size: float

    def shown(self, language: Language) -> str:
        return language.size(self.size)
