"""Annotations on the pages: which of them a reader sees, and what planners write, recorded as `fallow annotations` records it."""

from __future__ import annotations

from datetime import datetime

from analytics.decide.annotations import ALL, POOL, TEAM, Annotation, add_annotation, remove_annotation
from analytics.language.plain_text import plain
from dashboard.access.audit import ANNOTATION, REFUSED, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.view import View
from fallow.clock import to_ms
from fallow.errors import UsageError


def annotations_in_sight(view: View) -> tuple[Annotation, ...]:
    """Those of the window about what the reader looks at, by their moment."""
    summary = view.report.summary
    return tuple(each for each in annotations_about(view) if summary.since_ms <= each.at_ms <= summary.until_ms)


def annotations_about(view: View) -> tuple[Annotation, ...]:
    """Those of whenever that are about everything or about what the reader looks at, by their moment.

    Of the whole fleet all pools and teams are looked at, also those of which there is nothing in the lake.
    """
    query = view.query
    pools = (query.pool,) if query.pool else view.names["pool"]
    return tuple(
        each
        for each in view.annotations
        if each.scope == ALL
        or (each.scope == POOL and (each.name in pools or not (query.pool or query.team)))
        or (each.scope == TEAM and each.name == (query.team or each.name))
    )


def abouts(view: View) -> tuple[tuple[str, str | None], ...]:
    """What the reader can annotate: everything, a pool or a team; a planner of one team has only that."""
    if view.reader.team is not None:
        return ((TEAM, view.reader.team),)
    return ((ALL, None), *((POOL, each) for each in view.names["pool"]), *((TEAM, each) for each in view.names["team"]))


def annotate(view: View, text: str, when: str, about: tuple[str, str | None], now_ms: int) -> Annotation:
    """Writes one; raises NotAllowedError for whoever may not, UsageError for what lacks something, LakeError."""
    _require(view, "annotate")
    if about not in abouts(view):
        raise UsageError("it is not said what this is about", "everything, one pool or one team")
    at_ms = _moment_ms(view, when)
    lake = view.whole.inputs.lake.require()
    scope, name = about
    actor = view.reader.actor
    audit_first(view.reader.actor, in_role(view.reader, "asks to annotate"), ANNOTATION)
    added = add_annotation(lake, text, actor, at_ms=at_ms, now_ms=now_ms, scope=scope, name=name)
    audit(view.reader.actor, in_role(view.reader, "annotate", added.annotation_id), ANNOTATION)
    return added


def withdraw(view: View, annotation_id: str, now_ms: int) -> Annotation:
    """Removes one that the reader could have written; raises as `annotate`, and FallowError where it is gone already."""
    _require(view, "remove annotation")
    own = {each.annotation_id for each in annotations_in_sight(view) if can_withdraw(view, each)}
    if annotation_id not in own:
        what = in_role(view.reader, "refused remove annotation", plain(annotation_id))
        audit(view.reader.actor, what, REFUSED)
        raise NotAllowedError("there is no such annotation on your page", "load the page again: it may be removed")
    actor = view.reader.actor
    audit_first(view.reader.actor, in_role(view.reader, "asks to remove annotation", annotation_id), ANNOTATION)
    gone = remove_annotation(view.whole.inputs.lake.require(), annotation_id, actor, now_ms=now_ms)
    audit(view.reader.actor, in_role(view.reader, "remove annotation", annotation_id), ANNOTATION)
    return gone


def can_withdraw(view: View, annotation: Annotation) -> bool:
    """Whether the reader may remove it: a planner, of one team only what is about that."""
    is_own = view.reader.team is None or (annotation.scope, annotation.name) == (TEAM, view.reader.team)
    return view.reader.may(PLANNER) and is_own


def _require(view: View, what: str) -> None:
    try:
        view.reader.require(PLANNER)
    except NotAllowedError:
        audit(view.reader.actor, in_role(view.reader, f"refused {what}"), REFUSED)
        raise


def _moment_ms(view: View, when: str) -> int:
    """`2026-11-20` or `2026-11-20 09:00` on the reader's clocks, unless it says its own offset."""
    try:
        local = datetime.fromisoformat(when.strip())
        return to_ms(local if local.tzinfo is not None else local.replace(tzinfo=view.zone))
    except (ValueError, OverflowError):
        raise UsageError(f"'{plain(when)}' is not a moment", "write it as 2026-11-20 09:00") from None
