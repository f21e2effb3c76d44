"""Where a follower goes on that has lost its journal."""

from __future__ import annotations

from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import AGENT_FIRST_SEQ, Lake
from fallow.schema import GPU

_BACK_DAYS = 7


def newest_hour_ms(lake: Lake, now_ms: int) -> int | None:
    """The start of the newest hour or day whose file a follower wrote in the last week; None where there is none. Raises LakeError.

    Its files are named for whole hours, which tells them from those of other imports; an hour that was begun is read again.
    """
    if not lake.store.exists():
        return None
    for back in range(_BACK_DAYS + 1):
        files = lake.files(GPU.name, dates=[utc_day(now_ms - back * DAY_MS)])
        starts = [
            file.last_seq + 1 - HOUR_MS
            for file in files
            if file.last_seq < AGENT_FIRST_SEQ and file.first_seq % HOUR_MS == 0 and (file.last_seq + 1) % HOUR_MS == 0
        ]
        if starts:
            return max(starts)
    return None
