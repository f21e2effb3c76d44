"""How a language writes sentences, numbers, dates and money; English, which is that of the code, without any library.

Units are the SI's in every language, currencies their ISO 4217 codes: unlike `$`, a code names one currency.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from analytics.language.sentences import Listed, Sentence
from fallow.clock import HOUR_MS, MINUTE_MS, format_duration, from_ms, to_ms
from fallow.errors import UsageError
from fallow.units import format_bytes

if TYPE_CHECKING:
    from decimal import Decimal

CODES = ("en", "fr")


@dataclass(frozen=True)
class Language:
    """English, and what other languages replace; `zone` is the time zone in which moments are shown.

    `space` stands between a number and its unit: one that does not break, save in terminals.
    """

    code: str = "en"
    zone: tzinfo = UTC
    space: str = "\N{NO-BREAK SPACE}"

    def say(self, text: str) -> str:
        """The text in this language; what has no translation stays as it is."""
        if isinstance(text, Listed):
            return self._plain(text.between).join(self.say(part) for part in text.parts)
        if not isinstance(text, Sentence):
            return self._plain(text)
        return self.form(text).format_map({name: self.shown(value) for name, value in text.values.items()})

    def number(self, value: float | Decimal | None, digits: int = 0) -> str:
        """`1,234.5`, or a word for unknown."""
        return self.say("unknown") if value is None else self._decimal(value, digits)

    def percent(self, ratio: float | None, digits: int = 1) -> str:
        """`12.3 %`, or a word for unknown."""
        return self.say("unknown") if ratio is None else f"{self._decimal(100 * ratio, digits)}{self.space}%"

    def hours(self, milliseconds: float) -> str:
        """Hours with one decimal."""
        return self._decimal(milliseconds / HOUR_MS, 1)

    def money(self, amount: float | Decimal | None, currency: str | None) -> str:
        """`1,234.50 USD`, with the two decimals of the ledger's sums, or a word for unknown."""
        if amount is None:
            return self.say("unknown")
        return f"{self._decimal(amount, 2)}{self.space}{currency}" if currency else self._decimal(amount, 2)

    def moment(self, moment_ms: int) -> str:
        """A moment to the minute with its time zone: `20 Nov 2026, 06:00 UTC`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{self.day(moment_ms)}, {local:%H:%M} {local.tzname()}"

    def day(self, moment_ms: int) -> str:
        """The day on which a moment lies: `20 Nov 2026`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{local.day} {local:%b %Y}"

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
        """A value inside a sentence or in a cell: sentences are translated, quantities written, names stay as they are."""
        if isinstance(value, str):  # a name is nobody's to translate
            return self.say(value) if isinstance(value, Sentence | Listed) else value
        shown = getattr(value, "shown", None)
        return str(value) if shown is None else shown(self)


ENGLISH = Language(space=" ")
"""That of the commands, in UTC."""


def language(code: str, zone: str | None = None) -> Language:
    """The language of that code with an IANA time zone, UTC by default; raises UsageError."""
    if code not in CODES:
        raise UsageError(f"there is no catalogue for the language '{code}'", f"choose one of {', '.join(CODES)}")
    where = time_zone(zone) if zone else UTC
    if code == "en":
        return Language(zone=where)
    from analytics.language.catalogue import Translated  # Babel takes a while to load

    return Translated(code, where)


def time_zone(name: str) -> tzinfo:
    """The IANA time zone; raises UsageError.

    Machines have files beside the zones, such as `localtime` and `right/UTC`, that Python takes for zones and Polars does not.
    """
    try:
        pl.select(pl.lit(0).cast(pl.Datetime("ms", "UTC")).dt.convert_time_zone(name))
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(f"'{name}' is not a time zone", "write an IANA name such as Europe/Paris or UTC") from error
