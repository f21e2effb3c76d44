"""Rows of scraped hosts into the lake: what agents have already is left out, the rest goes the way of every import."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations
from analytics.allocations.publish import publish_allocations
from analytics.importers.model import FileReport, Imported
from analytics.importers.pseudonymised import replaced
from analytics.importers.publish import publish
from analytics.scraped.agent_cover import AgentDay
from analytics.scraped.host_rows import HostRows
from analytics.scraped.samples import Samples
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.allocations import OpenAllocations, WindowAllocations, allocations_of
from analytics.scraped.who.given import Given
from analytics.scraped.who.label_runs import named_holders
from analytics.scraped.who.later_samples import LaterSamples, with_ends
from fallow.clock import HOUR_MS
from fallow.lake import Lake
from fallow.pseudonyms import Pseudonyms
from fallow.schema import GPU, HOST


@dataclass(frozen=True)
class WriterSettings:
    """How rows are written; `hourly`: into files of an hour, for what comes live."""

    hourly: bool = False
    pseudonyms: Pseudonyms | None = None
    until_ms: int | None = None
    """Where the last window ends, of whose time after it the lake may know already; None where windows go on."""


class LakeWriter:
    """Writes one server's rows into one lake; windows of a host come in the order of time."""

    def __init__(self, lake: Lake, settings: WriterSettings, totals: ReadTotals) -> None:
        """Raises LakeError where the lake's allocations cannot be read."""
        self.lake, self.settings, self.totals = lake, settings, totals
        self._open = OpenAllocations.of(lake)
        self._later = None if settings.until_ms is None else LaterSamples.of(lake, settings.until_ms)
        self._days: dict[str, AgentDay] = {}
        self._known, self._known_until_ms = KnownHosts(), 0

    def begin_window(self) -> None:
        """What agents have is looked up anew."""
        self._days = {}

    def imported(self, rows: HostRows) -> Imported:
        """The rows of a host as importers hand theirs over, under the agents' name for the host and without what agents have.

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
        nulled = tuple(each for each in rows.dropped if each.column)
        return Imported(
            name,
            new,
            device.join(new.select("gpu").unique(), on="gpu", how="semi"),
            (FileReport(f"host {rows.host}", new.height, new.height, nulled=nulled),),
            "as scraped",
            "UTC",
            hosts=pl.concat(hosts),
            events=events,
        )

    def write(self, imported: Imported) -> None:
        """Raises LakeError; what is there then is whole."""
        if imported.gpu.height or imported.hosts.height:
            self.totals.add_published(publish(self.lake, imported, hourly=self.settings.hourly))

    def write_allocations(self, given: Given, kube: Samples | None, as_of_ms: int) -> None:
        """What the window says of who had the GPUs, of all its hosts at once. Raises LakeError."""
        if kube is not None and self._known_until_ms < as_of_ms:
            self._known, self._known_until_ms = KnownHosts.of(self.lake), as_of_ms + HOUR_MS
        found = allocations_of(given, kube, self._open, as_of_ms=as_of_ms, hosts=self._known)
        self._publish_allocations(self._with_later_ends(found) if as_of_ms == self.settings.until_ms else found.read)
        for told in (found.read.rows, named_holders(given.stretches)):  # what the lake has already is no row
            self.totals.holders |= set(told.select("scheduler", "claim_id").drop_nulls().unique().iter_rows())
        self.totals.allocation_notes = found.read.notes
        self._open = found.open

    def _with_later_ends(self, found: WindowAllocations) -> ReadAllocations:
        if self._later is None:
            return found.read
        seen, runs = self._later.ends(found.open.runs)
        left = replace(OpenAllocations.none(), runs=runs)
        ended = allocations_of(seen, None, left, as_of_ms=self._later.since_ms, hosts=self._known).read.rows
        return replace(found.read, rows=with_ends(found.read.rows, ended))

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


def _dates(rows: HostRows) -> list[str]:
    return sorted(
        {
            date
            for frame in (rows.gpu, rows.hosts)
            if frame.height
            for date in frame.select(_date()).to_series().unique()
        }
    )
