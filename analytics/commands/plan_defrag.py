"""`fallow plan defrag`: which jobs could start, what would make room, and how much of the free GPUs lies apart."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from analytics.commands.plan_inputs import add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.plan.room_for_jobs import PoolRoom, RoomFor, of_pools
from analytics.tables.plan_defrag import fragmentation_table, moves_table, room_for_jobs
from fallow.clock import HOUR_MS
from fallow.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    parser.add_argument("--gpus", metavar="N", type=int, help="only jobs of so many GPUs (default: 1, 2, 4 ... 64)")


def run(args: argparse.Namespace) -> int:
    """Prints the room in each pool."""
    if args.gpus is not None and args.gpus < 1:
        raise UsageError(f"--gpus {args.gpus} is no number of GPUs", "give 1 or more")
    plan = open_plan(args)
    if plan.scope.is_personal:
        raise UsageError("room is in pools, whoever works there", "leave out --team and --holder, or name a --pool")
    rooms = of_pools(
        plan.whole.plan.rooms if args.gpus is None else plan.whole.plan.rooms_for((args.gpus,)), plan.scope
    )
    if args.json:
        show_plan_json(plan, {"pools": [_as_json(each) for each in rooms]})
    else:
        currency = plan.whole.money.costs.currency
        show_plan(plan, [room_for_jobs(rooms), moves_table(rooms, currency), fragmentation_table(rooms)])
    return 0


def _as_json(pool: PoolRoom) -> dict[str, object]:
    return {
        "pool": pool.pool,
        "model": pool.model,
        "gpus": pool.gpus,
        "free": pool.free,
        "host_width": pool.width,
        "fragmentation_now": pool.fragmentation.now,
        "fragmentation_mean": pool.fragmentation.mean,
        "job_pieces": pool.fragmentation.pieces,
        "jobs_that_came": asdict(pool.check),
        "sizes": [_size_json(each) for each in pool.sizes],
    }


def _size_json(each: RoomFor) -> dict[str, object]:
    gang, moves = each.gang, each.moves
    return {
        "gpus": gang.size,
        "could_start": gang.now,
        "could_start_most": gang.now_most,
        "start_share": gang.start_share,
        "start_share_most": gang.start_share_most,
        "gpus_too_few": 0 if gang.now else each.short,
        "moves": None if moves is None else {
            "hosts": list(moves.hosts),
            "is_least": moves.is_least,
            "asked": [{"host": one.host, "holder": one.holder, "job": one.job, "gpus": one.gpus} for one in moves.asked],
            "moved": [
                {"host": one.host, "to": target, "holder": one.holder, "job": one.job, "gpus": one.gpus,
                 "restart_loses_at_most_gpu_hours": one.ran_ms / HOUR_MS, "cost": one.ran_cost}
                for one, target in moves.moved
            ],
        },
    }  # fmt: skip
