"""Up to when a fleet was seen: a host whose clock is ahead must not make all others look silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.window import WindowLedger
from fallow.clock import HOUR_MS, MINUTE_MS

TOLERANCE_MS = 5 * MINUTE_MS
"""So far apart clocks may be; hosts that ask a time server are milliseconds apart."""
ZONE_MAX_MS = 14 * HOUR_MS
"""No time zone is further ahead of UTC: more than that is no local time that was taken for UTC."""

WALL_CLOCK, OTHER_HOSTS = "the time on this machine", "the newest rows of the other hosts"


@dataclass(frozen=True)
class SeenUntil:
    """The end of what was seen in a window, and the newest row of each host whose clock is ahead of `ahead_of`.

    Of such a host nobody knows what is the case at that end: its row of that moment was written long before or after.
    """

    until_ms: int
    ahead: Mapping[str, int] = field(default_factory=dict)
    ahead_of: str = WALL_CLOCK


def seen_until(ledger: WindowLedger, now_ms: int) -> SeenUntil:
    """Up to when the hosts of a window were seen; `now_ms` is the wall clock's time.

    Rows of a time to come are those of a clock that is ahead, unless most hosts have some: then it is the wall clock that
    is behind. While nobody writes into the lake the wall clock tells nothing, and the hosts are held against each other.
    """
    ends = ledger.whole.host_ends
    ahead, ahead_of = {host: end for host, end in ends.items() if end > now_ms + TOLERANCE_MS}, WALL_CLOCK
    if 2 * len(ahead) > len(ends):
        ahead = {}
    elif not ahead and max(ends.values()) < now_ms - SILENT_AFTER_MS:
        ahead, ahead_of = _ahead_of_most(ends), OTHER_HOSTS
    inside = _ends(ledger.inside.stretches)
    own = [end for host, end in inside.items() if host not in ahead] or list(inside.values())
    until_ms = max(own, default=ledger.summary.until_ms)
    return SeenUntil(until_ms, ahead, ahead_of)


def _ends(stretches: pl.DataFrame) -> dict[str, int]:
    return dict(stretches.group_by("host").agg(pl.col("end").max()).iter_rows())


def _ahead_of_most(ends: Mapping[str, int]) -> dict[str, int]:
    """The hosts that went on, by no more than a time zone, when more than half of all had ended within one hour."""
    newest = sorted(ends.values(), reverse=True)
    half = len(newest) // 2
    # the latest moment before which more than half of the hosts ended, within what makes a host silent
    together = (last for last, oldest in zip(newest, newest[half:], strict=False) if last - oldest < SILENT_AFTER_MS)
    last = next(together, newest[0])
    if newest[0] - last > ZONE_MAX_MS:
        return {}
    return {host: end for host, end in ends.items() if end > last}
