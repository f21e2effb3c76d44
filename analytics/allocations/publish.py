"""Brings allocations into the lake, one import at a time: each is compared and merged with what the one before left."""

from __future__ import annotations

import dataclasses

import polars as pl

from analytics.allocations.agent_rows import on_seen_gpus
from analytics.allocations.known_runs import on_known_runs
from analytics.allocations.model import ReadAllocations
from analytics.allocations.requests import add_requests
from analytics.allocations.time_zone_shift import find_shifted, moved_rows
from analytics.allocations.write import write
from analytics.importers.publish import Published
from fallow.lake import Lake
from fallow.lake_init import opened_for_writing
from fallow.leases import leased


def publish_allocations(
    lake: Lake, read: ReadAllocations, *, replace: bool
) -> tuple[ReadAllocations, tuple[Published, ...]]:
    """What was written in the end, and how many rows of it are new, of claims and of requests.

    Raises InputError where the lake has the allocations in another time zone and `replace` is not asked for, and LakeError: what
    is there then is whole, and the same import completes it.
    """
    opened_for_writing(lake)
    with leased(lake, "allocations", "the import of allocations") as mine:
        shifted = find_shifted(mine, read, replace=replace)
        if shifted.pairs.height:
            if not replace:
                raise shifted.error(read)
            rows = moved_rows(mine, read.rows, shifted)
            read = dataclasses.replace(
                read, rows=rows, notes=(*read.notes, f"{shifted.said()}: these are in their place now")
            )
        rows, stood_for = on_seen_gpus(mine, read.rows)
        rows, joined = on_known_runs(mine, rows, read.as_of_ms)
        read = dataclasses.replace(read, rows=rows)
        removed = pl.concat([shifted.removed, stood_for, joined], how="diagonal")
        claims = write(mine, read, removed, newest_first=shifted.forward or not stood_for.is_empty())
        return read, (claims, add_requests(mine, read.requests))
