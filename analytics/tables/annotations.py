"""Annotations as a list and as numbered lines beside a chart; actions on a finding."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.decide.actions import Action
from analytics.decide.annotations import ALL, POOL, Annotation
from analytics.decide.lifecycle import action_sentence
from analytics.language.sentences import Moment, plain, tr, tr_many
from analytics.tables.table import Table, column, fact


def annotation_lines(annotations: Sequence[Annotation]) -> list[str]:
    """Return a line per annotation, which begins with its number in the chart."""
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
    """Return a row per annotation, in the order of the annotated moments."""
    return Table(
        name="annotations",
        title=tr("Annotations"),
        question=tr("What happened, and when?"),
        headline=tr_many("{number} {annotation|annotations}.", len(found))
        if found
        else tr("No annotation exists yet."),
        columns=(
            column("annotation_id", tr("id"), "finding"),
            column("at", tr("when"), "moment", "at_ms"),
            column("about", tr("about"), "words", lambda each: about_words(each.scope, each.name), audience="people"),
            fact("scope", "words"),
            fact("name", "words"),
            column("text", tr("what happened"), "sentence", lambda each: plain(each.text, 200), "text"),
            column("by", tr("author"), "words", audience="people"),
            *_ACTOR,
            fact("time", "moment", "time_ms"),
        ),
        rows=tuple(found),
    )


def action_list(done: Sequence[Action]) -> Table:
    """Return a row per action on a finding. Programs get the columns of the `action` table."""
    return Table(
        name="actions",
        title=tr("history"),
        question="",
        headline="",
        columns=(
            column("sentence", "", "sentence", lambda each: plain(action_sentence(each), 1000), audience="people"),
            fact("time", "moment", "time_ms"),
            *(fact(name, "words") for name in ("action_id", "finding_id", "kind")),
            *_ACTOR,
            fact("reason", "words"),
            fact("expires", "moment", "expires_ms"),
            fact("channel", "words"),
        ),
        rows=tuple(done),
    )


_ACTOR = tuple(
    fact(key, "words", f"actor.{name}")
    for key, name in {"actor": "name", "actor_kind": "kind", "os_user": "os_user"}.items()
)


def about_words(scope: str, name: str | None) -> str:
    """Return the scope of an annotation: `all GPUs`, `pool train` or `team nlp`."""
    if scope == ALL or name is None:
        return tr("all GPUs")
    return tr("pool {name}", name=plain(name)) if scope == POOL else tr("team {name}", name=plain(name))
