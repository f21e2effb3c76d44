"""The languages that there are, and the time zones that they can write moments in."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from analytics.language.language import Language
from fallow.errors import UsageError

CODES = ("en", "fr")
_NO_ZONES = frozenset({"Factory", "localtime", "posixrules"})


def language(code: str, zone: str | None = None) -> Language:
    """The language of that code with an IANA time zone, UTC by default; raises UsageError."""
    if code not in CODES:
        raise UsageError(f"there is no catalogue for the language '{code}'", f"choose one of {', '.join(CODES)}")
    where = time_zone(zone) if zone else UTC
    if code == "en":
        return Language(zone=where)
    from analytics.language.catalogue import Translated  # Babel takes a while to load

    return Translated(code, where)


@cache
def _zone_names() -> frozenset[str]:
    """All that there are; Python walks through a folder of files for them."""
    return frozenset(available_timezones() - _NO_ZONES)


def time_zone(name: str) -> tzinfo:
    """The IANA time zone; raises UsageError.

    Machines have files beside the zones, such as `localtime` and `right/UTC`, that Python takes for zones and Polars does not. Polars
    itself is not asked: it would start its threads, which a server that forks afterwards would wait for without end.
    """
    if name not in _zone_names():
        raise UsageError(f"'{name}' is not a time zone", "write an IANA name such as Europe/Paris or UTC")
    return ZoneInfo(name)
