"""Functions that make translatable text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from analytics.language.language import Sentence, Value
from analytics.language.quantities import Number

_FORM = r"((?:[^{}|]|\{\w+\})*)"
_EITHER = re.compile(rf"\{{{_FORM}\|{_FORM}\}}")
"""Two forms in braces, which may have names in braces themselves."""


def tr(template: str, **values: Value) -> Sentence:
    """Return the template with its values: `{name}` is `name=`.

    Values may be sentences; whole numbers become a `Number`.
    """
    return Sentence(template, _written(values))


def tr_many(template: str, number: int, **values: Value) -> Sentence:
    """Return the singular or plural form for the number, which the template has as `{number}`.

    Words that differ are side by side in braces: `{number} {job waits|jobs wait} for {gpus}`.
    """
    one, many = both_forms(template)
    return Sentence(one, _written({"number": number} | values), number, many)


@cache
def both_forms(template: str) -> tuple[str, str]:
    """Return the singular and the plural form of a template: the keys of catalogues."""
    return _EITHER.sub(r"\1", template), _EITHER.sub(r"\2", template)


def _written(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: Number(value) if type(value) is int else value for name, value in values.items()}
