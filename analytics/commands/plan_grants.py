"""The proposed reallocation as rows and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from analytics.money.requests_file import GpuRequest
from analytics.plan.endings import Chance
from analytics.plan.reallocation import Reallocation, UnservedRequest
from analytics.plan.supply import Supply

GRANT_COLUMNS = (
    "line", "name", "team", "priority", "gpus_asked", "start", "until", "gpu_count", "pool", "model", "host", "nvlink_island", "gpus", "from_team",
    "source", "ends", "free_from", "chance_low", "chance", "chance_high",
)  # fmt: skip


def grant_rows(found: Reallocation) -> Iterator[dict[str, object]]:
    """One for each request, host and source."""
    for each in found.served:
        request = each.request
        about = {
            "line": request.line,
            "name": request.name,
            "team": request.team,
            "priority": request.priority,
            "gpus_asked": request.gpus,
            "until": str(request.last),
        }
        for grant in each.grants:
            yield about | {"start": str(each.start)} | _supply(grant) | {"gpus": " ".join(grant.gpus)}


def proposal_json(found: Reallocation) -> dict[str, object]:
    """All of it; what a reader of one team may not know is null."""
    return {
        "served": [
            _request(each.request) | {"start": str(each.start), "gpus_given": each.given, "grants": [_supply(grant) for grant in each.grants]}
            for each in found.served
        ],
        "unserved": [_request(each.request) | _why(each) for each in found.unserved],
        "teams": None if found.of_one_team else [asdict(each) for each in found.balances],
        "left": None if found.of_one_team else [_supply(each) for each in found.left],
        "teams_without_quota": list(found.without_quota),
        "known_up_to": str(found.last_day),
        "proven_to_serve_most": found.serves_most,
        "proven_best": found.is_proven,
    }  # fmt: skip


def _why(each: UnservedRequest) -> dict[str, object]:
    return {"reason": each.reason, "gpus_free_in_time": each.free, "by": str(each.by)}


def _request(request: GpuRequest) -> dict[str, object]:
    return {
        "line": request.line,
        "name": request.name,
        "team": request.team,
        "gpus_asked": request.gpus,
        "card": request.card,
        "memory_gib": request.memory_gib,
        "from": str(request.first),
        "until": str(request.last),
        "priority": request.priority,
    }


def _supply(each: Supply) -> dict[str, object]:
    return {
        "gpu_count": len(each.gpus),
        "pool": each.pool,
        "model": each.model,
        "host": each.host,
        "nvlink_island": each.island,
        "gpus": list(each.gpus),
        "from_team": each.team,
        "source": each.source,
        "ends": each.name or None,
        "free_from": str(each.free_from),
        **chance_fields(each.chance),
    }


def chance_fields(chance: Chance | None) -> dict[str, float | None]:
    """A chance with its interval, each null where it is not known."""
    low, point, high = (None,) * 3 if chance is None else (chance.low, chance.point, chance.high)
    return {"chance_low": low, "chance": point, "chance_high": high}
