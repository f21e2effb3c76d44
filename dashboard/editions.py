"""The weekly report of what a reader sees: which weeks there are, and the edition of one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from analytics.delivery.folder import safe
from analytics.delivery.parcel import edition_name
from analytics.inputs import load_window_ledger
from analytics.report.model import Asked, Report, Whole, edition_of
from analytics.report.weeks import parse_week, week_of

if TYPE_CHECKING:
    from analytics.report.weeks import Week
    from dashboard.source import View

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


@lru_cache(maxsize=16)
def edition(view: View, week: Week) -> Report:
    """The report of the week, of the view's scope; raises EmptyLakeError and its kinds."""
    return edition_of(_whole(view.whole, week), Asked(week, view.report.scope, view.zone))


@lru_cache(maxsize=4)
def _whole(whole: Whole, week: Week) -> Whole:
    inputs = replace(whole.inputs, window=week.window)
    return Whole(inputs, load_window_ledger(inputs, or_empty=True, whole=whole.ledger.whole))


def file_name(view: View, week: Week, suffix: str) -> str:
    """That which `fallow report send` gives the same edition: `fallow-2026-W46-all-en.html`."""
    scope, _, code = edition_name(view.report.scope, view.language.code).rpartition("/")
    return f"fallow-{week.label}-{safe(scope)}-{code}{suffix}"
