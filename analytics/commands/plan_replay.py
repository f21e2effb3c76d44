"""`fallow plan replay`: the jobs of a window on another fleet or under another policy, against the replay of today."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.replay.comparisons import sweep
from analytics.plan.replay.policy import ORDERS, ReplayPolicy, policy_over, policy_table
from analytics.plan.replay.replay_base import ReplayBase, scenario_outcome
from analytics.tables.plan_replay import outcome_figures, replay_basis, replay_tables
from analytics.tables.plan_replay_check import replay_check
from analytics.tables.plan_scenarios import replay_sweep, sweep_figures
from fallow.clock import HOUR_MS, MINUTE_MS, parse_duration_ms
from fallow.errors import UsageError

_NUMBERS = re.compile(r"(?:(?P<pool>.+)=)?(?P<first>\d+)(?:\.\.(?P<last>\d+)(?::(?P<step>\d+))?)?")
_SWEEP_MAX = 200
_SAME = ("order", "limit_to_need", "off_peak", "small_work_to", "share", "mig", "block")
"""Flags that a scenario file calls the same."""


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scenario", metavar="FILE", help="TOML file that says what changes, see docs/planning.md; flags add to it"
    )
    parser.add_argument(
        "--gpus",
        metavar="[POOL=]N[..M[:STEP]]",
        action="append",
        default=[],
        help="so many GPUs in a pool; 40..64 tries each number (of one pool)",
    )
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


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """The outcome of the change; of several numbers of GPUs, what each would have made."""
    base, money = given.whole.plan.replay_base(given.scope), given.whole.money
    policy, numbers = _policy(args, given, base)
    if numbers is None:
        outcome = scenario_outcome(base, policy)
        yield from replay_tables(base, outcome, money)
        yield outcome_figures(outcome, money)
    else:
        found = sweep(base, policy, *numbers)
        yield replay_sweep(found, base.check, money.currency)
        yield replay_check(base.check)
        yield sweep_figures(found, money)
    yield replay_basis(base)


def _policy(
    args: argparse.Namespace, given: VerbInputs, base: ReplayBase
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
    policy = policy_over(base.policy, table, given.whole.inputs.settings.text("report.timezone"), where)
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


VERB = TableVerb(
    tr("What the change would have made of the same jobs"),
    _tables,
    flags=_flags,
    refused=PEOPLE,
    why="a replay is of everybody's jobs",
)
