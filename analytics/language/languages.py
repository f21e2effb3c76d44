"""The languages that there are, and the time zones that they can write moments in."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from analytics.language.language import Language
from fallow.errors import UsageError

CODES = ("en", "fr")


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
