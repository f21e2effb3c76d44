"""Cells and sentences as markup: names keep their own text direction, states have their bars."""

from __future__ import annotations

from markupsafe import Markup, escape

from analytics.language.sentences import Language, Sentence, SentenceList, plain
from analytics.render.html import svg
from analytics.tables.table import Cell, LinkedCell, StateBar

NAME_MOST = 200


def marked(cell: Cell, language: Language) -> Markup:
    """Return a cell or a sentence in the reader's language, with isolated names and a word for unknown values."""
    match cell:
        case None:
            found = escape(language.translate("unknown"))
        case StateBar():
            found = _bar(cell)
        case LinkedCell():
            found = marked(cell.text, language)
        case SentenceList():
            found = escape(language.translate(cell.between)).join(_value(part, language) for part in cell.parts)
        case Sentence():
            values = {name: _value(value, language) for name, value in cell.values.items()}
            found = Markup(escape(language.form(cell)).format_map(values))  # noqa: S704  # both are escaped
        case str():
            # a name does not change the direction of the text around it
            found = Markup("<bdi>{}</bdi>").format(plain(cell, NAME_MOST)) if cell else Markup()
        case _:
            found = escape(cell.shown(language))
    return found


def _value(value: object, language: Language) -> Markup:
    """Return a part of a sentence. ASCII cannot change the direction of the report's languages and needs no mark."""
    if type(value) is str and value.isascii():
        return escape(plain(value, NAME_MOST))
    return marked(value, language) if isinstance(value, str) else escape(language.shown(value))


def _bar(bar: StateBar) -> Markup:
    """Return a bar as wide as its cell. The row has its figures in words."""
    shapes, at = Markup(), 0.0
    for state, share in bar.shares.items():
        shapes += svg.boxes([(at, 0, 200 * share, 10)], svg.filled(state))
        at += 200 * share
    return Markup(
        '<svg class="bar" viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(shapes)
