"""`fallow follow prometheus`: keeps the lake up with a metrics server until it is told to stop."""

from __future__ import annotations

import argparse
import threading
from contextlib import ExitStack

from analytics.importers.pseudonymised import add_key_argument, pseudonyms_of
from analytics.scraped.following.follower import Follower, FollowSettings
from analytics.scraped.following.follower_page import FollowerPage
from analytics.scraped.following.status import StatusBoard
from analytics.scraped.following.stop_signals import stop_at_signals
from analytics.scraped.reading import ReadingStoppedError
from analytics.scraped.server_flags import add_server_flags, server_settings
from analytics.scraped.source import ScrapedSource
from fallow.clock import SECOND_MS, SystemClock, parse_duration_ms
from fallow.config import Config
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.listen_address import parse_listen
from fallow.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server_flags(parser)
    parser.add_argument("--every", metavar="DURATION", help="how often to read (default: prometheus.every)")
    parser.add_argument("--late", metavar="DURATION", help="how far back to read again (default: prometheus.late)")
    parser.add_argument(
        "--since",
        default="1h",
        metavar="DURATION",
        help="how far back to begin where nothing was followed before (default: 1h)",
    )
    parser.add_argument("--listen", metavar="ADDRESS", help="where /metrics and /healthz are (default: follow.listen)")
    parser.add_argument("--once", action="store_true", help="catch up and end")
    parser.add_argument("--lake", help="folder of the lake (default: lake.path of the config)")
    parser.add_argument("--config", metavar="FILE", help="config file to read instead of the usual one")
    add_key_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Returns after SIGTERM or Ctrl-C; raises ConfigError and UsageError, and LakeError where there is no lake."""
    settings = server_settings(
        args, prometheus__every=args.every, prometheus__late=args.late, follow__listen=args.listen
    )
    stop = threading.Event()
    stop_at_signals(stop)
    clock = SystemClock()
    board = StatusBoard(clock, settings.integer("prometheus.every"))
    lake = Lake.at(settings.require("lake.path", "--lake"))
    require_marker(lake)
    follower = Follower(
        ScrapedSource.of(settings), lake, _follow_settings(args, settings), clock, board, say, stop.is_set
    )
    with ExitStack() as opened:
        opened.callback(follower.close)
        if settings.text("follow.listen"):
            page = FollowerPage(
                *parse_listen(settings.text("follow.listen"), "follow.listen"), board.metrics, board.health
            )
            page.start()
            opened.callback(page.close)
        return _follow(follower, stop, once=args.once)


def _follow(follower: Follower, stop: threading.Event, *, once: bool) -> int:
    try:
        while not stop.is_set():
            pause_ms = follower.round()
            if once:
                return 1 if follower.board.status.failing else 0
            stop.wait(pause_ms / SECOND_MS)
    except ReadingStoppedError:
        pass
    say(f"stopped following {follower.source.address.url}; the next start goes on from here")
    return 0


def _follow_settings(args: argparse.Namespace, settings: Config) -> FollowSettings:
    return FollowSettings(
        every_ms=settings.integer("prometheus.every"),
        late_ms=settings.integer("prometheus.late"),
        first_ms=parse_duration_ms(args.since),
        lateness_ms=settings.integer("compaction.lateness"),
        grace_ms=settings.integer("compaction.grace"),
        pseudonyms=pseudonyms_of(args, settings),
    )
