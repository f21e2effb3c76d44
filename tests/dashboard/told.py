"""What the commands print of a window and a scope, for comparing the pages with them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fallow.cli import main
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

HOUR_MS = 3_600_000
UNUSED = ("free", "reserved", "held")
GIVEN = ("active", "low", "held", "reserved")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Question:
    """A window and a scope, as an address and as flags; `since`, `until`, `pool`, `model` and `team` where they are asked for."""

    name: str
    asked: Mapping[str, str] = field(default_factory=dict)

    def but(self, **asked: str) -> Question:
        """The same with other values."""
        return Question(self.name, {**self.asked, **asked})

    def search(self, **more: str) -> str:
        """The `?...` of an address: without a window it is all that the lake has, as for the commands."""
        span = {} if {"since", "until"} & self.asked.keys() else {"span": "all"}
        return "?" + urlencode(span | dict(self.asked) | more)

    def flags(self, *names: str) -> list[str]:
        """The flags of a command, those of `names` where there are any."""
        return [
            each for name, value in self.asked.items() if not names or name in names for each in (f"--{name}", value)
        ]

    @property
    def is_personal(self) -> bool:
        """Whether it is about people."""
        return "team" in self.asked


class Told:
    """What the commands print with one config file; each is run once."""

    def __init__(self, config: Path, currency: str) -> None:
        self.config = config
        self.currency = currency
        self._kept: dict[tuple[str, ...], str] = {}

    def printed(self, *arguments: str) -> str:
        """The standard output of a command that has to succeed."""
        if arguments not in self._kept:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                assert main([arguments[0], "--config", str(self.config), *arguments[1:]]) == 0, arguments
            self._kept[arguments] = out.getvalue()
        return self._kept[arguments]

    def ledger(self, asked: Question) -> dict[str, Any]:
        """`fallow ledger --json`."""
        return dict(json.loads(self.printed("ledger", "--json", *asked.flags())))

    def printed_ledger(self, asked: Question) -> Spent | None:
        """The GPU time of a window by state; None where the command finds nothing in it."""
        with contextlib.suppress(AssertionError):
            return Spent.of(self.ledger(asked)["gpu_hours"])
        return None

    def groups(self, asked: Question, by: str) -> dict[str, dict[str, Any]]:
        """The rows of `fallow ledger --by ... --json` by their label."""
        told = json.loads(self.printed("ledger", "--json", "--by", by, *asked.flags()))
        return {row["label"]: row for row in told["groups"]["rows"]}

    def findings(self, asked: Question) -> dict[str, Any]:
        """`fallow findings --json`, which knows windows and teams and neither pools nor models."""
        return dict(json.loads(self.printed("findings", "--json", *asked.flags("since", "until", "team"))))

    def recommendations(self, asked: Question) -> dict[str, Any]:
        """`fallow recommendations --json`, which knows no models."""
        return dict(
            json.loads(self.printed("recommendations", "--json", *asked.flags("since", "until", "pool", "team")))
        )

    def report(self, asked: Question) -> dict[str, Any]:
        """`fallow report --format json`."""
        return dict(json.loads(self.printed("report", "--format", "json", *asked.flags())))


def ms(hours: float) -> int:
    """The whole milliseconds that hours were made of, so that sums of them are exact."""
    return round(hours * HOUR_MS)


def written(milliseconds: float) -> str:
    """GPU-hours as pages write them."""
    return f"{milliseconds / HOUR_MS:,.1f}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """A share as pages write it; of nothing it is unknown."""
    return f"{100 * (part / whole):.{digits}f} %" if whole else UNKNOWN


def percent(ratio: float | None, digits: int = 1) -> str:
    """The same of a ratio that a command prints."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.{digits}f} %"


def money(amount: float | None, currency: str) -> str:
    """An amount as pages write it."""
    return UNKNOWN if amount is None else f"{amount:,.2f} {currency}"


@dataclass(frozen=True)
class Spent:
    """GPU time by state in whole milliseconds, from a command's `gpu_hours`."""

    state_ms: Mapping[str, int]

    @classmethod
    def of(cls, gpu_hours: Mapping[str, float]) -> Spent:
        """From the JSON of a command."""
        return cls({state: ms(hours) for state, hours in gpu_hours.items() if state != "total"})

    @classmethod
    def of_account(cls, row: Mapping[str, float]) -> Spent:
        """From a row of `fallow ledger --by`."""
        return cls({state: ms(row[f"{state}_gpu_hours"]) for state in STATES})

    @classmethod
    def together(cls, parts: Iterable[Spent]) -> Spent:
        """The sum."""
        sums: dict[str, int] = {}
        for part in parts:
            for state, spent_ms in part.state_ms.items():
                sums[state] = sums.get(state, 0) + spent_ms
        return cls(sums)

    @cached_property
    def total_ms(self) -> int:
        """All of it."""
        return sum(self.state_ms.values())

    @cached_property
    def observed_ms(self) -> int:
        """What somebody looked at."""
        return self.total_ms - self.state_ms["unknown"]

    def sum(self, *states: str) -> int:
        """That of some states."""
        return sum(self.state_ms[state] for state in states)
