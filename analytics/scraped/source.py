"""What `import` and `follow` open alike: the server, the exporters that count, the lake and who is named in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from analytics.scraped.journal import ReadingJournal
from analytics.scraped.mapping.loading import load_exporters
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.limits import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from fallow.config import Config
from fallow.given_file import SETTINGS_BYTES, given_bytes
from fallow.lake import Lake


@dataclass(frozen=True)
class ScrapedSource:
    """One server as the settings name it."""

    address: ServerAddress
    limits: ServerLimits
    exporters: tuple[Exporter, ...]
    match: str
    collect_ms: int | None
    mapping: str
    """A fingerprint of the site's own mappings."""

    @classmethod
    def of(cls, settings: Config) -> ScrapedSource:
        """Raises ConfigError and UsageError."""
        files = [Path(each) for each in settings.texts("prometheus.mapping")]
        exporters = load_exporters(files)
        content = b"".join(given_bytes("the mapping", each, SETTINGS_BYTES) for each in files)
        return cls(
            ServerAddress.of(settings),
            ServerLimits.of(settings),
            exporters,
            settings.text("prometheus.match"),
            settings.integer("prometheus.collect_interval") or None,
            hashlib.sha256(content).hexdigest() if files else "",
        )

    def connect(self) -> MetricsServer:
        """Raises InputError where no metrics server answers."""
        return MetricsServer.connect(self.address, self.limits)

    def journal(self, lake: Lake) -> ReadingJournal:
        """How far this server has been read into the lake. Raises LakeError."""
        return ReadingJournal.of(self.address.url, self.match, self.mapping, lake)
