"""Rows that cannot be published under this host's name, kept in a spool of their own beside the others.

Two agents had one name: what the one recorded while the other one published is not that host's. `fallow agent publish` publishes such a
spool under a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.spool.installation import COPIED_UNTIL
from agent.spool.spool import Spool
from fallow.clock import format_ms

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE = 500


class SetAside(NamedTuple):
    """Where rows are kept, and how many were moved there."""

    folder: Path
    row_count: int

    def said(self) -> str:
        return (
            f"{self.row_count} rows are kept in {self.folder}; `fallow agent publish --spool {self.folder} --host NAME` publishes them under "
            "a name of their own"
        )


def set_rows_aside(spool: Spool, before_ms: int) -> SetAside | None:
    """Moves waiting rows of the time before a moment, and returns where they are; None where there are none.

    Rows that were in the spool when it came to this machine are those of the other agent, and stay.

    Rows are removed only once they are there: where this is cut short they are moved anew. Raises SpoolError.
    """
    copied_until = int(spool.noted(COPIED_UNTIL) or 0)
    if not spool.waiting_before(before_ms, copied_until, 1):
        return None
    folder = spool.folder / f"other-name-{format_ms(before_ms).replace(':', '')}"
    aside, count = Spool(str(folder)), 0
    try:
        while rows := spool.waiting_before(before_ms, copied_until, _AT_ONCE):
            aside.take(rows)
            spool.drop_rows([row[0] for row in rows])
            count += len(rows)
    finally:
        aside.close()
    return SetAside(folder, count)
