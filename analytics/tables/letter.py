"""The letter to one person about their GPUs, or to the operators about what only they can do: everything that it says, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analytics.decide.answers import DONE, KEEP
from analytics.decide.asks import Ask
from analytics.decide.lifecycle import RELEASED
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Day, GpuHours, Moment, Quantity, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.tables.evidence_text import evidence
from analytics.tables.finding_heading import cost_words, heading
from analytics.tables.recommendations import deadline_day, saving_words
from analytics.workloads.commands import acts
from analytics.workloads.model import Finding
from analytics.workloads.waste import RELEASE, REPAIR, RIGHT_SIZE, TUNE
from fallow.clock import DAY_MS, WEEK_MS, utc_day

_GPUS_NAMED = 8


@dataclass(frozen=True)
class LetterLink:
    """A link by which the reader answers."""

    label: Sentence
    url: str


@dataclass(frozen=True)
class LetterAsk:
    """One ask: `command` is to be copied, `answer_commands` are for those who can reach the lake."""

    asked: str
    due: Sentence
    sentence: Sentence
    rows: tuple[tuple[Sentence, str | Quantity], ...]
    command_label: Sentence
    command: str
    command_note: str
    links: tuple[LetterLink, ...]
    answer_commands: tuple[str, ...]
    evidence: tuple[Sentence, ...]


@dataclass(frozen=True)
class Letter:
    """`banner` stands above everything where a GPU is simulated, and is empty otherwise; `about` are the reader's names."""

    subject: Sentence
    banner: str
    about: str
    intro: Sentence
    window: Sentence
    asks: tuple[LetterAsk, ...]
    answer: Sentence
    end: Sentence


@dataclass(frozen=True)
class Told:
    """What a letter is made of beside its asks: the reader's names, and by ask its links and how often it was told before.

    Figures are of `since_ms` to `as_of_ms`, the end of what was seen.
    """

    names: tuple[str, ...]
    links: Mapping[str, Mapping[str, str]]
    before: Mapping[str, int]
    since_ms: int
    as_of_ms: int

    @property
    def window(self) -> Sentence:
        return tr("The figures are of {since} to {until}.", since=Moment(self.since_ms), until=Moment(self.as_of_ms))


def letter_to_user(asks: Sequence[Ask], told: Told) -> Letter:
    """To whoever has the GPUs."""
    names = SentenceList([plain(name) for name in told.names], ", ")
    return Letter(
        subject=_marked(asks, _subject(asks)),
        banner=_banner(asks),
        about=tr("About the GPUs of {names}", names=names),
        intro=tr("{what} {doubt}", what=_intro(asks), doubt=_DOUBT),
        window=told.window,
        asks=tuple(_letter_ask(each, told) for each in asks),
        answer=_ANSWER_BY_LINK if told.links else _how_to_answer(asks),
        end=_END,
    )


def letter_to_operators(asks: Sequence[Ask], told: Told) -> Letter:
    """About faults, cards to give back and work without an owner, to those who look after the machines."""
    return Letter(
        subject=_marked(asks, _subject_of_operators(asks)),
        banner=_banner(asks),
        about="",
        intro=_FAULTS if _are_faults(asks) else _OF_OPERATORS,
        window=told.window,
        asks=tuple(_letter_ask(each, told) for each in asks),
        answer=_ANSWER_OF_OPERATORS,
        end=_END_OF_OPERATORS,
    )


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


def _intro(asks: Sequence[Ask]) -> Sentence:
    actions = {each.action for each in asks}
    return _INTROS[actions.pop()] if len(actions) == 1 else _INTRO_OF_SEVERAL


def _how_to_answer(asks: Sequence[Ask]) -> Sentence:
    return _ANSWER_BY_MAIL if {each.action for each in asks} == {RELEASE} else _ANSWER_OF_CHANGES


def _subject(asks: Sequence[Ask]) -> Sentence:
    """At most 70 characters with its mark, in every language."""
    until = deadline_day(min(each.about.deadline_ms for each in asks))
    gpus = len({gpu for each in asks for gpu in each.gpus})
    if {each.action for each in asks} == {RELEASE}:
        if all(each.about.confidence.grade == "low" for each in asks):
            return tr_many(
                "Do you still need {number} GPU? Answer by {day}", "Do you still need {number} GPUs? Answer by {day}",
                gpus, day=until,
            )  # fmt: skip
        return tr_many(
            "Give {number} GPU back, or say why not, by {day}", "Give {number} GPUs back, or say why not, by {day}",
            gpus, day=until,
        )  # fmt: skip
    return tr_many(
        "{number} question about your GPUs, by {day}", "{number} questions about your GPUs, by {day}",
        len(asks), day=until,
    )  # fmt: skip


def _are_faults(asks: Sequence[Ask]) -> bool:
    return all(each.action == REPAIR for each in asks)


def _subject_of_operators(asks: Sequence[Ask]) -> Sentence:
    if _are_faults(asks):
        return tr_many("{number} fault of GPUs to look at", "{number} faults of GPUs to look at", len(asks))
    day = deadline_day(min(each.about.deadline_ms for each in asks))
    gpus = len({gpu for each in asks for gpu in each.gpus})
    return tr_many(
        "{number} GPU to give back or see to, by {day}", "{number} GPUs to give back or see to, the first by {day}",
        gpus, day=day,
    )  # fmt: skip


