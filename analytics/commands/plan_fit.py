"""`fallow plan fit`: which card fits a model or an observed workload, and which workloads old cards could run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.money.window_money import open_prices
from analytics.plan.fit import fit_model, fit_seen, measured_tokens
from analytics.plan.model_needs import LOSSES, METHODS, OPTIMIZERS, PRECISIONS, Serving, Training
from analytics.plan.model_shapes import (
    STORED_BITS,
    ModelShape,
    missing_keys,
    read_config,
    shape_of,
    typical_shape,
    uneven_key,
)
from analytics.plan.seen_work import SeenWork, old_cards, seen_workloads
from analytics.tables.plan_fit import (
    fitted_model,
    fleet_cards,
    market_cards,
    memory_table,
    missing_model,
)
from analytics.tables.plan_old_cards import old_card_queue, old_card_workloads, old_cards_counted, token_costs
from analytics.tables.plan_seen import SEEN_MOST, seen_cards, seen_needs
from analytics.tables.table import Table
from fallow.errors import UsageError

_SERVING_FLAGS = ("bits", "requests")
_TRAINING_FLAGS = ("batch", "optimizer", "precision", "rank", "loss", "packed", "no_checkpointing")
_CONTEXT = 4096
_MOST = {"context": 100_000_000, "requests": 100_000, "batch": 100_000, "rank": 100_000}


def _flags(parser: argparse.ArgumentParser) -> None:
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--config-json", metavar="FILE", help="a model's config.json in Hugging Face's form")
    asked.add_argument("--params", metavar="N", help="the model's number of parameters, such as 8B")
    asked.add_argument("--seen", metavar="USER[/JOB]", help="an observed workload: a user's, or one job's")
    parser.add_argument(
        "--context",
        metavar="N",
        type=int,
        help="tokens per request or sequence (default: 4096, or the most that the model takes)",
    )
    parser.add_argument(
        "--bits",
        type=int,
        choices=tuple(STORED_BITS),
        help="bits per weight when serving (default: those of the model's files, else 16)",
    )
    parser.add_argument("--requests", metavar="N", type=int, help="concurrent requests (default: 8)")
    parser.add_argument("--train", choices=METHODS, help="train the model with this method instead of serving it")
    parser.add_argument("--batch", metavar="N", type=int, help="sequences per card and step (default: 1)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="optimizer of training (default: adamw)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="precision of full training (default: mixed, 16 and 32 bits)"
    )
    parser.add_argument("--rank", metavar="N", type=int, help="rank of adapters on all linear layers (default: 16)")
    parser.add_argument(
        "--loss", choices=LOSSES, help="word scores of the loss: all in 32 or 16 bits, or in chunks (default: fp32)"
    )
    parser.add_argument("--packed", action="store_true", default=None, help="all sequences have the full length")
    parser.add_argument("--no-checkpointing", action="store_true", default=None, help="keep all activations in memory")


def _check(args: argparse.Namespace) -> None:
    """Set `args.asked_work` and `args.asked_model`. Raises UsageError, and ConfigError for a config.json."""
    _check_flags(args)
    args.asked_model = _model(args)
    args.asked_work = _work(args, args.asked_model)


def _model(args: argparse.Namespace) -> ModelShape | tuple[Table, ...]:
    """Return the layout of the flags' model, or tables that say why it is unknown; empty without a model."""
    if args.params is not None:
        return typical_shape(args.params)
    if args.config_json is None:
        return ()
    config, file = read_config(args.config_json), Path(args.config_json)
    name = file.parent.name if file.name == "config.json" and file.parent.name else file.name
    if (lacks := missing_keys(config)) or uneven_key(config):
        return missing_model(name, lacks, uneven_key(config))
    return shape_of(config, name)


def _check_flags(args: argparse.Namespace) -> None:
    """Raise UsageError for flags that contradict each other or are out of range."""
    others, about, remedy = (
        (_TRAINING_FLAGS, "training", "add --train")
        if args.train is None
        else (_SERVING_FLAGS, "serving", "leave out this flag or --train")
    )
    for name in others:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} applies to {about}", remedy)
    if args.params is None and args.config_json is None:
        for name in ("train", "context", *_SERVING_FLAGS, *_TRAINING_FLAGS):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} needs a model", "give --params or --config-json")
    for name, most in _MOST.items():
        value = getattr(args, name)
        if value is not None and not 1 <= value <= most:
            raise UsageError(f"--{name} {value} is out of range", f"give a number from 1 to {most:,}")


def _work(args: argparse.Namespace, model: ModelShape | tuple[Table, ...]) -> Serving | Training:
    """Return the work that the flags describe. A model's files give the default bits, and limit the default context."""
    stored, most = (model.file_bits, model.most_tokens) if isinstance(model, ModelShape) else (None, None)
    context = args.context or min(_CONTEXT, most or _CONTEXT)
    if args.train is None:
        return Serving(bits=args.bits or stored or 16, context=context, requests=args.requests or 8)
    return Training(
        method=args.train,
        sequence=context,
        batch=args.batch or 1,
        optimizer=args.optimizer or OPTIMIZERS[0],
        precision=args.precision or PRECISIONS[0],
        rank=args.rank or 16,
        is_checkpointed=not args.no_checkpointing,
        loss=args.loss or LOSSES[0],
        is_packed=bool(args.packed),
    )


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the cards for the model or workload, else what old cards could run and what tokens cost."""
    if isinstance(args.asked_model, ModelShape):
        yield from _of_model(given, args)
    elif args.seen is not None:
        yield from _of_seen(given, args.seen)
    else:
        yield from args.asked_model
        yield from _of_fleet(given)


def _of_model(given: VerbInputs, args: argparse.Namespace) -> Tables:
    context, currency = given.whole.context, given.whole.money.currency
    served = () if given.scope.is_personal else measured_tokens(context)
    found = fit_model(context, open_prices(given.whole.inputs.settings), args.asked_model, args.asked_work, served)
    yield memory_table(found)
    yield fleet_cards(found, currency)
    yield market_cards(found, currency)
    yield fitted_model(found)


def _of_seen(given: VerbInputs, asked: str) -> Tables:
    context, prices = given.whole.context, open_prices(given.whole.inputs.settings)
    workloads = _asked(seen_workloads(context, given.part.inside.segments), asked)
    yield seen_needs(workloads, asked)
    yield seen_cards([fit_seen(context, prices, each) for each in workloads[:SEEN_MOST]], given.whole.money.currency)


def _asked(workloads: Sequence[SeenWork], asked: str) -> list[SeenWork]:
    """The works of a user, or of a job of theirs, with or without the queue's name before it."""
    user, _, job = asked.partition("/")
    own = [each for each in workloads if each.user == user]
    return (
        [each for each in own if each.job is not None and job in (each.job, each.job.partition(":")[2])] if job else own
    )


def _of_fleet(given: VerbInputs) -> Tables:
    context, segments = given.whole.context, given.part.inside.segments
    old = old_cards(context, seen_workloads(context, segments), segments, with_idle=given.scope.is_all)
    yield old_card_queue(old)
    if not given.scope.is_personal and (tokens := measured_tokens(context, segments["gpu"].unique())):
        yield token_costs(tokens, open_prices(given.whole.inputs.settings))
    yield old_card_workloads(old)
    yield old_cards_counted(old)


VERB = TableVerb(tr("Which card for which work"), _tables, flags=_flags, check=_check)
