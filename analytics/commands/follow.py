"""`fallow follow SOURCE`: live sources. Each has an entry in SOURCES and a module with `add_arguments` and `run`."""

from __future__ import annotations

from fallow.cli import Command, VerbGroup

SOURCES: tuple[Command, ...] = (
    Command("prometheus", "read new samples from a metrics server that scrapes GPU exporters",
            "fallow follow prometheus --url http://prometheus:9090 --lake /srv/lake",
            "analytics.scraped.follower", "analytics"),
    Command("otlp", "receive OpenTelemetry metrics that collectors push over OTLP/HTTP",
            "fallow follow otlp --listen 127.0.0.1:4318 --spool /var/lib/fallow-otlp --lake /srv/lake",
            "analytics.scraped.otlp.command", "analytics"),
)  # fmt: skip

VERB = VerbGroup(SOURCES, "SOURCE")
