"""How much longer work would take in a part of a card, or beside others on one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analytics.workloads.sharing import Candidate


@dataclass(frozen=True)
class Slowdown:
    """Times as long: `expected` by what the work makes use of, `at_most` if its kernels never overlap with its other work."""

    expected: float
    at_most: float


def in_a_part(sm_share: float, *, used_pct: float, busy_mean_pct: float, sm_mean_pct: float | None) -> Slowdown:
    """In an instance with this share of the SMs.

    The work makes use of `used_pct` of them for 95 % of the time: what that share holds is not slowed down. At the worst its
    kernels take up more than the share for moments, and everything else waits for them: the time with a kernel then grows
    from `busy_mean_pct` to what the mean of SM activity takes of the share (of all SMs, where that was not measured).
    """
    busy = busy_mean_pct / 100
    taken = busy if sm_mean_pct is None else min(sm_mean_pct / 100, busy)
    expected = max(used_pct / 100 / sm_share, 1.0)
    return Slowdown(expected, max(1 - busy + max(busy, taken / sm_share), expected))


def on_a_shared_card(own: Candidate, others: Iterable[Candidate]) -> Slowdown:
    """On a card of which it has all, but for the moments in which another's kernels run.

    Expected: within an hour both run when chance has it. At the worst they always run at the same moments.
    """
    present = ~np.isnan(own.hourly_pct)
    mine = own.hourly_pct[present] / 100
    beside = [np.nan_to_num(each.hourly_pct[present]) / 100 for each in others]
    expected = 1 + sum(float(np.mean(mine * each)) for each in beside)
    at_most = 1 + sum(float(np.mean(np.minimum(mine, each))) for each in beside)
    return Slowdown(expected, at_most)
