"""`fallow plan prices`: what to buy, to reserve and to rent for the need that was observed, and what an hour should cost within the house."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.language.languages import time_zone
from analytics.money.offers import is_old
from analytics.plan.internal_prices import InternalPrices, internal_prices_of
from analytics.plan.pool_prices import PoolPrices, of_scope
from analytics.plan.price_mix import Mix, Option
from analytics.plan.replay.policy_file import policy_from
from analytics.plan.replay.replay_base import ReplayBase
from analytics.plan.replay.shifted_work import ShiftedWork, shifted_work
from analytics.tables.plan_internal_prices import internal_price_table
from analytics.tables.plan_prices import mix_parts, price_mix, price_offers
from analytics.tables.plan_shifted_work import shifted_work_table
from fallow.clock import HOUR_MS, from_ms
from fallow.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    parser.add_argument(
        "--spot-share", metavar="SHARE", type=float,
        help="the part of each hour's need that may be interrupted, from 0 to 1 (default: the work of best-effort owners)",
    )  # fmt: skip
    parser.add_argument(
        "--off-peak", metavar="HH:MM-HH:MM",
        help="say also, by a replay, what would have moved if work that can wait began in these cheap hours only",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prints the mix, the offers and the internal prices."""
    if args.spot_share is not None and not 0 <= args.spot_share <= 1:
        raise UsageError(f"--spot-share {args.spot_share} is no share", "give a number from 0 to 1, such as 0.3")
    plan = open_plan(args)
    if plan.scope.is_personal:
        raise UsageError("GPUs are bought and rented for pools", "leave out --team and --holder, or name a --pool")
    whole = plan.whole
    found = of_scope(
        whole.plan.prices if args.spot_share is None else whole.plan.prices_for(args.spot_share), plan.scope
    )
    internal = internal_prices_of(found, time_zone(whole.inputs.settings.text("report.timezone")))
    shifted = None if args.off_peak is None else _shifted(plan, args.off_peak, internal)
    if args.json:
        show_plan_json(
            plan, _as_json(plan, found, internal) | ({} if shifted is None else {"shifted": _shifted_json(shifted[1])})
        )
    else:
        currency, today = whole.money.currency, from_ms(plan.now_ms).date()
        sections = (
            mix_parts(found, currency),
            price_offers(found, currency, today),
            internal_price_table(internal, currency),
            None if shifted is None else shifted_work_table(*shifted, currency),
        )
        show_plan(plan, [price_mix(found, currency), *sections])
    return 0


def _shifted(plan: PlanInputs, hours: str, internal: Sequence[InternalPrices]) -> tuple[ReplayBase, ShiftedWork]:
    """What begins in these hours only, in the pools of the scope; raises UsageError for what is no span of hours."""
    base = plan.whole.plan.replay_base(plan.scope)
    zone = plan.whole.inputs.settings.text("report.timezone")
    policy = policy_from({"off_peak": hours}, zone, "the command")
    assert policy.off_peak is not None  # noqa: S101  # it was set
    return base, shifted_work(base, policy.off_peak, internal)


def _shifted_json(found: ShiftedWork) -> dict[str, object]:
    waits = (
        None if found.waits is None else [None if each.p95_ms is None else each.p95_ms / 1000 for each in found.waits]
    )
    return {
        "jobs_that_can_wait": found.jobs,
        "jobs_put_off": found.postponed,
        "gpu_hours_by_hour": [{"today": today / HOUR_MS, "then": then / HOUR_MS} for today, then in found.by_hour],
        "price_per_gpu_hour_today": None if found.paid is None else found.paid[0],
        "price_per_gpu_hour_then": None if found.paid is None else found.paid[1],
        "p95_wait_s_today": None if waits is None else waits[0],
        "p95_wait_s_then": None if waits is None else waits[1],
    }


def _as_json(plan: PlanInputs, found: Sequence[PoolPrices], internal: Sequence[InternalPrices]) -> dict[str, object]:
    return {
        "currency": plan.whole.money.currency,
        "pools": [_pool_json(each, plan) for each in found],
        "internal_prices": [_internal_json(each) for each in internal],
    }


def _pool_json(pool: PoolPrices, plan: PlanInputs) -> dict[str, object]:
    curve = pool.curve
    return {
        "pool": curve.pool,
        "model": curve.model,
        "gpus": curve.gpus,
        "hours": curve.hours.height,
        "unseen_hours": curve.unseen,
        "curve": [{"gpus": gpus, "hours": hours} for gpus, hours in curve.duration.iter_rows()],
        "mix": None if pool.mix is None else _mix_json(pool.mix),
        "mix_with_unused": None if pool.with_taken is None else _mix_json(pool.with_taken),
        "weeks": [_mix_json(each) for each in pool.weeks],
        "now_yearly_cost": pool.now_yearly,
        "options": [_option_json(pool, each, plan) for each in pool.options],
        "spot_left_out": [{"provider": each.provider, "source": each.source} for each in pool.unrated],
    }


def _mix_json(mix: Mix) -> dict[str, object]:
    parts = [
        {"kind": part.option.offer.kind, "provider": part.option.offer.provider, "source": part.option.offer.source,
         "gpus": part.gpus, "gpu_hours": part.gpu_hours, "cost": part.cost}
        for part in mix.parts
    ]  # fmt: skip
    return {
        "hours": mix.hours,
        "cost": mix.cost,
        "yearly_cost": mix.yearly_cost,
        "committed_gpus": mix.committed_gpus,
        "parts": parts,
    }


def _option_json(pool: PoolPrices, option: Option, plan: PlanInputs) -> dict[str, object]:
    offer = option.offer
    rented = pool.rented
    return {
        "kind": offer.kind,
        "provider": offer.provider,
        "source": offer.source,
        "date": None if offer.date is None else str(offer.date),
        "is_old": is_old(offer, from_ms(plan.now_ms).date()),
        "years": None if offer.years is None else float(offer.years),
        "fixed_hourly": option.fixed,
        "used_hourly": option.used,
        "pays_from_share": option.pays_from(rented.used) if rented is not None and option.is_committed else None,
        "alone_yearly_cost": pool.alone_yearly(option),
    }


def _internal_json(prices: InternalPrices) -> dict[str, object]:
    return {
        "pool": prices.pool,
        "model": prices.model,
        "flat": prices.flat,
        "load": prices.load,
        "factors": prices.factors,
    }
