"""Opportunities as JSON values."""

from __future__ import annotations

from collections.abc import Mapping

from analytics.decide.opportunities import Opportunities, Opportunity, Saving, Waste
from analytics.language.quantities import from_cents
from analytics.tables.give_back import give_back
from analytics.workloads.commands import acts
from analytics.workloads.reclaimable import Reclaimable
from fallow.clock import DAY_MS, HOUR_MS, format_ms


def opportunities_json(found: Opportunities) -> dict[str, object]:
    """What `fallow recommendations --json` prints beside the window."""
    return {
        "opportunities": [opportunity_json(each) for each in found.listed],
        "saving_per_year": _saving(found.saving),
        "given_back_per_year": _saving(found.given_back),
        "freed_per_year": _saving(found.freed),
        "waste": _waste(found.waste),
        "reclaimable": None if found.reclaimable is None else _reclaimable(found.reclaimable),
    }


def decisions_json(found: Opportunities) -> dict[str, object]:
    """The same in a report, whose `reclaimable` are the surpluses of its pools."""
    own = opportunities_json(found)
    own["reclaimable_now"] = own.pop("reclaimable")
    return own


def opportunity_json(each: Opportunity) -> dict[str, object]:
    """One opportunity; null is unknown."""
    risk = each.risk
    return {
        "id": each.opportunity_id,
        "kind": each.kind,
        "action": each.action,
        "owner": each.owner,
        "holder": each.holder,
        "team": each.team,
        "pool": each.pool,
        "host": each.host,
        "gpus": list(each.gpus),
        "gpus_now": list(each.gpus_now),
        "gpu_hours": each.gpu_ms / HOUR_MS,
        "unconfirmed_gpu_hours": each.unconfirmed_ms / HOUR_MS,
        "cost": _amount(each.cents),
        "currency": each.currency if each.cents is not None else None,
        "saving_per_year": _saving(each.saving),
        "ranked": each.ranked,
        "confidence": each.confidence.grade,
        "failed_conditions": [str(failed) for failed in each.confidence.failed],
        "risk": {
            "probability": risk.probability,
            "within_days": None if risk.within_ms is None else risk.within_ms / DAY_MS,
            "short_hours_last_week": risk.short_hours,
            "hours_last_week": risk.hours,
            "short_gpus_last_week": risk.short_gpus,
            "who_waits": risk.waits,
        },
        "horizon_days": each.horizon_ms / DAY_MS,
        "deadline": format_ms(each.deadline_ms),
        "status": each.status,
        "evidence": [finding.finding_id for finding in each.evidence],
        "next": each.next_command,
        "next_acts": acts(each.next_command),
        "at_list_price": each.at_list_price,
        "simulated": each.simulated,
    }


def _amount(cents: int | None) -> float | None:
    return None if (amount := from_cents(cents)) is None else float(amount)


def _saving(saving: Saving | None) -> dict[str, float] | None:
    return None if saving is None else {"low": saving.low, "point": saving.point, "high": saving.high}


def _waste(waste: Waste) -> dict[str, object]:
    return {
        "cost": _amount(waste.cents),
        "currency": None if waste.cents is None else waste.currency,
        "gpu_hours": waste.gpu_ms / HOUR_MS,
        "unpriced_gpu_hours": waste.unpriced_ms / HOUR_MS,
        "unconfirmed": {"cost": _amount(waste.open_cents), "gpu_hours": waste.open_ms / HOUR_MS},
        "by_state": _by_state(waste.state_ms, waste.state_cents),
        "not_actionable": {
            "cost": _amount(waste.not_actionable_cents),
            "gpu_hours": waste.not_actionable_ms / HOUR_MS,
            "by_state": _by_state(waste.rest_ms, waste.rest_cents),
        },
    }


def _by_state(state_ms: Mapping[str, float], state_cents: Mapping[str, int] | None) -> dict[str, object]:
    return {
        state: {"gpu_hours": each / HOUR_MS, "cost": None if state_cents is None else _amount(state_cents[state])}
        for state, each in state_ms.items()
    }


def _reclaimable(found: Reclaimable) -> dict[str, object]:
    return {
        "idle_now": found.idle_now if found.unseen_since_ms is None else None,
        "unconfirmed": found.unconfirmed,
        "missing": found.missing,
        "need_unknown": found.need_unknown,
        "reserve": found.reserve,
        "broken_blocks": found.broken_blocks,
        "put_off": found.put_off,
        "safe": found.safe if found.is_known else None,
        "whole_nodes": found.whole_nodes if found.is_known else None,
        "pools": give_back(found).records(),
    }
