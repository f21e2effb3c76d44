"""Where a follower goes on that has lost its journal."""

from __future__ import annotations

from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import AGENT_FIRST_SEQ, Lake
from fallow.schema import GPU

_BACK_DAYS = 7


def newest_hour_ms(lake: Lake, now_ms: int) -> int | None:
    """The start of the newest hour that followers wrote in the last week, of the host that is furthest behind; None where there is none.

    Several followers may share a lake, and one of them may have been away. Their files are named for whole hours, which tells them from those
    of other imports; an hour that was begun is read again. Raises LakeError.
    """
    if not lake.store.exists():
        return None
    newest: dict[str, int] = {}
    for file in lake.files(GPU.name, dates=[utc_day(now_ms - back * DAY_MS) for back in range(_BACK_DAYS + 1)]):
        end_ms = file.last_seq + 1
        if file.last_seq < AGENT_FIRST_SEQ and file.first_seq % HOUR_MS == 0 and end_ms % HOUR_MS == 0:
            newest[file.host] = max(end_ms - HOUR_MS, newest.get(file.host, 0))
    return min(newest.values(), default=None)
