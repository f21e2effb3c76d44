"""The content of a nudge to one person about their GPUs, or to operators: a table with a row per item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from analytics.decide.answers import DONE, KEEP
from analytics.decide.lifecycle import RELEASED
from analytics.decide.nudge_items import NudgeItem
from analytics.decide.value import Value
from analytics.language.sentences import (
    Amount,
    Date,
    Day,
    GpuHours,
    Moment,
    Sentence,
    SentenceList,
    from_cents,
    plain,
    tr,
    tr_many,
)
from analytics.tables.basis import cost_words
from analytics.tables.finding_heading import evidence, heading
from analytics.tables.table import Cell, Column, Fold, Table, ToCopy, column
from analytics.tables.value import CASH, FREED, cash_words, freed_words
from analytics.workloads.commands import acts
from analytics.workloads.waste import RELEASE, REPAIR, RIGHT_SIZE, TUNE

_GPUS_NAMED = 8


@dataclass(frozen=True)
class NudgeContent:
    """The sentences and the table of one nudge, to a user or to operators.

    Attributes:
        items: at least one; all for operators, or none.
        names: the users whose GPUs the nudge is about; empty for operators.
        links: the address of each answer, by item key and verb.
        earlier_nudges: the number of earlier nudges, by item key.
        since_ms: the start of the window of the figures.
        as_of_ms: the end of the observed time.
    """

    items: tuple[NudgeItem, ...]
    names: tuple[str, ...]
    links: Mapping[str, Mapping[str, str]]
    earlier_nudges: Mapping[str, int]
    since_ms: int
    as_of_ms: int

    @property
    def to_operators(self) -> bool:
        return self.items[0].to_operators

    @property
    def subject(self) -> Sentence:
        subject = _subject_of_operators(self.items) if self.to_operators else _subject(self.items)
        return tr("SIMULATED: {subject}", subject=subject) if self.warning else subject

    @property
    def warning(self) -> str:
        """Return how many GPUs of the nudge are simulated; empty if none is."""
        gpus = len({gpu for each in self.items if each.about.simulated for gpu in each.gpus})
        return tr_many("SIMULATED: {number} {GPU|GPUs} in this message {does|do} not exist.", gpus) if gpus else ""

    @property
    def about(self) -> tuple[Sentence, ...]:
        names = SentenceList([plain(name) for name in self.names], ", ")
        return () if self.to_operators else (tr("About the GPUs of {names}", names=names),)

    @property
    def intro(self) -> Sentence:
        """Return the opening sentence: what the items are about."""
        actions = {each.action for each in self.items}
        if self.to_operators:
            return _FAULTS if actions == {REPAIR} else _OF_OPERATORS
        return tr(
            "{what} {doubt}", what=_INTROS[actions.pop()] if len(actions) == 1 else _INTRO_OF_SEVERAL, doubt=_DOUBT
        )

    @property
    def window(self) -> Sentence:
        return tr("The figures cover {since} to {until}.", since=Moment(self.since_ms), until=Moment(self.as_of_ms))

    @property
    def table(self) -> Table:
        """Return a row per item: request, deadline, finding, and the command or link. Evidence is folded."""
        if self.to_operators:
            notes = _ANSWER_OF_OPERATORS, _END_OF_OPERATORS
        elif self.links:
            notes = _ANSWER_BY_LINK, _END
        else:
            is_release = {each.action for each in self.items} == {RELEASE}
            notes = _ANSWER_BY_MAIL if is_release else _ANSWER_OF_CHANGES, _END
        behind = {finding.finding_id: finding for each in self.items for finding in each.about.evidence}
        return Table(
            name="nudge_items",
            title=tr("Recommendations"),
            question="",
            headline=SentenceList([self.intro, self.window], " "),
            columns=self._columns,
            rows=self.items,
            folds=tuple(
                Fold(
                    key=each.finding_id,
                    title=heading(each),
                    facts=(),
                    # the finding's time may include GPUs outside the item, so it has no price here
                    lines=(SentenceList([tr("{hours} GPU-hours", hours=GpuHours(each.gpu_ms)), evidence(each)]),),
                    command="",
                )
                for each in behind.values()
            ),
            notes=notes,
        )

    @property
    def _columns(self) -> tuple[Column, ...]:
        return (
            column("request", "", "sentence"),
            column("due", "", "sentence", _due),
            column("found", "", "sentence", "sentence"),
            column("gpus", tr("GPUs"), "words", _gpus),
            column("wasted", tr("wasted"), "words", _wasted),
            column("freed", FREED, "words", lambda item: _worth(item, freed_words)),
            column("cash", CASH, "words", lambda item: _worth(item, cash_words)),
            column(
                "user",
                tr("user"),
                "words",
                lambda item: plain(item.user) if item.to_operators and item.action == RELEASE and item.user else "",
            ),
            column("job", tr("job"), "words", _job),
            column("since", tr("since"), "moment", "about.finding.since_ms", missing=""),
            column("confidence", tr("confidence"), "words", _confidence),
            column("earlier_nudges", tr("earlier nudges"), "words", self._earlier),
            column("released", tr("reported as released"), "words", _broken_release),
            column("command", "", "words", _command),
            column("checked", "", "sentence", self._check),
            column("keep", "", "words", lambda item: self._link(item, KEEP)),
            column("done", "", "words", lambda item: self._link(item, DONE)),
            column("answer", "", "words", _answer_commands),
        )

    def _earlier(self, item: NudgeItem) -> Cell:
        before = self.earlier_nudges.get(item.key, 0)
        return tr_many("{number} {time|times}", before) if before else ""

    def _link(self, item: NudgeItem, verb: str) -> Cell:
        url = self.links.get(item.key, {}).get(verb)
        return "" if url is None else ToCopy(_ANSWERS[verb, item.action == RELEASE], (url,), is_address=True)

    def _check(self, item: NudgeItem) -> Cell:
        """Return what to check before running the command."""
        if item.action != RELEASE:
            return ""
        if acts(item.about.next_command):
            moment = Moment(self.as_of_ms)
            return tr("as of {moment}: check that nothing has changed before you run this command", moment=moment)
        here = tr("No command of fallow ends only this workload: end it in the same way as you started it.")
        return "" if item.to_operators else here


_ANSWERS = {
    (KEEP, True): tr("Still needed until ..."),
    (DONE, True): tr("Released"),
    (KEEP, False): tr("Keep it as it is until ..."),
    (DONE, False): tr("Done"),
}
"""Labels of the answers, by verb and whether the request is to release GPUs."""

_DOUBT = tr("fallow may be wrong: you know your work better. It ends no work by itself.")
_INTROS = {
    RELEASE: tr(
        "fallow observes how the GPUs of this site are used. The following GPUs are yours and seem to do no work."
    ),
    RIGHT_SIZE: tr(
        "fallow observes how the GPUs of this site are used. The following workloads of yours need less than the GPUs"
        " they have."
    ),
    TUNE: tr(
        "fallow observes how the GPUs of this site are used. The following workloads of yours use little of their GPUs."
    ),
}
_INTRO_OF_SEVERAL = tr(
    "fallow observes how the GPUs of this site are used. Some of your GPUs seem to do no work, or less than they could."
    " Each one is listed with a recommendation."
)
_FAULTS = tr(
    "fallow found the following faults of the machines. The users of the GPUs get no message, because they cannot fix"
    " them."
)
_OF_OPERATORS = tr(
    "fallow has the following recommendations that only operators can carry out. Each GPU is listed once, and its users"
    " get no nudge about it."
)
_ANSWER_BY_LINK = tr("The links work without an account, each for one answer. You can also reply to this mail.")
_ANSWER_BY_MAIL = tr(
    "If you need the GPUs, reply to this mail with the day until which you need them. If you released them, reply as"
    " well."
)
_ANSWER_OF_CHANGES = tr("To explain the situation or to report what you did, reply to this mail.")
_ANSWER_OF_OPERATORS = tr("Acknowledge what you have handled: fallow then sends no further nudge about it.")
_END = tr(
    "You get this mail because a GPU was allocated to you or ran your processes. To stop these mails, reply to this"
    " one."
)
_END_OF_OPERATORS = tr("You get this mail because the setting report.operators has this address.")


def _subject(items: Sequence[NudgeItem]) -> Sentence:
    """Return a subject of at most 70 characters, in every language and with the mark of simulated GPUs."""
    until = Date(min(each.about.deadline for each in items))
    gpus = len({gpu for each in items for gpu in each.gpus})
    if {each.action for each in items} == {RELEASE}:
        return tr_many("Release {number} {GPU|GPUs} or give a reason, by {day}", gpus, day=until)
    return tr_many("{number} {recommendation|recommendations} for your GPUs, by {day}", len(items), day=until)


def _subject_of_operators(items: Sequence[NudgeItem]) -> Sentence:
    if all(each.action == REPAIR for each in items):
        return tr_many("{number} GPU {fault|faults} to check", len(items))
    day = Date(min(each.about.deadline for each in items))
    gpus = len({gpu for each in items for gpu in each.gpus})
    return tr_many("{number} {GPU|GPUs} to release or check, {by|the first by} {day}", gpus, day=day)


def _due(item: NudgeItem) -> Cell:
    day = Date(item.about.deadline)
    if item.to_operators:
        return tr("Please handle this by the end of {day}.", day=day)
    return tr("Please reply by the end of {day}.", day=day)


def _gpus(item: NudgeItem) -> Cell:
    more = ["..."] if len(item.gpus) > _GPUS_NAMED else []
    return SentenceList([*(plain(gpu) for gpu in item.gpus[:_GPUS_NAMED]), *more], ", ")


def _wasted(item: NudgeItem) -> Cell:
    """Return the wasted time of the window and its cost; an upper limit where only point samples show it as idle."""
    if not item.is_whole or not item.about.gpu_ms:
        return ""
    cost = cost_words(item.about.unconfirmed, Amount(from_cents(item.about.cents), item.about.currency))
    hours = tr("{hours} GPU-hours", hours=GpuHours(item.about.gpu_ms))
    return SentenceList([hours, *([] if item.about.cents is None else [cost])], ", ")


def _worth(item: NudgeItem, words: Callable[[Value | None, str], Cell]) -> Cell:
    """Return the value in the given words; empty if no value is known."""
    return "" if item.about.value is None else words(item.about.value, item.about.currency)


def _job(item: NudgeItem) -> Cell:
    job = item.about.evidence[0].job if item.about.evidence and not item.to_operators else None
    return plain(job) if job else ""


def _confidence(item: NudgeItem) -> Cell:
    confidence = item.about.confidence
    grade = tr(confidence.grade)
    return tr("{grade} ({why})", grade=grade, why=SentenceList(confidence.failed)) if confidence.failed else grade


def _broken_release(item: NudgeItem) -> Cell:
    reported_ms = item.broken_release_ms
    return "" if reported_ms is None else tr("you reported it on {day}; still held", day=Day(reported_ms))


def _command(item: NudgeItem) -> Cell:
    command = plain(item.about.next_command, 1000)
    if not command:
        return ""
    if not acts(item.about.next_command):
        return ToCopy(tr("to check first"), (command,))
    return ToCopy(tr("to release") if item.action == RELEASE else tr("in the job script"), (command,))


def _answer_commands(item: NudgeItem) -> Cell:
    """Return the commands that answer, for readers with access to the lake."""
    if not item.finding_ids:
        return ""
    ids = " ".join(item.finding_ids)
    until = item.about.deadline + timedelta(days=7)
    done = RELEASED if item.action == RELEASE else "changed"
    keeps = f"fallow findings snooze {ids} --until {until} --reason 'still needed'"
    settles = f"fallow findings ack {ids} --reason {done}"
    commands = (f"fallow findings ack {ids} --reason '...'",) if item.to_operators else (keeps, settles)
    return ToCopy(tr("Or, with access to fallow's lake"), commands)
