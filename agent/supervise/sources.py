"""The sources of rows beside the driver, and what else follows the settings: made at the start and at every reload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution.allocations import PodAllocations
from agent.collectors import Collector, Interval
from agent.host import HostMeter
from agent.spool.backlog import Backlog
from agent.spool.publishing import Publishing
from agent.spool.spool import read_fact
from agent.supervise.counter_epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.rows import EventRow, ServingRow
    from agent.serving.scraper import ServingScraper
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from fallow.config import Config


class ServingCollector(Collector):
    """Rows of the `serving` table, which the scraper brings in a thread of its own."""

    name = table = "serving"

    def __init__(self, scraper: ServingScraper) -> None:
        self._scraper = scraper

    def collect(self, interval: Interval) -> Sequence[ServingRow]:
        return self._scraper.rows(interval.start_ms, interval.length_ms, interval.pids)

    def take_incidents(self) -> Sequence[EventRow]:
        return self._scraper.take_incidents()

    def close(self) -> None:
        self._scraper.close()


@dataclass
class Parts:
    """Everything that has something to say of an interval, beside the fleet."""

    owners: ProcessOwners
    claims: PodAllocations
    host: HostMeter
    collectors: tuple[Collector, ...]
    """Every source of rows, in the order in which they are asked."""
    epochs: Epochs
    publishing: Publishing
    backlog: Backlog

    @classmethod
    def make(cls, loaded: Config, settings: AgentSettings, spool: Spool) -> Parts:
        """The parts for these settings; raises UsageError where one of them cannot be."""
        claims = PodAllocations(read_fact(spool, "pod_claims", list, []))
        return cls(
            *_sources(loaded, settings, claims),
            epochs=Epochs(spool.noted("epochs"), boot_id(settings.proc)),
            publishing=Publishing(settings, spool),
            backlog=Backlog(spool, settings.spool_max_bytes),
        )

    def prepared(self, loaded: Config, settings: AgentSettings) -> Parts:
        """Parts for other settings that keep what must not be forgotten; raises as `make` does, with nothing changed."""
        return Parts(
            *_sources(loaded, settings, self.claims),
            epochs=self.epochs,
            publishing=self.publishing,
            backlog=self.backlog,
        )

    def retire(self, after: Parts, settings: AgentSettings) -> None:
        """Hands over to the parts that come after these."""
        for each in self.collectors:
            each.close()
        after.publishing.configure(settings)
        after.backlog.spool_max_bytes = settings.spool_max_bytes

    def close(self) -> None:
        """Ends what runs beside the sampling, and writes what still waits in memory."""
        self.backlog.close()
        for each in self.collectors:
            each.close()


def _sources(
    loaded: Config, settings: AgentSettings, claims: PodAllocations
) -> tuple[ProcessOwners, PodAllocations, HostMeter, tuple[Collector, ...]]:
    """The sources of rows for these settings, as the first fields of Parts; a new one is listed here."""
    owners = ProcessOwners(AttributionSettings.from_config(loaded))
    host = HostMeter(settings.proc, settings.sys)
    claims.allocation = owners.allocation
    collectors = (owners, host, *_serving(loaded), claims)
    return owners, claims, host, collectors


def _serving(loaded: Config) -> tuple[ServingCollector, ...]:
    """The scraper of inference servers, whose code is loaded only where there are any.

    It comes last of those that may refuse their settings, because it starts a thread.
    """
    endpoints = loaded.texts("serving.endpoints")
    if not endpoints:
        return ()
    from agent.serving.scraper import ServingScraper, ServingSettings

    settings = ServingSettings(endpoints, loaded.integer("serving.interval"), loaded.text("agent.proc"))
    return (ServingCollector(ServingScraper(settings)),)


def boot_id(proc: str) -> str:
    """What names this boot of the machine; empty where the kernel does not say."""
    try:
        return Path(proc, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
