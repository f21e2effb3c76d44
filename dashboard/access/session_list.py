"""`fallow dashboard sessions`: who is signed in, and the end of somebody's sign-ins."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from analytics.language.plain_text import count, moment, plain
from dashboard.access.audit import REVOCATION, audit_line
from dashboard.access.audit_trail import trail_of
from dashboard.access.session_store import FILE, Session, SessionStore
from fallow import config
from fallow.actors import Actor, name_fault, shown_name
from fallow.clock import SystemClock, format_ms
from fallow.config import Config
from fallow.errors import FallowError, UsageError
from fallow.os_user import os_user
from fallow.output import say, show

_EXAMPLE = "fallow dashboard sessions --revoke ann --config /etc/fallow/fallow.toml"


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand; without it, the pages are served."""
    verb = verbs.add_parser(
        "sessions",
        help="list who is signed in, or sign somebody out",
        epilog=f"example: {_EXAMPLE}",
        allow_abbrev=False,
    )
    verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
    verb.add_argument("--json", action="store_true", help="machine-readable")
    verb.add_argument("--revoke", metavar="NAME", help="end all sign-ins of this user, at once")


def run_sessions(args: argparse.Namespace) -> int:
    """Lists, or revokes and says how many there were; raises FallowError and its kinds."""
    settings = config.load({}, args.config)
    store, now_ms = _store(settings), SystemClock().now_ms()
    if args.revoke is not None:
        if (fault := name_fault(args.revoke)) is not None:
            raise UsageError(f"the name {shown_name(args.revoke)} {fault}", "write it as the list of sign-ins shows it")
        return _revoke(settings, store, args.revoke, now_ms)
    found = store.sessions(now_ms)
    if args.json:
        show(json.dumps({"sessions": [_as_json(each) for each in found]}, indent=2))
    else:
        show("\n".join(map(_line, found)) or "nobody is signed in")
    return 0


def _store(settings: Config) -> SessionStore:
    folder = settings.text("dashboard.state")
    if not folder:
        raise UsageError(
            "dashboard.state is not set: sign-ins are known to the running pages alone",
            "set it, or start the pages again, which signs everybody out",
        )
    if not (Path(folder) / FILE).is_file():  # made here it could be another user's than the pages'
        raise FallowError(f"no sign-ins are kept in {folder}", "is this the dashboard.state of the running pages?")
    return SessionStore(Path(folder))


def _revoke(settings: Config, store: SessionStore, user: str, now_ms: int) -> int:
    ended = store.end_all(user, now_ms)
    show(f"ended {count(ended, 'sign-in')} of {plain(user)}" if ended else f"{plain(user)} was not signed in")
    if not settings.text("dashboard.audit"):
        return 0
    did = f"ended {count(ended, 'sign-in')} of {user} by command"
    try:
        trail_of(settings.text("dashboard.audit")).write(audit_line(REVOCATION, Actor(os_user()), did), sync=True)
    except (OSError, FallowError) as error:
        # a thief is not kept in for want of a line
        say(f"the sign-ins are over, but the audit log does not say so: {error}")
        return 1
    return 0


def _line(each: Session) -> str:
    where = f" from {plain(each.address)}" if each.address else ""
    times = f"since {moment(each.began_ms)}, last renewed {moment(each.seen_ms)}, until {moment(each.ends_ms)}"
    return f"{each.label}: {plain(each.user)}{where}, {times}"


def _as_json(each: Session) -> dict[str, object]:
    return {
        "session": each.label,
        "user": each.user,
        "groups": list(each.groups),
        "address": each.address,
        "began": format_ms(each.began_ms),
        "renewed": format_ms(each.seen_ms),
        "ends": format_ms(each.ends_ms),
    }
