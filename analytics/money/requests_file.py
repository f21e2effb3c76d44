"""The GPU requests of teams: a table that a site keeps by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from analytics.cards import cards, is_called, words
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.money.owners import Owners

COLUMNS = ("team", "gpus", "card", "memory_gib", "from", "until", "priority", "name")
"""Columns of the requests file. One of `card` and `memory_gib` is enough; `name` may be missing."""

_REQUIRED = ("team", "gpus", "from", "until", "priority")


@dataclass(frozen=True)
class GpuRequest:
    """One line of the requests file: whole GPUs for a team from `first` to `last`, both included.

    `card` are words of a model's name, `memory_gib` the least memory per GPU; at most one of them is None. `priority` 1
    is the most urgent.
    """

    line: int
    name: str | None
    team: str
    gpus: int
    card: str | None
    memory_gib: float | None
    first: date
    last: date
    priority: int

    def takes(self, model: str, memory_gib: int | None) -> bool:
        """Return True if a model with this memory fits the request; unknown memory does not fit."""
        if self.card is not None and not is_called(self.card, model):
            return False
        return self.memory_gib is None or (memory_gib is not None and memory_gib >= self.memory_gib)


def load_requests(path: str, owners: Owners, models: Iterable[str]) -> tuple[GpuRequest, ...]:
    """Read the table at a path, in its order. Raises ConfigError that names an invalid line.

    `models` are those of the fleet. Without an owners table any team may make requests.
    """
    known = (*models, *(each.name for each in cards()))
    return tuple(_request(line, owners, known) for line in read_lines(path, COLUMNS, _REQUIRED))


def _request(line: CsvLine, owners: Owners, models: tuple[str, ...]) -> GpuRequest:
    team = line.text("team")
    if team is None:
        raise line.error("team is empty", "say which team asks")
    teams = owners.teams()
    if teams and team not in teams:
        raise line.error(f"team '{team}' is not in the owners table", f"it knows {', '.join(teams)}")
    asked, memory = line.text("card"), line.number_of("memory_gib", least=Decimal(1))
    if asked is None and memory is None:
        raise line.error(
            "neither card nor memory_gib is given", "say which card, or how much memory each GPU has to have"
        )
    if asked is not None and (not words(asked) or not any(is_called(asked, model) for model in models)):
        raise line.error(f"card '{asked}' is not known", f"known are {', '.join(dict.fromkeys(models))}")
    first, last = _day(line, "from"), _day(line, "until")
    if last < first:
        raise line.error(f"until {last} is before from {first}", "until is the last day on which the GPUs are needed")
    return GpuRequest(
        line=line.number,
        name=line.text("name"),
        team=team,
        gpus=_whole(line, "gpus"),
        card=asked,
        memory_gib=None if memory is None else float(memory),
        first=first,
        last=last,
        priority=_whole(line, "priority"),
    )


def _day(line: CsvLine, column: str) -> date:
    day = line.date_of(column)
    if day is None:
        raise line.error(f"{column} is empty", "write a day such as 2026-11-20")
    return day


def _whole(line: CsvLine, column: str) -> int:
    number = line.number_of(column, least=Decimal(1))
    if number is None or number != int(number):
        raise line.error(f"{column} '{line.text(column) or ''}' is not a whole number", "write 1 or more")
    return int(number)
