"""Nudges: which items go to which address, and when. Items that only operators can handle go to operators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

from analytics.decide.actions import Action
from analytics.decide.answers import VERBS
from analytics.decide.deadlines import quiet_days
from analytics.decide.nudge_items import NudgeItem
from analytics.delivery.journal import ABANDONED, SENDING, Journal
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import SENT, UNKNOWN, Brief, BriefLine, Message, MessagePart
from analytics.delivery.settings import Target, mail_address, mail_target
from analytics.language.sentences import Language
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.money.owners import Owners
from analytics.names import JOINER, single_name
from analytics.render.tables import VerbAnswer, mail, text
from analytics.tables.nudge_content import NudgeContent
from fallow.clock import from_ms
from fallow.config import Config
from fallow.errors import ConfigError, UsageError

COLUMNS = ("kind", "name", "email")
"""Columns of the contacts file. A name with several lines has several addresses."""

OPT_OUT_COLUMNS = ("kind", "name")
KINDS = ("user", "account", "namespace", "team")
_USERS = KINDS[:3]


@dataclass(frozen=True)
class Contacts:
    """Addresses by kind and name. `silent` has the names and addresses that get no nudges."""

    addresses: Mapping[tuple[str, str], tuple[str, ...]]
    silent: frozenset[tuple[str, str]]

    @classmethod
    def load(cls, contacts: str, opt_out: str) -> Contacts:
        """Read both tables; an empty path means no table. Raises ConfigError that names the invalid line."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for line in read_lines(contacts, COLUMNS, COLUMNS) if contacts else ():
            key = _named(line, KINDS)
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), _address(line, "email"))))
        silent = frozenset(
            _silent(line) for line in (read_lines(opt_out, OPT_OUT_COLUMNS, OPT_OUT_COLUMNS) if opt_out else ())
        )
        return cls(found, silent)

    def of(self, user: str | None, team: str | None, owners: Owners) -> dict[str, str]:
        """Return the addresses of the users of GPUs, each with the name that it belongs to.

        Several users all get the nudge. A user without an address is reached through the team, unless the user opted
        out.
        """
        found: dict[str, str] = {}
        names = (user or "").split(JOINER)
        for name in names:
            if name and not any((kind, name) in self.silent for kind in _USERS):
                own = next((self.addresses[kind, name] for kind in _USERS if (kind, name) in self.addresses), ())
                for address in own or self._team(team if len(names) == 1 else _own_team(name, team, owners)):
                    found.setdefault(address, name)
        return {address: name for address, name in found.items() if ("email", address.lower()) not in self.silent}

    def _team(self, team: str | None) -> tuple[str, ...]:
        names = [] if team is None else team.split(JOINER)
        wanted = [name for name in names if ("team", name) not in self.silent]
        return tuple(address for name in wanted for address in self.addresses.get(("team", name), ()))


def _own_team(name: str, joined: str | None, owners: Owners) -> str | None:
    """Return the team of one of several users of a GPU: from the owners file, else the team that all users share."""
    return owners.team(name, None) or (None if JOINER in (joined or "") else joined)


def _silent(line: CsvLine) -> tuple[str, str]:
    if (line.text("kind") or "").lower() == "email":
        return "email", _address(line, "name").lower()  # opting out works in upper and lower case
    return _named(line, (*KINDS, "email"))


def _named(line: CsvLine, kinds: tuple[str, ...]) -> tuple[str, str]:
    kind, name = (line.text("kind") or "").lower(), line.text("name")
    if kind not in kinds:
        raise line.error(f"kind '{kind}' is none of {', '.join(kinds)}")
    if name is None:
        raise line.error("name is empty", "give the name of a user, account, namespace or team in every line")
    return kind, name if kind == "team" else single_name(name)


def _address(line: CsvLine, column: str) -> str:
    try:
        return mail_address(line.text(column) or "")
    except UsageError as error:
        raise line.error(f"{column}: {error.message}", error.hint) from error


_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]|24):([0-5]\d)")


@dataclass(frozen=True)
class Quiet:
    """The quiet minutes of a day (past midnight if `until_minute` is smaller), and quiet weekdays, Monday 0."""

    from_minute: int
    until_minute: int
    days: frozenset[int]
    zone: tzinfo

    @classmethod
    def of(cls, config: Config, zone: tzinfo) -> Quiet:
        """Read report.quiet_hours and report.quiet_days. Raises ConfigError."""
        from_minute, until_minute = _minutes(config.text("report.quiet_hours").strip())
        return cls(from_minute, until_minute, quiet_days(config), zone)

    def holds(self, now_ms: int) -> bool:
        """Return True if this moment is quiet, in local time."""
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
        raise ConfigError(f"report.quiet_hours '{text}' is not a range of hours", "write the range as 20:00-07:00")
    return 60 * int(match[1]) + int(match[2]), 60 * int(match[3]) + int(match[4])


_MAYBE_SENT = (SENT, UNKNOWN, SENDING, ABANDONED)


@dataclass(frozen=True)
class Nudge:
    target: Target
    items: tuple[NudgeItem, ...]
    names: tuple[str, ...]
    """Users whose GPUs the nudge is about; empty for operators."""
    earlier_nudges: Mapping[str, int]
    """Number of earlier nudges, by item key."""

    @property
    def operators(self) -> bool:
        """Return True if the nudge goes to operators. Operators and users get separate nudges."""
        return self.items[0].to_operators


