"""Runs every check, and shows the findings as text for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from agent.doctor.case import Case, Check, Finding, Options, Result, Status, error
from agent.doctor.checks import CHECKS
from agent.doctor.installed import read_kernel
from agent.doctor.look import look_at_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.host import Host


def examine(host: Host, options: Options, checks: tuple[Check, ...] = CHECKS) -> list[Result]:
    """Every check's findings, in the order of the checks; the driver is asked once."""
    case = Case(host, read_kernel(host), look_at_driver(host, options.timeout_s), options)
    return [Result(check.id, finding) for check in checks for finding in _findings(check, case)]


def _findings(check: Check, case: Case) -> Iterator[Finding]:
    try:
        yield from check.look(case)
    except Exception as broken:  # noqa: BLE001  # a check must never take the others along
        yield error(
            f"this check itself failed: {broken!r}", "report it, with the output of --json", "fallow doctor --json"
        )


def counts(results: list[Result]) -> dict[Status, int]:
    """How many findings of each status, all four always there."""
    counted = Counter(result.finding.status for result in results)
    return {status: counted[status] for status in Status}


WIDTH = 80
_INDENT = " " * 13
_SYMBOLS = {Status.OK: "+", Status.WARNING: "!", Status.ERROR: "x", Status.SKIPPED: "-"}
_COLOURS = {Status.OK: "32", Status.WARNING: "33", Status.ERROR: "31;1", Status.SKIPPED: "2"}


def as_text(title: str, results: list[Result], *, colour: bool) -> str:
    """Groups of findings, each with its remedy and the command to type, and one line that counts them."""
    lines = [title]
    for group, members in groupby(results, key=lambda result: result.group):
        lines += ["", group]
        for result in _merged(list(members)):
            lines += _finding(result, colour=colour)
    return "\n".join([*lines, "", _summary(results, colour=colour)])


def _merged(results: list[Result]) -> Iterator[Result]:
    """The results, with those that are skipped for one and the same reason as one line at the end of their group."""
    skipped: dict[str, list[str]] = {}
    for result in results:
        if result.finding.status is Status.SKIPPED:
            skipped.setdefault(result.finding.found, []).append(result.name)
        else:
            yield result
    for why, names in skipped.items():
        yield Result(f".{', '.join(dict.fromkeys(names))}", Finding(Status.SKIPPED, why))


def _finding(result: Result, *, colour: bool) -> Iterator[str]:
    finding = result.finding
    mark = f"{_SYMBOLS[finding.status]} {finding.status.value:<8}"
    text = f"{result.name}: {finding.found}"
    first, *more = textwrap.wrap(text, WIDTH - len(_INDENT), break_long_words=False, break_on_hyphens=False)
    yield f"  {_painted(mark, finding.status, colour=colour)} {first}"
    yield from (f"{_INDENT}{line}" for line in more)
    if finding.remedy:
        yield from textwrap.wrap(
            f"-> {finding.remedy}", WIDTH, initial_indent=_INDENT, subsequent_indent=f"{_INDENT}   ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    if finding.next:
        yield f"{_INDENT}$ {finding.next}"  # never wrapped: it is there to be copied


def _summary(results: list[Result], *, colour: bool) -> str:
    counted = counts(results)
    words = {
        Status.ERROR: _many(counted[Status.ERROR], "error"),
        Status.WARNING: _many(counted[Status.WARNING], "warning"),
        Status.OK: f"{counted[Status.OK]} ok",
        Status.SKIPPED: f"{counted[Status.SKIPPED]} skipped",
    }
    return ", ".join(
        _painted(text, status, colour=colour and counted[status] > 0) for status, text in words.items()
    ) + _first_of_all(results)


def _first_of_all(results: list[Result]) -> str:
    """Errors stand in the order in which one explains the next."""
    first = next((result.check for result in results if result.finding.status is Status.ERROR), "")
    return f"; begin with {first}" if first else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _painted(text: str, status: Status, *, colour: bool) -> str:
    return f"\033[{_COLOURS[status]}m{text}\033[0m" if colour else text
