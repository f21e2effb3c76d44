"""The report as JSON: the numbers of `fallow ledger --json` and `fallow findings --json`, and what goes with them."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Sequence
from typing import Any

from analytics.decide.review import waiting_rules
from analytics.language.language import Language
from analytics.ledger.summary import Totals
from analytics.render.money_json import energy_json, money_json, rank_json
from analytics.render.opportunities_json import decisions_json
from analytics.report.coverage import Seen
from analytics.report.figures import UserFigures
from analytics.report.goals import GoalProgress
from analytics.report.model import Report
from analytics.tables.findings import notes
from analytics.tables.people import people_columns
from analytics.tables.table import record
from analytics.tables.weeks import week_columns
from analytics.workloads.model import Finding
from fallow.clock import HOUR_MS, format_ms
from fallow.outside_text import json_text


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `content`."""
    file = importlib.resources.files("analytics.render.report").joinpath("report.schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


class JsonFormat:
    """`--format json`."""

    name = "json"
    suffix = ".json"

    def render(self, report: Report, language: Language) -> bytes:  # noqa: ARG002
        """The whole document."""
        return (json_text(content(report)) + "\n").encode()


def content(report: Report) -> dict[str, object]:
    """Everything that the report has, as JSON values; report.schema.json describes it.

    Of a window in which nothing was seen every figure is null: no GPU-hours were seen, which is not that there were none.
    """
    whole = _content(report)
    return whole | known_figures(report, {name: whole[name] for name in _FIGURES})


def known_figures(report: Report, figures: dict[str, object]) -> dict[str, object]:
    """Figures of the report's window as JSON: where nothing was seen in it, each is null."""
    return {name: _unknown(value, name) for name, value in figures.items()} if report.is_empty else figures


_FIGURES = (
    "simulated_gpus",
    "hosts",
    "ledger",
    "saving_per_year",
    "waste",
    "reclaimable_now",
    "waterfall",
    "sensitivity",
)
"""What has figures of the window; trends are made without those that are not known."""
_SETTINGS = ("pue", "price_per_kwh", "grid_kg_per_kwh")
"""Beside the figures, and known whatever was seen."""


def _unknown(value: object, name: str = "") -> object:
    """The same with null for every number that was measured."""
    if isinstance(value, dict):
        return {key: _unknown(each, key) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_unknown(each) for each in value]
    return None if isinstance(value, int | float) and name not in _SETTINGS else value


def _content(report: Report) -> dict[str, object]:
    return {
        "fallow_version": report.version,
        "lake": report.lake,
        "empty": report.is_empty,
        "known": {"since": _moment(report.known.since_ms), "until": _moment(report.known.until_ms)},
        "observed": seen_json(report.seen),
        "simulated_gpus": report.simulated_gpus,
        "hosts": report.hosts,
        "settings": dataclasses.asdict(report.settings) | {"held_min_ms": report.held_min_ms},
        "ledger": ledger_json(report),
        **decisions_json(report.opportunities),
        "by": {by: {name: _totals(group) for name, group in groups.items()} for by, groups in report.groups.items()},
        "findings": [finding_json(finding, report) for finding in report.findings],
        "notified": _notified(report),
        "waiting": [each.as_json() for each in waiting_rules(report.review.context)],
        "week": _week(report),
        "scope": dataclasses.asdict(report.scope),
        "timezone": str(report.zone),
        "weeks_before": _weeks_before(report),
        "weeks": [record(week_columns(report.money.currency), each) for each in report.weeks],
        "goals": [_goal(each) for each in report.goals],
        "trends": {each.name: _without(dataclasses.asdict(each), "name") for each in report.trends},
        "waterfall": [
            {"state": each.state, "gpu_hours": each.gpu_ms / HOUR_MS, "amount": _amount(each.cents)}
            for each in report.steps
        ],
        "teams": _people(report, report.teams),
        "holders": _people(report, report.holders),
        "reclaimable": [dataclasses.asdict(each) for each in report.reclaimable],
        "packings": [each.as_json() for each in report.right_sizing.packings],
        "off_peak": [dataclasses.asdict(each) for each in report.off_peak],
        "suppressed": [finding_json(finding, report) for finding in report.review.suppressed],
        "ended": [finding_json(finding, report) for finding in report.review.ended],
        "sensitivity": {f"{minutes}min": hours for minutes, hours in report.review.sensitivity.items()},
        "reversals": report.review.reversals.as_json() if report.review.reversals else None,
        "data_quality": [dataclasses.asdict(remark) for remark in report.quality],
    }


def ledger_json(report: Report) -> dict[str, object]:
    """As `fallow ledger --json` has it."""
    return report.summary.as_json() | {"money": money_json(report.money), "energy": energy_json(report.money)}


def finding_json(finding: Finding, report: Report) -> dict[str, object]:
    """As `fallow findings --json` has it; in an edition for people without the words of others."""
    return finding.as_json() | {"notes": [str(each) for each in notes(report, finding)]}


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


def seen_json(seen: Seen) -> dict[str, object]:
    """What was asked for, as far as it has passed, and how much of it was seen."""
    return {
        "since": format_ms(seen.since_ms),
        "until": format_ms(seen.until_ms),
        "last_seen": _moment(seen.last_ms),
        "gpus": seen.gpus,
        "observed_gpu_hours": seen.observed_ms / HOUR_MS,
        "unseen_gpu_hours": seen.unseen_ms / HOUR_MS,
        "outside_gpu_hours": seen.outside_ms / HOUR_MS,
        "share": seen.share,
        "silent": [
            {
                "host": each.host,
                "gpus": each.gpus,
                "since": format_ms(each.since_ms),
                "whole_host": each.whole_host,
            }
            for each in seen.silent
        ],
    }


def _weeks_before(report: Report) -> list[dict[str, object]]:
    """How much was seen of each week that the trends are about, the newest first."""
    week = report.week
    if week is None:
        return []
    return [
        {"label": week.before(number).label, "observed_share": seen.share}
        for number, seen in enumerate(report.seen_before, start=1)
    ]


def _goal(each: GoalProgress) -> dict[str, object]:
    own = dataclasses.asdict(each)
    return {
        "pool": each.goal.scope.pool,
        "team": each.goal.scope.team,
        "measure": each.goal.measure,
        "goal": each.goal.level,
        "by": each.goal.by.isoformat(),
        "week": None if each.week is None else each.week.label,
        **{name: value for name, value in own.items() if name not in ("goal", "week")},
    }


def _moment(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_ms(moment_ms)


def _people(report: Report, people: Sequence[UserFigures]) -> list[dict[str, object]]:
    columns = people_columns(report, "holder", people)
    return [record(columns, each) | rank_json(each.efficiency_rank) for each in people]


def _amount(cents: int | None) -> float | None:
    return None if cents is None else cents / 100


def _without(values: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != name}


def _totals(totals: Totals) -> dict[str, object]:
    hours = {state: milliseconds / HOUR_MS for state, milliseconds in totals.state_ms.items()}
    return {"gpus": totals.gpus, "coverage": totals.coverage, "gpu_hours": {"total": totals.total_ms / HOUR_MS} | hours}
