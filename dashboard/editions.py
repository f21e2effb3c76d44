"""The weekly report of what a reader sees: which weeks there are, and the edition of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.delivery.channels import safe
from analytics.delivery.content import edition_name
from analytics.report.model import Asked, edition_of
from analytics.report.weeks import parse_week, week_of

if TYPE_CHECKING:
    from analytics.report.model import Report
    from analytics.report.weeks import Week
    from dashboard.view import View

_MOST_WEEKS = 8


def weeks(view: View) -> list[Week]:
    """The last weeks of which the lake has rows, the newest first, in the reader's time zone."""
    found = [week_of(view.as_of_ms - 1, view.zone)]
    first_ms = view.report.known.since_ms or 0
    while len(found) < _MOST_WEEKS and found[-1].since_ms > first_ms:
        found.append(found[-1].before())
    return found


def chosen_week(view: View) -> Week:
    """The week that the address names, else the newest that the lake has to its end; raises UsageError for what is none."""
    if view.query.start:
        return parse_week(view.query.start, view.zone, view.as_of_ms)
    known = weeks(view)
    return next((week for week in known if week.until_ms <= view.as_of_ms), known[0])


def edition(view: View, week: Week) -> Report:
    """The report of the week, of the view's scope; raises EmptyLakeError and its kinds."""
    asked = Asked(week, view.report.scope, view.zone)
    return view.made.of(("edition", asked), lambda: edition_of(view.whole_of(week.window), asked))  # type: ignore[no-any-return]


def file_name(view: View, week: Week, suffix: str) -> str:
    """That which `fallow report send` gives the same edition: `fallow-2026-W46-all-en.html`."""
    scope, _, code = edition_name(view.report.scope, view.language.code).rpartition("/")
    return f"fallow-{week.label}-{safe(scope)}-{code}{suffix}"
