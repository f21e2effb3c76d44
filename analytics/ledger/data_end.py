"""Where the data of a lake end: a host whose clock is ahead must not move that end."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from fallow.clock import HOUR_MS, MINUTE_MS

TOLERANCE_MS = 5 * MINUTE_MS
"""So far apart clocks may be; hosts that ask a time server are milliseconds apart."""
ZONE_MAX_MS = 14 * HOUR_MS
"""No time zone is further ahead of UTC: more than that is no local time that was taken for UTC."""

WALL_CLOCK, OTHER_HOSTS = "the time on this machine", "the newest rows of the other hosts"


def hosts_ahead(ends: Mapping[str, int], now_ms: int) -> tuple[Mapping[str, int], str]:
    """Those of the hosts' ends that are of a clock that is ahead, and of what; `now_ms` is the wall clock's time.

    Rows of a time to come are those of a clock that is ahead, unless most hosts have some: then it is the wall clock that
    is behind. While nobody writes into the lake the wall clock tells nothing, and the hosts are held against each other.
    """
    ahead = {host: end for host, end in ends.items() if end > now_ms + TOLERANCE_MS}
    if 2 * len(ahead) > len(ends):
        return {}, WALL_CLOCK
    if not ahead and max(ends.values()) < now_ms - SILENT_AFTER_MS:
        return _ahead_of_most(ends), OTHER_HOSTS
    return ahead, WALL_CLOCK


def data_end_ms(ends: Mapping[str, int], now_ms: int) -> int:
    """The end of the newest row of the hosts whose clock is not ahead."""
    ahead, _ = hosts_ahead(ends, now_ms)
    return max(end for host, end in ends.items() if host not in ahead)


def newest_row_ms(stretches: pl.DataFrame, ahead: Collection[str]) -> int | None:
    """Return the end of the newest row that observed anything; None where there is no such row.

    Rows of hosts whose clock is ahead count only where there are no others: they were written long before or after their time.
    """
    ends = stretches.filter(pl.col("state") != "unknown").group_by("host").agg(pl.col("end").max())
    by_host = dict(ends.select("host", "end").iter_rows())
    return max((end for host, end in by_host.items() if host not in ahead), default=max(by_host.values(), default=None))


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