@dataclass(frozen=True)
class Chosen:
    """The nudges to send, and the items held back, each with the reason."""

    nudges: tuple[Nudge, ...]
    held_back: tuple[tuple[NudgeItem, str], ...]


@dataclass(frozen=True)
class Past:
    """Earlier nudges since the start of the cool-down: actions on findings, and the journal of deliveries."""

    actions: Mapping[str, Sequence[Action]]
    journal: Journal
    since_ms: int
    again_on: str | None = None
    """A day whose nudges with unknown outcome are sent again; None for no day."""

    def knows(self, finding_id: str, target: str, others: Collection[str]) -> bool:
        """Return True if this target, or a target outside `others`, got a nudge about the finding."""
        return (finding_id, target) in self._sent or any(
            action.kind == "notify" and action.time_ms > self.since_ms and action.channel not in others
            for action in self.actions.get(finding_id, ())
        )

    @cached_property
    def _sent(self) -> frozenset[tuple[str, str]]:
        """Return pairs of finding and target for nudges that arrived or may have arrived."""
        return frozenset(
            (finding_id, entry.delivery.target)
            for entry in self.journal.entries
            if entry.delivery.purpose == "nudge"
            and entry.step in _MAYBE_SENT
            and entry.time_ms > self.since_ms
            and self.journal.state(entry.delivery).step in self._sent_steps(entry.delivery.week)
            for finding_id in entry.finding_ids
        )

    def _sent_steps(self, day: str) -> tuple[str, ...]:
        return (SENT, SENDING) if day == self.again_on else _MAYBE_SENT


def choose(
    items: Iterable[NudgeItem], contacts: Contacts, operators: Sequence[Target], past: Past, owners: Owners
) -> Chosen:
    """Return the nudges by target, users first. Items keep their order. Items of operators go only to operators."""
    by_target: dict[tuple[bool, Target], list[tuple[NudgeItem, str]]] = defaultdict(list)
    held_back = []
    for item in items:
        reached = (
            dict.fromkeys(operators, "")
            if item.to_operators
            else {
                mail_target(address): name for address, name in contacts.of(item.user, item.about.team, owners).items()
            }
        )
        shown = {target.shown for target in reached}
        fresh = {
            target: name
            for target, name in reached.items()
            if not past.knows(item.key, target.shown, shown - {target.shown})
        }
        if not fresh:
            unreached = (
                "for operators, and report.operators is empty"
                if item.to_operators
                else "no address, or opted out of nudges"
            )
            held_back.append((item, "a recent nudge was about it" if reached else unreached))
        for target, name in fresh.items():
            by_target[item.to_operators, target].append((item, name))
    nudges = [
        _nudge(target, own, past)
        for (_, target), own in sorted(by_target.items(), key=lambda each: (each[0][0], each[0][1].shown))
    ]
    return Chosen(tuple(nudges), tuple(held_back))


_TEXT_COLUMNS = 78


def day_of(now_ms: int, zone: tzinfo) -> str:
    """Return the day of a nudge. An address gets at most one nudge a day."""
    return from_ms(now_ms).astimezone(zone).date().isoformat()


def _nudge(target: Target, own: Sequence[tuple[NudgeItem, str]], past: Past) -> Nudge:
    earlier = {item.key: sum(action.kind == "notify" for action in past.actions.get(item.key, ())) for item, _ in own}
    names = tuple(sorted({name for _, name in own if name}))
    first_due = sorted((item for item, _ in own), key=lambda item: item.about.deadline)
    return Nudge(target, tuple(first_due), names, earlier)


def pack_nudge(
    nudge: Nudge, language: Language, day: str, window_ms: tuple[int, int], links: AnswerLinks | None
) -> Message:
    """Return a nudge's message. `day`: the day of sending. `window_ms`: the observed part of the findings' window."""
    content = NudgeContent(nudge.items, nudge.names, _links(nudge, language, links), nudge.earlier_nudges, *window_ms)
    answer = VerbAnswer(content.subject, content.about, content.warning, {}, (content.table,))
    html = mail(answer, language)
    in_folder = nudge.target.kind == "folder"
    return Message(
        subject=language.translate(content.subject),
        language=language.code,
        text=text(answer, language, _TEXT_COLUMNS).decode(),
        html=html,
        picture=None,
        attachments=(MessagePart(f"fallow-faults-{day}.html", "text/html", html.encode()),) if in_folder else (),
        brief=_brief(content, language),
        week=day,
        scope="",
        since_ms=window_ms[0],
        until_ms=window_ms[1],
        # the key too: it records the nudge of an item without a finding
        finding_ids=tuple(dict.fromkeys(each for item in nudge.items for each in (item.key, *item.finding_ids))),
    )


def _links(nudge: Nudge, language: Language, links: AnswerLinks | None) -> Mapping[str, Mapping[str, str]]:
    """Return answer addresses by item and verb; none for operators, who have accounts, or for shares of a finding."""
    if links is None or nudge.operators or nudge.target.kind != "mail":
        return {}
    return {
        item.key: {verb: links.url(item, verb, nudge.target.address, language.code) for verb in VERBS}
        for item in nudge.items
        if item.finding_ids
    }


def _brief(content: NudgeContent, language: Language) -> Brief:
    lines = tuple(
        BriefLine(each.key, language.translate(each.sentence), language.translate(each.request))
        for each in content.items
    )
    sentences = tuple(language.translate(each) for each in (content.warning, content.intro) if each)
    title, window = language.translate(content.subject), language.translate(content.window)
    return Brief(title, window, sentences, language.translate(content.table.title), lines, "")
