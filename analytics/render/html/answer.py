"""The page behind a link in a nudge: the possible answer about one item, or the recorded answer.

It names nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from analytics.decide.actions import Action
from analytics.decide.answers import DONE, KEEP, LONGEST_REASON, Answer
from analytics.language.sentences import Day, Language, Moment, Sentence, SentenceList, plain, tr
from analytics.render.html.page import rendered
from analytics.workloads.model import gpus_on_hosts
from analytics.workloads.waste import RELEASE


@dataclass(frozen=True)
class DaysToChoose:
    """The days that the form offers, and its default."""

    first: date
    last: date
    proposed: date


def answer_form(answer: Answer, days: DaysToChoose, language: Language, wrong: str = "") -> str:
    """Return the form with the answer and a button; `wrong` is the error of a submitted day."""
    return _page(
        answer,
        language,
        title=_TITLES[answer.verb, answer.action == RELEASE],
        lines=[tr("Nothing is recorded until you press the button."), *([_CHECKED] if _is_release(answer) else [])],
        wrong=wrong,
        button=_BUTTONS[answer.verb, answer.action == RELEASE],
        days=days if answer.verb == KEEP else None,
    )


def answer_recorded(answer: Answer, action: Action, language: Language) -> str:
    """Return the page with the recorded answer, its time, and how to change it."""
    if action.expires_ms is not None:
        what = tr("Recorded: needed until the end of {day}.", day=Day(action.expires_ms - 1))
    else:
        what = tr("Recorded: released.") if _is_release(answer) else tr("Recorded: done.")
    return _page(
        answer,
        language,
        title=what,
        lines=[
            tr(
                "{addressee} answered with this link on {moment}.",
                addressee=plain(answer.addressee),
                moment=Moment(action.time_ms),
            ),
            tr("This link cannot be used again. To change your answer, reply to the mail that contained the link."),
            *([_CHECKED] if _is_release(answer) else []),
        ],
    )


_TITLES = {
    (KEEP, True): tr("Still needed until when?"),
    (KEEP, False): tr("Keep it as it is until when?"),
    (DONE, True): tr("Released?"),
    (DONE, False): tr("Done?"),
}
_BUTTONS = {
    (KEEP, True): tr("Still needed until this day"),
    (KEEP, False): tr("Keep it as it is until this day"),
    (DONE, True): tr("Yes, released"),
    (DONE, False): tr("Yes, done"),
}
_CHECKED = tr("The next report checks again and shows GPUs that are still held.")


def _is_release(answer: Answer) -> bool:
    return answer.verb == DONE and answer.action == RELEASE


def _page(
    answer: Answer,
    language: Language,
    *,
    title: Sentence,
    lines: list[Sentence],
    wrong: str = "",
    button: Sentence | None = None,
    days: DaysToChoose | None = None,
) -> str:
    rest = answer.gpu_count - len(answer.gpus)
    more = [tr("and {number} more", number=rest)] if rest > 0 else []
    return rendered(
        "answer.html",
        language,
        title=title,
        simulated=answer.simulated,
        about=gpus_on_hosts(answer.gpu_count, answer.host),
        gpus=SentenceList([*map(plain, answer.gpus), *more], ", "),
        lines=lines,
        wrong=wrong,
        button=button,
        days=days,
        longest=LONGEST_REASON,
    )
