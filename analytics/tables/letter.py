"""The letter to one person about their GPUs, or to the operators about what only they can do: a table with a row for each ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analytics.decide.answers import DONE, KEEP
from analytics.decide.asks import Ask
from analytics.decide.lifecycle import RELEASED
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Day, GpuHours, Moment, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.tables.finding_heading import cost_words, evidence, heading
from analytics.tables.recommendations import deadline_day, saving_words
from analytics.tables.table import Cell, Column, Fold, Table, ToCopy, column
from analytics.workloads.commands import acts
from analytics.workloads.waste import RELEASE, REPAIR, RIGHT_SIZE, TUNE
from fallow.clock import DAY_MS, WEEK_MS, utc_day

_GPUS_NAMED = 8


@dataclass(frozen=True)
class Letter:
    """What one reader is asked: by themselves, or by `to_operators` those who look after the machines.

    Attributes:
        names: the users by whom the reader is reached; none for operators.
        links: by ask and verb the address that answers.
        told: by ask how often it was told before.
        since_ms: the start of the window of the figures.
        as_of_ms: the end of what was seen.
    """

    asks: tuple[Ask, ...]
    names: tuple[str, ...]
    links: Mapping[str, Mapping[str, str]]
    told: Mapping[str, int]
    since_ms: int
    as_of_ms: int

    @property
    def to_operators(self) -> bool:
        return self.asks[0].to_operators

    @property
    def subject(self) -> Sentence:
        subject = _subject_of_operators(self.asks) if self.to_operators else _subject(self.asks)
        return tr("SIMULATED: {subject}", subject=subject) if self.warning else subject

    @property
    def warning(self) -> str:
        """How many of its GPUs are simulated; empty where none is."""
        gpus = len({gpu for each in self.asks if each.about.simulated for gpu in each.gpus})
        return (
            tr_many(
                "SIMULATED: {number} GPU in this message does not exist.",
                "SIMULATED: {number} GPUs in this message do not exist.",
                gpus,
            )
            if gpus
            else ""
        )

    @property
    def about(self) -> tuple[Sentence, ...]:
        names = SentenceList([plain(name) for name in self.names], ", ")
        return () if self.to_operators else (tr("About the GPUs of {names}", names=names),)

    @property
    def intro(self) -> Sentence:
        """What the asks are about."""
        actions = {each.action for each in self.asks}
        if self.to_operators:
            return _FAULTS if actions == {REPAIR} else _OF_OPERATORS
        return tr(
            "{what} {doubt}", what=_INTROS[actions.pop()] if len(actions) == 1 else _INTRO_OF_SEVERAL, doubt=_DOUBT
        )

    @property
    def window(self) -> Sentence:
        return tr("The figures are of {since} to {until}.", since=Moment(self.since_ms), until=Moment(self.as_of_ms))

    @property
    def table(self) -> Table:
        """A row for each ask: what is asked, until when, what was found, what to type or to follow. Evidence is folded."""
        if self.to_operators:
            notes = _ANSWER_OF_OPERATORS, _END_OF_OPERATORS
        elif self.links:
            notes = _ANSWER_BY_LINK, _END
        else:
            is_release = {each.action for each in self.asks} == {RELEASE}
            notes = _ANSWER_BY_MAIL if is_release else _ANSWER_OF_CHANGES, _END
        behind = {finding.finding_id: finding for each in self.asks for finding in each.about.evidence}
        return Table(
            name="asks",
            title=tr("What to look at"),
            question="",
            headline=SentenceList([self.intro, self.window], " "),
            columns=self._columns,
            rows=self.asks,
            folds=tuple(
                Fold(
                    key=each.finding_id,
                    title=heading(each),
                    facts=(),
                    # its own time may be more than that of the GPUs asked about, which has the one price
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
            column("asked", "", "sentence"),
            column("due", "", "sentence", _due),
            column("found", "", "sentence", "sentence"),
            column("gpus", tr("GPUs"), "words", _gpus),
            column("wasted", tr("wasted"), "words", _wasted),
            column("saving", tr("worth a year"), "words", _saving),
            column(
                "holder",
                tr("user"),
                "words",
                lambda ask: plain(ask.holder) if ask.to_operators and ask.action == RELEASE and ask.holder else "",
            ),
            column("job", tr("job"), "words", _job),
            column(
                "since",
                tr("since"),
                "moment",
                lambda ask: "" if ask.about.finding is None else ask.about.finding.since_ms,
            ),
            column("confidence", tr("confidence"), "words", _confidence),
            column("told", tr("told before"), "words", self._times_told),
            column("released", tr("released"), "words", _broken_release),
            column("command", "", "words", _command),
            column("checked", "", "sentence", self._check),
            column("keep", "", "words", lambda ask: self._link(ask, KEEP)),
            column("done", "", "words", lambda ask: self._link(ask, DONE)),
            column("answer", "", "words", _answer_commands),
        )

    def _times_told(self, ask: Ask) -> Cell:
        before = self.told.get(ask.key, 0)
        return tr_many("{number} time", "{number} times", before) if before else ""

    def _link(self, ask: Ask, verb: str) -> Cell:
        url = self.links.get(ask.key, {}).get(verb)
        return "" if url is None else ToCopy(_ANSWERS[verb, ask.action == RELEASE], (url,), is_address=True)

    def _check(self, ask: Ask) -> Cell:
        """What to know before the command is typed."""
        if ask.action != RELEASE:
            return ""
        if acts(ask.about.next_command):
            moment = Moment(self.as_of_ms)
            return tr("as of {moment}: look whether it is still the same before you type it", moment=moment)
        here = tr("fallow knows no command that would end this and nothing else: end it as you started it.")
        return "" if ask.to_operators else here


_ANSWERS = {
    (KEEP, True): tr("Still needed until ..."),
    (DONE, True): tr("Released"),
    (KEEP, False): tr("Leave it as it is until ..."),
    (DONE, False): tr("Done"),
}
"""By verb, and whether idle GPUs are asked back."""

_DOUBT = tr("It may be wrong: you know your work, it does not. fallow itself takes nothing away.")
_INTROS = {
    RELEASE: tr(
        "fallow watches how the GPUs of this site are used. The following ones are yours and seem to do no work."
    ),
    RIGHT_SIZE: tr(
        "fallow watches how the GPUs of this site are used. The following work of yours needs less than the GPUs it has."
    ),
    TUNE: tr("fallow watches how the GPUs of this site are used. The following work of yours uses little of its GPUs."),
}
_INTRO_OF_SEVERAL = tr(
    "fallow watches how the GPUs of this site are used. Some of yours seem to do no work, or less than they could; each is listed with what is asked."
)
_FAULTS = tr(
    "fallow found the following of the machines themselves. Those who use the GPUs are not told: they could not help it."
)
_OF_OPERATORS = tr(
    "fallow found the following that nobody but you can do; each GPU stands here once. Those who use GPUs are not asked about these."
)
_ANSWER_BY_LINK = tr("The links work without an account, each for this one answer. You can also answer this mail.")
_ANSWER_BY_MAIL = tr("To say that you need them, and until when, or that you gave them back, answer this mail.")
_ANSWER_OF_CHANGES = tr("To say why it is as it is, or what you did about it, answer this mail.")
_ANSWER_OF_OPERATORS = tr("What is taken care of is acknowledged, and nobody is told of it again.")
_END = tr(
    "You get this because a GPU was given to you or a process of yours was on it. To get no more of it, answer this mail."
)
_END_OF_OPERATORS = tr("You get this because the setting report.operators names this address.")


def _subject(asks: Sequence[Ask]) -> Sentence:
    """At most 70 characters with its mark, in every language."""
    until = deadline_day(min(each.about.deadline_ms for each in asks))
    gpus = len({gpu for each in asks for gpu in each.gpus})
    if {each.action for each in asks} == {RELEASE}:
        if all(each.about.confidence.grade == "low" for each in asks):
            return tr_many(
                "Do you still need {number} GPU? Answer by {day}",
                "Do you still need {number} GPUs? Answer by {day}",
                gpus,
                day=until,
            )
        return tr_many(
            "Give {number} GPU back, or say why not, by {day}",
            "Give {number} GPUs back, or say why not, by {day}",
            gpus,
            day=until,
        )
    return tr_many(
        "{number} question about your GPUs, by {day}",
        "{number} questions about your GPUs, by {day}",
        len(asks),
        day=until,
    )


def _subject_of_operators(asks: Sequence[Ask]) -> Sentence:
    if all(each.action == REPAIR for each in asks):
        return tr_many("{number} fault of GPUs to look at", "{number} faults of GPUs to look at", len(asks))
    day = deadline_day(min(each.about.deadline_ms for each in asks))
    gpus = len({gpu for each in asks for gpu in each.gpus})
    return tr_many(
        "{number} GPU to give back or see to, by {day}",
        "{number} GPUs to give back or see to, the first by {day}",
        gpus,
        day=day,
    )


def _due(ask: Ask) -> Cell:
    day = deadline_day(ask.about.deadline_ms)
    if ask.to_operators:
        return tr("Please look at it by the end of {day}.", day=day)
    return tr("Please answer by the end of {day}.", day=day)


def _gpus(ask: Ask) -> Cell:
    more = ["..."] if len(ask.gpus) > _GPUS_NAMED else []
    return SentenceList([*(plain(gpu) for gpu in ask.gpus[:_GPUS_NAMED]), *more], ", ")


def _wasted(ask: Ask) -> Cell:
    """The wasted time of the window and its cost; at most that much where point samples alone call it idle."""
    if not ask.is_whole or not ask.about.gpu_ms:
        return ""
    cost = cost_words(ask.about.unconfirmed, Amount(from_cents(ask.about.cents), ask.about.currency))
    hours = tr("{hours} GPU-hours", hours=GpuHours(ask.about.gpu_ms))
    return SentenceList([hours, *([] if ask.about.cents is None else [cost])], ", ")


def _saving(ask: Ask) -> Cell:
    saving = ask.about.saving
    return "" if saving is None or saving.point <= 0 else saving_words(saving, ask.about.currency)


def _job(ask: Ask) -> Cell:
    job = ask.about.evidence[0].job if ask.about.evidence and not ask.to_operators else None
    return plain(job) if job else ""


def _confidence(ask: Ask) -> Cell:
    confidence = ask.about.confidence
    grade = tr(confidence.grade)
    return tr("{grade} ({why})", grade=grade, why=SentenceList(confidence.failed)) if confidence.failed else grade


def _broken_release(ask: Ask) -> Cell:
    said_ms = ask.broken_release_ms
    return "" if said_ms is None else tr("you said so on {day}; still held", day=Day(said_ms))


def _command(ask: Ask) -> Cell:
    command = plain(ask.about.next_command, 1000)
    if not command:
        return ""
    if not acts(ask.about.next_command):
        return ToCopy(tr("to look first"), (command,))
    return ToCopy(tr("to give back") if ask.action == RELEASE else tr("in the job script"), (command,))


def _answer_commands(ask: Ask) -> Cell:
    """For those who can reach the lake."""
    if not ask.finding_ids:
        return ""
    ids = " ".join(ask.finding_ids)
    until = utc_day(ask.about.deadline_ms - DAY_MS + WEEK_MS)
    done = RELEASED if ask.action == RELEASE else "changed"
    keeps = f"fallow findings suppress {ids} --until {until} --reason 'still needed'"
    settles = f"fallow findings ack {ids} --reason {done}"
    commands = (f"fallow findings ack {ids} --reason '...'",) if ask.to_operators else (keeps, settles)
    return ToCopy(tr("Or, where you can reach the lake of fallow"), commands)
