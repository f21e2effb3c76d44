"""`fallow plan replay`: the jobs of a window with other GPUs or another policy, compared with the replay of today."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.replay.comparisons import sweep
from analytics.plan.replay.policy import ORDERS, gpus_of, named_groups, policy_over, policy_table
from analytics.plan.replay.replay_base import ReplayBase, scenario_outcome
from analytics.tables.plan_replay import outcome_figures, replay_basis, replay_tables
from analytics.tables.plan_replay_check import replay_check
from analytics.tables.plan_scenarios import replay_sweep, sweep_figures
from fallow.clock import HOUR_MS, MINUTE_MS, parse_duration_ms
from fallow.errors import UsageError

_NUMBERS = re.compile(
    r"(?:(?P<pool>.+)=)?(?P<first>[+-]?\d{1,9})(?:\.\.(?P<last>[+-]?\d{1,9})(?::(?P<step>\d{1,9}))?)?"
)
_SWEEP_MAX = 200
_SAME = ("order", "limit_to_need", "off_peak", "small_work_to", "share", "mig", "block")
"""Flags with the names of a scenario file's keys."""


def add_change_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", metavar="FILE", help="TOML file of changes, see docs/planning.md; flags win over it"
    )
    parser.add_argument(
        "--gpus",
        metavar="[POOL=]N",
        action="append",
        default=[],
        help="GPUs of a pool: train=+16 adds 16, train=-8 removes 8, train=48 sets 48; "
        "train=-8..+16:4 or train=40..64:4 compares several numbers",
    )
    parser.add_argument("--merge", metavar="POOL,POOL", action="append", default=[], help="pools that become one")
    parser.add_argument(
        "--idle-timeout", metavar="TIME", help="jobs end when none of their GPUs has worked for this time, such as 2h"
    )
    parser.add_argument("--order", choices=ORDERS, help="order in which jobs start")
    parser.add_argument("--limit-to-need", action="store_true", default=None, help="time limits are the run times")
    parser.add_argument("--off-peak", metavar="HH:MM-HH:MM", help="deferrable jobs start in these hours only")
    parser.add_argument("--small-work-to", metavar="NAME", help="pool or model where small work goes first")
    parser.add_argument("--share", metavar="N", type=int, help="jobs that take turns on one GPU, at most")
    parser.add_argument(
        "--mig", action="store_true", default=None, help="jobs on one GPU get the MIG instance that they need"
    )
    parser.add_argument(
        "--block", metavar="N", type=int, help="jobs get the GPUs that they used, rounded up to blocks of N"
    )
    parser.add_argument(
        "--preempt",
        metavar="TIME",
        help="urgent jobs take GPUs from other jobs, whose restart takes this time, such as 10m",
    )


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the outcome of the change, or of each number of GPUs."""
    base, money = given.whole.plan.replay_base(given.scope), given.whole.money
    table, compared = asked_change(args)
    where = "the command" if args.scenario is None else args.scenario
    policy = policy_over(base.policy, table, given.whole.inputs.settings.text("report.timezone"), where)
    if compared is None:
        outcome = scenario_outcome(base, policy)
        yield from replay_tables(base, outcome, money)
        yield outcome_figures(outcome)
    else:
        found = sweep(base, policy, *_compared_numbers(compared, base))
        yield replay_sweep(found, money.currency)
        yield replay_check(found.check)
        yield sweep_figures(found, money)
    yield replay_basis(base)


@dataclass(frozen=True)
class AskedGpus:
    """A value of --gpus: the pool (empty: the only one), its numbers of GPUs, and whether these add to today's."""

    pool: str
    numbers: range
    is_difference: bool


def asked_change(args: argparse.Namespace) -> tuple[dict[str, object], AskedGpus | None]:
    """Return the change, as in a scenario file, and the numbers of GPUs to compare. Raises UsageError."""
    asked = [_asked_gpus(text) for text in args.gpus]
    compared = [each for each in asked if len(each.numbers) > 1]
    if len(compared) > 1:
        raise UsageError("--gpus compares the numbers of one pool at a time", "give one range of numbers")
    content = {} if args.scenario is None else policy_table(Path(args.scenario))
    table = {**content, **_table(args)}
    fixed = {each.pool: _written(each) for each in asked if len(each.numbers) == 1}
    if fixed:
        table["gpus"] = fixed.get("", fixed)
    return table, compared[0] if compared else None


def _written(asked: AskedGpus) -> int | str:
    """Return a single number as a scenario file has it."""
    [number] = asked.numbers
    return f"{number:+d}" if asked.is_difference else number


def _table(args: argparse.Namespace) -> dict[str, object]:
    """Return the flags as the keys and values of a scenario file."""
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


def _asked_gpus(text: str) -> AskedGpus:
    """Return the pool and the numbers of GPUs of a flag; raise UsageError where there are none."""
    found = _NUMBERS.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--gpus {text} is not a number of GPUs",
            "write train=+16 for 16 more, train=-8 for 8 fewer, train=48 for 48, or train=-8..+16:4",
        )
    ends = [found["first"], found["last"] or found["first"]]
    signed = [end[0] in "+-" for end in ends]
    if len(set(signed)) > 1:
        raise UsageError(
            f"--gpus {text} mixes a number and a difference", "sign both ends, such as -8..+16, or neither"
        )
    first, last, step = int(ends[0]), int(ends[1]), int(found["step"] or 1)
    if first > last or not step:
        raise UsageError(f"--gpus {text} is an empty range", "give the smaller number first, such as 40..64:4")
    numbers = range(first, last + 1, step)
    if len(numbers) > _SWEEP_MAX:
        raise UsageError(
            f"--gpus {text} takes {len(numbers)} replays",
            f"give larger steps, such as {ends[0]}..{ends[1]}:{-(-len(numbers) * step // 50)}",
        )
    return AskedGpus(found["pool"] or "", numbers, signed[0])


def _compared_numbers(asked: AskedGpus, base: ReplayBase) -> tuple[str, Sequence[int]]:
    """Return a pool and the numbers of its GPUs to compare; raise UsageError for an unknown pool, or too few GPUs."""
    name = _pool(asked.pool, base)
    there = gpus_of(base.fleet.groups, name) if asked.is_difference else 0
    if there + asked.numbers.start < 0:
        raise UsageError(
            f"the pool {name} has {there} GPUs, so {-asked.numbers.start} cannot be removed", f"remove {there} at most"
        )
    return name, [there + number for number in asked.numbers]


def _pool(name: str, base: ReplayBase) -> str:
    """Return the named pool, or the only pool; raise UsageError where there is none."""
    pools = sorted({group.pool for group in base.fleet.groups})
    if named_groups(base.fleet.groups, name) and name:
        return name
    if not name and len(pools) == 1:
        return pools[0]
    problem = f"--gpus names the unknown pool {name}" if name else "--gpus needs the name of a pool"
    raise UsageError(
        problem, f"the pools are {', '.join(pools)}: --gpus {pools[0]}=40..64" if pools else "this window has no GPUs"
    )


VERB = TableVerb(
    tr("The same jobs with the change"),
    _tables,
    flags=add_change_flags,
    refused=PEOPLE,
    why="a replay takes the jobs of all users",
)
