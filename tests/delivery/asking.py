"""Findings by hand, and what is asked because of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from analytics.decide.asks import Asks, Basis, asks_from_findings
from analytics.decide.deadlines import Deadlines
from analytics.workloads.wording import of_gpus
from tests.delivery.test_contacts import FINDING
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.decide.actions import Action
    from analytics.workloads.model import Finding

DEADLINES = Deadlines(1, 5, {5, 6}, UTC)
"""T0 is Friday, 20 November 2026: GPUs are due by the end of Monday 23, changes by the end of Friday 27."""

CATEGORIES = {
    "held": "reclaim", "zombie_holder": "reclaim", "never_used": "reclaim", "standing_surplus": "reclaim", "reserved_unused": "reclaim",
    "memory_oversized": "right_size", "throttled": "efficiency", "inefficient": "efficiency", "wind_down": "demand", "blind_spot": "coverage",
}  # fmt: skip


def found(rule: str, gpus: str = "a", holder: str | None = "ann", **changes: Any) -> Finding:
    """Of GPUs with names of one letter; what is for reclaiming can be taken back whole."""
    names = tuple(gpus)
    category = CATEGORIES[rule]
    own = {
        "rule": rule, "category": category, "gpus": names, "holder": holder, "subject": f"{holder} {gpus}",
        "reclaimable_gpus": names if category == "reclaim" else (), "sentence": of_gpus(f"said to be {rule}"), "next_command": "ssh h1 nvidia-smi",
    }  # fmt: skip
    return replace(FINDING, **{**own, **changes})


def asked(
    *findings: Finding, actions: Mapping[str, Sequence[Action]] | None = None, now_ms: int = T0, seen_until_ms: int = T0
) -> Asks:
    hosts = {gpu: f"h-{gpu}" for each in findings for gpu in each.gpus}
    return asks_from_findings(findings, Basis(actions or {}, DEADLINES, now_ms, seen_until_ms, hosts))
