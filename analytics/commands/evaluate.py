"""`fallow evaluate`: what fallow concludes against labels that somebody else wrote, as text, JSON or CSV."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from analytics.commands.actor import add_actor_argument
from analytics.decide.records import RuleRecord, save_records
from analytics.evaluation.evaluate import Evaluation, evaluate
from analytics.evaluation.labels import COLUMNS, gpu_names, read_labels
from analytics.evaluation.verdicts import Proportion
from analytics.importers.limits import InputLimits
from analytics.importers.times import check_zone
from analytics.inventory import load_inventory, simulated_text
from analytics.language.language import ENGLISH
from analytics.language.plain_text import count, folded, page_columns
from analytics.render.report.text import for_text, section_text
from analytics.tables.evaluation import evaluation_sections
from analytics.window import add_common_arguments, load_window_ledger, open_inputs
from analytics.workloads.confidence import JUDGED_MIN
from fallow.actors import Actor, command_actor
from fallow.clock import HOUR_MS, SystemClock, format_ms, parse_duration_ms
from fallow.csv_text import csv_text
from fallow.lake import Lake
from fallow.output import say, show

_CSV = ("of", "name", "figure", "unit", "right", "judged", "ratio", "low", "high")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument(
        "--labels", required=True, metavar="FILE",
        help=f"CSV or Parquet with the columns {', '.join(COLUMNS)}; see docs/evaluate.md",
    )  # fmt: skip
    parser.add_argument(
        "--every", metavar="LENGTH", help="judge windows of this length one after another, such as 7d (default: one)"
    )
    parser.add_argument(
        "--time-zone", "--tz", dest="zone", metavar="ZONE", default="UTC",
        help="time zone of labels' times without an offset (default: UTC)",
    )  # fmt: skip
    parser.add_argument(
        "--save", action="store_true",
        help="keep each rule's counts in the lake: later findings of a rule that was wrong too often are graded down",
    )  # fmt: skip
    add_actor_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="one line per proportion, with its interval")


def run(args: argparse.Namespace) -> int:
    """Prints how the window's conclusions fare."""
    zone = check_zone(args.zone, "--time-zone")
    every_ms = None if args.every is None else parse_duration_ms(args.every)
    actor = command_actor(args.actor) if args.save else None
    inputs = open_inputs(args)
    ledger = load_window_ledger(inputs)
    inventory = ledger.whole.inventory or load_inventory(inputs.lake)
    gpus = ledger.whole.lifetimes["gpu"].unique()
    labels = read_labels(args.labels, zone, gpu_names(gpus, inventory), InputLimits.of(inputs.settings))
    found = evaluate(inputs, ledger, labels, inventory=inventory, every_ms=every_ms, now_ms=SystemClock().now_ms())
    if actor is not None:
        say(_save(inputs.lake, found, args.labels, actor))
    said = simulated_text(
        inventory.count_simulated(ledger.inside.stretches["gpu"].unique()), ledger.summary.totals.gpus
    )
    if args.json:
        show(json.dumps(found.as_json(), indent=2))
    elif args.csv:
        _write_csv(found)
    else:
        blocks = (section_text(section, for_text(ENGLISH)) for section in evaluation_sections(found))
        show(folded("\n\n".join([*([said] if said else []), *blocks]), page_columns()))
    if said and (args.json or args.csv):
        say(said)  # the forms for machines are fixed
    return 0


def _save(lake: Lake, found: Evaluation, path: str, actor: Actor) -> str:
    """Keeps the rules' counts, and says so in one sentence."""
    records = [
        RuleRecord(each.rule, grade, findings, precision.judged, precision.right)
        for each in found.rules
        for grade, (findings, precision) in each.by_grade.items()
        if precision.judged
    ]
    rules = len({each.rule for each in records})
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    save_records(
        lake, records, since_ms=found.since_ms, until_ms=found.until_ms, labels_sha256=digest, actor=actor,
        now_ms=SystemClock().now_ms(),
    )  # fmt: skip
    if not records:
        return "nothing was saved: no label speaks of any finding"
    until, told = format_ms(found.until_ms), [each for each in records if each.judged >= JUDGED_MIN]
    said = f"saved the counts of {count(rules, 'rule')}; findings of windows that end after {until} are graded by them"
    if len(told) == len(records):
        return said
    few = f"{len(records) - len(told)} of {len(records)} counts by rule and confidence are smaller, and grade nothing"
    return f"{said} from {JUDGED_MIN} labelled findings on: {few}"


def _write_csv(found: Evaluation) -> None:
    rows: list[Sequence[object]] = []
    for of, name, figure, unit, proportion in _proportions(found):
        low, high = proportion.interval or (None, None)
        rows.append((of, name, figure, unit, proportion.right, proportion.judged, proportion.share, low, high))
    for label in found.states.labels:
        agreed, judged = (part / HOUR_MS for part in found.states.labelled(label))
        rows.append(
            ("state", label, "agreed", "gpu_hours", agreed, judged, agreed / judged if judged else None, None, None)
        )
    show(csv_text(_CSV, rows), end="")


def _proportions(found: Evaluation) -> Iterator[tuple[str, str, str, str, Proportion]]:
    for rule in found.rules:
        yield "rule", rule.rule, "precision", "findings", rule.precision
        yield "rule", rule.rule, "takeable", "gpus", rule.takeable
        yield "rule", rule.rule, "recall", "gpus", rule.recall
    for grade in (*found.grades, found.takeable):
        yield "confidence", grade.grade, "takeable", "gpus", grade.takeable
    yield "confidence", found.takeable.grade, "takeable_recall", "gpus", found.takeable_recall
