"""Small observed tables (inventory, claims, events) of all hosts, read from one file a month, and one a day of the newest.

Every host writes its own files; a thousand hosts' are thousands, of a few rows each, and opening them takes seconds. What
is kept of a day carries a fingerprint of the files that it was made from and is made again when they change.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence

import polars as pl

from analytics.decode import read_days
from analytics.frames import digest, typed
from fallow import parquet, schema
from fallow.clock import DAY_MS, Window, utc_day
from fallow.errors import LakeError, UnusableFileError
from fallow.lake import ALL_HOSTS, Lake, LakeFile

WORTH_KEEPING = 8
"""Files of one period; fewer are read as quickly as the one."""

_DERIVED = {"device": schema.DEVICE_DAY, "claim": schema.CLAIM_DAY, "event": schema.EVENT_DAY}
_MONTH_LAST_SEQ = 31


def read_small(
    lake: Lake, table: schema.LakeTable, columns: Sequence[str], window: Window | None = None
) -> pl.DataFrame:
    """The named columns of the rows of `device`, `claim` or `event`, with `host`; times as integer milliseconds.

    All rows, or those of a window with both ends. A month that is over is read from one file, a day of the newest month from
    one. Where the lake cannot be written, everything is read from the hosts' own files. Raises LakeError and its kinds.
    """
    periods: dict[str, list[LakeFile]] = defaultdict(list)
    files = lake.files(table.name)
    newest = max((file.date[:7] for file in files), default="")
    for file in files:
        periods[file.date if file.date[:7] == newest else file.date[:7]].append(file)
    if window is not None and window.since_ms is not None and window.until_ms is not None:
        first, last = utc_day(window.since_ms - DAY_MS), utc_day(window.until_ms + DAY_MS)
        periods = {each: own for each, own in periods.items() if first[: len(each)] <= each <= last[: len(each)]}
    of_all = _DERIVED[table.name]
    worth = {period for period, own in periods.items() if len(own) >= WORTH_KEEPING}
    derived = {_period(file): file for file in lake.files(of_all.name)} if worth else {}
    single = [file for period, own in periods.items() if period not in worth for file in own]
    names = [*columns, "host"]
    parts = [read_days(single, table, names, lake.left_out.leave_out)]
    current = {
        period: file
        for period, file in sorted(derived.items())
        if period in worth and _is_current(file, periods[period])
    }
    damaged: list[LakeFile] = []
    parts.append(read_days(current.values(), of_all, names, lambda file, _: damaged.append(file)))
    due = sorted(worth - set(current) | {_period(file) for file in damaged})
    parts += [_made(lake, table, period, periods[period]).select(names) for period in due]
    found = pl.concat(parts, how="vertical_relaxed")
    if window is None:
        return found
    return found.filter(pl.col("time") >= (window.since_ms or 0), pl.col("time") < window.until_ms)


def _made(lake: Lake, table: schema.LakeTable, period: str, files: Sequence[LakeFile]) -> pl.DataFrame:
    """The rows of a period, read from the hosts' own files and kept where all of them could be read."""
    of_all, is_whole = _DERIVED[table.name], True

    def leave_out(file: LakeFile, error: UnusableFileError) -> None:
        nonlocal is_whole
        is_whole = False
        lake.left_out.leave_out(file, error)

    rows = typed(read_days(files, table, (*table.names, "host"), leave_out), of_all)
    if not is_whole:
        return rows
    with contextlib.suppress(LakeError):  # it is a convenience: the next reader opens the small files again
        _write(lake, of_all, period, rows, files)
    return rows


def _period(file: LakeFile) -> str:
    """`2026-11` of a file over a month, else the date."""
    return file.date[:7] if file.last_seq == _MONTH_LAST_SEQ else file.date


def _write(lake: Lake, of_all: schema.LakeTable, period: str, rows: pl.DataFrame, files: Sequence[LakeFile]) -> None:
    is_month = len(period) == len("2026-11")
    date, last_seq = (f"{period}-01", _MONTH_LAST_SEQ) if is_month else (period, 0)
    facts = {"sources": _sources(files)}
    lake.put(LakeFile(of_all.name, date, ALL_HOSTS, 0, last_seq), parquet.encode(of_all, rows, facts))
    if is_month:  # its days would be read twice
        for day in lake.all_files(of_all.name):
            if day.date[:7] == period and day.last_seq != _MONTH_LAST_SEQ:
                lake.delete(day)


def _sources(files: Sequence[LakeFile]) -> str:
    return digest(*((file.key, file.size_bytes, file.version) for file in sorted(files)))


def _is_current(derived: LakeFile, files: Sequence[LakeFile]) -> bool:
    try:
        return parquet.metadata(derived).get("sources") == _sources(files)
    except LakeError:
        return False
