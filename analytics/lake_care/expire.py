"""Deletes data older than the retention settings allow, except what the ledger or a report in force still needs.

A day's samples go only once the lake keeps the ledger and the hourly rows that follow from them. The day's expiry is
recorded before its first file goes (`cache.record_expiry`), so its ledger stays. Hourly rows are replaced by files
without rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from analytics.frames import empty
from analytics.ledger.cache import expired_days, facts_of, record_expiry
from analytics.ledger.catch_up import KeptLedger
from analytics.ledger.day import SOURCES
from analytics.ledger.settings import LedgerSettings
from fallow import parquet, schema
from fallow.clock import DAY_MS, format_ms, utc_day
from fallow.compaction import turn
from fallow.config import Config
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile

HOURLY = frozenset(table.name for table in (schema.HOURLY, schema.HOST_HOURLY, schema.SERVING_HOURLY))
"""The tables of `retention.hourly`."""

EMPTIED = HOURLY | {schema.PROCESS_DAY.name}
"""Derived tables whose files stay, without rows: a day of the ledger is kept as a whole or not at all."""

_OWN = (schema.GPU, schema.PROCESS, schema.HOST, schema.SERVING, schema.EVENT, schema.AGENT, schema.PROCESS_DAY)
_SETTINGS = {each.name: f"retention.{each.name}" for each in _OWN} | dict.fromkeys(sorted(HOURLY), "retention.hourly")

LOST: Mapping[str, str] = {
    "gpu": (
        "the ledger of these days cannot be built again with other settings or later allocations, and their readings"
        " are not drawn"
    ),
    "process": "the ledger of these days cannot be built again, and the users of processes are known by the day only",
    "host": "the hosts' own load of these days is known by the hour only",
    "serving": "the inference servers' load of these days is known by the hour only",
    "event": "reports of these days name no events",
    "agent": "the agents' own cost on these days is gone",
    "process_day": "reports of these days name no processes",
    "hourly": "percentiles, peaks and power of these days are gone; their hours by state stay",
    "host_hourly": "the hosts' load of these days is gone",
    "serving_hourly": "the inference servers' load of these days is gone",
}
"""Questions that cannot be answered once a table's rows are gone."""


@dataclass(frozen=True)
class Retention:
    """By table how long its rows are kept, in ms; tables that are kept for ever are absent."""

    kept_ms: Mapping[str, int]

    @classmethod
    def from_config(cls, config: Config) -> Retention:
        found = {table: config.integer(name) for table, name in _SETTINGS.items()}
        return cls({table: kept_ms for table, kept_ms in found.items() if kept_ms})

    def last_day(self, table: str, now_ms: int) -> str:
        """Return the newest day on which every moment is older than the retention of the table's rows."""
        return utc_day(now_ms - self.kept_ms[table] - DAY_MS)


_SOURCES = frozenset(table.name for table in SOURCES)


@dataclass(frozen=True)
class Expiry:
    """Files of one table that expire, by date, including hidden ones, and the number of their rows."""

    table: str
    files: Mapping[str, Sequence[LakeFile]]
    rows: int

    @property
    def count(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def bytes(self) -> int:
        return sum(file.size_bytes for own in self.files.values() for file in own)

    @property
    def hosts(self) -> int:
        return len({file.host for own in self.files.values() for file in own})


@dataclass
class ExpiryPlan:
    """Tables that expire, and due dates that stay because the lake does not keep their current ledger."""

    expiries: list[Expiry] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)


def plan(
    lake: Lake,
    retention: Retention,
    settings: LedgerSettings,
    now_ms: int,
    progress: Callable[[float], None] = lambda _: None,
) -> ExpiryPlan:
    """Return what would expire now. Raises LakeError."""
    found = ExpiryPlan()
    due = {name: _due_files(lake, name, retention.last_day(name, now_ms)) for name in retention.kept_ms}
    samples = {date for name, files in due.items() if name in _SOURCES for date in files}
    unready = samples - _ready_dates(lake, settings, samples)
    for number, (name, files) in enumerate(due.items(), 1):
        held = unready & files.keys() if name in _SOURCES else set()
        found.held_back |= held
        going = {date: own for date, own in files.items() if date not in held}
        rows = sum(
            _rows(file)
            for own in going.values()
            for file in own
            if not any(other.key != file.key and other.covers(file) for other in own)
        )
        if name in EMPTIED and not rows:
            going = {}
        if going:
            found.expiries.append(Expiry(name, going, rows))
        progress(number / len(due))
    return found


def _due_files(lake: Lake, name: str, last_day: str) -> dict[str, list[LakeFile]]:
    found: dict[str, list[LakeFile]] = defaultdict(list)
    for file in lake.all_files(name) if last_day else ():
        if file.date <= last_day:
            found[file.date].append(file)
    return dict(sorted(found.items()))


def _ready_dates(lake: Lake, settings: LedgerSettings, dates: Collection[str]) -> set[str]:
    """Return the dates that expired, whose kept ledger follows from the lake's samples, or that lack both."""
    if not dates:
        return set()
    ready = set(dates) & expired_days(lake)
    kept = KeptLedger.of(lake, settings)
    asked = sorted(set(dates) - ready)
    without = set(asked) - {file.date for file in lake.files(schema.GPU.name, dates=asked)}
    if kept is None:
        return ready | without
    prints = kept.prints_of(kept.days(asked))
    current = {date for date, of in prints.items() if kept.manifest.prints.get(date) == of}
    return ready | current | {date for date in without if date not in kept.manifest.prints}


def _rows(file: LakeFile) -> int:
    try:
        return int(parquet.open_file(file).metadata.num_rows)
    except LakeError:
        return 0


def carry_out(lake: Lake, planned: ExpiryPlan, now_ms: int, progress: Callable[[float], None] = lambda _: None) -> None:
    """Delete the planned files by date, the oldest first. Raises LakeError; run it again to complete the deletion."""
    by_date: dict[str, list[Expiry]] = defaultdict(list)
    for each in planned.expiries:
        for date in each.files:
            by_date[date].append(each)
    for number, (date, expiries) in enumerate(sorted(by_date.items()), 1):
        with turn(lake, date, "the expiry") as mine:
            _expire_date(mine, date, expiries, now_ms)
        progress(number / len(by_date))


def _expire_date(lake: Lake, date: str, expiries: Sequence[Expiry], now_ms: int) -> None:
    if any(each.table in _SOURCES for each in expiries):
        facts = {
            "date": date,
            "expired": format_ms(now_ms),
            "tables": sorted(each.table for each in expiries),
            "files": sum(len(each.files[date]) for each in expiries),
        }
        record_expiry(lake, date, facts)
    for each in expiries:
        for file in each.files[date]:
            if each.table in EMPTIED:  # a file without rows keeps the metadata about its sources
                table = schema.table(file.table)
                own = {key: value for key, value in facts_of(file).items() if key == "hosts"}
                lake.put(file, parquet.encode(table, empty(table), own))
            else:
                lake.delete(file)
