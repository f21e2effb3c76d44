"""The message of one nudge: HTML and text, with links to answer by where the site has them."""

from __future__ import annotations

from collections.abc import Mapping

from analytics.decide.answers import VERBS
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import Brief, BriefLine, Message, MessagePart
from analytics.delivery.nudges import Nudge
from analytics.language.language import Language
from analytics.language.sentences import tr
from analytics.render.html.letter import letter_html
from analytics.render.letter_text import letter_text
from analytics.tables.letter import Letter, Told, letter_to_operators, letter_to_user


def pack_nudge(
    nudge: Nudge, language: Language, day: str, window_ms: tuple[int, int], links: AnswerLinks | None
) -> Message:
    """One message to one target; `day` is that on which it goes out, `window_ms` what was seen of the window of the findings."""
    told = Told(nudge.names, _links(nudge, language, links), nudge.told, *window_ms)
    letter = letter_to_operators(nudge.asks, told) if nudge.operators else letter_to_user(nudge.asks, told)
    html = letter_html(letter, language)
    in_folder = nudge.target.kind == "folder"
    return Message(
        subject=language.translate(letter.subject),
        language=language.code,
        text=letter_text(letter, language),
        html=html,
        picture=None,
        attachments=(MessagePart(f"fallow-faults-{day}.html", "text/html", html.encode()),) if in_folder else (),
        brief=_brief(nudge, letter, language),
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


def _brief(nudge: Nudge, letter: Letter, language: Language) -> Brief:
    lines = tuple(
        BriefLine(ask.key, language.translate(each.sentence), language.translate(each.asked))
        for ask, each in zip(nudge.asks, letter.asks, strict=True)
    )
    sentences = tuple(language.translate(each) for each in (letter.banner, letter.intro) if each)
    title, window = language.translate(letter.subject), language.translate(letter.window)
    return Brief(title, window, sentences, language.translate(tr("What to look at")), lines, "")
