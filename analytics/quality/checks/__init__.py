"""The checks, one subject per file, in the order in which their remarks are listed."""

from __future__ import annotations

from analytics.quality.checks import allocations, clocks, coverage, files, hosts, inventory, measuring, values
from analytics.quality.model import QualityCheck

CHECKS: tuple[QualityCheck, ...] = (
    files.left_out,
    coverage.unobserved,
    coverage.silent,
    measuring.unmeasured,
    measuring.user_by_memory,
    measuring.user_unwatched,
    measuring.point_samples,
    values.contradicting,
    values.impossible,
    clocks.ahead,
    clocks.stepped,
    clocks.overlapping,
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
