"""`fallow agent run|once|status|release|resume|publish`."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from typing import TYPE_CHECKING

from agent.snapshot import is_silent
from agent.supervise.control import AgentStatus, Blocked, ask
from fallow import config
from fallow.clock import SECOND_MS, format_duration, format_ms, parse_duration_ms
from fallow.errors import FallowError
from fallow.output import show
from fallow.units import format_bytes

if TYPE_CHECKING:
    import argparse

    from fallow.config import Config

_ANSWER_S = 10.0
_POLL_S = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=summary, epilog=f"example: {example}")

    sample = verb(
        "run", "sample until stopped", "fallow agent run --lake /srv/lake --spool /var/lib/fallow --interval 10s"
    )
    once = verb("once", "print one look at the GPUs", "fallow agent once --json")
    status = verb("status", "show what the running agent does", "fallow agent status --spool /var/lib/fallow")
    release = verb("release", "release the driver for maintenance", "fallow agent release --for 2h")
    resume = verb("resume", "use the driver again after a release", "fallow agent resume")
    publish = verb(
        "publish",
        "publish what waits in a spool without an agent",
        "fallow agent publish --spool /var/lib/fallow/other-name-1 --host gn017 --lake /srv/lake",
    )
    for each in (sample, publish):
        each.add_argument("--lake", metavar="DIR", help="location of the lake: a folder, s3://, gs:// or az://")
    sample.add_argument("--spool", metavar="DIR", help="local folder for rows that are not in the lake yet")
    sample.add_argument("--interval", metavar="TIME", help="length of the interval of a row (default: 10s)")
    sample.add_argument("--for", dest="run_for", metavar="TIME", help="stop after this time")
    sample.add_argument("--host", metavar="NAME", help="this host's name in the lake (default: its host name)")
    sample.add_argument("--pool", metavar="NAME", help="pool of hosts that this host belongs to")
    once.add_argument("--json", action="store_true", help="print JSON")
    publish.add_argument("--spool", metavar="DIR", required=True, help="the spool's folder")
    publish.add_argument("--host", metavar="NAME", required=True, help="the host's name in the lake")
    for each in (status, release, resume):
        each.add_argument("--spool", metavar="DIR", help="the agent's spool folder (default: from the config)")
    for each in (sample, once, publish, status, release, resume):
        each.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    for each in (status, release, resume):
        each.add_argument("--json", action="store_true", help="print JSON")
    release.add_argument("--for", dest="release_for", metavar="TIME", help="use the driver again after this time")
    release.add_argument("--wait", metavar="TIME", default="60s", help="how long to wait for the driver (default: 60s)")


def run(args: argparse.Namespace) -> int:
    verbs = {"run": _run, "once": _once, "status": _status, "release": _release, "resume": _resume, "publish": _publish}
    return verbs[args.verb](args)


def _once(args: argparse.Namespace) -> int:
    from agent.top.single_look import as_json, look_once, table_text  # not needed by a run

    look = look_once(config.load({}, args.config))
    show(json.dumps(as_json(look), indent=2) if args.json else table_text(look))
    return 0


def _run(args: argparse.Namespace) -> int:
    from agent.own_process import bound_memory

    bound_memory()
    # imported here, so that `fallow agent status` does not load the whole agent
    from agent import logs
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from agent.supervise.supervisor import Supervisor

    def load() -> tuple[Config, AgentSettings]:
        flags = {
            "lake.path": args.lake,
            "agent.spool": args.spool,
            "agent.interval": args.interval,
            "agent.host": args.host,
            "agent.pool": args.pool,
        }
        loaded = config.load(flags, args.config)
        logs.configure(loaded.text("agent.log_format"), loaded.text("agent.log_level"))
        return loaded, AgentSettings.from_config(loaded, args.run_for)

    with contextlib.closing(Spool(load()[1].spool, for_agent=True)) as spool:
        supervisor = Supervisor(load, spool)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        signal.signal(signal.SIGHUP, lambda *_: supervisor.reload())
        supervisor.run()
    return 0


def _status(args: argparse.Namespace) -> int:
    """Print the agent's status. Return 1 where its loop has stopped, whatever the state of the driver.

    Raises NoAgentError where no agent runs.
    """
    now, now_ms = _ask(_spool_folder(args), "status"), time.time_ns() // 1_000_000
    show(json.dumps(now.as_json(), indent=2) if args.json else status_text(now, now_ms))
    return 1 if is_stale(now, now_ms) else 0


def is_stale(now: AgentStatus, now_ms: int) -> bool:
    """Return whether an interval is long overdue; /healthz uses the same rule."""
    newest_ms = max(now.started_ms, now.time_ms or 0)
    return is_silent((now_ms - newest_ms) / SECOND_MS, now.interval_ms)


def _release(args: argparse.Namespace) -> int:
    """Let the agent release the driver, and wait. Return 1 where a process still holds it."""
    folder = _spool_folder(args)
    for_ms = None if args.release_for is None else parse_duration_ms(args.release_for)
    deadline_s = time.monotonic() + parse_duration_ms(args.wait) / SECOND_MS
    now = _ask(folder, "release", for_ms=for_ms)
    while now.mode != "released" and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        now = _ask(folder, "status")
    if args.json:
        show(json.dumps(now.as_json(), indent=2))
        return 0 if now.mode == "released" and not now.blocked else 1
    if now.blocked:
        raise FallowError(
            f"the driver is still held on {now.host}: {'; '.join(map(_blocked_text, now.blocked))}",
            "the other GPUs are released; that process ends when the GPU is reset or the host reboots; do not kill"
            " -9 it",
        )
    if now.mode != "released":
        raise FallowError(
            f"the agent on {now.host} has not released the driver within {args.wait}",
            "ask again with `fallow agent status`, or use a longer --wait",
        )
    again = (
        ""
        if now.released_until_ms is None
        else f", and the agent resumes by itself at {format_ms(now.released_until_ms)}"
    )
    show(
        f"The driver is free: the agent on {now.host} no longer holds any /dev/nvidia*; "
        f"`fallow agent resume` uses it again{again}."
    )
    return 0


def _resume(args: argparse.Namespace) -> int:
    """Let the agent use the driver again. Return the exit code."""
    folder = _spool_folder(args)
    before = _ask(folder, "status")
    now = _ask(folder, "resume")
    if args.json:
        show(json.dumps(now.as_json(), indent=2))
    elif before.mode == "running":
        show(f"The agent on {now.host} had not released the driver; nothing has changed.")
    else:
        show(
            f"The agent on {now.host} uses the driver again; "
            f"its next row is due within {format_duration(2 * now.interval_ms)}."
        )
    return 0


def _publish(args: argparse.Namespace) -> int:
    """Publish the spool of a host that is gone, or rows that were set aside. Return the exit code."""
    from agent.settings import AgentSettings
    from agent.spool.publisher import publish_leftover

    flags = {"lake.path": args.lake, "agent.spool": args.spool, "agent.host": args.host}
    settings = AgentSettings.from_config(config.load(flags, args.config))
    count = publish_leftover(settings)
    if not count:
        show(f"no rows wait in {settings.spool}")
        return 0
    show(
        f"{count:,} rows of {settings.spool} are in {settings.lake} as those of the host {settings.host}; the folder"
        " may be removed."
    )
    return 0


def status_text(now: AgentStatus, now_ms: int) -> str:
    age = "no interval closed yet"
    if now.time_ms is not None:
        age = f"the newest ended {_duration_text(now_ms - now.time_ms)} ago"
    lines = [
        f"fallow {now.version} on {now.host}, process {now.pid}, {_mode(now)}",
        f"  rows        one every {format_duration(now.interval_ms)}, {age}; started {format_ms(now.started_ms)}",
        (
            "  GPUs       "
            f" {', '.join(f'{count} {health}' for health, count in sorted(now.gpus.items())) or 'none known yet'}"
        ),
        f"  publishing  {_publishing(now, now_ms)}",
    ]
    lines += [f"  blocked     {_blocked_text(each)}" for each in now.blocked]
    return "\n".join(lines)


def _mode(now: AgentStatus) -> str:
    if now.mode != "released":
        return now.mode
    until = "" if now.released_until_ms is None else f" until {format_ms(now.released_until_ms)}"
    return f"released{until}: it holds no /dev/nvidia*"


def _publishing(now: AgentStatus, now_ms: int) -> str:
    state = now.publishing
    waiting = "-" if state.waiting_rows is None else f"{state.waiting_rows:,}"
    size = "" if state.spool_bytes is None else f" in {format_bytes(state.spool_bytes)}"
    last = (
        "nothing yet" if state.last_success_ms is None else f"last {_duration_text(now_ms - state.last_success_ms)} ago"
    )
    text = f"{last}, {waiting} rows wait{size}"
    if state.failing_since_ms is not None:
        text += f"; failing since {format_ms(state.failing_since_ms)}: {state.last_error or 'no reason given'}"
    elif state.name_conflict is not None:
        text += f"; {state.name_conflict}"
    return text


def _duration_text(span_ms: int) -> str:
    """Return a duration in whole seconds, precise enough for people."""
    return format_duration(max(0, span_ms // SECOND_MS * SECOND_MS))


def _blocked_text(each: Blocked) -> str:
    gpu = "an unknown GPU" if each.gpu is None else each.gpu
    where = gpu if each.gpu_index is None else f"GPU {each.gpu_index}" + ("" if each.gpu is None else f" ({each.gpu})")
    return f"worker {each.pid} is stuck in {each.call} on {where}"


def _ask(folder: str, verb: str, **arguments: int | None) -> AgentStatus:
    return AgentStatus.from_json(ask(folder, verb, _ANSWER_S, **arguments))


def _spool_folder(args: argparse.Namespace) -> str:
    return config.load({"agent.spool": args.spool}, args.config).require("agent.spool", "--spool")
