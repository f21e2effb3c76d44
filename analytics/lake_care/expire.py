"""Deletes what is older than the retention settings say, and nothing that the ledger or a report in force still needs.

A day's samples go only once the lake keeps its ledger and its hourly rows as they follow from them; that the day has expired is noted
before its first file goes (`cache.record_expiry`), so that its ledger stays. Hourly rows go by being replaced with none.
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
    "gpu": "the ledger of these days cannot be built again with other settings or later allocations, and their readings are not drawn",
    "process": "the ledger of these days cannot be built again, and who ran what is known by the day only",
    "host": "the hosts' own load of these days is known by the hour only",
    "serving": "the inference servers' load of these days is known by the hour only",
    "event": "reports of these days name no events",
    "agent": "what the agents cost on these days is gone",
    "process_day": "reports of these days name no processes",
    "hourly": "percentiles, peaks and power of these days are gone; their hours by state stay",
    "host_hourly": "the hosts' load of these days is gone",
    "serving_hourly": "the inference servers' load of these days is gone",
}
"""What can no longer be said once a table's rows are gone."""


@dataclass(frozen=True)
class Retention:
    """By table how long its rows are kept, in ms; tables that are kept for ever are not in it."""

    kept_ms: Mapping[str, int]

    @classmethod
    def from_config(cls, config: Config) -> Retention:
        found = {table: config.integer(name) for table, name in _SETTINGS.items()}
        return cls({table: kept_ms for table, kept_ms in found.items() if kept_ms})

    def last_day(self, table: str, now_ms: int) -> str:
        """The newest day of which every moment is older than the table's rows are kept."""
        return utc_day(now_ms - self.kept_ms[table] - DAY_MS)


_SOURCES = frozenset(table.name for table in SOURCES)


@dataclass(frozen=True)
class Expiry:
    """What goes of one table: its files by date, hidden ones too, and how many rows they have."""

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
    """What goes, and which dates stay although their time is over: the lake does not keep their ledger as it is now."""

    expiries: list[Expiry] = field(default_factory=list)
    held_back: set[str] = field(default_factory=set)


def plan(
    lake: Lake,
    retention: Retention,
    settings: LedgerSettings,
    now_ms: int,
    progress: Callable[[float], None] = lambda _: None,
) -> ExpiryPlan:
    """What would go now. Raises LakeError."""
    found = ExpiryPlan()
    due = {name: _due_files(lake, name, retention.last_day(name, now_ms)) for name in retention.kept_ms}
    samples = {date for name, files in due.items() if name in _SOURCES for date in files}
    unready = samples - _ready(lake, settings, samples)
    for number, (name, files) in enumerate(due.items(), 1):
        held = unready & files.keys() if name in _SOURCES else set()
        found.held_back |= held
        going = {date: own for date, own in files.items() if date not in held}
        rows = sum(_rows(file) for own in going.values() for file in own if not _is_hidden(file, own))
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


def _ready(lake: Lake, settings: LedgerSettings, dates: Collection[str]) -> set[str]:
    """The dates whose kept ledger follows from the samples that the lake has now; those without gpu rows have none."""
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


def _is_hidden(file: LakeFile, among: Sequence[LakeFile]) -> bool:
    return any(other.key != file.key and other.covers(file) for other in among)


def carry_out(lake: Lake, planned: ExpiryPlan, now_ms: int, progress: Callable[[float], None] = lambda _: None) -> None:
    """Deletes what is planned, a date at a time, the oldest first. Raises LakeError; run again, it does the rest."""
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
            if each.table in EMPTIED:
                _empty(lake, file)
            else:
                lake.delete(file)


def _empty(lake: Lake, file: LakeFile) -> None:
    """The day's file without rows, which says as before what it was made from."""
    table = schema.table(file.table)
    own = {key: value for key, value in facts_of(file).items() if key == "hosts"}
    lake.put(file, parquet.encode(table, empty(table), own))
