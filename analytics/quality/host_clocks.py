"""Up to when a fleet was seen: a host whose clock is ahead must not make all others look silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from analytics.ledger.summary import WALL_CLOCK, hosts_ahead
from analytics.window import WindowLedger


@dataclass(frozen=True)
class SeenUntil:
    """The end of what was seen in a window, and the newest row of each host whose clock is ahead of `ahead_of`.

    Of such a host nobody knows what is the case at that end: its row of that moment was written long before or after.
    """

    until_ms: int
    ahead: Mapping[str, int] = field(default_factory=dict)
    ahead_of: str = WALL_CLOCK


def seen_until(ledger: WindowLedger, now_ms: int) -> SeenUntil:
    """Up to when the hosts of a window were seen; `now_ms` is the wall clock's time."""
    ahead, ahead_of = hosts_ahead(ledger.whole.host_ends, now_ms)
    inside = _ends(ledger.inside.stretches)
    own = [end for host, end in inside.items() if host not in ahead] or list(inside.values())
    until_ms = max(own, default=ledger.summary.until_ms)
    return SeenUntil(until_ms, ahead, ahead_of)


def _ends(stretches: pl.DataFrame) -> dict[str, int]:
    return dict(stretches.group_by("host").agg(pl.col("end").max()).iter_rows())
