"""Does the clock tell the truth? Every row is placed by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_NOT_BEFORE = datetime(2026, 11, 1, tzinfo=UTC)
"""This software did not exist before."""
_NOT_AFTER = datetime(2056, 1, 1, tzinfo=UTC)


def look(case: Case) -> Iterator[Finding]:
    """The year, and what the kernel says of its synchronisation."""
    now, clock = case.host.now, case.host.clock()
    shown = f"{now:%Y-%m-%d %H:%M} UTC"
    facts: Facts = {
        "now": now.isoformat(timespec="seconds"),
        "synchronised": None if clock is None else clock.synchronised,
        "max_error_s": None if clock is None else clock.max_error_s,
    }
    if not _NOT_BEFORE <= now <= _NOT_AFTER:
        yield error(
            f"the clock says {shown}, which cannot be: rows would go to the wrong days",
            "set it, and keep it set by NTP",
            "sudo timedatectl set-ntp true",
            facts,
        )
    elif clock is None:
        yield skipped(
            f"it is {shown}; whether the clock is synchronised may not be asked here",
            facts,
        )
    elif not clock.synchronised:
        yield warning(
            f"it is {shown}, and nothing keeps the clock: rows of several hosts will not line up",
            "run chrony or systemd-timesyncd",
            "timedatectl status",
            facts,
        )
    else:
        yield ok(
            f"it is {shown}, synchronised within {clock.max_error_s:.2g} s",
            facts,
        )
