"""Scenarios that planners save and remove on the page What if, recorded as `fallow plan scenarios` records them."""

from __future__ import annotations

from analytics.language.plain_text import plain
from analytics.plan.scenarios import SavedScenario, remove_scenario, save_scenario
from dashboard.access.audit import REFUSED, SCENARIO, audit, audit_first, in_role
from dashboard.access.people import PLANNER, NotAllowedError
from dashboard.view import View


def may_save(view: View) -> bool:
    """Whether the reader may save scenarios: a planner of the whole fleet."""
    return view.reader.may(PLANNER) and view.reader.team is None


def save(view: View, name: str, policy: str, now_ms: int) -> SavedScenario:
    """Saves one; raises NotAllowedError for whoever may not, UsageError for a name that is none, LakeError."""
    _require(view, "save scenario")
    audit_first(view.reader.actor, in_role(view.reader, "asks to save scenario", plain(name)), SCENARIO)
    saved = save_scenario(view.whole.inputs.lake.require(), name, policy, view.reader.actor, now_ms=now_ms)
    audit(view.reader.actor, in_role(view.reader, "save scenario", plain(saved.name)), SCENARIO)
    return saved


def remove(view: View, name: str, now_ms: int) -> SavedScenario:
    """Removes one; raises as `save`, and FallowError where there is none of that name."""
    _require(view, "remove scenario")
    audit_first(view.reader.actor, in_role(view.reader, "asks to remove scenario", plain(name)), SCENARIO)
    gone = remove_scenario(view.whole.inputs.lake.require(), name, view.reader.actor, now_ms=now_ms)
    audit(view.reader.actor, in_role(view.reader, "remove scenario", plain(name)), SCENARIO)
    return gone


def _require(view: View, what: str) -> None:
    if not may_save(view):
        audit(view.reader.actor, in_role(view.reader, f"refused {what}"), REFUSED)
        raise NotAllowedError("only planners of the whole fleet save scenarios", "ask one of them")
