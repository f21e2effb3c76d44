"""A letter as plain text: 78 columns, commands and links on lines of their own."""

from __future__ import annotations

from analytics.language.language import Language
from analytics.language.plain_text import PAGE_COLUMNS, plain, wrap
from analytics.language.sentences import tr
from analytics.tables.letter import Letter, LetterAsk

_WIDTH = min(PAGE_COLUMNS, 78)
_LONGEST = 2000


def letter_text(letter: Letter, language: Language) -> str:
    """The whole message; what can be copied, a command or a link, is never broken."""
    blocks = [
        *([[language.translate(letter.banner)]] if letter.banner else []),
        *([_lines(letter.about, language)] if letter.about else []),
        _lines(letter.intro, language),
        _lines(letter.window, language),
        *(_ask(each, number, language) for number, each in enumerate(letter.asks, 1)),
        _lines(letter.answer, language),
        _lines(letter.end, language),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _ask(ask: LetterAsk, number: int, language: Language) -> list[str]:
    lines = [
        *_lines(ask.asked, language, f"{number}. ", "   "),
        *_lines(ask.due, language, "   ", "   "),
        *_lines(ask.sentence, language, "   ", "   "),
    ]
    for label, value in ask.rows:
        lines += _lines(tr("{label}: {value}", label=label, value=value), language, "   ", "     ")
    if ask.command:
        lines += ["", f"   {language.translate(tr('{label}:', label=ask.command_label))}", f"       {ask.command}"]
    if ask.command_note:
        lines += _lines(ask.command_note, language, "   ", "   ")
    for link in ask.links:
        lines += ["", f"   {language.translate(link.label)}", f"       {link.url}"]
    if ask.answer_commands:
        lines += ["", *_lines(tr("Or, where you can reach the lake of fallow:"), language, "   ", "   ")]
        lines += [f"       {each}" for each in ask.answer_commands]
    if ask.evidence:
        lines += ["", f"   {language.translate(tr('Evidence:'))}"]
    for each in ask.evidence:
        lines += _lines(each, language, "   - ", "     ")
    return lines


def _lines(text: str, language: Language, first: str = "", rest: str = "") -> list[str]:
    return wrap(plain(language.translate(text), _LONGEST), _WIDTH, first, rest)
