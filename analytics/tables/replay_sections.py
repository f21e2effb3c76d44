"""All that a replay answers, in the order in which the command and the page show it."""

from __future__ import annotations

from analytics.money.window_money import Money
from analytics.plan.replay.outcome import ReplayOutcome
from analytics.plan.replay.replay_base import ReplayBase
from analytics.tables.plan_replay import replay_answer
from analytics.tables.plan_replay_check import replay_check
from analytics.tables.plan_replay_groups import what_cannot_run, who_gains, whom_it_hits
from analytics.tables.table import Table


def replay_sections(base: ReplayBase, outcome: ReplayOutcome, money: Money) -> tuple[Table, ...]:
    """Those that have something to say."""
    found = (
        replay_answer(base, outcome, money.grid, money.currency),
        replay_check(base.check),
        who_gains(outcome, "team"),
        who_gains(outcome, "rank"),
        whom_it_hits(outcome.cuts, money.currency),
        what_cannot_run(outcome.unplaced),
    )
    return tuple(each for each in found if each is not None)
