"""`fallow dashboard sessions`: lists the users who are signed in, and ends the sign-ins of a user."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from analytics.language.sentences import count, moment, plain
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
    verb = verbs.add_parser(
        "sessions",
        help="list the users who are signed in, or sign a user out",
        epilog=f"example: {_EXAMPLE}",
    )
    verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="config file")
    verb.add_argument("--json", action="store_true", help="print JSON")
    verb.add_argument("--revoke", metavar="NAME", help="end all sign-ins of this user now")


def run_sessions(args: argparse.Namespace) -> int:
    """Print the sign-ins, or end those of a user and print their number; return the exit code. Raises FallowErrors."""
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
        show("\n".join(map(_line, found)) or "no user is signed in")
    return 0


def _store(settings: Config) -> SessionStore:
    folder = settings.text("dashboard.state")
    if not folder:
        raise UsageError(
            "dashboard.state is not set: only the running pages know the sign-ins",
            "set dashboard.state, or restart the pages, which signs all users out",
        )
    if not (Path(folder) / FILE).is_file():  # a file created here could belong to another user than the pages'
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
        # a missing line of the log must not keep a thief signed in
        say(f"the sign-ins are ended, but the audit log has no line about it: {error}")
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
