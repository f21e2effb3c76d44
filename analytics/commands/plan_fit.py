"""`fallow plan fit`: which card for a model or for work that was seen, and what the old cards could take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.money.window_money import open_prices
from analytics.plan.card_options import CardOption
from analytics.plan.fit import FittedOption, ModelFit, SeenFit, fit_model, fit_seen
from analytics.plan.measured_tokens import MeasuredTokens, measured_tokens
from analytics.plan.memory_need import METHODS, OPTIMIZERS, PRECISIONS, STORED_BITS, MemoryNeed, Serving, Training
from analytics.plan.model_shape import ModelShape, is_compressed, missing_keys, read_config, shape_of, typical_shape
from analytics.plan.old_cards import OldCards, OldCardWork, old_cards
from analytics.plan.seen_work import SeenWork, seen_works
from analytics.tables.plan_fit import fleet_cards, market_cards, memory_table, missing_model
from analytics.tables.plan_old_cards import old_card_queue, token_costs
from analytics.tables.plan_seen import SEEN_MOST, seen_cards, seen_needs
from analytics.tables.table import Table
from fallow.clock import HOUR_MS
from fallow.errors import UsageError

_SERVING_FLAGS = ("bits", "requests")
_TRAINING_FLAGS = ("batch", "optimizer", "precision", "rank", "no_checkpointing")
_CONTEXT = 4096
_MOST = {"context": 100_000_000, "requests": 100_000, "batch": 100_000, "rank": 100_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--config-json", metavar="FILE", help="a model's config.json, as Hugging Face has it")
    asked.add_argument("--params", metavar="N", help="a number of parameters, such as 8B")
    asked.add_argument("--seen", metavar="USER[/JOB]", help="work that was seen: all of a user, or one job of theirs")
    parser.add_argument("--context", metavar="N", type=int, help="tokens of a request or a sequence (default 4096)")  # fmt: skip
    parser.add_argument("--bits", type=int, choices=tuple(STORED_BITS), help="of a weight, to serve (default 16)")
    parser.add_argument("--requests", metavar="N", type=int, help="requests served at once (default 8)")
    parser.add_argument("--train", choices=METHODS, help="to train the model instead of serving it")
    parser.add_argument("--batch", metavar="N", type=int, help="sequences on each card in a step (default 1)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="default adamw")
    parser.add_argument("--precision", choices=PRECISIONS, help="of full training (default mixed: 16 bits beside 32)")
    parser.add_argument("--rank", metavar="N", type=int, help="of adapters, on all linear layers (default 16)")
    parser.add_argument("--no-checkpointing", action="store_true", default=None, help="keep all activations")


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for; without a question, or where it cannot be answered, what the old cards could take and what tokens cost."""
    work, model = _work(args), _model(args)
    plan = open_plan(args)
    context, prices = plan.whole.context, open_prices(plan.whole.inputs.settings)
    served = () if plan.scope.is_personal else measured_tokens(context)
    fitted = None if model.shape is None else fit_model(context, prices, model.shape, work, served)
    asked = None if args.seen is None else _asked(seen_works(context, plan.part.inside.stretches), args.seen)
    seen = [fit_seen(context, prices, each) for each in (asked or ())[:SEEN_MOST]]
    if args.json:
        show_plan_json(plan, _as_json(model, fitted, None if asked is None else seen, _old(plan), _tokens(plan)))
        return 0
    needs = () if asked is None else (seen_needs(asked, args.seen),)
    answered = (*_fit_sections(plan, fitted), *needs, *_seen_cards(plan, seen))
    show_plan(plan, answered or (model.missing, *_fleet_sections(plan)))
    return 0


def _old(plan: PlanInputs) -> OldCards:
    context, stretches = plan.whole.context, plan.part.inside.stretches
    return old_cards(context, seen_works(context, stretches), stretches, with_idle=plan.scope.is_all)


def _tokens(plan: PlanInputs) -> tuple[MeasuredTokens, ...]:
    if plan.scope.is_personal:
        return ()
    return measured_tokens(plan.whole.context, plan.part.inside.stretches["gpu"].unique())


@dataclass(frozen=True)
class _AskedModel:
    """The layout of the model that the flags name, or what its config.json lacks; all empty where none is named."""

    name: str = ""
    shape: ModelShape | None = None
    lacks: tuple[str, ...] = ()
    is_compressed: bool = False

    @property
    def missing(self) -> Table | None:
        """Why nothing is said of it."""
        if not self.lacks and not self.is_compressed:
            return None
        return missing_model(self.name, self.lacks, is_compressed=self.is_compressed)


def _model(args: argparse.Namespace) -> _AskedModel:
    if args.params is not None:
        return _AskedModel(args.params, typical_shape(args.params))
    if args.config_json is None:
        return _AskedModel()
    config, file = read_config(args.config_json), Path(args.config_json)
    name = file.parent.name if file.name == "config.json" and file.parent.name else file.name
    if (lacks := missing_keys(config)) or is_compressed(config):
        return _AskedModel(name, None, lacks, is_compressed(config))
    return _AskedModel(name, shape_of(config, name))


def _work(args: argparse.Namespace) -> Serving | Training:
    """The work that the flags describe; raises UsageError for flags that do not go together or are out of range."""
    others, about, remedy = (
        (_TRAINING_FLAGS, "training", "give --train too")
        if args.train is None
        else (_SERVING_FLAGS, "serving", "leave it or --train out")
    )
    for name in others:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is about {about}", remedy)
    if args.params is None and args.config_json is None:
        for name in ("train", "context", *_SERVING_FLAGS, *_TRAINING_FLAGS):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} needs a model", "give --params or --config-json")
    for name, most in _MOST.items():
        value = getattr(args, name)
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"--{name} {value} is out of range", f"give a number from 1 to {most:,}")
    if args.train is None:
        return Serving(bits=args.bits or 16, context=args.context or _CONTEXT, requests=args.requests or 8)
    return Training(
        method=args.train,
        sequence=args.context or _CONTEXT,
        batch=args.batch or 1,
        optimizer=args.optimizer or OPTIMIZERS[0],
        precision=args.precision or PRECISIONS[0],
        rank=args.rank or 16,
        is_checkpointed=not args.no_checkpointing,
    )


