"""Shared parts of `import` and `follow`: flags, server, exporters, and the interval that is already in the lake."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analytics.frames import digest
from analytics.mapping.mapping_file import load_exporters
from analytics.mapping.model import Exporter
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from fallow import config
from fallow.config import Config
from fallow.errors import FallowError
from fallow.given_file import SETTINGS_BYTES, given_bytes
from fallow.lake import Lake
from fallow.lake_marker import read_marker

_FLAGS = {
    "url": ("ADDRESS", "address of the metrics server"),
    "token-file": ("FILE", "file with the bearer token"),
    "user": ("NAME", "user name for basic authentication"),
    "password-file": ("FILE", "file with the password"),
    "tenant": ("NAME", "tenant, sent as X-Scope-OrgID"),
    "ca-file": ("FILE", "PEM file with the server's CA"),
    "certificate": ("FILE", "PEM file with the client certificate"),
    "key": ("FILE", "PEM file with the key of the client certificate"),
    "cluster-label": ("LABEL", "label of the cluster, where clusters share names of hosts: hosts become HOST@CLUSTER"),
    "collect-interval": ("DURATION", "how often the exporters read the driver"),
    "concurrency": ("N", "concurrent requests"),
    "rate": ("NUMBER", "most requests per second"),
}
_REPEATED = {
    "match": ("MATCHERS", """label matchers for the series to read, such as 'cluster="a"'; repeatable"""),
    "mapping": ("FILE", "the site's mapping (TOML); repeatable"),
    "header": ("'NAME: VALUE'", "header of each request; repeatable"),
}


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    for name, (metavar, meaning) in _FLAGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=f"{meaning} (default: prometheus.{_key(name)})")
    for name, (metavar, meaning) in _REPEATED.items():
        parser.add_argument(f"--{name}", metavar=metavar, action="append", help=meaning)


def server_settings(args: argparse.Namespace, **others: str | None) -> config.Config:
    """Return the settings with these flags and `others` (`section__key`) applied. Raises ConfigError and UsageError."""
    flags: dict[str, str | None] = {f"prometheus.{_key(name)}": getattr(args, _key(name)) for name in _FLAGS}
    for name, key in (("match", "match"), ("mapping", "mapping"), ("header", "headers")):
        given = getattr(args, name)
        flags[f"prometheus.{key}"] = None if given is None else ",".join(given)
    flags["lake.path"] = args.lake
    flags |= {name.replace("__", "."): value for name, value in others.items()}
    return config.load(flags, args.config)


def _key(name: str) -> str:
    return name.replace("-", "_")


@dataclass(frozen=True, order=True)
class ReadSpan:
    """All data from `since_ms` up to `until_ms` is in the lake."""

    since_ms: int
    until_ms: int


class ReadingJournal:
    """The journal of one server, one set of matchers, one mapping and one lake."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[ReadSpan, ...]:
        """Return the intervals that were read, in order; empty without a readable journal: they are then read again."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return tuple(ReadSpan(int(since_ms), int(until_ms)) for since_ms, until_ms in found["read"])
        except (OSError, ValueError, KeyError, TypeError):
            return ()

    def forget(self) -> None:
        """Delete the journal. Raises FallowError."""
        self._write(())

    def add(self, interval: ReadSpan) -> None:
        """Add an interval; the file is replaced as a whole or not at all. Raises FallowError."""
        spans: list[ReadSpan] = []
        for each in sorted((*self.read(), interval)):
            if spans and each.since_ms <= spans[-1].until_ms:
                spans[-1] = ReadSpan(spans[-1].since_ms, max(spans[-1].until_ms, each.until_ms))
            else:
                spans.append(each)
        self._write(spans)

    def _write(self, spans: Sequence[ReadSpan]) -> None:
        content = {"read": [[each.since_ms, each.until_ms] for each in spans]}
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.write_text(json.dumps(content), encoding="utf-8")
            beside.chmod(0o600)
            beside.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise FallowError(
                f"cannot write the journal {self.path}: {error.strerror}",
                "make its folder writable, or set XDG_STATE_HOME to another folder",
            ) from error


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "fallow" / "prometheus"


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

    cluster: str = ""
    """The label that distinguishes hosts of one name."""

    @classmethod
    def of(cls, settings: Config) -> ScrapedSource:
        """Return the source of the settings. Raises ConfigError and UsageError."""
        files = [Path(each) for each in settings.texts("prometheus.mapping")]
        cluster = settings.text("prometheus.cluster_label")
        exporters = tuple(replace(each, cluster=cluster) for each in load_exporters(files))
        content = b"".join(given_bytes("the mapping", each, SETTINGS_BYTES) for each in files)
        return cls(
            ServerAddress.of(settings),
            ServerLimits.of(settings),
            exporters,
            settings.text("prometheus.match"),
            settings.integer("prometheus.collect_interval") or None,
            hashlib.sha256(content).hexdigest() if files else "",
            cluster,
        )

    def connect(self) -> MetricsServer:
        """Return the server. Raises InputError where no metrics server answers."""
        return MetricsServer.connect(self.address, self.limits)

    def journal(self, lake: Lake) -> ReadingJournal:
        """Return the journal, by the lake's id: a new lake in the same place has another journal. Raises LakeError."""
        marker = read_marker(lake.store) if lake.store.exists() else None
        mapping = f"{self.mapping}@{self.cluster}" if self.cluster else self.mapping
        key = digest(self.address.url, self.match, mapping, marker.id if marker else lake.root)
        return ReadingJournal(_state_folder() / f"{key}.json")
