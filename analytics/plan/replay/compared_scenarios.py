"""Saved scenarios beside today: each replayed over the same jobs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analytics.plan.replay.outcome import ReplayOutcome
from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.policy_over import policy_over
from analytics.plan.replay.replay_base import ReplayBase, scenario_outcome
from analytics.plan.scenarios import SavedScenario
from fallow.errors import UsageError


@dataclass(frozen=True)
class ComparedScenario:
    """What a saved scenario would have made of the jobs; without an `outcome` `why_not` says what stands in its way."""

    saved: SavedScenario
    outcome: ReplayOutcome | None
    why_not: str = ""


def saved_policy(today: ReplayPolicy, saved: SavedScenario, zone: str) -> ReplayPolicy:
    """Today's policy with what a saved scenario changes; raises UsageError where it says what no policy says."""
    try:
        content = tomllib.loads(saved.policy)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the scenario {saved.name} is not TOML: {error}", "correct that line") from error
    return policy_over(today, content, zone, f"the scenario {saved.name}")


def compared_scenarios(base: ReplayBase, saved: Iterable[SavedScenario], zone: str) -> Iterator[ComparedScenario]:
    """Each scenario against the replay of today; one that names a pool that is gone says so, and the others are answered."""
    for each in saved:
        try:
            outcome = scenario_outcome(base, saved_policy(base.policy, each, zone))
        except UsageError as error:
            yield ComparedScenario(each, None, error.message)
        else:
            yield ComparedScenario(each, outcome)
