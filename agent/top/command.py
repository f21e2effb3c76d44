"""`fallow top`."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import TYPE_CHECKING

from agent.top.sources import find_source
from fallow import config
from fallow.clock import format_ms, parse_duration_ms
from fallow.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from agent.top.sources import TopSource

_SHORTEST_MS = 250  # the driver's own samples come every sixth of a second
_WIDEST = 160  # for output to a file or a pipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--interval",
        metavar="TIME",
        default="1s",
        help="time between updates (default: 1s); ignored with a running agent",
    )
    parser.add_argument("--once", action="store_true", help="print once and exit (the default without a terminal)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")
    parser.add_argument("--spool", metavar="DIR", help="the running agent's spool folder (default: from the config)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def run(args: argparse.Namespace) -> int:
    """Show the GPUs until the user quits; raises DriverError without an agent or a driver."""
    interval_ms = _interval_ms(args.interval)
    logging.getLogger("fallow").addHandler(logging.NullHandler())  # a log line would break the picture
    logging.getLogger("fallow").propagate = False
    source, notice = find_source(config.load({"agent.spool": args.spool}, args.config), interval_ms)
    if args.json:
        return _stream(source, once=args.once)
    from rich.console import Console  # not for --json

    console = Console(highlight=False)
    if args.once or not console.is_terminal:
        return _print_once(console, source, notice)
    from agent.top.screen import watch  # needs a terminal

    watch(console, source, notice)
    return 0


def _interval_ms(text: str) -> int:
    interval_ms = parse_duration_ms(f"{text}s" if text.replace(".", "", 1).isdigit() else text)
    if interval_ms < _SHORTEST_MS:
        raise UsageError(f"--interval {text} is too short", f"use {_SHORTEST_MS}ms or more")
    return interval_ms


def _stream(source: TopSource, *, once: bool) -> int:
    """Print one line per look, until the reader closes the pipe or the user interrupts."""
    with contextlib.closing(source):
        while True:
            snapshot = source.look()
            print(json.dumps({"time": format_ms(snapshot.time_ms)} | snapshot.as_json()), flush=True)
            if once:
                return 0


def _print_once(console: Console, source: TopSource, notice: str) -> int:
    from agent.top.screen import Frame, frame_lines  # loads rich
    from agent.top.tables import glyphs  # beside it

    with contextlib.closing(source):
        snapshot = source.look()
    width = console.width if console.is_terminal else _WIDEST
    frame = Frame(snapshot, max(0.0, time.time() - snapshot.time_ms / 1000), source.name, notice)
    for line in frame_lines(frame, width, None, glyphs(sys.stdout.encoding)):
        console.print(line, soft_wrap=True)
    return 0
