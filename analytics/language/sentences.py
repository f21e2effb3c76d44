"""Translatable text and quantities, how a language writes them, and lines of plain text."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from functools import cache
from typing import Self, TypeAlias

from fallow import outside_text
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS, format_duration, from_ms, to_ms
from fallow.outside_text import revealed
from fallow.units import format_bytes

# Translatable text, and how a language writes it. English is the language of the code and needs no catalogue.
#
# Units are SI units in every language, currencies ISO 4217 codes: unlike `$`, a code names one currency.


Value: TypeAlias = "str | int | Quantity"
"""Values in a sentence."""


class Sentence(str):
    """English text whose `template` and `values` are translated by `Language.translate`.

    Code without languages compares, stores and prints it as the English string.
    """

    __slots__ = ("many", "number", "template", "values")

    template: str
    """The English form with names in braces: the key of catalogues."""
    values: Mapping[str, Value]
    number: int | None
    """The number that selects singular or plural; None for one form."""
    many: str | None
    """The English plural form."""

    def __new__(
        cls, template: str, values: Mapping[str, Value], number: int | None = None, many: str | None = None
    ) -> Self:
        form = template if many is None or number == 1 else many
        self = super().__new__(cls, form.format_map({name: str(value) for name, value in values.items()}))
        self.template, self.values, self.number, self.many = template, dict(values), number, many
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as plain English text: programs read what leaves the process."""
        return (str, (str(self),))


class SentenceList(str):
    """Sentences in a row, each translated by itself."""

    __slots__ = ("between", "parts")

    parts: tuple[str, ...]
    between: str

    def __new__(cls, parts: Iterable[str], between: str = "; ") -> Self:
        kept = tuple(parts)
        self = super().__new__(cls, between.join(kept))
        self.parts, self.between = kept, between
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as plain English text."""
        return (str, (str(self),))


@dataclass(frozen=True)
class Language:
    """English, and the base of other languages. `zone` is the time zone of moments.

    `space` is between a number and its unit: a no-break space, except in terminals.
    """

    code: str = "en"
    zone: tzinfo = UTC
    space: str = "\N{NO-BREAK SPACE}"

    def translate(self, text: str) -> str:
        """Return the text in this language; English if there is no translation."""
        if isinstance(text, SentenceList):
            return self._plain(text.between).join(self.translate(part) for part in text.parts)
        if not isinstance(text, Sentence):
            return self._plain(revealed(text))
        return self.form(text).format_map({name: self.shown(value) for name, value in text.values.items()})

    def number(self, value: float | Decimal | None, digits: int = 0) -> str:
        """Return `1,234.5`, or a word for unknown."""
        return self.translate("unknown") if value is None else self._decimal(value, digits)

    def percent(self, ratio: float | None, digits: int = 1) -> str:
        """Return `12.3 %`, or a word for unknown."""
        return self.translate("unknown") if ratio is None else f"{self._decimal(100 * ratio, digits)}{self.space}%"

    def hours(self, milliseconds: float) -> str:
        """Return hours with one decimal."""
        return self._decimal(milliseconds / HOUR_MS, 1)

    def money(self, amount: float | Decimal | None, currency: str | None) -> str:
        """Return `1,234.50 USD`, with the two decimals of the ledger's sums, or a word for unknown."""
        if amount is None:
            return self.translate("unknown")
        return f"{self._decimal(amount, 2)}{self.space}{currency}" if currency else self._decimal(amount, 2)

    def moment(self, moment_ms: int) -> str:
        """Return a moment to the minute with its time zone: `20 Nov 2026, 06:00 UTC`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{self.day(moment_ms)}, {local:%H:%M} {local.tzname()}"

    def day(self, moment_ms: int) -> str:
        """Return the day of a moment: `20 Nov 2026`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{local.day} {local:%b %Y}"

    def short_date(self, when: date) -> str:
        """Return a calendar day without its year: `20 Nov`."""
        return f"{when.day} {when:%b}"

    def date(self, when: date) -> str:
        """Return a calendar day, the same in every time zone, in the form of `day`."""
        return replace(self, zone=UTC).day(to_ms(datetime.combine(when, time.min, UTC)))

    def weekday(self, number: int) -> str:
        """Return the short name of a weekday; Monday is 0."""
        return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[number]

    def duration(self, milliseconds: int) -> str:
        """Return `1 h 30 min`: symbols of units are separate from their number."""
        return re.sub(r"(?<=\d)(?=[a-z])", self.space, format_duration(milliseconds))

    def minutes(self, milliseconds: int) -> str:
        """Return whole minutes, `90 min`, so that several lengths compare at a glance."""
        return f"{self._decimal(milliseconds / MINUTE_MS, 0)}{self.space}min"

    def size(self, size: float) -> str:
        """Return `23.4 GiB`."""
        value, unit = format_bytes(size).split(" ")
        return f"{self._decimal(float(value), len(value.partition('.')[2]))}{self.space}{unit}"

    def _decimal(self, value: float | Decimal, digits: int) -> str:
        return f"{value:,.{digits}f}"

    def _plain(self, text: str) -> str:
        return text

    def form(self, text: Sentence) -> str:
        return text.template if text.many is None or text.number == 1 else text.many

    def shown(self, value: object) -> str:
        """Return a value in a sentence or cell.

        Sentences are translated, quantities written in the language, and names are unchanged and fully visible.
        """
        if isinstance(value, str):  # a name is not translated
            return self.translate(value) if isinstance(value, Sentence | SentenceList) else revealed(value)
        return value.shown(self) if isinstance(value, Quantity) else str(value)


