"""A letter as the HTML body of a mail, for light and dark screens down to a phone's."""

from __future__ import annotations

from analytics.language.language import Language
from analytics.language.sentences import tr
from analytics.render.html.marked import marked
from analytics.render.html.page import environment
from analytics.tables.letter import Letter


def letter_html(letter: Letter, language: Language) -> str:
    """Styles are inline, since mail programs drop style sheets; the one that there is only adds the dark colours."""
    return (
        environment()
        .get_template("letter.html")
        .render(
            letter=letter,
            language=language,
            translate=language.translate,
            mark=lambda cell: marked(cell, language),
            ended=lambda label: marked(tr("{label}:", label=label), language),
            labelled=lambda label, value: marked(tr("{label}: {value}", label=label, value=value), language),
        )
    )
