"""The available languages, and time zones for their moments."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from analytics.language.sentences import Language
from fallow.config import Config
from fallow.errors import UsageError

CODES = ("en", "fr")
_NO_ZONES = frozenset({"Factory", "localtime", "posixrules"})


def language(code: str, zone: str | None = None) -> Language:
    """Return the language with this code and an IANA time zone (by default UTC). Raises UsageError."""
    if code not in CODES:
        raise UsageError(f"there is no catalogue for the language '{code}'", f"choose one of {', '.join(CODES)}")
    where = time_zone(zone) if zone else UTC
    if code == "en":
        return Language(zone=where)
    from analytics.language.catalogue import Translated  # Babel takes a while to load

    return Translated(code, where)


@cache
def _zone_names() -> frozenset[str]:
    """Return all zone names; Python reads a folder of files for them."""
    return frozenset(available_timezones() - _NO_ZONES)


def time_zone(name: str) -> tzinfo:
    """Return the IANA time zone. Raises UsageError.

    Machines have files beside the zones, such as `localtime` and `right/UTC`, which Python accepts as zones and Polars
    does not. Polars itself is not used here: it would start its threads, and a server that forks later would wait for
    them forever.
    """
    if name not in _zone_names():
        raise UsageError(f"'{name}' is not a time zone", "write an IANA name such as Europe/Paris or UTC")
    return ZoneInfo(name)


def site_zone(settings: Config) -> tzinfo:
    """Return the zone of `report.timezone`: the zone of days, weeks and deadlines unless a reader names another.

    Raises UsageError.
    """
    return time_zone(settings.text("report.timezone"))
