"""`fallow annotations add|list|remove`: events that the charts mark."""

from __future__ import annotations

import argparse

from analytics.commands.actor import add_actor_argument
from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables, open_window
from analytics.decide.annotations import (
    ALL,
    POOL,
    TEAM,
    Annotation,
    add_annotation,
    load_annotations,
    remove_annotation,
)
from analytics.language.languages import site_zone
from analytics.language.sentences import moment, plain, tr
from analytics.names import given_name
from analytics.scope import Scope
from analytics.tables.annotations import annotation_list
from fallow import config
from fallow.actors import command_actor
from fallow.clock import SystemClock, parse_window
from fallow.lake import Lake
from fallow.output import show

_VERBS = {
    "add": (
        "add an annotation",
        "fallow annotations add 'driver 580 on all hosts' --at 2026-11-20T09:00Z --lake /srv/lake",
    ),
    "list": ("list annotations", "fallow annotations list --lake /srv/lake --json"),
    "remove": ("remove annotations", "fallow annotations remove N-18a5f --lake /srv/lake"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (summary, example) in _VERBS.items():
        verb = verbs.add_parser(name, help=summary, epilog=f"example: {example}")
        if name == "list":
            _LIST.add_arguments(verb)
            continue
        verb.add_argument("--lake", metavar="DIR", help="the lake")
        verb.add_argument("--config", metavar="FILE", help="config file")
        add_actor_argument(verb)
        if name == "remove":
            verb.add_argument("ids", nargs="+", metavar="ID", help="id of an annotation, as `list` prints it")
            continue
        verb.add_argument("text", metavar="TEXT", help="what happened, in a few words")
        verb.add_argument(
            "--at", metavar="TIME", help="when: 2026-11-20, RFC 3339, or 2d for two days ago (default: now)"
        )
        about = verb.add_mutually_exclusive_group()
        about.add_argument(
            "--pool", metavar="NAME", type=given_name, help="the pool that the event concerns (default: everything)"
        )
        about.add_argument("--team", metavar="NAME", type=given_name, help="the team that the event concerns")


def run(args: argparse.Namespace) -> int:
    """Add, list or remove annotations; return the exit code. Raises FallowError and its kinds."""
    if args.verb == "list":
        return _LIST.run(args)
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake")).require()
    now_ms = SystemClock().now_ms()
    actor = command_actor(args.actor)
    if args.verb == "remove":
        for each in args.ids:
            show(f"removed {_line(remove_annotation(lake, each, actor, now_ms=now_ms))}")
        return 0
    at_ms = now_ms if args.at is None else parse_window(args.at, None, zone=site_zone(settings)).since_ms
    scope, name = (POOL, args.pool) if args.pool else (TEAM, args.team) if args.team else (ALL, None)
    added = add_annotation(
        lake, args.text, actor, at_ms=now_ms if at_ms is None else at_ms, now_ms=now_ms, scope=scope, name=name
    )
    show(f"added {_line(added)}")
    return 0


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:
    """Yield the annotations of the window. With --pool or --team: those about it, and those about everything."""
    asked = open_window(args, "all", given.speaks.zone, given.now_ms)
    window = asked.window if asked.back is None else asked.back.before(given.now_ms)
    scope = Scope.of(args)
    about = {(ALL, None), (POOL, args.pool), (TEAM, args.team)}
    yield annotation_list(
        [
            each
            for each in load_annotations(given.lake.require())
            if (scope.is_all or (each.scope, each.name) in about)
            and (window.since_ms is None or each.at_ms >= window.since_ms)
            and (window.until_ms is None or each.at_ms < window.until_ms)
        ]
    )


_LIST = LakeVerb(
    tr("Annotations"), _tables, refused=("model", "user"), why="an annotation is about a pool, a team or everything"
)


def _line(each: Annotation) -> str:
    about = "everything" if each.name is None else f"{each.scope} {plain(each.name)}"
    return f"{each.annotation_id}: {moment(each.at_ms)}, {about}: {plain(each.text, 200)} (by {each.by})"
