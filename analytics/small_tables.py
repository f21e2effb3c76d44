"""Small observed tables (inventory, claims, events) of all hosts, read from one file a day where one is kept.

Every host writes its own files; a thousand hosts' are thousands, of a few rows each, and opening them takes seconds. What
is kept of a day carries a fingerprint of the files that it was made from and is made again when they change.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from analytics.frames import arrow, read_frame, typed
from analytics.ledger.cache import digest
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, LakeFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fallow.lake import Lake

WORTH_KEEPING = 8
"""Files of one day; fewer are read as quickly as the one."""

_KEPT = {"device": schema.DEVICE_DAY, "claim": schema.CLAIM_DAY, "event": schema.EVENT_DAY}


def read_small(lake: Lake, table: schema.Table, columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of all rows of `device`, `claim` or `event`, with `host`; times as integer milliseconds.

    Where the lake cannot be written, everything is read from the hosts' own files. Raises LakeError and its kinds.
    """
    days: dict[str, list[LakeFile]] = defaultdict(list)
    for file in lake.files(table.name):
        days[file.date].append(file)
    of_all = _KEPT[table.name]
    worth = {date for date, files in days.items() if len(files) >= WORTH_KEEPING}
    kept = {file.date: file for file in lake.files(of_all.name, dates=worth)} if worth else {}
    single = [file for date, files in days.items() if date not in worth for file in files]
    names = [*columns, "host"]
    parts = [read_frame(single, table, columns).select(names)]
    current = [file for date, file in sorted(kept.items()) if _current(file, days[date])]
    parts.append(read_frame(current, of_all, names).select(names))
    for date in sorted(worth - {file.date for file in current}):
        rows = typed(read_frame(days[date], table), of_all)
        with contextlib.suppress(LakeError):  # it is a convenience: the next reader opens the small files again
            facts = {"sources": _sources(days[date])}
            lake.put(LakeFile(of_all.name, date, ALL_HOSTS, 0, 0), parquet.encode(of_all, arrow(rows, of_all), facts))
        parts.append(rows.select(names))
    return pl.concat(parts, how="vertical_relaxed")


def _sources(files: Sequence[LakeFile]) -> str:
    return digest(*((file.key, file.size_bytes, file.version) for file in sorted(files)))


def _current(kept: LakeFile, files: Sequence[LakeFile]) -> bool:
    try:
        return parquet.metadata(kept).get("sources") == _sources(files)
    except LakeError:
        return False
