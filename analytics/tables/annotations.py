"""Annotations: as a list, and beside a chart, numbered as their marks in it."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.decide.annotations import ALL, POOL, Annotation
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from analytics.tables.table import Table, column, fact


def annotation_lines(annotations: Sequence[Annotation]) -> list[str]:
    """A line for each, which begins with its number."""
    return [
        tr(
            "{number}: {moment}, {about}: {text} ({actor})",
            number=number,
            moment=Moment(each.at_ms),
            about=about_words(each.scope, each.name),
            text=plain(each.text, 200),
            actor=each.by,
        )
        for number, each in enumerate(annotations, start=1)
    ]


def annotation_list(found: Sequence[Annotation]) -> Table:
    """A row for each, by the moment that it is about."""
    return Table(
        name="annotations",
        title=tr("Annotations"),
        question=tr("What happened when?"),
        headline=tr_many("{number} annotation.", "{number} annotations.", len(found))
        if found
        else tr("There is no annotation yet."),
        columns=(
            column("annotation_id", tr("id"), "finding"),
            column("at", tr("when"), "moment", "at_ms"),
            column("about", tr("about"), "words", lambda each: about_words(each.scope, each.name), audience="people"),
            fact("scope", "words"),
            fact("name", "words"),
            column("text", tr("what happened"), "sentence", lambda each: plain(each.text, 200), "text"),
            column("by", tr("by"), "words", audience="people"),
            *(fact(key, "words", f"actor.{name}") for key, name in _ACTOR.items()),
            fact("time", "moment", "time_ms"),
        ),
        rows=tuple(found),
    )


_ACTOR = {"actor": "name", "actor_kind": "kind", "os_user": "os_user"}


def about_words(scope: str, name: str | None) -> str:
    """`all GPUs`, `pool train` or `team nlp`."""
    if scope == ALL or name is None:
        return tr("all GPUs")
    return tr("pool {name}", name=plain(name)) if scope == POOL else tr("team {name}", name=plain(name))
