"""The parts of the supervisor that follow the settings: made at the start, and again when they are reloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.attribution import AttributionSettings, Owners
from agent.attribution.allocations import PodClaims
from agent.host import HostMeter
from agent.spool.backlog import Backlog
from agent.spool.publishing import Publishing
from agent.spool.spool import read_fact
from agent.supervise.counter_epochs import Epochs

if TYPE_CHECKING:
    from agent.serving.scraper import ServingScraper
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from fallow.config import Config


@dataclass
class Parts:
    """Everything that has something to say of an interval, beside the fleet."""

    owners: Owners
    claims: PodClaims
    host: HostMeter
    serving: ServingScraper | None
    epochs: Epochs
    publishing: Publishing
    backlog: Backlog

    @classmethod
    def make(cls, loaded: Config, settings: AgentSettings, spool: Spool) -> Parts:
        """The parts for these settings; raises UsageError where one of them cannot be."""
        return cls(
            owners=Owners(AttributionSettings.from_config(loaded)),
            claims=PodClaims(read_fact(spool, "pod_claims", list, [])),
            host=HostMeter(settings.proc, settings.sys),
            serving=_scraper(loaded),
            epochs=Epochs(spool.noted("epochs"), boot_id(settings.proc)),
            publishing=Publishing(settings, spool),
            backlog=Backlog(spool, settings.spool_max_bytes),
        )

    def prepared(self, loaded: Config, settings: AgentSettings) -> Parts:
        """Parts for other settings that keep what must not be forgotten; raises as `make` does, with nothing changed."""
        return Parts(
            owners=Owners(AttributionSettings.from_config(loaded)),
            claims=self.claims,
            host=HostMeter(settings.proc, settings.sys),
            serving=_scraper(loaded),  # last of those that may refuse: it starts a thread
            epochs=self.epochs,
            publishing=self.publishing,
            backlog=self.backlog,
        )

    def retire(self, after: Parts, settings: AgentSettings) -> None:
        """Hands over to the parts that come after these."""
        if self.serving is not None:
            self.serving.close()
        after.publishing.configure(settings)
        after.backlog.spool_max_bytes = settings.spool_max_bytes

    def close(self) -> None:
        """Ends what runs beside the sampling, and writes what still waits in memory."""
        self.backlog.close()
        if self.serving is not None:
            self.serving.close()


def _scraper(loaded: Config) -> ServingScraper | None:
    """The scraper of inference servers, whose code is loaded only where there are any."""
    endpoints = loaded.texts("serving.endpoints")
    if not endpoints:
        return None
    from agent.serving.scraper import ServingScraper, ServingSettings

    return ServingScraper(ServingSettings(endpoints, loaded.integer("serving.interval"), loaded.text("agent.proc")))


def boot_id(proc: str) -> str:
    """What names this boot of the machine; empty where the kernel does not say."""
    try:
        return Path(proc, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
