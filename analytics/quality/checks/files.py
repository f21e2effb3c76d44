"""Unusable files of the lake: their hosts, the time that is unknown without them, and the command that lists them.

A remark has no path: reports are sent to people who have no business with the lake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from urllib.parse import unquote

import polars as pl

from analytics.language.sentences import GpuHours, Share, tr, tr_many
from analytics.ledger.unused_files import LEFT_OUT, NOT_READ, left_out_files
from analytics.quality.model import MOST_NAMED, Data, Remark, hosts_of, named
from fallow import schema
from fallow.clock import DAY_MS, parse_day_ms
from fallow.errors import FallowError
from fallow.quarantine import LeftOut

_PLACE = re.compile(r"(\w+)/(?:date=([^/]+))?(?:/host=([^/]+))?", re.ASCII)

FILE_SENTENCES = {
    LEFT_OUT: "an unusable file: its content is missing",
    NOT_READ: "an unreadable file: its content is missing",
}
"""The meaning of a row of `quality` about a file, for its host."""

FAULT_WORDS = {
    "broken": "damaged, or no Parquet file of its table",
    "too_large": "larger than any file of a lake",
    "not_regular": "no regular file",
    "unreadable": "its reader lacks the permission, which can be given, or its disk fails",
    "foreign_host": "of another host than its folder, by its own metadata",
    "no_name": "without the name of a file of the lake",
    "no_host": "in a folder whose name is not UTF-8",
    "no_date": "in a folder that is named for no date",
}

_OF_THEIR_DAY = ("gpu", "process", "host", "serving", "event", "agent")
"""Tables whose files concern only their own days."""

_MISSING = {
    "gpu": "their time is unknown",
    "process": "the users of its GPUs in that time may be unknown",
    "allocation": "allocations in them do not count",
    "request": "waiting jobs may be missing",
    "device": "models and pools of its GPUs may be unknown",
}
"""Knowledge that is missing without the files of a table."""


def left_out(data: Data) -> Iterator[Remark]:
    """Report one remark per host and table, the most files first, so that no unknown time is reported twice."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in {each.key: each for each in (*data.left_out, *left_out_files(data.values))}.values():
        place = _place(each)
        is_of_a_day = place is not None and place[0] in _OF_THEIR_DAY and each.kind != "no_date"
        if place is not None and (not is_of_a_day or _is_inside(place[1], data)):
            groups.setdefault((place[2], place[0]), []).append((place[1], each.kind))
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    for (host, table), files in ordered[:MOST_NAMED]:
        yield Remark("files_left_out", _sentence(data, host, table, files), len(files), host or table)
    if unnamed := ordered[MOST_NAMED:]:
        number = sum(len(files) for _, files in unnamed)
        sentence = tr_many(
            "{number} more {file|files} of {hosts} {is|are} left out; `fallow lake check` names {it|them}",
            number,
            hosts=hosts_of(len({host for (host, _), _ in unnamed})),
        )
        yield Remark("files_left_out", sentence, number)


def _place(left_out: LeftOut) -> tuple[str, str, str] | None:
    """Return table, date and host in a path, where it has them; None in a derived table, which is built again."""
    match = _PLACE.match(left_out.key)
    if match is None or not any(match[1] == table.name and not table.derived for table in schema.TABLES):
        return None
    return match[1], match[2] or "", unquote(match[3] or "", errors="backslashreplace")


def _is_inside(date: str, data: Data) -> bool:
    """Return whether a day is in the window, or there is no window."""
    start_ms = _day_ms(date)
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or 0
    return start_ms is None or since_ms - DAY_MS < start_ms < until_ms


def _day_ms(date: str) -> int | None:
    try:
        return parse_day_ms(date)
    except (FallowError, ValueError):
        return None


def _sentence(data: Data, host: str, table: str, files: Sequence[tuple[str, str]]) -> str:
    dates = [date for date, _ in files]
    faults = [tr(words) for kind, words in FAULT_WORDS.items() if kind in {kind for _, kind in files}]
    return tr_many(
        "{host}: {number} {file|files} of the table {table} on {days} {is|are} left out ({fault}): {missing}; `fallow"
        " lake check` names {it|them}",
        len(files),
        host=host or tr("no host"),
        table=table,
        days=named(sorted({date or tr("no date") for date in dates}), "day"),
        fault=reduce(lambda before, fault: tr("{names} and {last}", names=before, last=fault), faults),
        missing=_unknown_time(data, host, dates)
        if table == "gpu"
        else tr(_MISSING.get(table, "their content is missing")),
    )


def _unknown_time(data: Data, host: str, dates: Sequence[str]) -> str:
    """Return a host's unobserved time on these days, an upper bound, because the files may be only one of its causes.

    A day's GPUs are those with a segment in it; where none has, all that the host has in the window.
    """
    days = sorted({day for date in dates if (day := _day_ms(date)) is not None})
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or 0
    rows = data.segments.filter(pl.col("host") == host)
    counted: dict[str, float] = {}
    unknown_ms = 0.0
    for day_ms in days:
        first_ms, last_ms = max(day_ms, since_ms), min(day_ms + DAY_MS, until_ms)
        overlap = pl.min_horizontal("end", pl.lit(last_ms)) - pl.max_horizontal("time", pl.lit(first_ms))
        seen = rows.with_columns(overlap.alias("ms")).filter(pl.col("ms") > 0)
        shares = dict((rows if seen.is_empty() else seen).group_by("gpu").agg(pl.col("gpu_share").max()).iter_rows())
        known_ms = seen.filter(pl.col("state") != "unknown").select((pl.col("ms") * pl.col("gpu_share")).sum()).item()
        unknown_ms += max(0.0, sum(shares.values()) * (last_ms - first_ms) - known_ms)
        counted |= shares
    whole_ms = sum(counted.values()) * (until_ms - since_ms)
    if whole_ms <= 0:
        return tr(_MISSING["gpu"])
    return tr(
        "at most {hours} GPU-hours of the GPUs known then are unknown ({share} of their time in the window)",
        hours=GpuHours(unknown_ms),
        share=Share(min(1.0, unknown_ms / whole_ms)),  # instances of a GPU may be cut differently on another day
    )
