"""`fallow follow otlp`: takes the metrics that OpenTelemetry collectors push, until it is told to stop."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from analytics.importers.pseudonymised import add_key_argument, pseudonyms_of
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.mapping.loading import load_exporters, metric_names
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.otlp.receiver import PATH, Intake, OtlpReceiver
from analytics.scraped.otlp.self_metrics import DeliveryState, exposed, health
from analytics.scraped.otlp.spool import RequestSpool
from analytics.scraped.otlp.spool_delivery import SpoolDelivery
from analytics.scraped.totals import Totals
from fallow import config
from fallow.clock import Clock, SystemClock
from fallow.config import Config
from fallow.errors import ConfigError, LakeError
from fallow.lake import Lake
from fallow.listen_address import parse_listen
from fallow.output import say
from fallow.pseudonyms import Pseudonyms

_FLAGS = {
    "listen": ("ADDRESS", "address:port to take metrics at, and to serve /metrics and /healthz"),
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
    """Raises UsageError, SpoolError and FallowError where it cannot begin; a lake that is away is waited for."""
    settings = _settings(args)
    exporters = load_exporters([Path(each) for each in settings.texts("prometheus.mapping")])
    lake = Lake.at(settings.require("lake.path", "--lake"))
    spool = RequestSpool(Path(settings.require("otlp.spool", "--spool")), settings.integer("otlp.max_spool"))
    clock, stop = SystemClock(), threading.Event()
    token = _token(settings.text("otlp.token_file"))
    intake = Intake(spool, metric_names(exporters), settings.integer("otlp.max_body"), clock, token)
    rounds = DeliveryRounds(spool, exporters, lake, pseudonyms_of(args, settings), clock)
    host, port = parse_listen(settings.text("otlp.listen"), "otlp.listen")
    receiver = OtlpReceiver(host, port, intake, {
        "/metrics": lambda kind: exposed(intake, rounds.state, kind),
        "/healthz": lambda _: health(intake, rounds.state),
    })  # fmt: skip
    with _stopped_by_signals(stop):
        receiver.start()
        say(f"takes OTLP metrics at http://{host}:{receiver.port}{PATH}")
        while not stop.wait(settings.integer("otlp.every") / 1000):
            rounds.run()
        receiver.close()
        rounds.run()
    spool.close()
    return 0


@dataclass
class DeliveryRounds:
    """One try after the other to bring the spool into the lake; says what is new."""

    spool: RequestSpool
    exporters: tuple[Exporter, ...]
    lake: Lake
    pseudonyms: Pseudonyms | None
    clock: Clock
    state: DeliveryState = field(default_factory=DeliveryState)
    _delivery: SpoolDelivery | None = None

    def run(self) -> None:
        """Does what can be done now."""
        try:
            if self._delivery is None:
                writer = LakeWriter(self.lake, WriterSettings(hourly=True, pseudonyms=self.pseudonyms), Totals())
                self._delivery = SpoolDelivery(self.spool, self.exporters, writer)
            self.lake.require_known()  # an empty mount point must not become a lake
            self._delivery.run(self.clock.now_ms())
        except LakeError as error:
            if str(error) != self.state.trouble:
                say(f"{error}; what comes meanwhile is kept in the spool")
            self.state.trouble = str(error)
        else:
            if self.state.trouble:
                say("the lake takes rows again")
            self.state.trouble, self.state.last_success_ms = "", self.clock.now_ms()


def _settings(args: argparse.Namespace) -> Config:
    flags = {f"otlp.{name.replace('-', '_')}": getattr(args, name.replace("-", "_")) for name in _FLAGS}
    mapping = None if args.mapping is None else ",".join(args.mapping)
    return config.load({**flags, "prometheus.mapping": mapping, "lake.path": args.lake}, args.config)


def _token(path: str) -> str:
    """The token in a file; empty without one. Raises ConfigError."""
    if not path:
        return ""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read otlp.token_file {path}", "check the path and its permissions") from error
    if len(token.split()) != 1:
        raise ConfigError(f"otlp.token_file {path} holds no token", "write one word of ASCII into it")
    return token


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask to stop."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
