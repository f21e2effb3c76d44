"""Which weeks to send to a target now: the one that was asked for, and those that did not arrive."""

from __future__ import annotations

from datetime import tzinfo

from analytics.delivery.journal import Journal
from analytics.delivery.model import FAILED, SENT, Delivery
from analytics.report.weeks import Week, parse_week
from fallow.clock import HOUR_MS
from fallow.errors import UsageError

CLOSES_AFTER_MS = 6 * HOUR_MS
"""A week closes on Monday at 06:00 local time, when rows that hosts published late have arrived."""

BACK = 4
"""Weeks that a run looks back on, including the newest."""


def asked_week(text: str, zone: tzinfo, now_ms: int) -> Week:
    """The week of --week; `last` is the newest that is closed. Raises UsageError, also for a week that is not closed yet."""
    week = parse_week(text, zone, now_ms - CLOSES_AFTER_MS)
    if week.until_ms + CLOSES_AFTER_MS > now_ms:
        raise UsageError(
            f"{week.label} is not over: it closes on Monday, {week.before(-1).monday.isoformat()}, at 06:00",
            "an edition is sent once, so it is sent when it is whole; `fallow report --week` shows it as it stands",
        )
    return week


def missed(journal: Journal, newest: Week, edition: str, target: str) -> tuple[Week, ...]:
    """The weeks before `newest` that did not arrive, the oldest first.

    Only those since the first that was ever sent to this target, or tried: a new target does not get a month at once.
    """
    known = [
        entry.delivery.week
        for entry in journal.entries
        if (entry.delivery.purpose, entry.delivery.edition, entry.delivery.target) == ("report", edition, target)
    ]
    if not known:
        return ()
    weeks = (newest.before(number) for number in range(BACK - 1, 0, -1))
    return tuple(
        week for week in weeks if week.label >= min(known) and journal.standing(of(week, edition, target)).step != SENT
    )


def failed(journal: Journal, newest: Week, edition: str, target: str) -> tuple[Week, ...]:
    """The weeks up to `newest` whose last try failed, the oldest first."""
    weeks = (newest.before(number) for number in range(BACK - 1, -1, -1))
    return tuple(week for week in weeks if journal.standing(of(week, edition, target)).step == FAILED)


def of(week: Week, edition: str, target: str) -> Delivery:
    """The delivery of one edition of the report."""
    return Delivery("report", week.label, edition, target)
