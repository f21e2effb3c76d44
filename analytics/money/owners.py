"""Users, accounts and namespaces with their team and organisation, from the site's own table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from analytics.money.csv_tables import CsvLine, read_lines
from analytics.names import JOINER, joined_names, single_name

COLUMNS = (
    "kind",
    "name",
    "team",
    "organisation",
    "quota_gpus",
    "priority_class",
    "project",
    "project_start",
    "project_end",
)
"""Columns of the owners file; those after `team` may be missing or empty."""

KINDS = ("account", "namespace", "user")
"""Kinds of names; the first one decides first who pays."""


@dataclass(frozen=True)
class Owner:
    """One line of the owners file; None for an empty cell.

    `name` is a `single_name`; `quota_gpus` is the number of GPUs that it may have at once. `project` is its project,
    from `project_start` to `project_end`.
    """

    kind: str
    name: str
    team: str
    organisation: str | None = None
    quota_gpus: float | None = None
    priority_class: str | None = None
    project: str | None = None
    project_start: date | None = None
    project_end: date | None = None


@dataclass(frozen=True)
class Team:
    """All lines of one team; `quota_gpus` is the sum of their quotas, None without any."""

    name: str
    organisation: str | None
    quota_gpus: float | None
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class Owners:
    by_name: Mapping[tuple[str, str], Owner]

    @classmethod
    def none(cls) -> Owners:
        return cls({})

    @classmethod
    def load(cls, path: str) -> Owners:
        """Read the table at a path. Raises ConfigError that names an invalid line."""
        found: dict[tuple[str, str], Owner] = {}
        lines: dict[tuple[str, str], int] = {}
        organisations: dict[str, str] = {}
        for line in read_lines(path, COLUMNS, COLUMNS[:3]):
            owner = _owner(line)
            key = (owner.kind, owner.name)
            if key in found:
                raise line.error(
                    f"{owner.kind} '{owner.name}' is named in line {lines[key]} already", "leave one of them"
                )
            if owner.organisation is not None:
                first = organisations.setdefault(owner.team, owner.organisation)
                if first != owner.organisation:
                    raise line.error(
                        f"team '{owner.team}' belongs to '{owner.organisation}' here and to '{first}' above",
                        "give a team one organisation",
                    )
            found[key], lines[key] = owner, line.number
        return cls(found)

    def owner(self, kind: str, name: str) -> Owner | None:
        """Return the line of one user, account or namespace."""
        return self.by_name.get((kind, name))

    def of(self, user: str | None, account: str | None) -> Owner | None:
        """Return the line that decides who pays: that of the account or namespace, else of the user.

        None without a line, or if several users or accounts share the time.
        """
        found = self._all_of(user, account)
        return found[0] if len(found) == 1 else None

    def team(self, user: str | None, account: str | None) -> str | None:
        """Return the team that pays; for names joined by `+`, the known teams, joined. None if none is known."""
        return joined_names(owner.team for owner in self._all_of(user, account))

    def organisation(self, user: str | None, account: str | None) -> str | None:
        """Return the organisation of that team, which any of the team's lines may name."""
        teams = (self._teams[owner.team] for owner in self._all_of(user, account))
        return joined_names(team.organisation for team in teams)

    def teams(self) -> Mapping[str, Team]:
        """Return every team by name, sorted."""
        return self._teams

    @cached_property
    def _teams(self) -> dict[str, Team]:
        members: dict[str, list[Owner]] = {}
        for owner in self.by_name.values():
            members.setdefault(owner.team, []).append(owner)
        return {name: _team(name, owners) for name, owners in sorted(members.items())}

    def _all_of(self, user: str | None, account: str | None) -> tuple[Owner, ...]:
        """Return the lines of the accounts, or without any, of the users."""
        charged = tuple(
            found
            for name in (account or "").split(JOINER)
            if (found := self.owner("account", name) or self.owner("namespace", name)) is not None
        )
        return charged or tuple(
            found for name in (user or "").split(JOINER) if (found := self.owner("user", name)) is not None
        )


def _owner(line: CsvLine) -> Owner:
    kind, name, team = line.text("kind"), line.text("name"), line.text("team")
    if kind is None or kind.lower() not in KINDS:
        raise line.error(f"kind '{kind or ''}' is none of {', '.join(KINDS)}")
    if name is None or team is None:
        raise line.error(
            f"{'name' if name is None else 'team'} is empty", "every line names who it is about and a team"
        )
    quota = line.number_of("quota_gpus")
    start, end = line.date_of("project_start"), line.date_of("project_end")
    if start is not None and end is not None and end < start:
        raise line.error(f"the project ends on {end}, before it starts on {start}")
    return Owner(
        kind=kind.lower(),
        name=single_name(name),
        team=team,
        organisation=line.text("organisation"),
        quota_gpus=None if quota is None else float(quota),
        priority_class=line.text("priority_class"),
        project=line.text("project"),
        project_start=start,
        project_end=end,
    )


def _team(name: str, owners: list[Owner]) -> Team:
    quotas = [owner.quota_gpus for owner in owners if owner.quota_gpus is not None]
    organisation = next((owner.organisation for owner in owners if owner.organisation is not None), None)
    return Team(name, organisation, sum(quotas) if quotas else None, tuple(owners))
