"""`fallow findings ack|suppress|reopen|note|history`: what people do about findings."""

from __future__ import annotations

import argparse
import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

from analytics.findings.actions import Action, load_actions, record, who
from analytics.findings.find import review
from analytics.findings.lifecycle import in_words
from analytics.inputs import load_window_ledger, open_inputs
from analytics.ledger.text import moment, plain
from fallow.clock import SystemClock, parse_duration_ms, parse_window
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.inputs import Inputs

_VERBS = {
    "ack": ("take a finding on", "fallow findings ack F-0123456789 --lake /srv/lake"),
    "suppress": ("hide a finding, with a reason",
                 "fallow findings suppress F-0123456789 --reason 'warm standby' --for 30d --lake /srv/lake"),
    "reopen": ("take back what was said about a finding", "fallow findings reopen F-0123456789 --lake /srv/lake"),
    "note": ("write something beside a finding", "fallow findings note F-0123456789 --text 'asked ann' --lake /srv/lake"),
    "history": ("who did what about a finding, and when", "fallow findings history F-0123456789 --lake /srv/lake"),
}  # fmt: skip
_DONE = {"ack": "acknowledged", "suppress": "suppressed", "reopen": "reopened", "note": "noted on"}


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Adds one subcommand per verb; without one, the findings are listed."""
    verbs = parser.add_subparsers(dest="verb", metavar="ack|suppress|reopen|note|history", title="what to do about one")
    for name, (summary, example) in _VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=f"example: {example}", allow_abbrev=False)
        verb.add_argument(
            "ids", nargs=1 if name == "history" else "+", metavar="ID", help="id of a finding: F-0123456789"
        )
        # what was given before the verb stays
        verb.add_argument("--lake", metavar="DIR", default=argparse.SUPPRESS, help="the lake")
        verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
        if name == "history":
            verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="machine-readable")
            continue
        verb.add_argument("--as", dest="actor", metavar="NAME", help="who you are (default: your login name)")
        verb.add_argument("--force", action="store_true", help="also for an id that is not in this window")
        if name == "suppress":
            verb.add_argument("--reason", required=True, metavar="TEXT", help="why it is to be hidden")
            end = verb.add_mutually_exclusive_group()
            end.add_argument(
                "--until", dest="expires", metavar="TIME", help="end, a day inclusive (default: until reopened)"
            )
            end.add_argument("--for", dest="expires_after", metavar="TIME", help="how long, such as 30d")
        if name == "note":
            verb.add_argument("--text", required=True, metavar="TEXT", help="what to write")
        elif name != "suppress":
            verb.add_argument("--reason", metavar="TEXT", help="why")


def run(args: argparse.Namespace) -> int:
    """Does what the verb says; raises FallowError and its kinds."""
    inputs = open_inputs(args)
    if args.verb == "history":
        return _history(inputs, args)
    now_ms = SystemClock().now_ms()
    actor, reason, expires_ms = who(args.actor), _reason(args), _expires_ms(args, now_ms)
    if args.force:
        inputs.lake.require()
    else:
        _require(inputs, args.ids, load_actions(inputs.lake))
    for action in record(
        inputs.lake, args.verb, args.ids, actor, now_ms=now_ms, reason=reason, expires_ms=expires_ms
    ):  # fmt: skip
        until = "" if expires_ms is None else f" until {moment(expires_ms)}"
        print(f"{_DONE[args.verb]} {action.finding_id} as {plain(actor)}{until}")
    return 0


def _reason(args: argparse.Namespace) -> str | None:
    flag, text = ("--text", args.text) if args.verb == "note" else ("--reason", args.reason)
    if text is not None and not text.strip():
        raise UsageError(f"{flag} is empty", "say it in a few words: others will read it")
    return None if text is None else str(text).strip()


def _expires_ms(args: argparse.Namespace, now_ms: int) -> int | None:
    if args.verb != "suppress":
        return None
    if args.expires_after:
        return now_ms + parse_duration_ms(args.expires_after)
    expires_ms = parse_window(None, args.expires).until_ms
    if expires_ms is not None and expires_ms <= now_ms:
        raise UsageError(f"--until {args.expires} has passed", "give a time to come, or --for 30d")
    return expires_ms


def _require(inputs: Inputs, ids: Iterable[str], actions: Mapping[str, object]) -> None:
    """FallowError unless every id is one of this window's findings, of last week's, or was acted upon before."""
    wanted = [each for each in ids if each not in actions]
    if not wanted:
        return
    found = review(inputs, load_window_ledger(inputs))
    known = [finding.finding_id for finding in (*found.findings, *found.gone)]
    for each in wanted:
        if each not in known:
            near = get_close_matches(each, dict.fromkeys((*known, *actions)), n=3, cutoff=0.5)
            hint = f"near it: {', '.join(near)}" if near else "`fallow findings` lists the ids"
            raise FallowError(
                f"there is no finding {plain(each)} in this window",
                f"{hint}; --since and --until before the verb name another window, --force takes any id",
            )


def _history(inputs: Inputs, args: argparse.Namespace) -> int:
    (finding_id,) = args.ids
    actions = load_actions(inputs.lake.require())
    if finding_id not in actions:
        _require(inputs, args.ids, actions)
    done: tuple[Action, ...] = actions.get(finding_id, ())
    if args.json:
        print(json.dumps({"finding_id": finding_id, "actions": [each.as_json() for each in done]}, indent=2))
    elif done:
        print("\n".join(plain(in_words(each), 1000) for each in done))
    else:
        print(f"nobody has done anything about {finding_id} yet")
    return 0
