"""`fallow follow otlp`: receives metrics that OpenTelemetry collectors push, and reports its own status."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from analytics.importers.kinds import add_key_argument, pseudonyms_of
from analytics.mapping.mapping_file import load_exporters, metric_names
from analytics.scraped.lake_writer import DayMerging
from analytics.scraped.otlp.delivery import DeliveryRounds, DeliveryState
from analytics.scraped.otlp.receiver import PATH, Intake, otlp_receiver
from analytics.scraped.otlp.spool import RequestSpool
from analytics.scraped.service import Stop, open_pages, patience_ms
from analytics.scraped.serving_rows import SERVER_NAMES
from fallow import config
from fallow.clock import SECOND_MS, Clock, SystemClock, format_ms
from fallow.config import Config
from fallow.exposition import ExposedSamples, Family, label_text
from fallow.http_access import Token
from fallow.http_server import is_of_this_host, parse_listen
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.output import say

_EXPOSED = "every client that reaches this address can report data for any host; set otlp.token_file"
_UNENCRYPTED = "the token travels unencrypted: put a proxy with TLS or a collector in front"


def _family(name: str, unit: str, meaning: str, kind: str = "counter") -> Family:
    return Family(f"fallow_otlp_{name}", unit, meaning, "follow otlp", kind=kind)


_REQUESTS = _family("requests_total", "1", "requests, by the HTTP status of the answer")
_POINTS = _family("points_total", "1", "data points that were kept")
_IGNORED = _family("ignored_points_total", "1", "data points of metrics and hardware that fallow does not use")
_REJECTED = _family("rejected_points_total", "1", "data points that would be read wrongly")
_AGENT_ROWS = _family("agent_rows_total", "1", "rows left out because agents have them, those of overlaps again")
_DROPPED = _family("dropped_total", "1", "points and values that make no row, those of overlaps again")
_SPOOL = _family("spool_bytes", "bytes", "size of the spool on disk", "gauge")
_DELIVERED = _family(
    "last_delivery_timestamp_seconds", "s", "last time at which all received data was in the lake", "gauge"
)
_FAILING = _family("delivery_failing", "0 or 1", "whether the newest attempt to reach the lake failed", "gauge")


@dataclass(frozen=True)
class ReceiverStatus:
    """The status for /metrics and /healthz; many threads may ask."""

    intake: Intake
    state: DeliveryState
    clock: Clock
    every_ms: int

    def metrics(self) -> ExposedSamples:
        found, state, tally = ExposedSamples(), self.state, self.intake.tally
        with tally.lock:
            for status, count in sorted(tally.requests.items()):
                found.add(_REQUESTS, count, label_text({"code": int(status)}))
            found.add(_POINTS, tally.points)
            found.add(_IGNORED, tally.ignored)
            found.add(_REJECTED, tally.rejected)
        found.add(_AGENT_ROWS, state.agent_rows)
        found.add(_DROPPED, state.dropped)
        found.add(_SPOOL, self.intake.spool.size_bytes)
        found.add(_DELIVERED, None if state.last_success_ms is None else state.last_success_ms / SECOND_MS)
        found.add(_FAILING, bool(state.trouble))
        return found

    def health(self) -> tuple[int, dict[str, object]]:
        """Return 503 if nothing was tried for a while and a restart may help; an unreachable lake is only reported."""
        state = self.state
        content: dict[str, object] = {
            "status": "failing" if state.trouble else "ok",
            "spool_bytes": self.intake.spool.size_bytes,
        }
        if state.last_success_ms is not None:
            content["last_delivery"] = format_ms(state.last_success_ms)
        if self.clock.now_ms() - state.round_ms > patience_ms(self.every_ms):
            return 503, content | {"status": "stale"}
        return 200, content


_FLAGS = {
    "listen": ("ADDRESS", "address:port to receive metrics at"),
    "spool": ("DIR", "folder for metrics that are not in the lake yet"),
    "every": ("DURATION", "how often metrics are published to the lake"),
    "token-file": ("FILE", "file with the bearer token that senders need"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (metavar, meaning) in _FLAGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=f"{meaning} (default: otlp.{name.replace('-', '_')})")
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        action="append",
        help="the site's mapping (TOML); repeatable (default: prometheus.mapping)",
    )
    parser.add_argument("--lake", metavar="DIR", help="location of the lake (default: lake.path)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    add_key_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Return after SIGTERM or Ctrl-C. Raises UsageError, SpoolError, LakeError and FallowError if it cannot start."""
    settings = _settings(args)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    require_marker(lake)
    clock, stop = SystemClock(), Stop()
    every_ms = settings.integer("otlp.every")
    with ExitStack() as opened:
        spool = RequestSpool(Path(settings.require("otlp.spool", "--spool")), settings.integer("otlp.max_spool"))
        opened.callback(spool.close)
        exporters = load_exporters([Path(each) for each in settings.texts("prometheus.mapping")])
        token_file = settings.text("otlp.token_file")
        token = Token(token_file, "otlp.token_file") if token_file else None
        refused = {
            name: f"{each.title} {each.refused}" for each in exporters if each.refused for name in each.signed_by
        }
        wanted = (metric_names(exporters) | SERVER_NAMES) - refused.keys()
        intake = Intake(spool, wanted, settings.integer("otlp.max_body"), clock, token, refused=refused)
        merging = DayMerging(
            lake, settings.integer("compaction.grace"), settings.integer("compaction.lateness"), stop.is_asked
        )
        rounds = DeliveryRounds(spool, exporters, lake, pseudonyms_of(args, settings), merging, clock, say)
        host, port = parse_listen(settings.text("otlp.listen"), "otlp.listen")
        receiver = otlp_receiver((host, port), intake)
        status = ReceiverStatus(intake, rounds.state, clock, every_ms)
        open_pages(opened, settings, status.metrics, status.health)
        receiver.start()
        say(f"receives OTLP metrics at {receiver.url}{PATH}")
        if not is_of_this_host(host):
            say(_EXPOSED if token is None else _UNENCRYPTED)
        while not stop.wait(every_ms / SECOND_MS):
            rounds.run()
        receiver.close()
        rounds.run()
    say(f"stopped; data that is not in the lake yet is in {settings.text('otlp.spool')}")
    return 0


def _settings(args: argparse.Namespace) -> Config:
    flags = {f"otlp.{name.replace('-', '_')}": getattr(args, name.replace("-", "_")) for name in _FLAGS}
    mapping = None if args.mapping is None else ",".join(args.mapping)
    return config.load({**flags, "prometheus.mapping": mapping, "lake.path": args.lake}, args.config)
