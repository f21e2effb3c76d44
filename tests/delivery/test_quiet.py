"""Quiet hours by the site's clocks, across midnight and across the change of clocks."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from analytics.delivery.nudges import Quiet
from fallow import config
from fallow.clock import parse_window
from fallow.errors import ConfigError


def quiet(hours: str = "20:00-07:00", days: str = "sat,sun") -> Quiet:
    settings = config.load({"report.quiet_hours": hours, "report.quiet_days": days}, None, {})
    return Quiet.of(settings, ZoneInfo("Europe/Paris"))


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-11-19T19:59:59+01:00", False), ("2026-11-19T20:00:00+01:00", True), ("2026-11-20T06:59:59+01:00", True),
        ("2026-11-20T07:00:00+01:00", False), ("2026-11-20T06:30:00Z", False), ("2026-11-21T12:00:00+01:00", True),
        ("2026-11-22T12:00:00+01:00", True), ("2026-11-23T12:00:00+01:00", False), ("2026-07-01T05:30:00Z", False),
        ("2026-07-01T18:30:00Z", True),
    ],
)  # fmt: skip
def test_when_it_is_quiet(moment: str, *, holds: bool) -> None:
    at_ms = parse_window(moment, None).since_ms
    assert at_ms is not None
    assert quiet().holds(at_ms) is holds


@pytest.mark.parametrize(
    ("hours", "quiet_hours"),
    [("", []), ("12:00-14:00", [12, 13]), ("22:00-24:00", [22, 23]), ("00:00-24:00", [*range(24)])],
)
def test_spans(hours: str, quiet_hours: list[int]) -> None:
    own = quiet(hours, "")
    midnight_ms = parse_window("2026-11-20T00:00:00+01:00", None).since_ms
    assert midnight_ms is not None
    assert [hour for hour in range(24) if own.holds(midnight_ms + hour * 3_600_000)] == quiet_hours


@pytest.mark.parametrize(
    ("hours", "days"), [("8-9", ""), ("20:00", ""), ("25:00-07:00", ""), ("20:00-24:30", ""), ("", "someday")]
)
def test_what_cannot_be_read(hours: str, days: str) -> None:
    with pytest.raises(ConfigError, match=r"report\.quiet_"):
        quiet(hours, days)