def _marked(asks: Sequence[Ask], subject: Sentence) -> Sentence:
    return tr("SIMULATED: {subject}", subject=subject) if any(each.about.simulated for each in asks) else subject


def _banner(asks: Sequence[Ask]) -> str:
    gpus = len({gpu for each in asks if each.about.simulated for gpu in each.gpus})
    return tr_many("SIMULATED: {number} GPU in this message does not exist.", "SIMULATED: {number} GPUs in this message do not exist.", gpus) if gpus else ""  # fmt: skip


_YOURS = {KEEP: tr("Still needed until ..."), DONE: tr("Released")}
_WORKS = {KEEP: tr("Leave it as it is until ..."), DONE: tr("Done")}


def _letter_ask(ask: Ask, told: Told) -> LetterAsk:
    labels = _YOURS if ask.action == RELEASE else _WORKS
    links = told.links.get(ask.key, {})
    label, note = _about_command(ask, told.as_of_ms)
    return LetterAsk(
        asked=ask.asked,
        due=_due(ask),
        sentence=ask.sentence,
        rows=_rows(ask, told.before.get(ask.key, 0)),
        command_label=label,
        command=plain(ask.about.next_command, 1000),
        command_note=note,
        links=tuple(LetterLink(labels[verb], url) for verb, url in links.items()),
        answer_commands=_answer_commands(ask),
        evidence=tuple(_evidence(each) for each in ask.about.evidence),
    )


def _due(ask: Ask) -> Sentence:
    day = deadline_day(ask.about.deadline_ms)
    if ask.to_operators:
        return tr("Please look at it by the end of {day}.", day=day)
    return tr("Please answer by the end of {day}.", day=day)


def _rows(ask: Ask, before: int) -> tuple[tuple[Sentence, str | Quantity], ...]:
    gpus = [*(plain(gpu) for gpu in ask.gpus[:_GPUS_NAMED]), *(["..."] if len(ask.gpus) > _GPUS_NAMED else [])]
    failed = ask.about.confidence.failed
    job = ask.about.evidence[0].job if ask.about.evidence else None
    grade = tr(ask.about.confidence.grade)
    sure = tr("{grade} ({why})", grade=grade, why=SentenceList(failed)) if failed else grade
    return (
        (tr("GPUs"), SentenceList(gpus, ", ")),
        *([] if not ask.about.gpu_ms else [(tr("wasted"), _spent(ask, ask.about.gpu_ms))]),
        *(
            []
            if ask.about.saving is None or ask.about.saving.point <= 0
            else [(tr("worth a year"), saving_words(ask.about.saving, ask.about.currency))]
        ),
        *([(tr("user"), plain(ask.holder))] if ask.to_operators and ask.action == RELEASE and ask.holder else []),
        *([(tr("job"), plain(job))] if job and not ask.to_operators else []),
        *([] if ask.about.finding is None else [(tr("since"), Moment(ask.about.finding.since_ms))]),
        (tr("confidence"), sure),
        *([(tr("told before"), tr_many("{number} time", "{number} times", before))] if before else []),
        *([(tr("released"), _broken(ask.broken_release_ms))] if ask.broken_release_ms is not None else []),
    )


def _spent(ask: Ask, gpu_ms: float) -> Sentence | SentenceList:
    """The wasted time of the window and its cost; at most that much where point samples alone call it idle."""
    amount = Amount(from_cents(ask.about.cents), ask.about.currency)
    cost = cost_words(ask.about.unconfirmed_ms / gpu_ms, amount)
    return SentenceList(
        [tr("{hours} GPU-hours", hours=GpuHours(gpu_ms)), *([] if ask.about.cents is None else [cost])], ", "
    )


def _broken(said_ms: int) -> Sentence:
    return tr("you said so on {day}; still held", day=Day(said_ms))


def _about_command(ask: Ask, as_of_ms: int) -> tuple[Sentence, str]:
    """What the command is for, and what to know before it is typed."""
    if not acts(ask.about.next_command):
        here = tr("fallow knows no command that would end this and nothing else: end it as you started it.")
        return tr("to look first"), here if ask.action == RELEASE and not ask.to_operators else ""
    if ask.action != RELEASE:
        return tr("in the job script"), ""
    checked = tr("as of {moment}: look whether it is still the same before you type it", moment=Moment(as_of_ms))
    return tr("to give back"), checked


def _answer_commands(ask: Ask) -> tuple[str, ...]:
    if not ask.finding_ids:
        return ()
    ids = " ".join(ask.finding_ids)
    if ask.to_operators:
        return (f"fallow findings ack {ids} --reason '...'",)
    until = utc_day(ask.about.deadline_ms - DAY_MS + WEEK_MS)
    done = RELEASED if ask.action == RELEASE else "changed"
    return (
        f"fallow findings suppress {ids} --until {until} --reason 'still needed'",
        f"fallow findings ack {ids} --reason {done}",
    )


def _evidence(finding: Finding) -> Sentence:
    """A finding with its own GPUs and time, which may be more than what is asked for; what is asked for has the one price."""
    return tr(
        "{finding_id}: {heading}; {sums}; {evidence}",
        finding_id=finding.finding_id, heading=heading(finding), sums=tr("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), evidence=evidence(finding),
    )  # fmt: skip
