"""The window of the recommendations: the last four complete weeks and the days since, for every requested window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import tzinfo

from analytics.ledger.summary import data_end_ms
from analytics.report.trends import LATE_MS
from analytics.report.weeks import week_of
from analytics.window import Inputs, WindowLedger, load_window_ledger
from fallow.clock import Window

DECISION_WEEKS = 4


@dataclass(frozen=True)
class DecisionWindow:
    """The ledger of the recommendations, and the start and end (ms) of its complete weeks, the newest first.

    A week is complete if it is over at the end of the window and the lake has data from its start.
    """

    ledger: WindowLedger
    weeks: tuple[tuple[int, int], ...]


def decision_window(
    inputs: Inputs,
    ledger: WindowLedger,
    zone: tzinfo,
    now_ms: int,
    ledger_of: Callable[[Window], WindowLedger] | None = None,
) -> DecisionWindow:
    """Return the decision window that ends with the window of a ledger: the same for every window with this end.

    Weeks are weeks of the zone. `ledger.whole` must reach back far enough, as `load_window_ledger` reads it.
    `ledger_of` returns ledgers that other windows share; without it the ledger is cut for this one.
    """
    newest_ms = data_end_ms(ledger.whole.host_ends, now_ms)
    until_ms = ledger.window.until_ms
    end_ms = newest_ms if until_ms is None else min(until_ms, newest_ms)
    newest = week_of(end_ms + LATE_MS, zone).before()
    weeks = [newest.before(back) for back in range(DECISION_WEEKS)]
    window = Window(max(0, weeks[-1].since_ms), until_ms)
    own = ledger
    # windows that begin at or before the first observation have the same rows, and so the same findings
    since_ms = {max(each.since_ms or 0, ledger.whole.first_ms) for each in (window, ledger.window)}
    if len(since_ms) > 1 and ledger_of is not None:
        own = ledger_of(window)
    elif len(since_ms) > 1:
        asked = replace(inputs, window=window, back=None)
        own = load_window_ledger(asked, or_empty=True, whole=ledger.whole, now_ms=now_ms)
    known_ms = ledger.whole.first_ms - LATE_MS
    return DecisionWindow(own, tuple((each.since_ms, each.until_ms) for each in weeks if each.since_ms >= known_ms))
