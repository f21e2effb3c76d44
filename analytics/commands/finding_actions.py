"""`fallow findings ack|suppress|reopen|note|history`: what people do about findings."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from analytics.commands.actor import add_actor_argument
from analytics.decide.actions import Action, actor_words, after_what_is_known, load_actions, record
from analytics.decide.lifecycle import status_of
from analytics.decide.review import review
from analytics.language.languages import language
from analytics.language.plain_text import moment, plain
from analytics.render.report.text import for_text, section_text
from analytics.tables.annotations import action_list
from analytics.window import Inputs, load_window_ledger, open_inputs
from fallow.actors import command_actor
from fallow.clock import SystemClock, parse_duration_ms, parse_window
from fallow.errors import FallowError, UsageError
from fallow.output import show

VERBS = {
    "ack": ("acknowledge a finding: somebody takes care of it", "fallow findings ack F-0123456789 --lake /srv/lake"),
    "suppress": (
        "hide a finding, with a reason",
        "fallow findings suppress F-0123456789 --reason 'warm standby' --for 30d --lake /srv/lake",
    ),
    "reopen": ("undo an acknowledgement or suppression", "fallow findings reopen F-0123456789 --lake /srv/lake"),
    "note": ("add a note to a finding", "fallow findings note F-0123456789 --text 'asked ann' --lake /srv/lake"),
    "history": ("show who did what about a finding, and when", "fallow findings history F-0123456789 --lake /srv/lake"),
}
_ID = re.compile(r"[Ff]-[0-9A-Fa-f]{10}")
_DECIDING = ("ack", "suppress", "reopen")
_DONE = {"ack": "acknowledged", "suppress": "suppressed", "reopen": "reopened", "note": "noted on"}
_STANDS = {"ack": "acknowledged", "suppress": "suppressed", "notify": "notified"}
_NOUN = {"ack": "acknowledgement", "suppress": "suppression", "notify": "notification"}


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds one subcommand per verb; without one, the findings are listed."""
    for name, (summary, example) in VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=f"example: {example}", allow_abbrev=False)
        verb.add_argument(
            "ids",
            nargs=1 if name == "history" else "+",
            type=as_listed,
            metavar="ID",
            help="id of a finding: F-0123456789",
        )
        # what was given before the verb stays
        verb.add_argument("--lake", metavar="DIR", default=argparse.SUPPRESS, help="the lake")
        verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
        if name == "history":
            verb.add_argument(
                "--json",
                action="store_const",
                const="json",
                dest="format",
                default=argparse.SUPPRESS,
                help="machine-readable",
            )
            continue
        add_actor_argument(verb)
        verb.add_argument("--force", action="store_true", help="accept an id that is not in this window")
        if name == "suppress":
            verb.add_argument("--reason", required=True, metavar="TEXT", help="why it is hidden")
            end = verb.add_mutually_exclusive_group()
            end.add_argument(
                "--until", dest="expires", metavar="TIME", help="end, a day inclusive (default: until reopened)"
            )
            end.add_argument("--for", dest="expires_after", metavar="TIME", help="how long, such as 30d")
        if name == "note":
            verb.add_argument("--text", required=True, metavar="TEXT", help="what to write")
        elif name != "suppress":
            verb.add_argument("--reason", metavar="TEXT", help="why")


def as_listed(finding_id: str) -> str:
    """An id in the letters in which it is listed: people type `f-0123ABCDEF`, and the record knows one form only."""
    return "F-" + finding_id[2:].lower() if _ID.fullmatch(finding_id) else finding_id


def run(args: argparse.Namespace) -> int:
    """Does what the verb says; raises FallowError and its kinds."""
    inputs = open_inputs(args)
    if args.verb == "history":
        return _history(inputs, args)
    now_ms = SystemClock().now_ms()
    actor, reason, expires_ms = command_actor(args.actor), _reason(args), _expires_ms(args, now_ms)
    before = load_actions(inputs.lake.require())
    if not args.force:
        require_ids(inputs, args.ids, before)
    standing = {each: status_of(before.get(each, ()), "", now_ms) for each in args.ids}
    # what stands open already is not reopened: the record says only what somebody changed
    idle = [each for each, status in standing.items() if args.verb == "reopen" and not status]
    ids = [each for each in standing if each not in idle]
    done: dict[str, Action] = {}
    if ids:
        at_ms = after_what_is_known(now_ms, ids, before)
        made = record(inputs.lake, args.verb, ids, actor, now_ms=at_ms, reason=reason, expires_ms=expires_ms)
        done = {each.finding_id: each for each in made}
    # once more: somebody may have acted in the meantime, and what this ends or does not end is to be said
    known = load_actions(inputs.lake) if ids else before
    for each in standing:
        if each in idle:
            show(f"nothing to reopen: {_nothing(each, before.get(each, ()))}")
        else:
            beside = "" if args.verb == "note" else beside_others(known[each], done[each], now_ms)
            show(f"{_DONE[args.verb]} {plain(each)} as {actor_words(actor)}{_until(args.verb, expires_ms)}{beside}")
    return 0


def beside_others(actions: Sequence[Action], own: Action, now_ms: int) -> str:
    """What one's own action ends, and who acted at the same time and decides instead; of the finding's actions in order."""
    earlier = [each for each in actions if each < own]
    later = [each for each in actions if each > own and each.kind in _DECIDING]
    said = _ends(earlier, status_of(earlier, "", now_ms))
    if later:
        last = later[-1]
        said += f"; {last.by} {_DONE[last.kind]} it at the same time, and the later one decides: see `history`"
    return said


def _nothing(finding_id: str, actions: Sequence[Action]) -> str:
    if not actions:
        return f"nobody acted on {plain(finding_id)}"
    return f"{plain(finding_id)} is neither acknowledged nor suppressed; `fallow findings history` lists what was done"


def _until(verb: str, expires_ms: int | None) -> str:
    if verb != "suppress":
        return ""
    return " until it is reopened" if expires_ms is None else f" until {moment(expires_ms)}"


def _ends(actions: Sequence[Action], status: str) -> str:
    """What stood before and does not any more, by whom, until when and why; nothing where nothing did."""
    last = next((each for each in reversed(actions) if _STANDS.get(each.kind) == status), None)
    if last is None:
        return ""
    until = "" if last.kind != "suppress" else _until("suppress", last.expires_ms)
    reason = f" (reason: {plain(last.reason, 200)})" if last.reason else ""
    return f"; this ends the {_NOUN[last.kind]} by {last.by}{until}{reason}"


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


def require_ids(inputs: Inputs, ids: Iterable[str], actions: Mapping[str, object]) -> None:
    """FallowError unless every id is one of this window's findings, of last week's, or was acted upon before."""
    wanted = [each for each in ids if each not in actions]
    if not wanted:
        return
    found = review(inputs, load_window_ledger(inputs))
    known = [finding.finding_id for finding in (*found.findings, *found.gone)]
    for each in wanted:
        if each not in known:
            raise no_finding(each, (*known, *actions), "--force takes any id")


def no_finding(finding_id: str, known: Iterable[str], also: str = "") -> FallowError:
    """The error for an id that is not known, with near ones."""
    near = get_close_matches(finding_id, dict.fromkeys(known), n=3, cutoff=0.5)
    hint = f"near it: {', '.join(near)}" if near else "`fallow findings` lists the ids"
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
        show(f"nobody has done anything about {finding_id} yet")
    return 0
