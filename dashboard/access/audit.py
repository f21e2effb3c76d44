"""The audit log: one line for each thing that somebody did, and how `fallow dashboard` shows it.

Every line goes to standard error, in words, and to the trail that dashboard.audit names, as JSON. What changes something asks
first (`audit_first`): where the trail cannot be written nothing is done.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time

from flask import current_app, has_app_context, has_request_context, request

from analytics.language.plain_text import plain
from dashboard.access.allowances import RefusalRation
from dashboard.access.audit_trail import NO_TRAIL, AuditError, Trail
from dashboard.access.people import Reader
from fallow.actors import ANONYMOUS, LONGEST_NAME, Actor
from fallow.clock import SystemClock, format_ms
from fallow.outside_text import revealed

AUDIT = logging.getLogger(__name__)
_LOG = logging.getLogger(f"{__name__}.failed")

TRAIL = "FALLOW_AUDIT_TRAIL"
"""Where the app's own configuration has the trail."""

SIGN_IN, SIGN_OUT, REFUSED, REVOCATION = "sign-in", "sign-out", "refused", "revocation"
ACTION, ANNOTATION, SCENARIO, EXPORT, SENDING, ANSWER = (
    "action",
    "annotation",
    "scenario",
    "export",
    "sending",
    "answer",
)

_LONGEST = 4000

_MOST_REFUSALS = 600
_OF_STRANGERS, _OF_NAMED = (RefusalRation(_MOST_REFUSALS, SystemClock()) for _ in range(2))
"""Of this process: 600 lines a minute are some 200 MB a day. Strangers, of whom anybody can be many, take no line from people."""


def audit(who: Actor, did: str, event: str) -> None:
    """Writes down what an actor did, such as `person ann: signed in as planner`; that it fails is logged."""
    said = f"{who.log_words}: {did}"
    with contextlib.suppress(OSError):
        if event == REFUSED:
            _write_refusal(_OF_NAMED, who, did, said)
        else:
            AUDIT.info("%s", said)
            _write(audit_line(event, who, did))


def audit_first(who: Actor, did: str, event: str) -> None:
    """The same before it is done; raises AuditError where it cannot be written, and then it must not be done."""
    AUDIT.info("%s: %s", who.log_words, did)
    try:
        _write(audit_line(event, who, did), sync=True)
    except OSError as error:
        raise AuditError(
            "nothing was done: the audit log cannot be written", "ask who runs these pages; reading goes on"
        ) from error


def audit_export(reader: Reader, path: str, search: str) -> None:
    """Before somebody takes a file along; raises AuditError where that cannot be written, and then they get none."""
    asked = plain(f"{path}?{search}" if search else path, 500)
    audit_first(reader.actor, in_role(reader, f"takes {asked}"), EXPORT)


def in_role(reader: Reader, what: str, about: str = "") -> str:
    """In words what somebody did, such as `ack as planner: F-0123456789`."""
    return f"{what} as {reader.described}{about and ': '}{about}"


def audit_stranger(address: str | None, did: str) -> None:
    """The same of a reader of whom only the address is known, such as `anonymous at 10.0.3.7: was refused /`."""
    said = f"{ANONYMOUS} at {plain(address or 'an unknown address')}: {did}"
    with contextlib.suppress(OSError):
        _write_refusal(_OF_STRANGERS, None, did, said)


def _write_refusal(ration: RefusalRation, who: Actor | None, did: str, said: str) -> None:
    missing = ration.take()
    if missing is None:
        return
    AUDIT.info("%s", said)
    if missing:
        left_out = f"{missing} more were refused"
        AUDIT.info("%s", left_out)
        _write(audit_line(REFUSED, None, left_out))
    _write(audit_line(REFUSED, who, did))


def _write(line: str, *, sync: bool = False) -> None:
    try:
        trail().write(line, sync=sync)
    except OSError as error:
        _LOG.error("the audit log cannot be written: %s", error.strerror or error)
        raise


def audit_line(event: str, who: Actor | None, did: str) -> str:
    """One line of JSON in ASCII: no name can end it, and none can hide in it."""
    asked = request if has_request_context() else None
    said = None if asked is None else asked.headers.get("X-Forwarded-For")
    return json.dumps(
        {
            "time": format_ms(SystemClock().now_ms()),
            "event": event,
            "who": None if who is None else who.name[:LONGEST_NAME],
            "kind": ANONYMOUS if who is None else who.kind,
            "address": None if asked is None else asked.remote_addr,
            # what a proxy or whoever asks says of where it came from: nobody checks it
            "forwarded_for": None if said is None else said[:LONGEST_NAME],
            "did": did[:_LONGEST],
        }
    )


def trail() -> Trail:
    """That of the app that answers."""
    found: Trail = current_app.config.get(TRAIL, NO_TRAIL) if has_app_context() else NO_TRAIL
    return found


def show_log() -> None:
    """Shows what the pages log on standard error: every action, and of the rest warnings and errors."""
    pages = logging.getLogger("dashboard")
    if pages.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    pages.addHandler(handler)
    pages.propagate = False
    AUDIT.setLevel(logging.INFO)


class _Lines(logging.Formatter):
    """A moment in UTC, a kind and one line; names are other people's, so that no line can pretend to be two."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        kind = "audit" if record.name == AUDIT.name else record.levelname.lower()
        line = f"{moment} {kind}: {plain(record.getMessage(), _LONGEST)}"
        return "\n".join([line, *_shifted(self.formatException(record.exc_info))]) if record.exc_info else line


def _shifted(traceback: str) -> list[str]:
    """Its lines to the right of where the log's own begin: the words of an error are often what somebody has sent."""
    return [f"    {revealed(line)[:_LONGEST]}" for line in traceback.splitlines()]
