"""Translatable text, and how a language writes it. English is the language of the code and needs no catalogue.

Units are SI units in every language, currencies ISO 4217 codes: unlike `$`, a code names one currency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from typing import Protocol, Self

from fallow.clock import HOUR_MS, MINUTE_MS, format_duration, from_ms, to_ms
from fallow.outside_text import revealed
from fallow.units import format_bytes


class Shown(Protocol):
    """A value that each language writes differently (analytics.language.quantities)."""

    def shown(self, language: Language) -> str:
        """Return the text in this language."""
        ...


Value = str | int | Shown
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
        if isinstance(value, str):  # a name is nobody's to translate
            return self.translate(value) if isinstance(value, Sentence | SentenceList) else revealed(value)
        shown = getattr(value, "shown", None)
        return str(value) if shown is None else shown(self)


ENGLISH = Language(space=" ")
"""The language of the commands, in UTC."""
