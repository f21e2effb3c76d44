"""`fallow plan replay`: the jobs of a window on another fleet or under another policy, against the replay of today."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.plan.replay.outcome import ComparedWaits, CutUser, FleetUse, PoolUse, ReplayOutcome
from analytics.plan.replay.policy import ORDERS, ReplayPolicy
from analytics.plan.replay.policy_file import policy_table
from analytics.plan.replay.policy_over import policy_over
from analytics.plan.replay.replay_base import ReplayBase, scenario_outcome
from analytics.plan.replay.replayed_waits import WaitFigures
from analytics.plan.replay.sweep import Sweep, sweep
from analytics.plan.replay.validation import ReplayCheck
from analytics.tables.plan_replay_check import refusal, replay_check
from analytics.tables.plan_replay_sweep import replay_sweep
from analytics.tables.replay_sections import replay_sections
from fallow.clock import HOUR_MS, MINUTE_MS, parse_duration_ms
from fallow.errors import UsageError

_NUMBERS = re.compile(r"(?:(?P<pool>.+)=)?(?P<first>\d+)(?:\.\.(?P<last>\d+)(?::(?P<step>\d+))?)?")
_SWEEP_MAX = 200
_SAME = ("order", "limit_to_need", "off_peak", "small_work_to", "share", "mig", "block")
"""Flags that a scenario file calls the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    parser.add_argument(
        "--scenario", metavar="FILE", help="TOML file that says what changes, see docs/planning.md; flags add to it"
    )
    parser.add_argument(
        "--gpus", metavar="[POOL=]N[..M[:STEP]]", action="append", default=[],
        help="so many GPUs in a pool; 40..64 tries each number (of one pool)",
    )  # fmt: skip
    parser.add_argument("--merge", metavar="POOL,POOL", action="append", default=[], help="pools that become one")
    parser.add_argument(
        "--idle-timeout", metavar="TIME", help="jobs end when none of their GPUs has worked for so long, such as 2h"
    )
    parser.add_argument("--order", choices=ORDERS, help="who begins first")
    parser.add_argument(
        "--limit-to-need", action="store_true", default=None, help="time limits are as long as jobs ran"
    )
    parser.add_argument("--off-peak", metavar="HH:MM-HH:MM", help="work that can wait begins in these hours only")
    parser.add_argument("--small-work-to", metavar="NAME", help="the pool or model where small work goes first")
    parser.add_argument("--share", metavar="N", type=int, help="up to so many jobs take turns on one GPU")
    parser.add_argument(
        "--mig", action="store_true", default=None, help="jobs on one GPU get the MIG instance that they need"
    )
    parser.add_argument("--block", metavar="N", type=int, help="jobs get the GPUs that they used, in blocks of so many")
    parser.add_argument(
        "--preempt",
        metavar="TIME",
        help="urgent jobs take GPUs from others, whose restart costs them so much, such as 10m",
    )


def run(args: argparse.Namespace) -> int:
    """Prints what the change would have made."""
    plan = open_plan(args)
    if plan.scope.is_personal:
        raise UsageError("a replay is of everybody's jobs", "leave out --team and --holder, or name a --pool")
    base = plan.whole.plan.replay_base(plan.scope)
    policy, numbers = _policy(args, plan, base)
    if numbers is None:
        _show(plan, base, scenario_outcome(base, policy), as_json=args.json)
    else:
        _show_sweep(plan, base, sweep(base, policy, *numbers), as_json=args.json)
    return 0


def _policy(
    args: argparse.Namespace, plan: PlanInputs, base: ReplayBase
) -> tuple[ReplayPolicy, tuple[str, range] | None]:
    """What is changed, and the pool and the numbers of GPUs that are tried one after the other."""
    asked = [_numbers(text) for text in args.gpus]
    tried = [(pool, own) for pool, own in asked if len(own) > 1]
    if len(tried) > 1:
        raise UsageError("--gpus tries the numbers of one pool at a time", "give one range of numbers")
    content = {} if args.scenario is None else policy_table(Path(args.scenario))
    table = {**content, **_table(args)}
    if fixed := {pool: own.start for pool, own in asked if len(own) == 1}:
        table["gpus"] = fixed.get("", fixed)
    where = "the command" if args.scenario is None else args.scenario
    policy = policy_over(base.policy, table, plan.whole.inputs.settings.text("report.timezone"), where)
    return policy, (_pool(tried[0][0], base), tried[0][1]) if tried else None


def _table(args: argparse.Namespace) -> dict[str, object]:
    """What the flags say, as a scenario file says it."""
    found: dict[str, object] = {name: getattr(args, name) for name in _SAME if getattr(args, name) is not None}
    if args.merge:
        found["merge"] = [pools.split(",") for pools in args.merge]
    if args.idle_timeout is not None:
        found["idle_timeout_h"] = parse_duration_ms(args.idle_timeout) / HOUR_MS
    if args.preempt is not None:
        found["priorities"] = {
            "by": "priority",
            "preempt": True,
            "cost_min": parse_duration_ms(args.preempt) / MINUTE_MS,
        }
    return found


def _numbers(text: str) -> tuple[str, range]:
    """The pool, empty where none is named, and its numbers of GPUs."""
    found = _NUMBERS.fullmatch(text)
    if found is None:
        raise UsageError(f"--gpus {text} is no number of GPUs", "give 48, train=48, or 40..64")
    first, last, step = int(found["first"]), int(found["last"] or found["first"]), int(found["step"] or 1)
    if first > last or not step:
        raise UsageError(f"--gpus {text} has no numbers of GPUs", "give the smaller number first, such as 40..64:4")
    numbers = range(first, last + 1, step)
    if len(numbers) > _SWEEP_MAX:
        raise UsageError(
            f"--gpus {text} are {len(numbers)} replays",
            f"give larger steps, such as {first}..{last}:{-(-len(numbers) * step // 50)}",
        )
    return found["pool"] or "", numbers


