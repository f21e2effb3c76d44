"""`fallow agent status`, `release` and `resume`: what a person says to the running agent."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from agent.supervise.agent_status import AgentStatus, Blocked
from agent.supervise.control import ask
from fallow import config
from fallow.clock import SECOND_MS, format_duration, format_ms, parse_duration_ms
from fallow.errors import FallowError
from fallow.units import format_bytes

if TYPE_CHECKING:
    import argparse

_ANSWER_S = 10.0
_LOOK_EVERY_S = 0.25
_LONGEST_SILENCE_MS = 120_000


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow agent status`."""
    parser.add_argument("--spool", metavar="DIR", help="the agent's spool folder (default: from the config)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    parser.add_argument("--json", action="store_true", help="machine-readable")


def add_release_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow agent release`."""
    add_status_arguments(parser)
    parser.add_argument("--for", dest="release_for", metavar="TIME", help="take the driver up again after so long")
    parser.add_argument("--wait", metavar="TIME", default="60s", help="how long to wait for the driver (default 60s)")


def add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow agent resume`."""
    add_status_arguments(parser)


def status(args: argparse.Namespace) -> int:
    """Prints what the agent does; 1 where its loop has stopped going round, whatever the state of the driver.

    Raises NoAgentError where none runs.
    """
    now, now_ms = _ask(_spool(args), "status"), time.time_ns() // 1_000_000
    print(json.dumps(now.as_json(), indent=2) if args.json else status_text(now, now_ms))
    return 1 if is_stale(now, now_ms) else 0


def is_stale(now: AgentStatus, now_ms: int) -> bool:
    """Whether an interval should have been closed long ago: three of them, and no less than a slow driver may take."""
    newest_ms = max(now.started_ms, now.time_ms or 0)
    return now_ms - newest_ms > max(3 * now.interval_ms, _LONGEST_SILENCE_MS)


def release(args: argparse.Namespace) -> int:
    """Has the agent let go of the driver and waits for it; 1 where something still holds it."""
    folder = _spool(args)
    for_ms = None if args.release_for is None else parse_duration_ms(args.release_for)
    deadline_s = time.monotonic() + parse_duration_ms(args.wait) / SECOND_MS
    now = _ask(folder, "release", for_ms=for_ms)
    while now.mode != "released" and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
        now = _ask(folder, "status")
    if args.json:
        print(json.dumps(now.as_json(), indent=2))
        return 0 if _free(now) else 1
    if not _free(now):
        raise FallowError(_still_held(now, args.wait), _remedy(now))
    again = (
        ""
        if now.released_until_ms is None
        else f", and the agent does so by itself at {format_ms(now.released_until_ms)}"
    )
    print(f"The driver is free: the agent on {now.host} holds no /dev/nvidia* any more; "
          f"`fallow agent resume` takes it up again{again}.")  # fmt: skip
    return 0


def resume(args: argparse.Namespace) -> int:
    """Has the agent take the driver up again, and says so where it had not let go of it."""
    folder = _spool(args)
    before = _ask(folder, "status")
    now = _ask(folder, "resume")
    if args.json:
        print(json.dumps(now.as_json(), indent=2))
    elif before.mode == "running":
        print(f"The agent on {now.host} had not let go of the driver; nothing has changed.")
    else:
        print(f"The agent on {now.host} takes the driver up again; "
              f"its next row is due within {format_duration(2 * now.interval_ms)}.")  # fmt: skip
    return 0


def status_text(now: AgentStatus, now_ms: int) -> str:
    """The status as a few lines for people."""
    age = "no interval closed yet"
    if now.time_ms is not None:
        age = f"the newest ended {_rough(now_ms - now.time_ms)} ago"
    lines = [
        f"fallow {now.version} on {now.host}, process {now.pid}, {_mode(now)}",
        f"  rows        one every {format_duration(now.interval_ms)}, {age}; started {format_ms(now.started_ms)}",
        f"  GPUs        {', '.join(f'{count} {health}' for health, count in sorted(now.gpus.items())) or 'none known yet'}",
        f"  publishing  {_publishing(now, now_ms)}",
    ]
    lines += [f"  blocked     {_blocked(each)}" for each in now.blocked]
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
    last = "never yet" if state.last_success_ms is None else f"{_rough(now_ms - state.last_success_ms)} ago"
    text = f"last {last}, {waiting} rows wait{size}"
    if state.failing_since_ms is not None:
        text += f"; failing since {format_ms(state.failing_since_ms)}: {state.last_error or 'no reason given'}"
    return text


def _rough(span_ms: int) -> str:
    """The span in whole seconds, which is as much as a person reads."""
    return format_duration(max(0, span_ms // SECOND_MS * SECOND_MS))


def _free(now: AgentStatus) -> bool:
    return now.mode == "released" and not now.blocked


def _still_held(now: AgentStatus, wait: str) -> str:
    if now.blocked:
        return f"the driver is still held on {now.host}: {'; '.join(_blocked(each) for each in now.blocked)}"
    return f"the agent on {now.host} has not let go of the driver within {wait}"


def _remedy(now: AgentStatus) -> str:
    if now.blocked:
        return "everything else is released; that process ends when the GPU is reset or the host rebooted, do not kill -9 it"
    return "ask again with `fallow agent status`, or give a longer --wait"


def _blocked(each: Blocked) -> str:
    gpu = "a GPU that it has not named" if each.gpu is None else each.gpu
    where = gpu if each.gpu_index is None else f"GPU {each.gpu_index}" + ("" if each.gpu is None else f" ({each.gpu})")
    return f"worker {each.pid} is stuck in {each.call} on {where}"


def _ask(folder: str, verb: str, **arguments: int | None) -> AgentStatus:
    return AgentStatus.from_json(ask(folder, verb, _ANSWER_S, **arguments))


def _spool(args: argparse.Namespace) -> str:
    return config.load({"agent.spool": args.spool}, args.config).require("agent.spool", "--spool")
