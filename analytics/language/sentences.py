"""Functions that make translatable text."""

from __future__ import annotations

from collections.abc import Mapping

from analytics.language.language import Sentence, Value
from analytics.language.quantities import Number


def tr(template: str, **values: Value) -> Sentence:
    """Return the template with its values: `{name}` is `name=`.

    Values may be sentences; whole numbers become a `Number`.
    """
    return Sentence(template, _written(values))


def tr_many(one: str, many: str, number: int, **values: Value) -> Sentence:
    """Return the singular or plural form for the number, which both forms have as `{number}`."""
    return Sentence(one, _written({"number": number} | values), number, many)


def _written(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: Number(value) if type(value) is int else value for name, value in values.items()}