def _pool(name: str, base: ReplayBase) -> str:
    """The pool of today whose GPUs are tried: the one that is named, or the only one that there is."""
    pools = sorted({group.pool for group in base.fleet.groups})
    if name in pools:
        return name
    if not name and len(pools) == 1:
        return pools[0]
    said = f"--gpus names the pool {name}, which is not there" if name else "--gpus has to say of which pool"
    raise UsageError(
        said, f"there are {', '.join(pools)}: --gpus {pools[0]}=40..64" if pools else "this window has no GPUs"
    )


def _show(plan: PlanInputs, base: ReplayBase, outcome: ReplayOutcome, *, as_json: bool) -> None:
    if as_json:
        show_plan_json(plan, {**_base_json(base), "outcome": outcome_json(outcome)})
        return
    show_plan(plan, replay_sections(base, outcome, plan.whole.money))


def _show_sweep(plan: PlanInputs, base: ReplayBase, found: Sweep, *, as_json: bool) -> None:
    if as_json:
        points = [{"gpus": each.gpus, **outcome_json(each.outcome)} for each in found.points]
        content = {
            "pool": found.pool,
            "gpus": found.there,
            "knee": found.knee,
            "as_good_as_today": found.enough,
            "points": points,
        }
        show_plan_json(plan, {**_base_json(base), "sweep": content})
    else:
        show_plan(plan, [replay_sweep(found, base.check, plan.whole.money.currency), replay_check(base.check)])


def _base_json(base: ReplayBase) -> dict[str, object]:
    jobs = base.rebuilt
    return {
        "jobs": jobs.jobs.height,
        "jobs_without_time_of_asking": jobs.unasked,
        "use_without_a_job": jobs.jobs.height - jobs.queued,
        "jobs_that_never_ran": jobs.never_ran,
        "jobs_without_gpus_or_pool": jobs.unplaced,
        "jobs_that_fit_nowhere_today": base.homeless,
        "order": base.policy.order,
        "by_priority": base.policy.priorities is not None,
        "other_delays": bool(base.delays),
        "check": _check_json(base.check),
    }


def _check_json(check: ReplayCheck) -> dict[str, object]:
    return {
        "waits_error": check.waits.error,
        "use_error": check.use.error,
        "error_max": check.error_max,
        "has_waits": check.has_waits,
        "refused": refusal(check),
        "pools": [
            {
                "pool": waits.pool, "observed": _waits_json(waits.observed), "replayed": _waits_json(waits.replayed), "waits_error": waits.error,
                "use_observed": use.observed, "use_replayed": use.replayed, "use_error": use.error,
            }
            for waits, use in zip(check.pools, check.use_of_pools, strict=True)
        ],
    }  # fmt: skip


def outcome_json(outcome: ReplayOutcome) -> dict[str, object]:
    """The outcome in hours and seconds, as `--json` prints it."""
    return {
        "today": _use_json(outcome.today),
        "then": _use_json(outcome.then),
        "waits": None if outcome.waits is None else _compared_json(outcome.waits),
        "teams": [_compared_json(each) for each in outcome.teams],
        "priorities": [_compared_json(each) for each in outcome.ranks],
        "freed_gpu_hours": outcome.freed_ms / HOUR_MS,
        "ended_early": [_cut_json(each) for each in outcome.cuts],
        "cannot_run": [
            {"why": each.why, "jobs": each.jobs, "gpu_hours": each.gpu_ms / HOUR_MS} for each in outcome.unplaced
        ],
        "jobs_put_off": outcome.postponed,
        "jobs_preempted": outcome.preempted,
    }


def _use_json(use: FleetUse) -> dict[str, object]:
    return {
        **_pool_json(use.total),
        "kwh": use.kwh,
        "pools": [{"pool": each.pool, **_pool_json(each)} for each in use.pools],
    }


def _pool_json(pool: PoolUse) -> dict[str, object]:
    return {
        "gpus": pool.gpus, "gpu_hours": pool.there_ms / HOUR_MS, "gpu_hours_held": pool.held_ms / HOUR_MS,
        "utilization": pool.utilization, "most_gpus_at_once": pool.most, "cost": pool.cost,
    }  # fmt: skip


def _compared_json(each: ComparedWaits) -> dict[str, object]:
    return {
        "name": each.name,
        "jobs": each.today.jobs,
        "today": _waits_json(each.today),
        "then": _waits_json(each.then),
    }


def _waits_json(figures: WaitFigures) -> dict[str, object]:
    seconds = {name: None if value is None else value / 1000 for name, value in
               (("p50_s", figures.p50_ms), ("p95_s", figures.p95_ms), ("max_s", figures.most_ms))}  # fmt: skip
    return {"jobs": figures.jobs, "not_begun": figures.open_jobs, **seconds, "gpu_hours": figures.gpu_ms / HOUR_MS}


def _cut_json(each: CutUser) -> dict[str, object]:
    return {
        "user": each.user, "team": each.team, "jobs": each.jobs, "worked_later": each.worked_later,
        "freed_gpu_hours": each.freed_ms / HOUR_MS, "worked_gpu_hours": each.worked_ms / HOUR_MS, "cost": each.cost,
    }  # fmt: skip
