"""Reads small tables (inventory, allocations, requests, events) from a file per month, and per day of the newest month.

Every host writes its own files. A thousand hosts write thousands of files of a few rows each, and opening them takes
seconds. The kept rows of a period carry a fingerprint of their source files and are built again when these change.

Files of a month that ended a week ago are not even listed: `Lake.put` and `Lake.delete` remove the kept month of a file
that they change. Only the build of the whole ledger compares all months, as another program may have copied files.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import defaultdict
from collections.abc import Sequence

import polars as pl

from analytics.decode import read_days
from analytics.frames import digest, typed
from fallow import parquet, schema
from fallow.clock import DAY_MS, WEEK_MS, SystemClock, Window, parse_day_ms, utc_day
from fallow.errors import LakeError, UnusableFileError
from fallow.lake import ALL_HOSTS, KEPT_BY_MONTH, MONTH_LAST_SEQ, Lake, LakeFile, month_file

WORTH_KEEPING = 8
"""Files of one period; fewer are read as quickly as one, but a month that ended a week ago is always kept."""

SETTLED_AFTER_MS = WEEK_MS
"""Time after the end of a month from which its kept rows are used without a listing: writers' clocks differ by less."""


def read_small(
    lake: Lake,
    table: schema.LakeTable,
    columns: Sequence[str],
    window: Window | None = None,
    *,
    compare_all: bool = False,
) -> pl.DataFrame:
    """Return named columns of `device`, `allocation`, `request` or `event`, with `host`; times as integer milliseconds.

    All rows, or those of a window with both ends. A past month is read from one file, a day of the newest month from
    one. Where the lake cannot be written, everything is read from the hosts' own files. `compare_all` compares also the
    months that ended long ago with their files. Raises LakeError and its kinds.
    """
    of_all = schema.table(KEPT_BY_MONTH[table.name])
    dates = lake.dates(table.name)
    newest = max(dates, default="")[:7]
    if window is not None and window.since_ms is not None and window.until_ms is not None:
        first, last = utc_day(window.since_ms - DAY_MS), utc_day(window.until_ms + DAY_MS)
        dates = [date for date in dates if first[:7] <= date[:7] <= last[:7]]
        dates = [date for date in dates if date[:7] != newest or first <= date <= last]
    months = {date[:7] for date in dates}
    kept = {period: file for file in lake.files(of_all.name) if (period := _period(file))[:7] in months}
    made_again = {period for period, file in kept.items() if _has_settled(period) and not _is_settled(file)}
    settled = {period: file for period, file in kept.items() if _has_settled(period) and period not in made_again}
    settled = {} if compare_all else settled
    periods: dict[str, list[LakeFile]] = defaultdict(list)
    for file in lake.files(table.name, dates=[date for date in dates if date[:7] not in settled]):
        periods[file.date if file.date[:7] == newest else file.date[:7]].append(file)
    worth = {period for period, own in periods.items() if len(own) >= WORTH_KEEPING or _has_settled(period)}
    single = [file for period, own in periods.items() if period not in worth for file in own]
    names = [*columns, "host"]
    parts = [read_days(single, table, names, lake.left_out.leave_out)]
    comparable = {period: file for period, file in kept.items() if period in worth - made_again}
    current = settled | {period: file for period, file in comparable.items() if _is_current(file, periods[period])}
    damaged: list[LakeFile] = []
    ordered = [file for _, file in sorted(current.items())]
    parts.append(read_days(ordered, of_all, names, lambda file, _: damaged.append(file)))
    lost = {_period(file) for file in damaged}
    for file in lake.files(table.name, dates=[date for date in dates if date[:7] in lost & set(settled)]):
        periods[file.date[:7]].append(file)
    parts += [
        _period_rows(lake, table, period, periods[period]).select(names)
        for period in sorted(worth - set(current) | lost)
    ]
    found = pl.concat(parts, how="vertical_relaxed")
    if window is None:
        return found
    return found.filter(pl.col("time") >= (window.since_ms or 0), pl.col("time") < window.until_ms)


def _has_settled(period: str) -> bool:
    """Return whether a period is a month that ended long enough ago."""
    if len(period) != len("2026-11"):
        return False
    in_next_month = dt.date.fromisoformat(f"{period}-01").replace(day=28) + dt.timedelta(days=4)
    return SystemClock().now_ms() >= parse_day_ms(in_next_month.replace(day=1).isoformat()) + SETTLED_AFTER_MS


def _is_settled(file: LakeFile) -> bool:
    """Return whether the kept rows of a month were made after it settled."""
    try:
        return parquet.metadata(file).get("settled") == str(True)
    except LakeError:
        return False


def _period_rows(lake: Lake, table: schema.LakeTable, period: str, files: Sequence[LakeFile]) -> pl.DataFrame:
    """Return the rows of a period, read from the hosts' own files and kept where all of them could be read."""
    of_all, is_whole = schema.table(KEPT_BY_MONTH[table.name]), True

    def leave_out(file: LakeFile, error: UnusableFileError) -> None:
        nonlocal is_whole
        is_whole = False
        lake.left_out.leave_out(file, error)

    rows = typed(read_days(files, table, (*table.names, "host"), leave_out), of_all)
    if not is_whole:
        return rows
    with contextlib.suppress(LakeError):  # keeping is optional: the next reader opens the small files again
        _write(lake, table, period, rows, files)
    return rows


def _period(file: LakeFile) -> str:
    """Return `2026-11` for a file over a month, else the date."""
    return file.date[:7] if file.last_seq == MONTH_LAST_SEQ else file.date


def _write(lake: Lake, table: schema.LakeTable, period: str, rows: pl.DataFrame, files: Sequence[LakeFile]) -> None:
    of_all = schema.table(KEPT_BY_MONTH[table.name])
    is_month = len(period) == len("2026-11")
    kept = month_file(table.name, period) if is_month else LakeFile(of_all.name, period, ALL_HOSTS, 0, 0)
    facts = {"sources": _sources(files), "settled": str(_has_settled(period))}
    lake.put(kept, parquet.encode(of_all, rows, facts))
    if not is_month:
        return
    days = [date for date in lake.dates(of_all.name) if date[:7] == period]
    for day in lake.all_files(of_all.name, dates=days):  # its days would be read twice
        if day.last_seq != MONTH_LAST_SEQ:
            lake.delete(day)
    # a writer that added a file meanwhile may have removed the kept month before it was written
    sources = [date for date in lake.dates(table.name) if date[:7] == period]
    if _sources(lake.files(table.name, dates=sources)) != facts["sources"]:
        lake.delete(kept)


def _sources(files: Sequence[LakeFile]) -> str:
    return digest(*((file.key, file.size_bytes, file.version) for file in sorted(files)))


def _is_current(derived: LakeFile, files: Sequence[LakeFile]) -> bool:
    try:
        return parquet.metadata(derived).get("sources") == _sources(files)
    except LakeError:
        return False
