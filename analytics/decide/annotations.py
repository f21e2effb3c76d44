"""Annotations of moments, such as a maintenance or a change of quota, for readers of charts.

Annotations change no figure. Rows are only added (analytics.decide.actions): a removed annotation is hidden, and both
rows stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from analytics.decide.actions import actor_words, add_rows, added_rows, file_number
from fallow import schema
from fallow.actors import Actor, actor_of
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

ALL, POOL, TEAM = "all", "pool", "team"
SCOPES = (ALL, POOL, TEAM)
_ADD, _REMOVE = "add", "remove"
LONGEST = 200
"""Most characters of a text: it is a line below a chart."""


@dataclass(frozen=True, order=True)
class Annotation:
    """A text about a moment. `name` is the pool or team; None for all."""

    at_ms: int
    annotation_id: str
    scope: str
    name: str | None
    text: str
    actor: Actor
    time_ms: int

    @property
    def by(self) -> str:
        return actor_words(self.actor)


def add_annotation(
    lake: Lake, text: str, actor: Actor, *, at_ms: int, now_ms: int, scope: str = ALL, name: str | None = None
) -> Annotation:
    """Add an annotation. Raises UsageError for an empty or invalid text, and LakeError."""
    words = " ".join(text.split())
    if not words:
        raise UsageError("the text is empty", "say in a few words what happened: others will read it")
    if len(words) > LONGEST:
        raise UsageError("the text is too long", f"stay below {LONGEST} characters")
    if scope not in SCOPES or (name is None) != (scope == ALL):
        raise UsageError("the scope of the annotation is missing", "give everything, one pool or one team")
    number = file_number(now_ms)
    added = Annotation(at_ms, f"N-{number:x}", scope, name, words, actor, now_ms)
    row: dict[str, object] = {
        "time": now_ms,
        "annotation_id": added.annotation_id,
        "kind": _ADD,
        "at": at_ms,
        "scope": scope,
        "name": name,
        "text": words,
        **actor.columns(),
    }
    add_rows(lake, schema.ANNOTATION, [row], now_ms, number)
    return added


def remove_annotation(lake: Lake, annotation_id: str, actor: Actor, *, now_ms: int) -> Annotation:
    """Remove an annotation and return it. Raises FallowError if the id does not exist, and LakeError."""
    found = next((each for each in load_annotations(lake) if each.annotation_id == annotation_id), None)
    if found is None:
        raise FallowError(f"there is no annotation {annotation_id}", "`fallow annotations list` has the ids")
    row: dict[str, object] = {"time": now_ms, "annotation_id": annotation_id, "kind": _REMOVE, **actor.columns()}
    add_rows(lake, schema.ANNOTATION, [row], now_ms, file_number(now_ms))
    return found


def load_annotations(lake: Lake, *, strict: bool = False) -> tuple[Annotation, ...]:
    """Return the annotations that are not removed, by moment. Raises LakeError.

    Unreadable files are left out, or raise an error if `strict`.
    """
    rows = added_rows(lake, schema.ANNOTATION, strict=strict).rename({"at": "at_ms"}).rows(named=True)
    removed = {row["annotation_id"] for row in rows if row["kind"] == _REMOVE}
    own = [row for row in rows if row.pop("kind") == _ADD and row["annotation_id"] not in removed]
    return tuple(sorted(Annotation(actor=actor_of(row), **row) for row in own))
