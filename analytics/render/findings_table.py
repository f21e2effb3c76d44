"""Findings as a flat table: one row each, the columns of `fallow findings --csv`."""

from __future__ import annotations

import json

from analytics.workloads.model import Finding

COLUMNS = (
    "finding_id", "rule", "category", "sentence", "status", "gpus", "host", "holder", "team", "job", "since", "gpu_hours",
    "energy_kwh", "cost", "currency", "confidence", "failed_conditions", "reclaimable", "reclaimable_gpus", "evidence",
    "next_command", "simulated", "notes",
)  # fmt: skip
"""In their order; hours are GPU-hours inside the window, `cost` is in `currency`."""


def row_of(finding: Finding) -> dict[str, object]:
    """The finding's row: lists are joined, evidence is JSON in one field, None is unknown."""
    row = finding.as_json()
    row["gpus"] = " ".join(finding.gpus)
    row["reclaimable_gpus"] = " ".join(finding.reclaimable_gpus)
    row["failed_conditions"] = "; ".join(finding.confidence.failed)
    row["notes"] = "; ".join(finding.notes)
    row["evidence"] = json.dumps(row["evidence"])
    return row
