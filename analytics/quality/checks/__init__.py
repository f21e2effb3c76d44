"""The checks, one subject per file, in the order in which their remarks are listed."""

from __future__ import annotations

from analytics.quality.checks import allocations, files, hosts, inventory, observation, values
from analytics.quality.model import QualityCheck

CHECKS: tuple[QualityCheck, ...] = (
    files.left_out,
    observation.unobserved,
    observation.silent,
    observation.unmeasured,
    observation.user_by_memory,
    observation.user_unwatched,
    observation.point_samples,
    values.contradicting,
    values.impossible,
    hosts.ahead,
    hosts.stepped,
    hosts.overlapping,
    hosts.several_hosts,
    hosts.shared_names,
    allocations.overlapping,
    allocations.contradicting,
    allocations.without_telemetry,
    allocations.by_count,
    allocations.without_allocations,
    inventory.unlisted,
    inventory.unpriced,
    inventory.simulated,
)
