"""The records of nvitop's collector in a file, and of which time each one is."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from analytics.importers.json_documents import CUT_OFF, number, read_documents
from analytics.importers.limits import InputLimits
from analytics.importers.model import Tally
from analytics.importers.nvidia_smi_lines import CUT_OFF as WRONG_WIDTH
from analytics.importers.source import ImportSource
from fallow.errors import InputError

_LONGEST_S = 1e11
_READ = re.compile(
    r"(timestamp|last_timestamp|duration \(s\))$|pid:\d+/([^/]+/gpu_memory|host/host_memory|host/running_time) "
    r"|(gpu|cuda):[^/]*/(gpu_util|memory_|power_|temperature)"
)
"""The keys that anything is made of; of a host the collector writes hundreds more."""

_MOST_KEYS = 100_000
"""In one record: a hundred for each of some GPUs, and some for each of a thousand processes."""
_SAME_WINDOW = 0.5
"""A window that holds more than this share of the one before it goes on where that one began."""


@dataclass(frozen=True)
class CollectedRecord:
    """What one call of `collect` gave: values by key without the tag, and the window that they are of."""

    tag: str
    begin_s: float
    end_s: float
    last_s: float
    values: Mapping[str, float]
    goes_on: bool = False
    """Whether the window goes on over several records, so that its averages are not of the time since the last one."""

    before: Mapping[str, float] | None = None
    """The values of the record before, where the window goes on."""


def read_records(path: str, source: ImportSource, limits: InputLimits, tally: Tally) -> list[CollectedRecord]:
    """The file's records, those of one tag in their order; what is none is counted. Raises InputError for other kinds of file."""
    return list(_in_windows(_records(path, source, limits, tally)))


def _records(path: str, source: ImportSource, limits: InputLimits, tally: Tally) -> Iterator[CollectedRecord]:
    if source.text is None:
        raise InputError(f"{path} is Parquet, not JSON or CSV of nvitop", "`fallow import series` reads Parquet")
    is_json = source.text.lstrip()[:1] in (b"{", b"[")
    objects = _objects(path, source.text, limits, tally) if is_json else _csv_records(path, source, tally)
    count = 0
    for each in objects:
        if len(each) > _MOST_KEYS:
            raise InputError(f"{path} has a record of more than {_MOST_KEYS:,} keys", "check that nvitop wrote it")
        record = _record(each)
        if record is None:
            tally.drop("no time and duration of nvitop's collector", 1)
        else:
            count += len(record.values)
            limits.check_rows(path, count)
            yield record


def _objects(path: str, text: bytes, limits: InputLimits, tally: Tally) -> Iterator[Mapping[str, object]]:
    for each in read_documents(path, text, limits):
        if isinstance(each, dict):
            yield each
        else:
            tally.drop(CUT_OFF, 1)


def _csv_records(path: str, source: ImportSource, tally: Tally) -> Iterator[Mapping[str, object]]:
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(source.text or b""), encoding="utf-8", newline=""))
    try:
        header = next(lines, [])
        rows = (line for line in lines if line)
        last = None if source.last_line_whole else next(rows, None)
        for line in rows:
            # without a line end the last one may be cut off: each waits for the next
            row, last = (line, None) if source.last_line_whole else (last or [], line)
            if len(row) != len(header):
                tally.drop(WRONG_WIDTH, 1)
            else:
                yield {name: _cell(cell) for name, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        raise InputError(f"{path} is not a readable CSV file ({error})", "check or fetch it again") from error
    if last is not None:
        tally.drop("last line cut off", 1)


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _record(found: Mapping[str, object]) -> CollectedRecord | None:
    """The record; None where it does not say of which time it is."""
    tag = next((key.removesuffix("/timestamp") for key in found if key.endswith("/timestamp")), None)
    if tag is None:
        return None
    begins = f"{tag}/"
    values = {
        sys.intern(key.removeprefix(begins)): value  # every record has the same keys
        for key, each in found.items()
        if key.startswith(begins) and _READ.match(key, len(begins)) and (value := number(each)) is not None
    }
    end, duration = values.get("timestamp"), values.get("duration (s)")
    if end is None or duration is None or not 0 <= duration <= end < _LONGEST_S:
        return None
    last = values.get("last_timestamp", end)
    return CollectedRecord(tag, end - duration, end, last if end - duration <= last <= end else end, values)


def _in_windows(records: Iterable[CollectedRecord]) -> Iterator[CollectedRecord]:
    """The records with what is known only from their neighbours of the same tag.

    `collect` averages since the tag was activated or cleared: without a clear, every record holds those before it.
    """
    by_tag: dict[str, list[CollectedRecord]] = defaultdict(list)
    for record in records:
        by_tag[record.tag].append(record)
    for mine in by_tag.values():
        on = [False, *(_goes_on(each, before) for before, each in pairwise(mine))]
        for at, each in enumerate(mine):
            before = mine[at - 1].values if on[at] else None
            going = on[at] or on[at + 1 : at + 2] == [True]
            yield replace(each, goes_on=going, before=before)


def _goes_on(record: CollectedRecord, before: CollectedRecord) -> bool:
    return (
        before.end_s - record.begin_s > _SAME_WINDOW * (before.end_s - before.begin_s) and record.end_s > before.end_s
    )
