"""The rules, one file each, in the order of lists."""

from __future__ import annotations

from analytics.rules.blind_spot import BLIND_SPOT
from analytics.rules.co_location import CO_LOCATION
from analytics.rules.compute_oversized import COMPUTE_OVERSIZED
from analytics.rules.ending import ENDING
from analytics.rules.held import HELD
from analytics.rules.hoarding import HOARDING
from analytics.rules.hung_job import HUNG_JOB
from analytics.rules.imbalance import IMBALANCE
from analytics.rules.inefficient import INEFFICIENT
from analytics.rules.input_starved import INPUT_STARVED
from analytics.rules.keep_alive import KEEP_ALIVE
from analytics.rules.left_free import LEFT_FREE
from analytics.rules.light_traffic import LIGHT_TRAFFIC
from analytics.rules.low_efficiency import LOW_EFFICIENCY
from analytics.rules.memory_oversized import MEMORY_OVERSIZED
from analytics.rules.mig_fit import MIG_FIT
from analytics.rules.never_used import NEVER_USED
from analytics.rules.orphaned_kernel import ORPHANED_KERNEL
from analytics.rules.partial_use import PARTIAL_USE
from analytics.rules.preallocated import PREALLOCATED
from analytics.rules.releasable_pool import RELEASABLE_POOL
from analytics.rules.reserved_unused import RESERVED_UNUSED
from analytics.rules.slow_uptake import SLOW_UPTAKE
from analytics.rules.stalls import STALLS
from analytics.rules.straggler import STRAGGLER
from analytics.rules.throttled import THROTTLED
from analytics.workloads.rule import Rule
from analytics.workloads.waste import WasteKind

RULES = (
    HELD,
    RESERVED_UNUSED,
    NEVER_USED,
    LEFT_FREE,
    RELEASABLE_POOL,
    HUNG_JOB,
    STRAGGLER,
    ORPHANED_KERNEL,
    KEEP_ALIVE,
    PARTIAL_USE,
    IMBALANCE,
    INPUT_STARVED,
    THROTTLED,
    INEFFICIENT,
    STALLS,
    LOW_EFFICIENCY,
    CO_LOCATION,
    COMPUTE_OVERSIZED,
    MEMORY_OVERSIZED,
    MIG_FIT,
    PREALLOCATED,
    LIGHT_TRAFFIC,
    ENDING,
    SLOW_UPTAKE,
    HOARDING,
    BLIND_SPOT,
)

RULES_BY_NAME = {rule.name: rule for rule in RULES}
"""Rules by name; findings have the name of their rule."""


def rules_of_kind(kind: WasteKind) -> tuple[Rule, ...]:
    """Return the rules whose findings may claim time of a waste kind, by precedence."""
    return tuple(sorted((rule for rule in RULES if kind in rule.kinds), key=lambda rule: rule.precedence))
