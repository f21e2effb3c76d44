"""`fallow plan waits`: how long jobs waited for GPUs, and whether more of them would have helped."""

from __future__ import annotations

import argparse

from analytics.commands.plan_inputs import add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.plan.goodput import goodput
from analytics.plan.wait_groups import GROUPS, WaitGroup, halves, in_all, wait_groups
from analytics.plan.waits import Waits
from analytics.tables.plan_waits import goodput_table, idle_while_waiting, wait_causes, wait_table
from fallow.clock import HOUR_MS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the causes, the groups, what stood idle, and what jobs' time led to."""
    plan = open_plan(args)
    waits = plan.whole.plan.waits_of(plan.scope)
    used = plan.whole.plan.used_share(plan.scope, plan.part)
    open_ms = plan.whole.plan.open_ms(plan.scope, plan.part)
    idle = None if plan.scope.is_personal else idle_while_waiting(waits, open_ms)
    if args.json:
        show_plan_json(plan, _as_json(waits, has_idle=idle is not None) | {"used_share": used})
    else:
        show_plan(
            plan,
            [wait_causes(waits), *(wait_table(waits, by) for by in GROUPS), idle, goodput_table(waits, used, open_ms)],
        )
    return 0


def _as_json(waits: Waits, *, has_idle: bool) -> dict[str, object]:
    ends, rows = goodput(waits.ran, waits.since_ms, waits.until_ms), waits.rows
    unasked = int(waits.left_out["is_unasked"].sum())
    return {
        "all": _group_json(in_all(waits)),
        "by": {by: [_group_json(each) for each in wait_groups(waits, by)] for by in GROUPS},
        "jobs_without_time_of_asking": unasked,
        "jobs_without_gpus": waits.left_out.height - unasked,
        "jobs_with_ambiguous_pool": int(rows["is_ambiguous"].sum()),
        "jobs_with_unknown_pool": rows["pool"].null_count(),
        "back_test": {name: _group_json(each) for name, each in zip(("first_half", "second_half"), halves(waits), strict=True)},
        "idle": [
            {
                "pool": pool, "model": model, "kind": kind, "gpu_hours": spent / HOUR_MS,
                "gpu_hours_while_jobs_waited": waited / HOUR_MS,
            }
            for pool, model, kind, spent, waited in waits.idle.iter_rows()
        ] if has_idle else None,
        "ends": {state: {"jobs": ends.jobs[state], "gpu_hours": spent / HOUR_MS} for state, spent in ends.gpu_ms.items()},
        "completed_share": ends.completed_share,
    }  # fmt: skip


def _group_json(group: WaitGroup) -> dict[str, object]:
    """Of no job nothing is known."""
    hours = {cause: spent / HOUR_MS if group.jobs else None for cause, spent in group.cause_ms.items()}
    gpu_hours = {cause: spent / HOUR_MS if group.jobs else None for cause, spent in group.cause_gpu_ms.items()}
    return {
        "name": group.name,
        "jobs": group.jobs,
        "jobs_still_waiting": group.open_jobs,
        "median_s": None if group.median_ms is None else group.median_ms / 1000,
        "p90_s": None if group.p90_ms is None else group.p90_ms / 1000,
        "hours": group.wait_ms / HOUR_MS if group.jobs else None,
        "gpu_hours": group.gpu_ms / HOUR_MS if group.jobs else None,
        "hours_by_cause": hours,
        "gpu_hours_by_cause": gpu_hours,
        "shortage_share": group.shortage,
    }
