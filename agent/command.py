"""`fallow agent run` and `fallow agent once`."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING

from agent.once import look_once, table_text
from agent.spool import Spool
from agent.supervisor import AgentSettings, Supervisor
from fallow import config
from fallow.clock import SECOND_MS, parse_duration_ms
from fallow.errors import UsageError
from fallow.lake import Lake

if TYPE_CHECKING:
    import argparse


_LONGEST_HOST = 80  # percent-encoded, it still has to fit into a file name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="run|once")
    run_parser = verbs.add_parser("run", help="sample until stopped", epilog="example: fallow agent run --lake /srv/lake "
                                  "--spool /var/lib/fallow --interval 10s", allow_abbrev=False)  # fmt: skip
    run_parser.add_argument("--lake", metavar="DIR", help="the lake to publish to")
    run_parser.add_argument("--spool", metavar="DIR", help="local folder for rows that are not in the lake yet")
    run_parser.add_argument("--interval", metavar="TIME", help="length of one row's interval (default 10s)")
    run_parser.add_argument("--for", dest="run_for", metavar="TIME", help="end by itself after so long")
    run_parser.add_argument("--host", metavar="NAME", help="this host's name in the lake (default: its host name)")
    run_parser.add_argument("--pool", metavar="NAME", help="the group of hosts that this one belongs to")
    run_parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    once_parser = verbs.add_parser("once", help="look once and print it", epilog="example: fallow agent once --json",
                                   allow_abbrev=False)  # fmt: skip
    once_parser.add_argument("--json", action="store_true", help="machine-readable")
    once_parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def run(args: argparse.Namespace) -> int:
    """Samples, or looks once."""
    return _once(args) if args.verb == "once" else _run(args)


def _once(args: argparse.Namespace) -> int:
    settings = config.load({}, args.config)
    look = look_once(
        settings.integer("agent.call_timeout") / SECOND_MS, settings.text("agent.host") or socket.gethostname()
    )
    print(json.dumps(look.as_json(), indent=2) if args.json else table_text(look))
    return 0


def _run(args: argparse.Namespace) -> int:
    settings = _settings(args)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s fallow agent: %(message)s")
    spool = Spool(settings.spool)
    try:
        spool.lock()
        supervisor = Supervisor(settings, spool)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        supervisor.run()
    finally:
        spool.close()
    return 0


def _settings(args: argparse.Namespace) -> AgentSettings:
    flags = {
        "lake.path": args.lake,
        "agent.spool": args.spool,
        "agent.interval": args.interval,
        "agent.host": args.host,
        "agent.pool": args.pool,
    }
    loaded = config.load(flags, args.config)
    interval_ms = loaded.integer("agent.interval")
    if interval_ms < SECOND_MS:
        raise UsageError(
            f"an interval of {interval_ms} ms ({loaded.origins['agent.interval']}) is too short", "give 1s or more"
        )
    lake = Lake.at(loaded.require("lake.path", "--lake"))
    host = loaded.text("agent.host") or socket.gethostname()
    if not host.isprintable() or len(host.encode()) > _LONGEST_HOST:
        raise UsageError(f"--host {host[:40]!r} cannot name a folder", "give a printable name of at most 80 bytes")
    return AgentSettings(
        lake=lake.root,
        spool=loaded.require("agent.spool", "--spool"),
        host=host,
        pool=loaded.text("agent.pool"),
        interval_ms=interval_ms,
        process_interval_ms=max(interval_ms, loaded.integer("agent.process_interval")),
        publish_every_ms=loaded.integer("agent.publish_every"),
        call_timeout_s=loaded.integer("agent.call_timeout") / SECOND_MS,
        run_for_ms=None if args.run_for is None else parse_duration_ms(args.run_for),
    )
