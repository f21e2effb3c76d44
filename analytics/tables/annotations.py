"""Annotations beside a chart: numbered as their marks in it, in words below it."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.decide.annotations import ALL, POOL, Annotation
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment, Number
from analytics.language.sentences import tr


def annotation_lines(annotations: Sequence[Annotation]) -> list[str]:
    """A line for each, which begins with its number."""
    return [
        tr(
            "{number}: {moment}, {about}: {text} ({actor})",
            number=Number(number), moment=Moment(each.at_ms), about=about_words(each.scope, each.name),
            text=plain(each.text, 200), actor=each.by,
        )
        for number, each in enumerate(annotations, start=1)
    ]  # fmt: skip


def about_words(scope: str, name: str | None) -> str:
    """`all GPUs`, `pool train` or `team nlp`."""
    if scope == ALL or name is None:
        return tr("all GPUs")
    return tr("pool {name}", name=plain(name)) if scope == POOL else tr("team {name}", name=plain(name))
