"""Writes rows of scraped hosts into the lake, like any import, without rows that agents already have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations
from analytics.allocations.publish import publish_allocations
from analytics.frames import empty, read_frame
from analytics.importers.kinds import replaced
from analytics.importers.model import TRUE_MS, Imported
from analytics.importers.publish import publish
from analytics.scraped.samples import Samples
from analytics.scraped.serving_rows import ServedModels
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.allocations import (
    LaterSamples,
    OpenAllocations,
    allocations_of,
    with_ends,
)
from analytics.scraped.who.label_runs import Given, named_users
from analytics.scraped.who.server_places import placed_rows, pod_allocations
from fallow.clock import DAY_MS, HOUR_MS, floor_ms, utc_day
from fallow.compaction import Compacted, compact, partitions
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from fallow.leases import leased
from fallow.output import say
from fallow.pseudonyms import Pseudonyms
from fallow.schema import DEVICE, GPU, HOST, SERVING, LakeTable, table


@dataclass(frozen=True)
class AgentDay:
    """The GPUs that agents described on one UTC date, each with its host in the lake."""

    lake: Lake
    date: str
    hosts: Mapping[str, str]

    @classmethod
    def of(cls, lake: Lake, date: str) -> AgentDay:
        """Return the GPUs in the inventories of the date. Raises LakeError."""
        frame = _agent_rows(lake, DEVICE, date, None, ("gpu",))
        return cls(lake, date, dict(zip(frame["gpu"], frame["host"], strict=True)))

    def host_of(self, host: str, gpus: Sequence[str]) -> str:
        """Return the agents' name for the host of these GPUs; the given name where they do not know it."""
        known = Counter(self.hosts[gpu] for gpu in gpus if gpu in self.hosts)
        return known.most_common(1)[0][0] if known else host

    def without_known(self, host: str, rows: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
        """Return the rows of `gpu`, `host` or `serving` at moments that no agent's row covers. Raises LakeError."""
        if rows.is_empty() or host not in set(self.hosts.values()):
            return rows
        by = [name for name in ("gpu",) if name in table.names]
        known = _agent_rows(self.lake, table, self.date, host, ("time", "interval_ms", *by))
        spans = known.select(
            *by, start=pl.col("time").cast(pl.Int64), _end=pl.col("time").cast(pl.Int64) + pl.col("interval_ms")
        )
        moment = TRUE_MS if table is GPU else pl.col("time").cast(pl.Int64)
        met = (
            rows.with_columns(_at=moment)
            .sort("_at")
            .join_asof(
                spans.sort("start"),
                left_on="_at",
                right_on="start",
                by=by or None,
                strategy="backward",
                check_sortedness=False,
            )
        )
        return met.filter((pl.col("_end") <= pl.col("_at")).fill_null(value=True)).select(rows.columns)

    def without_known_gpus(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows (gpu, time) without the date's rows of GPUs that agents described."""
        is_known = pl.col("gpu").is_in(list(self.hosts)) & (pl.col("time").dt.strftime("%Y-%m-%d") == self.date)
        return rows.filter(~is_known)


def _agent_rows(lake: Lake, table: LakeTable, date: str, host: str | None, columns: Sequence[str]) -> pl.DataFrame:
    if not lake.store.exists():
        return empty(table).select(columns).with_columns(host=pl.lit(None, pl.String))
    files = lake.files(table.name, dates=[date], hosts=None if host is None else [host])
    own = [file for file in files if file.last_seq >= AGENT_FIRST_SEQ]
    return read_frame(own, table, columns, lake.left_out.leave_out)


@dataclass(frozen=True)
class WriterSettings:
    """How rows are written; with `hourly` into files of an hour, for live data."""

    hourly: bool = False
    pseudonyms: Pseudonyms | None = None
    until_ms: int | None = None
    """The end of the last window, after which the lake may already have data; None where windows continue."""


class LakeWriter:
    """Writes one server's rows into one lake; windows of a host come in the order of time."""

    def __init__(self, lake: Lake, settings: WriterSettings, totals: ReadTotals) -> None:
        """Raise LakeError where the lake's allocations cannot be read."""
        self.lake, self.settings, self.totals = lake, settings, totals
        self._open = OpenAllocations.of(lake)
        self._later = None if settings.until_ms is None else LaterSamples.of(lake, settings.until_ms)
        self._days: dict[str, AgentDay] = {}
        self._known, self._known_until_ms = KnownHosts(), 0

    def begin_window(self) -> None:
        """Read again what the agents have."""
        self._days = {}

    def imported(self, rows: Imported) -> Imported:
        """Return the rows of a host under the agents' name for the host, without rows that agents have.

        Raises LakeError.
        """
        name, device, events = rows.host, rows.device, rows.events
        gpu, hosts = [rows.gpu.clear()], [rows.hosts.clear()]
        for date in _dates(rows):
            day = self._agent_day(date)
            own, own_hosts = (frame.filter(_date() == date) for frame in (rows.gpu, rows.hosts))
            name = day.host_of(rows.host, own["gpu"].unique().to_list())
            gpu.append(day.without_known(name, own, GPU))
            hosts.append(day.without_known(name, own_hosts, HOST))
            device = day.without_known_gpus(device)
            events = day.without_known_gpus(events) if events.height else events
        new = pl.concat(gpu)
        self.totals.of_agents += rows.gpu.height - new.height
        known = device.join(new.select("gpu").unique(), on="gpu", how="semi")
        # overlapping windows and servers explain dropped rows of scraped series: they are no doubt
        files = tuple(replace(each, lines_read=new.height, rows_kept=new.height, dropped=()) for each in rows.files)
        return replace(rows, host=name, gpu=new, device=known, files=files, hosts=pl.concat(hosts), events=events)

    def write(self, imported: Imported) -> None:
        """Publish the rows. Raises LakeError, after which the lake is whole."""
        if imported.gpu.height or imported.hosts.height:
            self.totals.add_published(publish(self.lake, imported, hourly=self.settings.hourly))

    def write_allocations(self, given: Given, kube: Samples | None, as_of_ms: int) -> None:
        """Publish the window's users of GPUs, of all its hosts at once. Raises LakeError."""
        if kube is not None:
            self._find_hosts(as_of_ms)
        found = allocations_of(given, kube, self._open, as_of_ms=as_of_ms, hosts=self._known)
        read = found.read
        if self._later is not None and as_of_ms == self._later.since_ms:
            seen, runs = self._later.ends(found.open.runs)
            left = replace(OpenAllocations.none(), runs=runs)
            ended = allocations_of(seen, None, left, as_of_ms=as_of_ms, hosts=self._known).read.rows
            read = replace(read, rows=with_ends(read.rows, ended))
        self._publish_allocations(read)
        for runs in (found.read.rows, named_users(given.segments)):  # allocations that the lake already has make no row
            self.totals.users |= set(runs.select("scheduler", "allocation_id").drop_nulls().unique().iter_rows())
        self.totals.allocation_notes = found.read.notes
        self._open = found.open

    def write_servers(self, found: ServedModels, as_of_ms: int) -> None:
        """Publish inference servers' rows, after the window's allocations, which name their GPUs. Raises LakeError."""
        if found.rows.is_empty():
            return
        self._find_hosts(as_of_ms)
        pods = {each.allocation_id for each in found.servers} - {None}
        placed = placed_rows(found, pod_allocations(self.lake, pods), self._known)  # type: ignore[arg-type]
        for (host,), rows in placed.partition_by("host", as_dict=True, include_key=False).items():
            dates = rows.select(_date()).to_series()
            kept = pl.concat(
                self._agent_day(date).without_known(str(host), rows.filter(dates == date), SERVING)
                for date in sorted(dates.unique())
            )
            self.totals.add_servers(kept)
            imported = Imported(str(host), empty(GPU), empty(DEVICE), serving=kept)
            self.totals.add_published(publish(self.lake, imported, hourly=self.settings.hourly))

    def _find_hosts(self, as_of_ms: int) -> None:
        if self._known_until_ms < as_of_ms:
            self._known, self._known_until_ms = KnownHosts.of(self.lake), as_of_ms + HOUR_MS

    def _publish_allocations(self, read: ReadAllocations) -> None:
        if self.settings.pseudonyms is not None:
            rows, requests = (
                frame.with_columns(replaced(pl.col("user"), frame["user"], self.settings.pseudonyms))
                for frame in (read.rows, read.requests)
            )
            read = replace(read, rows=rows, requests=requests)
        if read.rows.height or read.requests.height:
            _, published = publish_allocations(self.lake, read, replace=False)
            self.totals.add_published(published)

    def _agent_day(self, date: str) -> AgentDay:
        if date not in self._days:
            self._days[date] = AgentDay.of(self.lake, date)
        return self._days[date]


def _date() -> pl.Expr:
    return pl.col("time").dt.strftime("%Y-%m-%d")


def _dates(rows: Imported) -> list[str]:
    return sorted(
        {
            date
            for frame in (rows.gpu, rows.hosts)
            if frame.height
            for date in frame.select(_date()).to_series().unique()
        }
    )


_BACK_DAYS = 7


@dataclass
class DayMerging:
    """Merging for followed hosts: days that ended `lateness_ms` ago are merged; replaced files go after `grace_ms`."""

    lake: Lake
    grace_ms: int
    lateness_ms: int
    stopped: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = say
    _settled: str = ""
    """The newest date up to which all days are merged."""
    _skipped: dict[str, tuple[LakeFile, ...]] = field(default_factory=dict)
    """Partitions that cannot be merged, with their files: they are tried again once these change."""

    def run(self, position_ms: int, now_ms: int) -> int:
        """Merge the days before the position. Return how many days of hosts and tables it merged. Raises LakeError."""
        newest_ms = floor_ms(position_ms - self.lateness_ms, DAY_MS) - DAY_MS
        merged, is_done = 0, True
        for date in (utc_day(newest_ms - back * DAY_MS) for back in range(_BACK_DAYS, -1, -1)):
            if date > self._settled and not self.stopped():
                count, left = self._run_date(date, now_ms)
                merged += count
                is_done = is_done and not left and not self.stopped()
                if is_done:
                    self._settled = date
        return merged

    def _run_date(self, date: str, now_ms: int) -> tuple[int, int]:
        """Return how many were merged, and how many still have files to be merged or deleted."""
        done, left = Compacted(), 0
        for each in partitions(self.lake, (GPU, HOST, SERVING), [date], of_imports=True):
            if self._skipped.get(each.name) == each.files:
                left += 1
            elif len(each.files) > 1 and not self.stopped():
                # importers of the host wait meanwhile, so the rows that one has written are read
                with leased(self.lake, f"import-{each.host}", f"the merging of {date} of {each.host}") as mine:
                    kind, merged = [table(each.table)], len(done.merged)
                    for fresh in partitions(mine, kind, [date], hosts=[each.host], of_imports=True):
                        compact(mine, fresh, now_ms, self.grace_ms, done)
                        if done.skipped:
                            self._skipped[fresh.name] = fresh.files
                            self.say(done.skipped.pop())
                            left += 1
                        gone = sum(len(hidden) for _, hidden in fresh.replaced(now_ms, self.grace_ms))
                        left += len(done.merged) > merged or len(fresh.hidden) > gone
        return len(done.merged), left
