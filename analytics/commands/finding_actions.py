"""`fallow findings ack|snooze|reopen|note|history`: what people do about findings."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from difflib import get_close_matches

from analytics.commands.actor import add_actor_argument
from analytics.decide.actions import Action, actor_words, after_what_is_known, load_actions, record
from analytics.decide.lifecycle import status_of
from analytics.decide.review import review
from analytics.language.languages import language, site_zone
from analytics.language.sentences import moment, plain
from analytics.render.report.text import for_text, section_text
from analytics.tables.annotations import action_list
from analytics.window import HISTORY_MS, Inputs, load_window_ledger, open_inputs
from fallow.actors import command_actor
from fallow.clock import SystemClock, parse_duration_ms, parse_window
from fallow.errors import FallowError, UsageError
from fallow.output import show

VERBS = {
    "ack": ("acknowledge findings: a person takes care of them", "fallow findings ack F-0123456789 --lake /srv/lake"),
    "snooze": (
        "hide findings, with a reason",
        "fallow findings snooze F-0123456789 --reason 'warm standby' --for 30d --lake /srv/lake",
    ),
    "reopen": ("undo acknowledgements and snoozes", "fallow findings reopen F-0123456789 --lake /srv/lake"),
    "note": ("add a note to findings", "fallow findings note F-0123456789 --text 'asked ann' --lake /srv/lake"),
    "history": (
        "list the actions on a finding, with person and time",
        "fallow findings history F-0123456789 --lake /srv/lake",
    ),
}
_ID = re.compile(r"[Ff]-[0-9A-Fa-f]{10}")
_DECIDING = ("ack", "snooze", "reopen")
_DONE = {"ack": "acknowledged", "snooze": "snoozed", "reopen": "reopened", "note": "noted on"}
_STANDS = {"ack": "acknowledged", "snooze": "snoozed", "notify": "notified"}
_NOUN = {"ack": "acknowledgement", "snooze": "snooze", "notify": "notification"}


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, (summary, example) in VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=f"example: {example}")
        verb.add_argument(
            "ids",
            nargs=1 if name == "history" else "+",
            type=as_listed,
            metavar="ID",
            help="id of a finding: F-0123456789",
        )
        # a value before the verb stays
        verb.add_argument("--lake", metavar="DIR", default=argparse.SUPPRESS, help="the lake")
        verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
        if name == "history":
            verb.add_argument(
                "--json",
                action="store_const",
                const="json",
                dest="format",
                default=argparse.SUPPRESS,
                help="print JSON",
            )
            continue
        add_actor_argument(verb)
        verb.add_argument("--force", action="store_true", help="accept ids that are not in this window")
        if name == "snooze":
            verb.add_argument("--reason", required=True, metavar="TEXT", help="why the finding is hidden")
            end = verb.add_mutually_exclusive_group()
            end.add_argument(
                "--until", dest="expires", metavar="TIME", help="end, a day inclusive (default: until reopened)"
            )
            end.add_argument("--for", dest="expires_after", metavar="TIME", help="how long, such as 30d")
        if name == "note":
            verb.add_argument("--text", required=True, metavar="TEXT", help="what to write")
        elif name != "snooze":
            verb.add_argument("--reason", metavar="TEXT", help="why")


def as_listed(finding_id: str) -> str:
    """Return the id as `fallow findings` lists it: `f-0123ABCDEF` becomes `F-0123abcdef`."""
    return "F-" + finding_id[2:].lower() if _ID.fullmatch(finding_id) else finding_id


def run(args: argparse.Namespace) -> int:
    """Record the action, or list the actions on a finding; return the exit code. Raises FallowError and its kinds."""
    inputs = open_inputs(args)
    if args.verb == "history":
        return _history(inputs, args)
    now_ms = SystemClock().now_ms()
    actor, reason, expires_ms = (
        command_actor(args.actor),
        _reason(args),
        _expires_ms(args, now_ms, site_zone(inputs.settings)),
    )
    before = load_actions(inputs.lake.require())
    if not args.force:
        require_ids(inputs, args.ids, before)
    standing = {each: status_of(before.get(each, ()), "", now_ms) for each in args.ids}
    # open findings are not reopened: the record only has changes
    idle = [each for each, status in standing.items() if args.verb == "reopen" and not status]
    ids = [each for each in standing if each not in idle]
    done: dict[str, Action] = {}
    if ids:
        at_ms = after_what_is_known(now_ms, ids, before)
        recorded = record(inputs.lake, args.verb, ids, actor, now_ms=at_ms, reason=reason, expires_ms=expires_ms)
        done = {each.finding_id: each for each in recorded}
    # read again: another person may have acted in the meantime
    known = load_actions(inputs.lake) if ids else before
    for each in standing:
        if each in idle:
            show(f"nothing to reopen: {_open_reason(each, before.get(each, ()))}")
        else:
            beside = "" if args.verb == "note" else beside_others(known[each], done[each], now_ms)
            show(f"{_DONE[args.verb]} {plain(each)} as {actor_words(actor)}{_until(args.verb, expires_ms)}{beside}")
    return 0


def beside_others(actions: Sequence[Action], own: Action, now_ms: int) -> str:
    """Return what `own` ends, and whose later action replaces it; `actions` are those of the finding, in order."""
    earlier = [each for each in actions if each < own]
    later = [each for each in actions if each > own and each.kind in _DECIDING]
    text = _ended(earlier, status_of(earlier, "", now_ms))
    if later:
        last = later[-1]
        text += f"; {last.by} {_DONE[last.kind]} it at the same time, and the later action counts: see `history`"
    return text


def _open_reason(finding_id: str, actions: Sequence[Action]) -> str:
    if not actions:
        return f"{plain(finding_id)} has no actions"
    return f"{plain(finding_id)} is neither acknowledged nor snoozed; `fallow findings history` lists its actions"


def _until(verb: str, expires_ms: int | None) -> str:
    if verb != "snooze":
        return ""
    return " until it is reopened" if expires_ms is None else f" until {moment(expires_ms)}"


def _ended(actions: Sequence[Action], status: str) -> str:
    """Return which acknowledgement or snooze ends, with its author, end and reason; empty for none."""
    last = next((each for each in reversed(actions) if _STANDS.get(each.kind) == status), None)
    if last is None:
        return ""
    until = "" if last.kind != "snooze" else _until("snooze", last.expires_ms)
    reason = f" (reason: {plain(last.reason, 200)})" if last.reason else ""
    return f"; this ends the {_NOUN[last.kind]} by {last.by}{until}{reason}"


def _reason(args: argparse.Namespace) -> str | None:
    flag, text = ("--text", args.text) if args.verb == "note" else ("--reason", args.reason)
    if text is not None and not text.strip():
        raise UsageError(f"{flag} is empty", "write a few words: others will read them")
    return None if text is None else str(text).strip()


def _expires_ms(args: argparse.Namespace, now_ms: int, zone: tzinfo) -> int | None:
    if args.verb != "snooze":
        return None
    if args.expires_after:
        return now_ms + parse_duration_ms(args.expires_after)
    expires_ms = parse_window(None, args.expires, zone=zone).until_ms
    if expires_ms is not None and expires_ms <= now_ms:
        raise UsageError(f"--until {args.expires} has passed", "give a time in the future, or --for 30d")
    return expires_ms


def require_ids(inputs: Inputs, ids: Iterable[str], actions: Mapping[str, object]) -> None:
    """Raise FallowError for an id that is no finding of this window or of the week before and that has no actions."""
    wanted = [each for each in ids if each not in actions]
    if not wanted:
        return
    found = review(inputs, load_window_ledger(inputs, history_ms=HISTORY_MS))
    known = [finding.finding_id for finding in (*found.findings, *found.gone)]
    for each in wanted:
        if each not in known:
            raise no_finding(each, (*known, *actions), "--force takes any id")


def no_finding(finding_id: str, known: Iterable[str], also: str = "") -> FallowError:
    """Return the error for an unknown id, with similar ids as its hint."""
    near = get_close_matches(finding_id, dict.fromkeys(known), n=3, cutoff=0.5)
    hint = f"similar ids: {', '.join(near)}" if near else "`fallow findings` lists the ids"
    return FallowError(
        f"there is no finding {plain(finding_id)} in this window",
        f"{hint}; --since and --until before the verb name another window{f', {also}' if also else ''}",
    )


def _history(inputs: Inputs, args: argparse.Namespace) -> int:
    (finding_id,) = args.ids
    actions = load_actions(inputs.lake.require())
    if finding_id not in actions:
        require_ids(inputs, args.ids, actions)
    done: tuple[Action, ...] = actions.get(finding_id, ())
    if args.format == "json":
        show(json.dumps({"finding_id": finding_id, "actions": action_list(done).records()}, indent=2))
    elif done:
        show(section_text(action_list(done), for_text(language("en"))))
    else:
        show(f"{finding_id} has no actions yet")
    return 0
