"""The lake's size: files, rows and bytes by table, host and day, monthly growth, and what compaction would remove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fallow import schema
from fallow.clock import DAY_MS, utc_day
from fallow.errors import LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile, visible
from fallow.parquet import map_files, open_file

_FORECAST_DAYS = 7
_MONTH_DAYS = 365.25 / 12


@dataclass
class StoredAmount:
    """Files, rows and bytes."""

    files: int = 0
    rows: int | None = None
    """None where rows are not counted."""
    bytes: int = 0
    removable_files: int = 0
    """Files that are hidden, or would be once days are merged."""
    removable_bytes: int = 0
    """Their bytes."""

    def add(self, file: LakeFile, rows: int | None) -> None:
        self.files += 1
        self.bytes += file.size_bytes
        if rows is not None:
            self.rows = (self.rows or 0) + rows


@dataclass
class Size:
    tables: dict[str, StoredAmount] = field(default_factory=lambda: defaultdict(StoredAmount))
    hosts: dict[str, StoredAmount] = field(default_factory=lambda: defaultdict(StoredAmount))
    """By name; "" for files over all hosts."""
    days: dict[str, StoredAmount] = field(default_factory=lambda: defaultdict(StoredAmount))
    whole: StoredAmount = field(default_factory=StoredAmount)
    month_bytes: float | None = None
    """Growth per month at the pace of the newest seven complete days, None where there are none."""
    month_rows: float | None = None
    """The same in rows."""


def size_of(lake: Lake, now_ms: int, *, count_rows: bool, progress: Callable[[float], None] = lambda _: None) -> Size:
    """Return the size; rows are those of visible files, by their footers. Raises LakeError if listing fails."""
    size = Size()
    today = utc_day(now_ms)
    for number, table in enumerate(schema.TABLES, 1):
        files = lake.all_files(table.name)
        seen = visible(files)
        rows = dict(zip((file.key for file in seen), map_files(seen, _row_count), strict=True)) if count_rows else {}
        for file in files:
            _add(size, file, rows.get(file.key))
        _add_removable(size, table, files, seen, today)
        progress(number / len(schema.TABLES))
    _forecast(size, now_ms)
    return size


def _row_count(file: LakeFile) -> int:
    """Return the file's rows; 0 for an unusable file, because readers see none of its rows."""
    try:
        return int(open_file(file).metadata.num_rows)
    except LakeError:
        return 0


def _add(size: Size, file: LakeFile, rows: int | None) -> None:
    for amount in (size.whole, size.tables[file.table], size.hosts[file.host], size.days[file.date]):
        amount.add(file, rows)


def _add_removable(
    size: Size, table: schema.LakeTable, files: Iterable[LakeFile], seen: Sequence[LakeFile], today: str
) -> None:
    """Add the files that compaction removes: hidden files, and all but one of an agent's files of each past day.

    The bytes are those of hidden files: the content of the others moves into the remaining file.
    """
    kept = {file.key for file in seen}
    if table in schema.COMPACTED:
        by_place: dict[tuple[str, str], list[LakeFile]] = defaultdict(list)
        for file in seen:
            if file.host and file.first_seq >= AGENT_FIRST_SEQ and file.date < today:
                by_place[file.date, file.host].append(file)
        kept -= {file.key for own in by_place.values() for file in own[1:]}
    hidden = {file.key for file in files} - {file.key for file in seen}
    for file in files:
        if file.key not in kept:
            for amount in (size.whole, size.tables[file.table], size.hosts[file.host], size.days[file.date]):
                amount.removable_files += 1
                amount.removable_bytes += file.size_bytes if file.key in hidden else 0


def _forecast(size: Size, now_ms: int) -> None:
    today = utc_day(now_ms)
    first = utc_day(now_ms - _FORECAST_DAYS * DAY_MS)
    over = [amount for date, amount in size.days.items() if first <= date < today]
    if over:
        per_month = _MONTH_DAYS / len(over)
        size.month_bytes = per_month * sum(each.bytes - each.removable_bytes for each in over)
        rows = [each.rows for each in over if each.rows is not None]
        size.month_rows = per_month * sum(rows) if rows else None