ENGLISH = Language(space=" ")
"""The language of the commands, in UTC."""


# Kinds of numbers in sentences, so that each language writes them in its own way.
#
# `str()` of a quantity is its English form, as in the commands.


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
    """An hour after midnight of a weekday (0 is Monday), such as `Sat 06:00`; from hour 24 on it is a following day."""

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
    """A moment (milliseconds since the epoch) in the language's zone, short enough for a bar's label: `Mon 9 06:00`."""

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


_FORM = r"((?:[^{}|]|\{\w+\})*)"
_EITHER = re.compile(rf"\{{{_FORM}\|{_FORM}\}}")
"""Two forms in braces, which may have names in braces themselves."""


def tr(template: str, **values: Value) -> Sentence:
    """Return the template with its values: `{name}` is `name=`.

    Values may be sentences; whole numbers become a `Number`.
    """
    return Sentence(template, _written(values))


def tr_many(template: str, number: int, **values: Value) -> Sentence:
    """Return the singular or plural form for the number, which the template has as `{number}`.

    Words that differ are side by side in braces: `{number} {job waits|jobs wait} for {gpus}`.
    """
    one, many = both_forms(template)
    return Sentence(one, _written({"number": number} | values), number, many)


@cache
def both_forms(template: str) -> tuple[str, str]:
    """Return the singular and the plural form of a template: the keys of catalogues."""
    return _EITHER.sub(r"\1", template), _EITHER.sub(r"\2", template)


def _written(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: Number(value) if type(value) is int else value for name, value in values.items()}


# Names, numbers and lines for plain text: in a terminal, a file or a message.

PAGE_COLUMNS = 100
"""Width of text in files, in pipes and on wide terminals."""

_FEWEST_COLUMNS = 80


def count(number: int, thing: str) -> str:
    """Return `1 GPU` or `2 GPUs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


plain = outside_text.plain
"""Return a name on one line."""


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return lines of at most `width` columns, after `first` and `rest`.

    Numbers keep their units, and paths stay whole.
    """
    joined = re.sub(r"(?<=\d) (?=%|GPU|kWh|h\b|W\b|days\b|[KMGT]?i?B\b|>=)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        joined,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words="/" not in text,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def page_columns() -> int:
    """Return the width of standard output: less than PAGE_COLUMNS only on a narrower terminal, and never below 80."""
    if not sys.stdout.isatty():
        return PAGE_COLUMNS
    columns = shutil.get_terminal_size((PAGE_COLUMNS, 24)).columns
    return max(_FEWEST_COLUMNS, min(columns, PAGE_COLUMNS))


def fitted_lines(
    cells: Sequence[Sequence[str]], width: int, shrinking: Iterable[tuple[str, int]], right: Collection[str] = ()
) -> list[str]:
    """Return a table as lines, the first row its head.

    If it is too wide, the first named columns shrink first, down to their least width.
    """
    names = cells[0]
    widths = dict(zip(names, (max(map(len, column)) for column in zip(*cells, strict=True)), strict=True))
    room = width - sum(widths.values()) - 2 * len(widths)
    for name, least in shrinking:
        if room < 0 and widths.get(name, 0) > least:
            given = min(-room, widths[name] - least)
            widths[name] -= given
            room += given
    return [_fitted_line(row, widths, right) for row in cells]


def _fitted_line(cells: Sequence[str], widths: Mapping[str, int], right: Collection[str]) -> str:
    shown = [
        f"{cell:>{width}}" if name in right else f"{plain(cell, width):<{width}}"
        for cell, (name, width) in zip(cells, widths.items(), strict=True)
    ]
    return ("  " + "  ".join(shown)).rstrip()


def hours(milliseconds: int) -> str:
    """Return GPU-hours with one decimal and thousands separators."""
    return f"{milliseconds / HOUR_MS:,.1f}"


def moment(moment_ms: int) -> str:
    """Return a time for people: UTC to the minute."""
    return from_ms(moment_ms).strftime("%Y-%m-%d %H:%M UTC")
