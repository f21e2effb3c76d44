"""What is changed, laid over how the queue is taken to work today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analytics.plan.replay.policy import ReplayPolicy
from analytics.plan.replay.policy_file import policy_from


def policy_over(today: ReplayPolicy, table: Mapping[str, object], zone: str, where: str) -> ReplayPolicy:
    """The policy of the keys of a policy file; order and priorities that it does not name are today's. Raises UsageError, which begins with `where`."""
    policy = policy_from({"order": today.order, **table}, zone, where)
    return policy if "priorities" in table else replace(policy, priorities=today.priorities)
