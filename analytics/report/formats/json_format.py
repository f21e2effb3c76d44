"""The report as JSON: the numbers of `fallow ledger --json` and `fallow findings --json`, and what goes with them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from analytics.money.as_json import energy_json, money_json
from fallow.clock import HOUR_MS, format_ms

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report
    from analytics.report.parts import Person


class JsonFormat:
    """`--format json`."""

    name = "json"
    suffix = ".json"

    def render(self, report: Report, language: Language) -> bytes:  # noqa: ARG002
        """The whole document."""
        return (json.dumps(content(report), indent=2, ensure_ascii=False) + "\n").encode()


def content(report: Report) -> dict[str, object]:
    """Everything that the report has, as JSON values; docs/report.schema.json describes it."""
    return {
        "fallow_version": report.version,
        "lake": report.lake,
        "simulated_gpus": report.simulated_gpus,
        "hosts": report.hosts,
        "settings": dataclasses.asdict(report.settings) | {"held_min_ms": report.held_min_ms},
        "ledger": report.summary.as_json() | {"money": money_json(report.money), "energy": energy_json(report.money)},
        "by": {
            section.name: {name: _totals(group) for name, group in section.groups.items()}
            for section in report.sections
        },
        "findings": [finding.as_json() for finding in report.findings],
        "notified": _notified(report),
        "findings_left_out": report.left_out,
        "week": _week(report),
        "scope": dataclasses.asdict(report.scope),
        "timezone": str(report.zone),
        "trends": {each.name: _without(dataclasses.asdict(each), "name") for each in report.trends},
        "waterfall": [
            {"state": each.state, "gpu_hours": each.gpu_ms / HOUR_MS, "amount": _amount(each.cents)}
            for each in report.steps
        ],
        "teams": [_person(each) for each in report.teams],
        "holders": [_person(each) for each in report.holders],
        "reclaimable": [dataclasses.asdict(each) for each in report.reclaimable],
        "off_peak": [dataclasses.asdict(each) for each in report.off_peak],
        "suppressed": [finding.as_json() for finding in report.review.suppressed],
        "ended": [finding.as_json() for finding in report.review.ended],
        "sensitivity": {f"{minutes}min": hours for minutes, hours in report.review.sensitivity.items()},
        "reversals": report.review.reversals.as_json() if report.review.reversals else None,
        "data_quality": [dataclasses.asdict(remark) for remark in report.quality],
    }


def _notified(report: Report) -> dict[str, list[str]]:
    """When the holders of the findings were told, the earliest first, by finding."""
    return {
        each.finding_id: [
            format_ms(action.time_ms)
            for action in report.review.actions.get(each.finding_id, ())
            if action.kind == "notify"
        ]
        for each in report.findings
    }


def _week(report: Report) -> dict[str, object] | None:
    if report.week is None:
        return None
    return {
        "label": report.week.label,
        "since": format_ms(report.week.since_ms),
        "until": format_ms(report.week.until_ms),
    }


def _person(person: Person) -> dict[str, object]:
    return {
        "name": person.name,
        "label": person.label,
        "team": person.team,
        "gpu_hours": person.gpu_ms / HOUR_MS,
        "allocated_gpu_hours": person.allocated_ms / HOUR_MS,
        "held_gpu_hours": person.held_ms / HOUR_MS,
        "reserved_gpu_hours": person.reserved_ms / HOUR_MS,
        "amount": _amount(person.cents),
        "efficiency": person.efficiency,
        "rank_gpu_time": person.rank_gpu_time,
        "rank_efficiency": person.rank_efficiency,
        "ranked": person.ranked,
    }


def _amount(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def _without(values: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != name}


def _totals(totals: Totals) -> dict[str, object]:
    hours = {state: milliseconds / HOUR_MS for state, milliseconds in totals.state_ms.items()}
    return {"gpus": totals.gpus, "coverage": totals.coverage, "gpu_hours": {"total": totals.total_ms / HOUR_MS} | hours}
