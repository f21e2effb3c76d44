"""Adds requests to the lake: jobs that wait for GPUs, or never got any. Rows are only ever added, and what the lake knows adds none.

Files lie under the scheduler's name in place of a host, for a request has none yet, and under the day on which they were seen.
"""

from __future__ import annotations

import polars as pl

from analytics.frames import arrow, read_frame, typed
from analytics.importers.publish import Published
from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import REQUEST

_JOB = ("scheduler", "claim_id")
_CONTENT = [name for name in REQUEST.names if name != "as_of"]
_NUMBERS_PER_MS = 1_000


def add_requests(lake: Lake, requests: pl.DataFrame) -> Published:
    """Adds what the lake does not say yet, with REQUEST's columns; only one import at a time may. Raises LakeError."""
    there = lake.files(REQUEST.name, hosts=set(requests["scheduler"]))
    known = typed(read_frame(there, REQUEST), REQUEST)
    asked = _of_what_waited(requests, known)
    days = _news(asked, known).with_columns(day=pl.col("as_of") // DAY_MS)
    files = days.partition_by("scheduler", "day", as_dict=True)
    for (scheduler, day), rows in sorted(files.items()):
        date, host = utc_day(int(day) * DAY_MS), str(scheduler)
        taken = max((each.last_seq for each in there if (each.date, each.host) == (date, host)), default=0)
        number = max(taken + 1, _NUMBERS_PER_MS * int(str(rows["as_of"].max())))
        file = LakeFile(REQUEST.name, date, host, number, number)
        data = parquet.encode(REQUEST, arrow(rows.sort(*_JOB, "time", "as_of"), REQUEST), {"fallow_source": "requests"})
        lake.confirm(lake.put(file, data), data)
    return Published(REQUEST.name, days.height, asked.height - days.height, 0, len(files))


def _of_what_waited(requests: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """What was granted under other ids closes what of it was seen to wait; where nothing was, its claims say it all."""
    waited = known.filter(pl.col("withdrawn").is_null()).select(*_JOB, waited="time").unique()
    granted = requests.filter(pl.col("granted").is_not_null()).join(waited, on=_JOB)
    closed = granted.filter(pl.col("waited") <= pl.col("granted")).with_columns(time="waited").drop("waited")
    return pl.concat([requests.filter(pl.col("granted").is_null()), closed])


def _news(requests: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Rows whose content the lake lacks, or that were seen to wait later than the lake says."""
    seen = known.group_by(_CONTENT).agg(seen=pl.col("as_of").max())
    met = requests.unique(maintain_order=True).join(seen, on=_CONTENT, how="left", nulls_equal=True)
    waits = pl.col("withdrawn").is_null() & pl.col("granted").is_null()
    return met.filter(pl.col("seen").is_null() | (waits & (pl.col("as_of") > pl.col("seen")))).drop("seen")