def _asked(works: Sequence[SeenWork], asked: str) -> list[SeenWork]:
    """The works of a user, or of a job of theirs, with or without the queue's name before it."""
    user, _, job = asked.partition("/")
    own = [each for each in works if each.holder == user]
    return (
        [each for each in own if each.job is not None and job in (each.job, each.job.partition(":")[2])] if job else own
    )


def _fit_sections(plan: PlanInputs, found: ModelFit | None) -> tuple[Table, ...]:
    currency = plan.whole.money.currency
    return () if found is None else (memory_table(found), fleet_cards(found, currency), market_cards(found, currency))


def _seen_cards(plan: PlanInputs, found: Sequence[SeenFit]) -> tuple[Table, ...]:
    """The cards of the first work whose need is known."""
    first = next((each for each in found if each.work.need is not None), None)
    return () if first is None else (seen_cards(first, plan.whole.money.currency),)


def _fleet_sections(plan: PlanInputs) -> tuple[Table, ...]:
    tokens = _tokens(plan)
    return (old_card_queue(_old(plan)), *((token_costs(tokens, plan.whole.money.currency),) if tokens else ()))


def _as_json(
    model: _AskedModel,
    fitted: ModelFit | None,
    seen: Sequence[SeenFit] | None,
    old: OldCards,
    tokens: Sequence[MeasuredTokens],
) -> dict[str, object]:
    return {
        "model": None if fitted is None else _model_json(fitted),
        "missing_keys": list(model.lacks),
        "is_compressed": model.is_compressed,
        "seen": None if seen is None else [_seen_json(each) for each in seen],
        "old_cards": {
            "cards": [each.model for each in old.offers],
            "unused_gpu_hours": None if old.idle_ms is None else old.idle_ms / HOUR_MS,
            "unmeasured_works": old.unmeasured,
            "short_runs": old.tests,
            "short_run_gpu_hours": old.tests_ms / HOUR_MS,
            "queue": [_queued_json(each) for each in old.queue],
        },
        "tokens": [
            {"model": each.served, "card": each.card, "gpu_hours": each.gpu_ms / HOUR_MS, "tokens": each.tokens,
             "cost": each.cost, "kwh": each.kwh, "cost_per_million": each.cost_per_million,
             "kwh_per_million": each.kwh_per_million}
            for each in tokens
        ],
    }  # fmt: skip


def _model_json(found: ModelFit) -> dict[str, object]:
    shape = found.shape
    return {
        "name": shape.name,
        "is_typical_layout": shape.is_typical,
        "parameters": shape.parameters,
        "active_parameters": shape.active,
        "work": asdict(found.work),
        "need": _need_json(found.need),
        "forms": [{"work": asdict(form), "need": _need_json(need)} for form, need in found.forms],
        "fleet": [_fitted_json(each) for each in found.fleet],
        "market": [_fitted_json(each) for each in found.market],
    }


def _need_json(need: MemoryNeed) -> dict[str, object]:
    return {"bytes": need.total, "bytes_for_sure": need.high, "parts": dict(need.parts)}


def _fitted_json(each: FittedOption) -> dict[str, object]:
    bounds, measured = each.bounds, each.measured
    return {
        **_option_json(each.option),
        "number_format": bounds.number_format,
        "tokens_per_s_at_most": bounds.per_s,
        "prompt_tokens_per_s_at_most": bounds.prompt_per_s,
        "kwh_per_million_at_power_limit": bounds.kwh_per_million,
        "cost_per_million_at_least": bounds.cost_per_million(each.option.hourly),
        "measured_model": None if measured is None else measured.served,
        "measured_cost_per_million": None if measured is None else measured.cost_per_million,
    }


def _option_json(option: CardOption) -> dict[str, object]:
    return {
        "card": option.card.name,
        "count": option.count,
        "mig_profile": None if option.part is None else option.part.profile.name,
        "link": option.link,
        "in_fleet": option.there,
        "fits": "perhaps" if option.is_tight else "yes",
        "bytes_on_each": option.need.total,
        "formats": list(option.card.formats),
        "hourly": option.hourly,
        "price_origin": option.origin,
    }


def _seen_json(found: SeenFit) -> dict[str, object]:
    return {
        **_work_json(found.work),
        "fleet": [{**_option_json(option), "times_as_long_at_most": times} for option, times in found.fleet],
        "market": [{**_option_json(option), "times_as_long_at_most": times} for option, times in found.market],
    }


def _queued_json(each: OldCardWork) -> dict[str, object]:
    return {**_work_json(each.work), "older_card": each.option.model, "times_as_long_at_most": each.times}


def _work_json(work: SeenWork) -> dict[str, object]:
    return {
        "holder": work.holder, "job": work.job, "kind": work.kind, "model": work.model, "gpus": work.gpus,
        "hosts": work.hosts, "gpu_hours": work.gpu_ms / HOUR_MS, "days": work.days, "usual_bytes": work.usual_bytes,
        "peak_bytes": work.peak_bytes, "is_reserved": work.is_reserved,
        "bytes_needed": None if work.need is None else work.need.total,
        "bytes_for_sure": None if work.need is None else work.need.high,
    }  # fmt: skip
