"""The rules, one file each, in the order in which they are listed."""

from __future__ import annotations

from analytics.rules.blind_spot import BLIND_SPOT
from analytics.rules.co_location import CO_LOCATION
from analytics.rules.compute_oversized import COMPUTE_OVERSIZED
from analytics.rules.held import HELD
from analytics.rules.hoarding import HOARDING
from analytics.rules.imbalance import IMBALANCE
from analytics.rules.inefficient import INEFFICIENT
from analytics.rules.input_starved import INPUT_STARVED
from analytics.rules.loaded_no_traffic import LOADED_NO_TRAFFIC
from analytics.rules.low_efficiency import LOW_EFFICIENCY
from analytics.rules.memory_oversized import MEMORY_OVERSIZED
from analytics.rules.mig_fit import MIG_FIT
from analytics.rules.never_used import NEVER_USED
from analytics.rules.partial_use import PARTIAL_USE
from analytics.rules.preallocated import PREALLOCATED
from analytics.rules.reserved_unused import RESERVED_UNUSED
from analytics.rules.slow_uptake import SLOW_UPTAKE
from analytics.rules.stalls import STALLS
from analytics.rules.standing_surplus import STANDING_SURPLUS
from analytics.rules.throttled import THROTTLED
from analytics.rules.wind_down import WIND_DOWN
from analytics.rules.zombie_holder import ZOMBIE_HOLDER
from analytics.workloads.model import Rule
from analytics.workloads.waste import WasteKind

RULES = (
    HELD,
    RESERVED_UNUSED,
    NEVER_USED,
    STANDING_SURPLUS,
    ZOMBIE_HOLDER,
    LOADED_NO_TRAFFIC,
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
    WIND_DOWN,
    SLOW_UPTAKE,
    HOARDING,
    BLIND_SPOT,
)

RULES_BY_NAME = {rule.name: rule for rule in RULES}
"""Findings name their rule."""


def rules_of_kind(kind: WasteKind) -> tuple[Rule, ...]:
    """Return the rules whose findings may claim time of a kind, in their precedence."""
    return tuple(sorted((rule for rule in RULES if kind in rule.kinds), key=lambda rule: rule.precedence))
