"""`fallow evaluate`: findings and states compared with labels that the site supplies."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from analytics.commands.actor import add_actor_argument
from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.decide.reversals import RuleRecord, save_records
from analytics.evaluation.evaluate import Evaluation, evaluate
from analytics.evaluation.labels import COLUMNS, gpu_names, read_labels
from analytics.importers.source import InputLimits
from analytics.importers.times import check_zone
from analytics.language.sentences import count, tr
from analytics.scope import Scope
from analytics.tables.evaluation import evaluation_tables
from analytics.workloads.confidence import JUDGED_MIN
from fallow.actors import Actor, command_actor
from fallow.clock import format_ms, parse_duration_ms
from fallow.errors import UsageError
from fallow.lake import Lake
from fallow.output import say


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--labels",
        required=True,
        metavar="FILE",
        help=f"CSV or Parquet with the columns {', '.join(COLUMNS)}; see docs/evaluate.md",
    )
    parser.add_argument(
        "--every",
        type=parse_duration_ms,
        metavar="LENGTH",
        help="evaluate consecutive windows of this length, such as 7d (default: one window)",
    )
    parser.add_argument(
        "--time-zone",
        "--tz",
        dest="zone",
        metavar="ZONE",
        default="UTC",
        help="time zone of label times without an offset (default: UTC)",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help=(
            "save the counts of each rule in the lake; rules that were often wrong get a lower confidence from then on"
        ),
    )
    add_actor_argument(parser)


def _check(args: argparse.Namespace) -> None:
    check_zone(args.zone, "--time-zone")
    if not Scope.of(args).is_all:
        raise UsageError("labels are compared with the whole fleet", "leave out --pool, --model, --team and --user")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Return the tables that compare the window's findings and states with the labels."""
    actor = command_actor(args.actor) if args.save else None
    inputs, ledger, inventory = given.whole.inputs, given.whole.ledger, given.whole.inventory
    names = gpu_names(ledger.whole.lifetimes["gpu"].unique(), inventory)
    labels = read_labels(args.labels, args.zone, names, InputLimits.of(inputs.settings))
    found = evaluate(inputs, ledger, labels, inventory=inventory, every_ms=args.every, now_ms=given.now_ms)
    if actor is not None:
        say(_save(inputs.lake, found, args.labels, actor, given.now_ms))
    return evaluation_tables(found)


def _save(lake: Lake, found: Evaluation, path: str, actor: Actor, now_ms: int) -> str:
    """Save the counts of the rules in the lake; return a sentence that says which."""
    records = [
        RuleRecord(each.rule, each.grade, each.findings, each.precision.judged, each.precision.right)
        for rule in found.rules
        for each in rule.by_grade
        if each.precision.judged
    ]
    rules = len({each.rule for each in records})
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    save_records(
        lake,
        records,
        since_ms=found.since_ms,
        until_ms=found.until_ms,
        labels_sha256=digest,
        actor=actor,
        now_ms=now_ms,
    )
    if not records:
        return "nothing was saved: no label matches a finding"
    until = format_ms(found.until_ms)
    large = [each for each in records if each.judged >= JUDGED_MIN]
    saved = (
        f"saved the counts of {count(rules, 'rule')}; they set the confidence of findings in windows that end after"
        f" {until}"
    )
    if len(large) == len(records):
        return saved
    small = (
        f"{len(records) - len(large)} of {len(records)} counts by rule and confidence are below {JUDGED_MIN} findings"
    )
    return f"{saved}; {small} and have no effect"


VERB = TableVerb(tr("Findings and states against labels"), _tables, flags=_flags, check=_check, since="all")
