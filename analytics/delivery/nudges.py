"""Nudges: who is asked what about their own GPUs, at which address, and when; what only operators can do goes to them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property

from analytics.decide.actions import Action
from analytics.decide.answers import VERBS
from analytics.decide.asks import Ask
from analytics.decide.deadlines import quiet_days
from analytics.delivery.journal import ABANDONED, SENDING, Journal
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import SENT, UNKNOWN, Brief, BriefLine, Message, MessagePart
from analytics.delivery.settings import Target, mail_address, mail_target
from analytics.language.language import Language
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.money.owners import Owners
from analytics.names import JOINER, single_name
from analytics.render.tables import VerbAnswer, mail, text
from analytics.tables.letter import Letter
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

    def of(self, holder: str | None, team: str | None, owners: Owners) -> dict[str, str]:
        """The addresses of whoever has GPUs, each with the name that led to it.

        Several owners are all told. An owner without an address is reached through the own team, one who opted out not at all.
        """
        found: dict[str, str] = {}
        names = (holder or "").split(JOINER)
        for name in names:
            if name and not any((kind, name) in self.silent for kind in _HOLDERS):
                own = next((self.addresses[kind, name] for kind in _HOLDERS if (kind, name) in self.addresses), ())
                for address in own or self._team(team if len(names) == 1 else _own_team(name, team, owners)):
                    found.setdefault(address, name)
        return {address: name for address, name in found.items() if ("email", address.lower()) not in self.silent}

    def _team(self, team: str | None) -> tuple[str, ...]:
        names = [] if team is None else team.split(JOINER)
        wanted = [name for name in names if ("team", name) not in self.silent]
        return tuple(address for name in wanted for address in self.addresses.get(("team", name), ()))


def _own_team(name: str, joined: str | None, owners: Owners) -> str | None:
    """That of one of several who hold a GPU together: by the owners file, else the one that all are of."""
    return owners.team(name, None) or (None if JOINER in (joined or "") else joined)


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
        from_minute, until_minute = _minutes(config.text("report.quiet_hours").strip())
        return cls(from_minute, until_minute, quiet_days(config), zone)

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


_TOLD = (SENT, UNKNOWN, SENDING, ABANDONED)


@dataclass(frozen=True)
class Nudge:
    """The nudge to one target: asks, the names that led to it, and by ask how often its findings were nudged before."""

    target: Target
    asks: tuple[Ask, ...]
    names: tuple[str, ...]
    told: Mapping[str, int]

    @property
    def operators(self) -> bool:
        """Whether it goes to those who look after the machines; they are asked apart from users."""
        return self.asks[0].to_operators


@dataclass(frozen=True)
class Chosen:
    """The nudges, and the asks that are held back, each with the reason."""

    nudges: tuple[Nudge, ...]
    held_back: tuple[tuple[Ask, str], ...]


@dataclass(frozen=True)
class Past:
    """Earlier nudges: actions on findings and the record of what was sent, since the start of the cool-down."""

    actions: Mapping[str, Sequence[Action]]
    journal: Journal
    since_ms: int
    again_on: str | None = None
    """A day whose nudges with unknown outcome are to be sent again."""

    def knows(self, finding_id: str, target: str, others: Collection[str]) -> bool:
        """Whether this target was told of the finding, or somebody outside `others` was."""
        return (finding_id, target) in self._sent or any(
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


def choose(asks: Iterable[Ask], contacts: Contacts, operators: Sequence[Target], past: Past, owners: Owners) -> Chosen:
    """The nudges by target, those to users first; asks keep their order. What operators own goes to them alone."""
    to_tell: dict[tuple[bool, Target], list[tuple[Ask, str]]] = defaultdict(list)
    held_back = []
    for ask in asks:
        reached = (
            dict.fromkeys(operators, "")
            if ask.to_operators
            else {
                mail_target(address): name for address, name in contacts.of(ask.holder, ask.about.team, owners).items()
            }
        )
        shown = {target.shown for target in reached}
        fresh = {
            target: name
            for target, name in reached.items()
            if not past.knows(ask.key, target.shown, shown - {target.shown})
        }
        if not fresh:
            nobody = (
                "for operators, and report.operators names nobody"
                if ask.to_operators
                else "no address, or wants no nudges"
            )
            held_back.append((ask, "told lately" if reached else nobody))
        for target, name in fresh.items():
            to_tell[ask.to_operators, target].append((ask, name))
    nudges = [
        _nudge(target, own, past)
        for (_, target), own in sorted(to_tell.items(), key=lambda each: (each[0][0], each[0][1].shown))
    ]
    return Chosen(tuple(nudges), tuple(held_back))


_TEXT_COLUMNS = 78


def day_of(now_ms: int, zone: tzinfo) -> str:
    """The day of a nudge: an address gets at most one a day."""
    return from_ms(now_ms).astimezone(zone).date().isoformat()


def _nudge(target: Target, own: Sequence[tuple[Ask, str]], past: Past) -> Nudge:
    told = {ask.key: sum(action.kind == "notify" for action in past.actions.get(ask.key, ())) for ask, _ in own}
    names = tuple(sorted({name for _, name in own if name}))
    first_due = sorted((ask for ask, _ in own), key=lambda ask: ask.about.deadline_ms)
    return Nudge(target, tuple(first_due), names, told)


def pack_nudge(
    nudge: Nudge, language: Language, day: str, window_ms: tuple[int, int], links: AnswerLinks | None
) -> Message:
    """One message to one target; `day` is that on which it goes out, `window_ms` what was seen of the window of the findings."""
    letter = Letter(nudge.asks, nudge.names, _links(nudge, language, links), nudge.told, *window_ms)
    answer = VerbAnswer(letter.subject, letter.about, letter.warning, {}, (letter.table,))
    html = mail(answer, language)
    in_folder = nudge.target.kind == "folder"
    return Message(
        subject=language.translate(letter.subject),
        language=language.code,
        text=text(answer, language, _TEXT_COLUMNS).decode(),
        html=html,
        picture=None,
        attachments=(MessagePart(f"fallow-faults-{day}.html", "text/html", html.encode()),) if in_folder else (),
        brief=_brief(letter, language),
        week=day,
        scope="",
        since_ms=window_ms[0],
        until_ms=window_ms[1],
        # the key too: of an ask without a finding of its own it says that it was told
        finding_ids=tuple(dict.fromkeys(each for ask in nudge.asks for each in (ask.key, *ask.finding_ids))),
    )


def _links(nudge: Nudge, language: Language, links: AnswerLinks | None) -> Mapping[str, Mapping[str, str]]:
    """By ask and verb; none for operators, who have accounts, and none where an answer would settle what others hold."""
    if links is None or nudge.operators or nudge.target.kind != "mail":
        return {}
    return {
        ask.key: {verb: links.url(ask, verb, nudge.target.address, language.code) for verb in VERBS}
        for ask in nudge.asks
        if ask.finding_ids
    }


def _brief(letter: Letter, language: Language) -> Brief:
    lines = tuple(
        BriefLine(each.key, language.translate(each.sentence), language.translate(each.asked)) for each in letter.asks
    )
    sentences = tuple(language.translate(each) for each in (letter.warning, letter.intro) if each)
    title, window = language.translate(letter.subject), language.translate(letter.window)
    return Brief(title, window, sentences, language.translate(letter.table.title), lines, "")
