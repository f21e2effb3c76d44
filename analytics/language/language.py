"""Text that can be translated, and how a language writes it: English, the language of the code, needs no catalogue.

Units are the SI's in every language, currencies their ISO 4217 codes: unlike `$`, a code names one currency.
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
    """A value that each language writes in its own way (analytics.language.quantities)."""

    def shown(self, language: Language) -> str:
        """As text in that language."""
        ...


Value = str | int | Shown
"""What a sentence may hold."""


class Sentence(str):
    """English text; `template` and `values` say it in another language (`Language.say`).

    To everything that knows nothing of languages it is the English string: it is compared, stored and printed as such.
    """

    __slots__ = ("many", "number", "template", "values")

    template: str
    """The English form with names in braces: what catalogues are keyed by."""
    values: Mapping[str, Value]
    number: int | None
    """What decides between the forms for one and for many; None where there is one form."""
    many: str | None
    """The English form for any other number than one."""

    def __new__(
        cls, template: str, values: Mapping[str, Value], number: int | None = None, many: str | None = None
    ) -> Self:
        """The sentence; `many` is the English form for any other number than one."""
        form = template if many is None or number == 1 else many
        self = super().__new__(cls, form.format_map({name: str(value) for name, value in values.items()}))
        self.template, self.values, self.number, self.many = template, dict(values), number, many
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the plain English text: what leaves the process is read by machines."""
        return (str, (str(self),))


class SentenceList(str):
    """Sentences behind one another, each said for itself."""

    __slots__ = ("between", "parts")

    parts: tuple[str, ...]
    between: str

    def __new__(cls, parts: Iterable[str], between: str = "; ") -> Self:
        """The parts with `between` between them."""
        kept = tuple(parts)
        self = super().__new__(cls, between.join(kept))
        self.parts, self.between = kept, between
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the plain English text."""
        return (str, (str(self),))


@dataclass(frozen=True)
class Language:
    """English, and what other languages replace; `zone` is the time zone in which moments are shown.

    `space` stands between a number and its unit: one that does not break, save in terminals.
    """

    code: str = "en"
    zone: tzinfo = UTC
    space: str = "\N{NO-BREAK SPACE}"

    def translate(self, text: str) -> str:
        """The text in this language; what has no translation stays as it is."""
        if isinstance(text, SentenceList):
            return self._plain(text.between).join(self.translate(part) for part in text.parts)
        if not isinstance(text, Sentence):
            return self._plain(revealed(text))
        return self.form(text).format_map({name: self.shown(value) for name, value in text.values.items()})

    def number(self, value: float | Decimal | None, digits: int = 0) -> str:
        """`1,234.5`, or a word for unknown."""
        return self.translate("unknown") if value is None else self._decimal(value, digits)

    def percent(self, ratio: float | None, digits: int = 1) -> str:
        """`12.3 %`, or a word for unknown."""
        return self.translate("unknown") if ratio is None else f"{self._decimal(100 * ratio, digits)}{self.space}%"

    def hours(self, milliseconds: float) -> str:
        """Hours with one decimal."""
        return self._decimal(milliseconds / HOUR_MS, 1)

    def money(self, amount: float | Decimal | None, currency: str | None) -> str:
        """`1,234.50 USD`, with the two decimals of the ledger's sums, or a word for unknown."""
        if amount is None:
            return self.translate("unknown")
        return f"{self._decimal(amount, 2)}{self.space}{currency}" if currency else self._decimal(amount, 2)

    def moment(self, moment_ms: int) -> str:
        """A moment to the minute with its time zone: `20 Nov 2026, 06:00 UTC`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{self.day(moment_ms)}, {local:%H:%M} {local.tzname()}"

    def day(self, moment_ms: int) -> str:
        """The day on which a moment lies: `20 Nov 2026`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{local.day} {local:%b %Y}"

    def short_date(self, when: date) -> str:
        """A day of the calendar without its year: `20 Nov`."""
        return f"{when.day} {when:%b}"

    def date(self, when: date) -> str:
        """A day of the calendar, the same in every time zone, as `day` has it."""
        return replace(self, zone=UTC).day(to_ms(datetime.combine(when, time.min, UTC)))

    def weekday(self, number: int) -> str:
        """The short name of a weekday, Monday being 0."""
        return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[number]

    def duration(self, milliseconds: int) -> str:
        """`1 h 30 min`: symbols of units stand apart from their number."""
        return re.sub(r"(?<=\d)(?=[a-z])", self.space, format_duration(milliseconds))

    def minutes(self, milliseconds: int) -> str:
        """`90 min`, whole ones: so that several lengths are compared at a glance."""
        return f"{self._decimal(milliseconds / MINUTE_MS, 0)}{self.space}min"

    def size(self, size: float) -> str:
        """`23.4 GiB`."""
        value, unit = format_bytes(size).split(" ")
        return f"{self._decimal(float(value), len(value.partition('.')[2]))}{self.space}{unit}"

    def _decimal(self, value: float | Decimal, digits: int) -> str:
        return f"{value:,.{digits}f}"

    def _plain(self, text: str) -> str:
        return text

    def form(self, text: Sentence) -> str:
        return text.template if text.many is None or text.number == 1 else text.many

    def shown(self, value: object) -> str:
        """A value inside a sentence or in a cell: sentences are translated, quantities written, names are as they are, with nothing hidden."""
        if isinstance(value, str):  # a name is nobody's to translate
            return self.translate(value) if isinstance(value, Sentence | SentenceList) else revealed(value)
        shown = getattr(value, "shown", None)
        return str(value) if shown is None else shown(self)


ENGLISH = Language(space=" ")
"""That of the commands, in UTC."""
