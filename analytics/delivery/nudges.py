"""Nudges: which owners are told of which of their own findings, at which address, and when."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

from analytics.decide.actions import Action
from analytics.delivery.journal import ABANDONED, SENDING, Journal
from analytics.delivery.model import SENT, UNKNOWN
from analytics.delivery.targets import mail_address
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.names import JOINER, single_name
from analytics.workloads.model import Finding
from fallow.clock import from_ms
from fallow.config import Config
from fallow.errors import ConfigError, UsageError

COLUMNS = ("kind", "name", "email")
"""The columns of the contacts file; several lines about one name are several addresses."""

OPT_OUT_COLUMNS = ("kind", "name")
KINDS = ("user", "account", "namespace", "team")
_HOLDERS = KINDS[:3]


@dataclass(frozen=True)
class Contacts:
    """Addresses by kind and name; `silent` holds those, by kind and name or by address, who get no nudges."""

    addresses: Mapping[tuple[str, str], tuple[str, ...]]
    silent: frozenset[tuple[str, str]]

    @classmethod
    def load(cls, contacts: str, opt_out: str) -> Contacts:
        """The tables at two paths, empty for none; ConfigError that names the line for one that cannot be used."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for line in read_lines(contacts, COLUMNS, COLUMNS) if contacts else ():
            key = _named(line, KINDS)
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), _address(line, "email"))))
        silent = frozenset(
            _silent(line) for line in (read_lines(opt_out, OPT_OUT_COLUMNS, OPT_OUT_COLUMNS) if opt_out else ())
        )
        return cls(found, silent)

    def of(self, finding: Finding) -> dict[str, str]:
        """The addresses of a finding's owners, each with the name that led to it.

        Several owners are all told. An owner without an address is reached through the team, one who opted out not at all.
        """
        found: dict[str, str] = {}
        for name in (finding.holder or "").split(JOINER):
            if name and not any((kind, name) in self.silent for kind in _HOLDERS):
                own = next((self.addresses[kind, name] for kind in _HOLDERS if (kind, name) in self.addresses), ())
                for address in own or self._team(finding.team):
                    found.setdefault(address, name)
        return {address: name for address, name in found.items() if ("email", address.lower()) not in self.silent}

    def _team(self, team: str | None) -> tuple[str, ...]:
        names = [] if team is None else team.split(JOINER)
        wanted = [name for name in names if ("team", name) not in self.silent]
        return tuple(address for name in wanted for address in self.addresses.get(("team", name), ()))


def _silent(line: CsvLine) -> tuple[str, str]:
    if (line.text("kind") or "").lower() == "email":
        return "email", _address(line, "name").lower()  # whoever opted out gets none, in any spelling
    return _named(line, (*KINDS, "email"))


def _named(line: CsvLine, kinds: tuple[str, ...]) -> tuple[str, str]:
    kind, name = (line.text("kind") or "").lower(), line.text("name")
    if kind not in kinds:
        raise line.error(f"kind '{kind}' is none of {', '.join(kinds)}")
    if name is None:
        raise line.error("name is empty", "every line says whom it is about")
    return kind, name if kind == "team" else single_name(name)


def _address(line: CsvLine, column: str) -> str:
    try:
        return mail_address(line.text(column) or "")
    except UsageError as error:
        raise line.error(f"{column}: {error.message}", error.hint) from error


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]|24):([0-5]\d)")


@dataclass(frozen=True)
class Quiet:
    """Minutes of the day from which and until which it is quiet (past midnight where they fall), and weekdays, Monday 0."""

    from_minute: int
    until_minute: int
    days: frozenset[int]
    zone: tzinfo

    @classmethod
    def of(cls, config: Config, zone: tzinfo) -> Quiet:
        """From report.quiet_hours and report.quiet_days; raises ConfigError."""
        days = [day.lower() for day in config.texts("report.quiet_days")]
        if wrong := [day for day in days if day not in _DAYS]:
            raise ConfigError(f"report.quiet_days: '{wrong[0]}' is not a weekday", f"write some of {', '.join(_DAYS)}")
        from_minute, until_minute = _minutes(config.text("report.quiet_hours").strip())
        return cls(from_minute, until_minute, frozenset(_DAYS.index(day) for day in days), zone)

    def holds(self, now_ms: int) -> bool:
        """Whether it is quiet at that moment, by the clocks of the zone."""
        local = from_ms(now_ms).astimezone(self.zone)
        minute = 60 * local.hour + local.minute
        if self.from_minute <= self.until_minute:
            return local.weekday() in self.days or self.from_minute <= minute < self.until_minute
        return local.weekday() in self.days or minute >= self.from_minute or minute < self.until_minute


