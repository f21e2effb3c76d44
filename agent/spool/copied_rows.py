"""Rows of a spool that came from another machine of the same name: those that the lake has by then are not published twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.spool.installation import COPIED_UNTIL
from agent.spool.spool import APART_UNTIL

if TYPE_CHECKING:
    from agent.spool.spool import Spool
    from fallow.lake import Lake


def drop_published_copies(spool: Spool, lake: Lake, host: str) -> None:
    """Drops the copied rows that wait here and are in a file of the lake, by their numbers. Raises LakeError and SpoolError.

    Numbers are unique, and a file holds every row of its table and date between its first and its last one.
    """
    until = spool.noted(COPIED_UNTIL)
    if until is None:
        return
    for stretch in spool.stretches_until(int(until)):
        for file in lake.files(stretch.table, hosts=[host], dates=[stretch.date]):
            spool.drop(stretch, max(stretch.first_seq, file.first_seq), min(stretch.last_seq, file.last_seq))
    spool.note(APART_UNTIL, until)
    spool.forget_fact(COPIED_UNTIL)
