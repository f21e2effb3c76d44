"""`fallow follow otlp`: takes the metrics that OpenTelemetry collectors push, until it is told to stop."""

from __future__ import annotations

import argparse
import threading
from contextlib import ExitStack
from pathlib import Path

from analytics.importers.pseudonymised import add_key_argument, pseudonyms_of
from analytics.scraped.following.day_merging import DayMerging
from analytics.scraped.following.follower_page import FollowerPage
from analytics.scraped.following.stop_signals import stop_at_signals
from analytics.scraped.mapping.loading import load_exporters, metric_names
from analytics.scraped.otlp.delivery_rounds import DeliveryRounds
from analytics.scraped.otlp.receiver import Intake, OtlpReceiver
from analytics.scraped.otlp.self_metrics import ReceiverStatus
from analytics.scraped.otlp.spool import RequestSpool
from fallow import config
from fallow.clock import SECOND_MS, SystemClock
from fallow.config import Config
from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, given_text
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.listen_address import is_of_this_host, parse_listen
from fallow.output import say

_FLAGS = {
    "listen": ("ADDRESS", "address:port to take metrics at"),
    "spool": ("DIR", "folder for what is not yet in the lake"),
    "every": ("DURATION", "how often it goes to the lake"),
    "token-file": ("FILE", "file with the bearer token that senders have to show"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (metavar, meaning) in _FLAGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=f"{meaning} (default: otlp.{name.replace('-', '_')})")
    parser.add_argument(
        "--mapping",
        metavar="FILE",
        action="append",
        help="a site's own mapping (TOML); repeatable (default: prometheus.mapping)",
    )
    parser.add_argument("--lake", metavar="DIR", help="the lake (default: lake.path)")
    parser.add_argument("--config", metavar="FILE", help="config file to read instead of the usual one")
    add_key_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Returns after SIGTERM or Ctrl-C. Raises UsageError, SpoolError, LakeError and FallowError where it cannot begin."""
    settings = _settings(args)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    require_marker(lake)
    clock, stop = SystemClock(), threading.Event()
    stop_at_signals(stop)
    every_ms = settings.integer("otlp.every")
    with ExitStack() as opened:
        spool = RequestSpool(Path(settings.require("otlp.spool", "--spool")), settings.integer("otlp.max_spool"))
        opened.callback(spool.close)
        exporters = load_exporters([Path(each) for each in settings.texts("prometheus.mapping")])
        intake = Intake(spool, metric_names(exporters), settings.integer("otlp.max_body"), clock, _token(settings))
        merging = DayMerging(
            lake, settings.integer("compaction.grace"), settings.integer("compaction.lateness"), stop.is_set
        )
        rounds = DeliveryRounds(spool, exporters, lake, pseudonyms_of(args, settings), merging, clock, say)
        host, port = parse_listen(settings.text("otlp.listen"), "otlp.listen")
        receiver = OtlpReceiver(host, port, intake)
        if settings.text("follow.listen"):
            status = ReceiverStatus(intake, rounds.state, clock, every_ms)
            address = parse_listen(settings.text("follow.listen"), "follow.listen")
            page = FollowerPage(*address, status.metrics, status.health)
            page.start()
            opened.callback(page.close)
        receiver.start()
        say(f"takes OTLP metrics at {receiver.url}")
        if not is_of_this_host(host):
            say(_warning(has_token=bool(intake.token)))
        while not stop.wait(every_ms / SECOND_MS):
            rounds.run()
        receiver.close()
        rounds.run()
    say(f"stopped; what is not in the lake yet is in {settings.text('otlp.spool')}")
    return 0


def _warning(*, has_token: bool) -> str:
    if has_token:
        return "the token travels unencrypted: put a proxy with TLS or a collector in front"
    return "whoever reaches this address can say anything of any host; set otlp.token_file"


def _settings(args: argparse.Namespace) -> Config:
    flags = {f"otlp.{name.replace('-', '_')}": getattr(args, name.replace("-", "_")) for name in _FLAGS}
    mapping = None if args.mapping is None else ",".join(args.mapping)
    return config.load({**flags, "prometheus.mapping": mapping, "lake.path": args.lake}, args.config)


def _token(settings: Config) -> str:
    """The token in the file of the setting; empty without one. Raises ConfigError."""
    if not (path := settings.text("otlp.token_file")):
        return ""
    token = given_text("otlp.token_file", path, SECRET_BYTES, encoding="ascii").strip()
    if len(token.split()) != 1:
        raise ConfigError(f"otlp.token_file {path} holds no token", "write one word of ASCII into it")
    return token
