"""Findings and recommendations by hand, and what is asked because of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from analytics.decide.deadlines import Deadlines
from analytics.decide.nudge_items import NudgeBasis, NudgeItems, nudge_items
from analytics.decide.recommendations import Recommendation, recommendation_id
from analytics.decide.value import KIND_UNKNOWN, Value
from analytics.proportions import Estimate
from analytics.rules import RULES_BY_NAME
from analytics.workloads.model import Confidence, Evidence, Finding, of_gpus
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.decide.actions import Action

FINDING = Finding(
    rule="held_idle",
    category="reclaim",
    sentence="held without a kernel",
    subject="ann",
    gpus=("GPU-0",),
    host="h1",
    id_host="h1",
    user="ann",
    since_ms=0,
    gpu_ms=3.6e6,
    energy_kwh=None,
    confidence=Confidence(()),
    reclaimable_gpus=("GPU-0",),
    evidence=Evidence(0, 1, {}),
    next_command="scancel 1",
    simulated=False,
    team="nlp",
)
DEADLINES = Deadlines(1, 5, 10, {5, 6}, UTC)
"""T0 is Friday, 20 November 2026: reclaim by the end of Monday 23, change by Friday 27, release by 4 December."""


def found(rule: str, gpus: str = "a", user: str | None = "ann", **changes: Any) -> Finding:
    """Of GPUs with names of one letter; what is for reclaiming can be taken back whole."""
    names = tuple(gpus)
    category = RULES_BY_NAME[rule].category
    own = {
        "rule": rule,
        "category": category,
        "gpus": names,
        "user": user,
        "subject": f"{user} {gpus}",
        "reclaimable_gpus": names if category == "reclaim" else (),
        "sentence": of_gpus(f"said to be {rule}"),
        "next_command": "ssh h1 nvidia-smi",
    }
    return replace(FINDING, **{**own, **changes})


def left_behind(gpus: str = "a", **changes: Any) -> Finding:
    """A finding about processes that a job left behind when it ended: operators act."""
    ended = replace(FINDING.evidence, numbers={"processes": "job ended"})
    return found("held", gpus, **{"evidence": ended, **changes})


def recommendation(lead: Finding, *others: Finding, **changes: Any) -> Recommendation:
    """What `decide` makes of a leading finding and of those behind it, if all of its GPUs can be acted on now."""
    rule = RULES_BY_NAME[lead.rule]
    kind = rule.kinds[0]
    action = "repair" if rule.of_machine else kind.action
    change = action in ("right-size", "ask")
    days = DEADLINES.return_days if action == "release" else DEADLINES.change_days if change else DEADLINES.release_days
    own = {
        "recommendation_id": recommendation_id(lead),
        "kind": kind,
        "finding": lead,
        "gpus": lead.gpus,
        "gpus_now": lead.gpus,
        "confidence": lead.confidence,
        "status": lead.status,
        "action": action,
        "evidence": (lead, *others),
        "pool": "p",
        "host": lead.host,
        "gpu_ms": lead.gpu_ms,
        "currency": "USD",
        "deadline": DEADLINES.last_day(T0, days),
        "next_command": lead.next_command,
        "simulated": lead.simulated,
    }
    return Recommendation(**{**own, **changes})


def worth(low: float, point: float, high: float, cash: Estimate | None = None) -> Value:
    """GPU time of that price a year, at 2 an hour, and cash: not known by default."""
    freed = Estimate(low, point, high)
    return Value(freed.times(0.5), freed, cash, "" if cash else KIND_UNKNOWN, 0.0)


def asked(
    *recommendations: Recommendation,
    actions: Mapping[str, Sequence[Action]] | None = None,
    users: Mapping[str, str] | None = None,
) -> NudgeItems:
    """What is asked at T0; every GPU is on a host of its own."""
    hosts = {gpu: f"h-{gpu}" for each in recommendations for gpu in each.gpus}
    return nudge_items(recommendations, NudgeBasis(actions or {}, T0, hosts, users or {}))
