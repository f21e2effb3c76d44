"""Languages other than English: gettext catalogues in `catalogues/<language>/`, and Babel's numbers and dates."""

from __future__ import annotations

import functools
import gettext
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from babel import Locale
from babel.dates import format_date
from babel.messages.pofile import read_po
from babel.numbers import format_decimal

from analytics.language.sentences import Language, Sentence
from fallow.clock import from_ms

CATALOGUES = Path(__file__).parent / "catalogues"


@dataclass(frozen=True)
class Catalogue:
    """The translations of each English template, and the plural form of a number."""

    forms: Mapping[str, tuple[str, ...]]
    plural: Callable[[int], int]


@functools.cache
def catalogue(code: str) -> Catalogue:
    """Return the language's files together, without missing and `fuzzy` translations."""
    forms: dict[str, tuple[str, ...]] = {}
    plural = "n != 1"
    for path in sorted((CATALOGUES / code).glob("*.po")):
        with path.open("rb") as file:
            messages = read_po(file, locale=code)
        plural = messages.plural_expr
        for message in messages:
            key = message.id if isinstance(message.id, str) else message.id[0]
            forms_of_message = (message.string,) if isinstance(message.string, str) else tuple(message.string or ())
            if key and forms_of_message and all(forms_of_message) and not message.fuzzy:
                forms[key] = tuple(map(_bound, forms_of_message))
    return Catalogue(forms, gettext.c2py(plural))


def _bound(text: str) -> str:
    """Return a text in which no line begins with the sign that French sets off with a space."""
    return re.sub(r" (?=[;:?!»])|(?<=«) ", "\N{NO-BREAK SPACE}", text)


@dataclass(frozen=True)
class Translated(Language):
    """A language with a catalogue."""

    def day(self, moment_ms: int) -> str:
        return format_date(from_ms(moment_ms).astimezone(self.zone), "d MMM y", locale=self._locale)

    def short_date(self, when: date) -> str:
        return format_date(when, "d MMM", locale=self._locale)

    def weekday(self, number: int) -> str:
        """Return the short name of a weekday; Monday is 0."""
        return str(self._locale.days["stand-alone"]["abbreviated"][number])

    def duration(self, milliseconds: int) -> str:
        """Return a duration. Symbols of units are the same in every language, except that of a day."""
        return re.sub(r"(?<=\d\s)d\b", self.translate("d"), super().duration(milliseconds))

    @property
    def _locale(self) -> Locale:
        return Locale.parse(self.code)

    def _decimal(self, value: float | Decimal, digits: int) -> str:
        # rounded as English does: Babel takes the half to the even digit of what a float is written as
        rounded = Decimal(f"{value:.{digits}f}")
        return format_decimal(rounded, "#,##0" + ("." + "0" * digits if digits else ""), locale=self._locale)

    def _plain(self, text: str) -> str:
        return catalogue(self.code).forms.get(text, (text,))[0]

    def form(self, text: Sentence) -> str:
        forms = catalogue(self.code).forms.get(text.template)
        if forms is None:
            return super().form(text)
        return forms[0] if text.number is None else forms[catalogue(self.code).plural(text.number)]
