"""How old the data are where a window counts back from their end: "last 7 days" are then not the seven before today."""

from __future__ import annotations

from analytics.language.quantities import Moment, Span
from analytics.language.sentences import tr
from analytics.ledger.summary import SILENT_AFTER_MS
from fallow.clock import DAY_MS, HOUR_MS, floor_ms

_DAYS_FROM_MS = 2 * DAY_MS


def data_age(end_ms: int | None, now_ms: int) -> str:
    """One sentence; empty where nothing counts back from their end (None), and while they reach up to now."""
    age_ms = 0 if end_ms is None else now_ms - end_ms
    if end_ms is None or age_ms < SILENT_AFTER_MS:
        return ""
    age = Span(floor_ms(age_ms, DAY_MS if age_ms >= _DAYS_FROM_MS else HOUR_MS))
    return tr("the data end {age} ago, on {moment}: the window counts back from there", age=age, moment=Moment(end_ms))
