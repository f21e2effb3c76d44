"""`fallow findings show`: whole findings, with every GPU, job and note."""

from __future__ import annotations

import argparse
import json

from analytics.commands.finding_actions import as_listed, no_finding
from analytics.decide.review import review
from analytics.render.findings_text import block
from analytics.render.review_text import beside
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.model import Finding
from fallow.clock import SystemClock
from fallow.output import show


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    verb = verbs.add_parser(
        "show",
        help="show whole findings, nothing shortened",
        epilog="example: fallow findings show F-0123456789 --lake /srv/lake",
        allow_abbrev=False,
    )
    verb.add_argument("ids", nargs="+", type=as_listed, metavar="ID", help="id of a finding: F-0123456789")
    # what was given before the verb stays
    verb.add_argument("--lake", metavar="DIR", default=argparse.SUPPRESS, help="the lake")
    verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
    verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="machine-readable")


def run(args: argparse.Namespace) -> int:
    """Prints the findings of these ids, suppressed ones and those of last week too; FallowError where one is not there."""
    inputs = open_inputs(args)
    found = review(inputs, load_window_ledger(inputs))
    known: dict[str, Finding] = {each.finding_id: each for each in (*found.gone, *found.findings)}
    wanted = dict.fromkeys(args.ids)
    for each in wanted:
        if each not in known:
            raise no_finding(each, known)
    chosen = [known[each] for each in wanted]
    if args.json:
        show(json.dumps({"findings": [each.as_json() for each in chosen]}, indent=2))
    else:
        around = beside(found, SystemClock().now_ms())
        show("\n\n".join(block(each, around, whole=True) for each in chosen))
    return 0
