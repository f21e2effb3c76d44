"""The report as JSON: the numbers of `fallow ledger --json` and `fallow findings --json`, and what goes with them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from analytics.money.as_json import energy_json, money_json
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report


class JsonFormat:
    """`--format json`."""

    name = "json"

    def render(self, report: Report) -> str:
        """The whole document."""
        content = {
            "fallow_version": report.version,
            "lake": report.lake,
            "simulated_gpus": report.simulated_gpus,
            "hosts": report.hosts,
            "settings": dataclasses.asdict(report.settings) | {"held_min_ms": report.held_min_ms},
            "ledger": report.summary.as_json()
            | {"money": money_json(report.money), "energy": energy_json(report.money)},
            "by": {
                section.name: {name: _totals(group) for name, group in section.groups.items()}
                for section in report.sections
            },
            "findings": [finding.as_json() for finding in report.findings],
            "sensitivity": {f"{minutes}min": hours for minutes, hours in report.review.sensitivity.items()},
            "reversals": report.review.reversals.as_json() if report.review.reversals else None,
            "data_quality": [dataclasses.asdict(remark) for remark in report.quality],
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _totals(totals: Totals) -> dict[str, object]:
    hours = {state: milliseconds / HOUR_MS for state, milliseconds in totals.state_ms.items()}
    return {"gpus": totals.gpus, "coverage": totals.coverage, "gpu_hours": {"total": totals.total_ms / HOUR_MS} | hours}
