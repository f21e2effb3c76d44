"""`fallow plan allocation`: who has GPUs, who starves while who hoards, what comes free and who should get it, and what new cards were used for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from analytics.commands.plan_grants import GRANT_COLUMNS, chance_fields, grant_rows, proposal_json
from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.plan.allocation import FleetAllocation
from analytics.plan.endings import HORIZON_DAYS, Ending, Endings
from analytics.plan.owner_tree import OwnerNode
from analytics.plan.reallocation import Reallocation
from analytics.tables.plan_allocation import owner_table, starving_table
from analytics.tables.plan_endings import endings_table
from analytics.tables.plan_reallocation import balance_table, left_table, proposal_table, unserved_table
from analytics.tables.plan_uptake import uptake_table
from analytics.tables.table import Table
from fallow.clock import HOUR_MS
from fallow.csv_text import csv_of
from fallow.errors import ConfigError, UsageError
from fallow.output import say, show

_DAYS_MAX = 366
_COLUMNS = (
    "day", "source", "name", "team", "user", "gpu_count", "pool", "model", "hosts", "nvlink_islands", "gpus", "chance_low",
    "chance", "chance_high",
)  # fmt: skip

_PARTS = ("owners", "starving", "endings", "requests", "cards")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser, csv_of="ending, or per GPUs given where there are requests")
    parser.add_argument("--only", choices=_PARTS, help="one part of the text; with --csv endings or requests")
    parser.add_argument(
        "--days", metavar="N", type=int, default=HORIZON_DAYS, help=f"how far ahead to look (default: {HORIZON_DAYS})"
    )
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="CSV file in which teams ask for GPUs: who should get what comes free (or plan.requests)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the tree, who starves while who hoards, the calendar and the new cards."""
    if not 1 <= args.days <= _DAYS_MAX:
        raise UsageError(f"--days {args.days} is not between 1 and {_DAYS_MAX}", f"leave it out for {HORIZON_DAYS}")
    _check_only(args)
    plan = open_plan(args)
    calendar = plan.whole.plan.endings_for(args.days)
    found = plan.whole.plan.allocation(plan.scope, plan.part, calendar)
    proposal = _proposal(args, plan, calendar)
    if args.json:
        show_plan_json(plan, _as_json(found) | ({} if proposal is None else {"proposal": proposal_json(proposal)}))
    elif args.csv and proposal is not None:
        show(csv_of(GRANT_COLUMNS, grant_rows(proposal)), end="")
    elif args.csv:
        show(csv_of(_COLUMNS, (_csv_row(each) for each in found.endings)), end="")
    else:
        shown = _PARTS if args.only is None else (args.only,)
        sections = [section for name in shown for section in _sections(name, found, proposal) if section is not None]
        if not sections:
            raise UsageError(
                f"of {args.only} there is nothing to say",
                "a team or user sees nobody else's; `fallow plan waits` says whether waits are known",
            )
        show_plan(plan, sections)
    return 0


def _proposal(args: argparse.Namespace, plan: PlanInputs, calendar: Endings) -> Reallocation | None:
    """Who should get what comes free, where that is asked for; a file that is only set does not keep the rest from being said."""
    path = args.requests or plan.whole.inputs.settings.text("plan.requests")
    if args.only not in (None, "requests"):
        return None
    if args.only == "requests" and not path:
        raise UsageError("no requests file is named", "name one with --requests, or set plan.requests")
    try:
        return plan.whole.reallocation(plan.scope, path, calendar)
    except ConfigError as error:
        if args.requests or args.only:
            raise
        say(str(error))
        return None


def _check_only(args: argparse.Namespace) -> None:
    if args.holder and (args.requests or args.only == "requests"):
        raise UsageError("teams ask for GPUs, not users", "leave out --holder")
    if args.requests == "":
        raise UsageError("--requests names no file", "name one, or leave it out")
    if args.only is not None and args.json:
        raise UsageError("--json has every part", "leave out --only")
    if args.csv and args.only not in (None, "endings", "requests"):
        raise UsageError(f"--csv has no {args.only}", "take --only endings, --only requests, or --json")


def _sections(name: str, found: FleetAllocation, proposal: Reallocation | None) -> Sequence[Table | None]:
    """The sections of one of the parts."""
    match name:
        case "owners":
            return (owner_table(found),)
        case "starving":
            return (starving_table(found),)
        case "endings":
            return (endings_table(found),)
        case "requests":
            return [table(proposal) for table in (proposal_table, unserved_table, balance_table, left_table)]
    return (uptake_table(found),)


def _csv_row(each: Ending) -> dict[str, object]:
    joined = {
        name: " ".join(getattr(each, place))
        for name, place in (("hosts", "hosts"), ("nvlink_islands", "islands"), ("gpus", "gpus"))
    }
    return {name: value for name, value in _ending(each).items() if name not in joined} | joined


def _ending(each: Ending) -> dict[str, object]:
    return {
        "day": str(each.day),
        "source": each.source,
        "name": each.name,
        "team": each.team,
        "user": each.holder,
        "gpu_count": len(each.gpus),
        "pool": each.pool,
        "model": each.model,
        "hosts": list(each.hosts),
        "nvlink_islands": list(each.islands),
        "gpus": list(each.gpus),
        **chance_fields(each.chance),
    }


def _as_json(found: FleetAllocation) -> dict[str, object]:
    calendar, for_all = found.calendar, found.pairs is not None
    return {
        "observed_share": found.seen,
        "currency": found.currency,
        "has_owners": found.has_owners,
        "jobs_that_asked": found.waits,
        "tree": [_node(each, has_waits=bool(found.waits)) for each in found.tree],
        "starving": None if found.pairs is None else [
            {
                "kind": each.kind, "waited": each.starves, "did_not_use": each.hoards, "pool": each.pool or None,
                "gpu_hours": each.gpu_ms / HOUR_MS, "waited_gpu_hours": each.waited_ms / HOUR_MS,
                "unused_gpu_hours": each.unused_ms / HOUR_MS, "quota_needed_share": each.needed_share,
            }
            for each in found.pairs
        ],
        "days": calendar.days,
        "endings": [_ending(each) for each in found.endings],
        "back_test": asdict(calendar.check) if for_all and calendar.check is not None else None,
        "new_cards": None if found.arrivals is None else [
            asdict(each) | {"day": str(each.day), "currency": found.currency} for each in found.arrivals
        ],
    }  # fmt: skip


def _node(node: OwnerNode, *, has_waits: bool) -> dict[str, object]:
    return {
        "level": node.level,
        "name": node.label,
        "quota_gpus": node.quota_gpus,
        "gpus_mean": node.mean,
        "gpus_most": node.most,
        "gpu_hours": node.allocated_ms / HOUR_MS,
        "used_gpu_hours": node.used_ms / HOUR_MS,
        "held_gpu_hours": node.state_ms("held") / HOUR_MS,
        "reserved_gpu_hours": node.state_ms("reserved") / HOUR_MS,
        "low_unused_gpu_hours": node.low_unused_ms / HOUR_MS,
        "cost": None if node.cents is None else node.cents / 100,
        "jobs": node.waited.jobs if has_waits else None,
        "waited_hours": node.waited.job_ms / HOUR_MS if has_waits else None,
        "waited_gpu_hours": node.waited.gpu_ms / HOUR_MS if has_waits else None,
        "median_wait_s": None if node.waited.median_ms is None else node.waited.median_ms / 1000,
        "children": [_node(each, has_waits=has_waits) for each in node.children],
    }
