"""The input of rules: the ledger as known at the end of a window, and the data beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl

from analytics.capacity.forecast import lead_days
from analytics.capacity.jobs import load_jobs
from analytics.inventory import Inventory, load_inventory
from analytics.language.languages import time_zone
from analytics.ledger.build import recent
from analytics.ledger.sampled import with_unconfirmed
from analytics.ledger.summary import SILENT_AFTER_MS, known_at
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.quality.model import SeenUntil, seen_until
from analytics.window import Inputs, WindowLedger, history_start_ms
from analytics.workloads.ledger_rows import whole_number
from analytics.workloads.model import Context, FindingSettings
from analytics.workloads.process_lists import users_at
from fallow.clock import WEEK_MS, SystemClock, Window


def open_context(
    inputs: Inputs, ledger: WindowLedger, inventory: Inventory | None = None, now_ms: int | None = None
) -> Context:
    """Return the context of a window. `now_ms` is the wall clock's time, by default the machine's."""
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    seen = seen_until(ledger, now_ms)
    until_ms = seen.until_ms
    inventory = inventory or ledger.whole.inventory or load_inventory(inputs.lake)
    settings = inputs.settings
    # a caller that has read more of the lake, such as a report, gets the same findings
    first_ms = history_start_ms(ledger.window)
    rollups = ledger.whole.rollups.inside(Window(first_ms, until_ms))
    whole = ledger.whole if first_ms is None else recent(ledger.whole, first_ms)
    owners, prices = settings.text("money.owners"), settings.text("money.prices")
    return Context(
        whole=known_at(whole, Window(None, until_ms)),
        inside=known_at(ledger.inside, Window(None, until_ms)),
        rollups=rollups,
        window=ledger.window,
        since_ms=ledger.summary.since_ms,
        until_ms=until_ms,
        inventory=inventory,
        users=users_at(rollups, until_ms),
        owners=Owners.load(owners) if owners else Owners.none(),
        costs=Costs(PriceBook.load(prices or None, settings.text("money.currency")), inventory),
        settings=FindingSettings(
            held_min_ms=settings.integer("findings.held_min"),
            never_used_min_ms=settings.integer("findings.never_used_min"),
            horizon_ms=settings.integer("findings.horizon"),
            lead_days=lead_days(settings),
            zone=time_zone(settings.text("report.timezone")),
        ),
        latest=_is_latest(ledger.window, ledger, seen, now_ms),
        lake=inputs.lake,
        jobs=partial(ledger.whole.once, "jobs", partial(load_jobs, inputs.lake)),
        now_ms=now_ms,
        ahead=frozenset(seen.ahead),
        floors=ledger.floors,
    )


def _is_latest(window: Window, ledger: WindowLedger, seen: SeenUntil, now_ms: int) -> bool:
    """Return whether the processes at the end of the window may still be there.

    True if the lake has no newer row, its newest row is less than an hour from the wall clock, and the window has no
    end in the past. Findings of a window in the past are the same at any time.
    """
    right = ledger.whole.segments.filter(~pl.col("host").is_in(list(seen.ahead)))
    newest_ms = whole_number(right, pl.col("end").max())
    still_open = window.until_ms is None or window.until_ms > now_ms
    return still_open and newest_ms <= seen.until_ms and abs(now_ms - newest_ms) < SILENT_AFTER_MS


def week_before(context: Context) -> Context | None:
    """Return the context of the window one week earlier, as the ledger was known then; None without data."""
    until_ms = context.until_ms - WEEK_MS
    since_ms = None if context.window.since_ms is None else context.window.since_ms - WEEK_MS
    window = Window(since_ms, until_ms)
    inside = known_at(context.whole, window)
    if inside.segments.is_empty():
        return None
    inside = replace(inside, segments=with_unconfirmed(inside.segments, context.floors, context.inventory))
    first_ms, last_ms = inside.segments.select(pl.col("time").min(), pl.col("end").max()).row(0)
    return replace(
        context,
        whole=known_at(context.whole, Window(None, until_ms)),
        inside=inside,
        rollups=context.rollups.until(until_ms),
        window=window,
        since_ms=int(first_ms),
        until_ms=int(last_ms),
        users=users_at(context.rollups, until_ms),
        latest=False,
    )
