"""`fallow doctor`: is this host fit for the agent and for CUDA, and if not, what comes next?"""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.case import Case, DoctorCheck, DoctorFinding, Options, Status, error
from agent.doctor.checks import CHECKS
from agent.doctor.host import HostFiles, exists, find_user, read_kernel
from agent.doctor.look import look_at_driver
from fallow import __version__, config
from fallow.clock import SECOND_MS
from fallow.errors import UsageError
from fallow.output import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def examine(host: HostFiles, options: Options, checks: tuple[DoctorCheck, ...] = CHECKS) -> list[DoctorFinding]:
    """Return every check's findings, in the order of the checks. The driver is queried once."""
    case = Case(host, read_kernel(host), look_at_driver(host, options.timeout_s), options)
    return [replace(finding, check=check.id) for check in checks for finding in _findings(check, case)]


def _findings(check: DoctorCheck, case: Case) -> Iterator[DoctorFinding]:
    try:
        yield from check.look(case)
    except Exception as broken:  # noqa: BLE001  # a failed check must not prevent the others
        yield error(f"this check failed: {broken!r}", "report it, with the output of --json", "fallow doctor --json")


def counts(results: list[DoctorFinding]) -> dict[Status, int]:
    """Return the number of findings per status, with all four statuses."""
    counted = Counter(result.status for result in results)
    return {status: counted[status] for status in Status}


WIDTH = 80
_INDENT = " " * 13
_SYMBOLS = {Status.OK: "+", Status.WARNING: "!", Status.ERROR: "x", Status.SKIPPED: "-"}
_COLOURS = {Status.OK: "32", Status.WARNING: "33", Status.ERROR: "31;1", Status.SKIPPED: "2"}


def as_text(title: str, results: list[DoctorFinding], *, colour: bool) -> str:
    """Return groups of findings, with remedy and command, and a line with their numbers."""
    lines = [title]
    for group, members in groupby(results, key=lambda result: result.group):
        lines += ["", group]
        for result in _merged(list(members)):
            lines += _finding(result, colour=colour)
    return "\n".join([*lines, "", _summary(results, colour=colour)])


def _merged(results: list[DoctorFinding]) -> Iterator[DoctorFinding]:
    """Yield the results; findings that were skipped for the same reason become one line at the end of their group."""
    skipped: dict[str, list[str]] = {}
    for result in results:
        if result.status is Status.SKIPPED:
            skipped.setdefault(result.found, []).append(result.name)
        else:
            yield result
    for why, names in skipped.items():
        yield DoctorFinding(Status.SKIPPED, why, check=f".{', '.join(dict.fromkeys(names))}")


def _finding(finding: DoctorFinding, *, colour: bool) -> Iterator[str]:
    mark = f"{_SYMBOLS[finding.status]} {finding.status.value:<8}"
    text = f"{finding.name}: {finding.found}"
    first, *more = textwrap.wrap(text, WIDTH - len(_INDENT), break_long_words=False, break_on_hyphens=False)
    yield f"  {_painted(mark, finding.status, colour=colour)} {first}"
    yield from (f"{_INDENT}{line}" for line in more)
    if finding.remedy:
        yield from textwrap.wrap(
            f"-> {finding.remedy}",
            WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=f"{_INDENT}   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    if finding.next:
        yield f"{_INDENT}$ {finding.next}"  # never wrapped, so that it can be copied


def _summary(results: list[DoctorFinding], *, colour: bool) -> str:
    counted = counts(results)
    words = {status: f"{count} {status}" for status, count in counted.items()}
    for status in (Status.ERROR, Status.WARNING):
        words[status] += "" if counted[status] == 1 else "s"
    order = (Status.ERROR, Status.WARNING, Status.OK, Status.SKIPPED)
    text = ", ".join(_painted(words[each], each, colour=colour and counted[each] > 0) for each in order)
    # errors are in causal order
    first = next((result.check for result in results if result.status is Status.ERROR), "")
    return f"{text}; begin with {first}" if first else text


def _painted(text: str, status: Status, *, colour: bool) -> str:
    return f"\033[{_COLOURS[status]}m{text}\033[0m" if colour else text


FORMAT = 1
"""Version of the JSON format. It increases when a key is removed or changes its meaning."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--strict", action="store_true", help="fail on warnings too")
    parser.add_argument("--lake", metavar="DIR", help="the lake to test, by writing and removing a small file")
    parser.add_argument("--spool", metavar="DIR", help="the spool to check")
    parser.add_argument(
        "--user", metavar="NAME", default="", help="check the permissions of this user (default: yours)"
    )
    parser.add_argument(
        "--python", metavar="DIR", action="append", default=[], help="check this Python environment as well; repeatable"
    )
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def run(args: argparse.Namespace) -> int:
    """Print the findings. Return 1 where there is an error (with --strict also for a warning), else 0.

    Raises UsageError for an environment or a user that does not exist.
    """
    pythons = tuple(_environment(text) for text in args.python)
    if find_user(args.user) is None:
        raise UsageError(f"--user: there is no user {args.user}", f"look with: getent passwd {args.user}")
    settings = config.load({"lake.path": args.lake, "agent.spool": args.spool}, args.config)
    host = HostFiles(proc=Path(settings.text("agent.proc")), sys=Path(settings.text("agent.sys")))
    name = settings.text("agent.host") or socket.gethostname()
    options = Options(
        lake=settings.text("lake.path"),
        lake_id=settings.text("lake.id"),
        host=name,
        machine_id=settings.text("agent.machine_id"),
        spool=settings.text("agent.spool"),
        user=args.user,
        pythons=pythons,
        sees_all_processes=settings.text("agent.sees_all_processes"),
        scontrol=settings.text("slurm.scontrol"),
        timeout_s=settings.integer("agent.call_timeout") / SECOND_MS,
        expected_gpus=settings.integer("agent.expected_gpus"),
    )
    results = examine(host, options)
    show(_as_json(name, host, results) if args.json else _as_text(name, host, results))
    counted = counts(results)
    return 1 if counted[Status.ERROR] or (args.strict and counted[Status.WARNING]) else 0


def _environment(text: str) -> str:
    """Return the path of a named Python environment; raises UsageError where it does not exist or is not visible."""
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # pathlib's own raises for an unknown user's home
    if not exists(path):
        raise UsageError(
            f"--python: {text} does not exist, or is not visible to this user", "name an environment or its interpreter"
        )
    return str(path)


def _as_text(name: str, host: HostFiles, results: list[DoctorFinding]) -> str:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return as_text(f"fallow doctor {__version__} on {name}, {host.now:%Y-%m-%d %H:%M} UTC", results, colour=colour)


def _as_json(name: str, host: HostFiles, results: list[DoctorFinding]) -> str:
    answer = {
        "format": FORMAT,
        "fallow": __version__,
        "host": name,
        "time": f"{host.now:%Y-%m-%dT%H:%M:%SZ}",
        "counts": {status.value: count for status, count in counts(results).items()},
        "results": [result.as_json() for result in results],
    }
    return json.dumps(answer, indent=2)