def _minutes(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    match = _HOURS.fullmatch(text)
    if match is None or (match[3] == "24" and match[4] != "00"):
        raise ConfigError(f"report.quiet_hours '{text}' is not a span of hours", "write it as 20:00-07:00")
    return 60 * int(match[1]) + int(match[2]), 60 * int(match[3]) + int(match[4])


CATEGORIES = ("reclaim", "right_size", "efficiency")
"""What an owner can act on; demand and coverage are for the operators of the fleet."""

_LEFT_ALONE = ("acknowledged", "suppressed", "closed", "unseen", "reversed")
_TOLD = (SENT, UNKNOWN, SENDING, ABANDONED)


@dataclass(frozen=True)
class Nudge:
    """The nudge to one address: findings, the names that led to it, and how often each finding was nudged before."""

    address: str
    findings: tuple[Finding, ...]
    names: tuple[str, ...]
    told: Mapping[str, int]


@dataclass(frozen=True)
class Chosen:
    """The nudges, and the findings that are held back, each with the reason."""

    nudges: tuple[Nudge, ...]
    held_back: tuple[tuple[Finding, str], ...]


@dataclass(frozen=True)
class Past:
    """Earlier nudges: actions on findings and the record of what was sent, since the start of the cool-down."""

    actions: Mapping[str, Sequence[Action]]
    journal: Journal
    since_ms: int
    again_on: str | None = None
    """A day whose nudges with unknown outcome are to be sent again."""

    def knows(self, finding_id: str, address: str, others: Collection[str]) -> bool:
        """Whether this address was told of the finding, or somebody outside `others` was."""
        return (finding_id, f"mailto:{address}") in self._sent or any(
            action.kind == "notify" and action.time_ms > self.since_ms and action.channel not in others
            for action in self.actions.get(finding_id, ())
        )

    @cached_property
    def _sent(self) -> frozenset[tuple[str, str]]:
        """Findings and the targets they went to, or may have gone to."""
        return frozenset(
            (finding_id, entry.delivery.target)
            for entry in self.journal.entries
            if entry.delivery.purpose == "nudge"
            and entry.step in _TOLD
            and entry.time_ms > self.since_ms
            and self.journal.standing(entry.delivery).step in self._told(entry.delivery.week)
            for finding_id in entry.finding_ids
        )

    def _told(self, day: str) -> tuple[str, ...]:
        return (SENT, SENDING) if day == self.again_on else _TOLD


def choose(findings: Iterable[Finding], contacts: Contacts, past: Past) -> Chosen:
    """The nudges by address; findings keep their order."""
    to_tell: dict[str, list[tuple[Finding, str]]] = defaultdict(list)
    held_back = []
    for finding in findings:
        if why := _alone(finding):
            held_back.append((finding, why))
            continue
        reached = contacts.of(finding)
        channels = {f"mailto:{address}" for address in reached}
        fresh = {
            address: name
            for address, name in reached.items()
            if not past.knows(finding.finding_id, address, channels - {f"mailto:{address}"})
        }
        if not fresh:
            held_back.append((finding, "told lately" if reached else "no address, or wants no nudges"))
        for address, name in fresh.items():
            to_tell[address].append((finding, name))
    return Chosen(tuple(_nudge(address, own, past) for address, own in sorted(to_tell.items())), tuple(held_back))


def day_of(now_ms: int, zone: tzinfo) -> str:
    """The day of a nudge: an address gets at most one a day."""
    return from_ms(now_ms).astimezone(zone).date().isoformat()


def _alone(finding: Finding) -> str:
    if finding.status in _LEFT_ALONE:
        return finding.status
    if finding.category not in CATEGORIES:
        return f"{finding.category}: not for a user"
    return "" if finding.holder else "no user"


def _nudge(address: str, own: Sequence[tuple[Finding, str]], past: Past) -> Nudge:
    told = {
        finding.finding_id: sum(action.kind == "notify" for action in past.actions.get(finding.finding_id, ()))
        for finding, _ in own
    }
    return Nudge(address, tuple(finding for finding, _ in own), tuple(sorted({name for _, name in own})), told)
