"""How the code makes text that can be translated."""

from __future__ import annotations

from analytics.language.language import Sentence, Value
from analytics.language.quantities import Number


def tr(template: str, **values: Value) -> Sentence:
    """The template with its values filled in; `{name}` stands for `name=`. Values may be sentences themselves."""
    return Sentence(template, values)


def tr_many(one: str, many: str, number: int, **values: Value) -> Sentence:
    """The form for the number, which both forms have as `{number}`."""
    return Sentence(one, {"number": Number(number), **values}, number, many)
