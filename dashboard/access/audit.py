"""The audit log: one line for each act of a reader, and how `fallow dashboard` shows the lines.

Every line goes to standard error, in words, and to the trail that dashboard.audit names, as JSON. A change is logged
before it happens (`audit_first`): where the trail cannot be written, nothing is changed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time

from flask import current_app, has_app_context, has_request_context, request

from analytics.language.sentences import plain
from dashboard.access.allowances import RefusalRation
from dashboard.access.audit_trail import NO_TRAIL, AuditError, Trail
from dashboard.access.people import Reader
from fallow.actors import ANONYMOUS, LONGEST_NAME, Actor
from fallow.clock import SystemClock, format_ms
from fallow.outside_text import revealed

AUDIT = logging.getLogger(__name__)
_LOG = logging.getLogger(f"{__name__}.failed")

TRAIL = "FALLOW_AUDIT_TRAIL"
"""The key of the trail in the app's own configuration."""

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
_STRANGERS_RATION, _NAMED_RATION = (RefusalRation(_MOST_REFUSALS, SystemClock()) for _ in range(2))
"""Per process: 600 lines a minute are some 200 MB a day. Strangers have their own ration: a client can pose as many."""


def audit(who: Actor, did: str, event: str) -> None:
    """Write down what an actor did, such as `person ann: signed in as planner`; a failure to write is logged."""
    sentence = f"{who.log_words}: {did}"
    with contextlib.suppress(OSError):
        if event == REFUSED:
            _write_refusal(_NAMED_RATION, who, did, sentence)
        else:
            AUDIT.info("%s", sentence)
            _write(audit_line(event, who, did))


def audit_first(who: Actor, did: str, event: str) -> None:
    """Write down what an actor is about to do. Raises AuditError where that fails; the act must then not happen."""
    AUDIT.info("%s: %s", who.log_words, did)
    try:
        _write(audit_line(event, who, did), sync=True)
    except OSError as error:
        raise AuditError(
            "nothing was changed: the audit log cannot be written",
            "ask the operator of these pages; reading still works",
        ) from error


def audit_export(reader: Reader, path: str, search: str) -> None:
    """Log that a reader downloads a file. Raises AuditError where that fails; the reader must then not get the file."""
    asked = plain(f"{path}?{search}" if search else path, 500)
    audit_first(reader.actor, in_role(reader, f"takes {asked}"), EXPORT)


def in_role(reader: Reader, what: str, about: str = "") -> str:
    """Return an act in words, such as `ack as planner: F-0123456789`."""
    return f"{what} as {reader.described}{about and ': '}{about}"


def audit_stranger(address: str | None, did: str) -> None:
    """Write down a refusal of a reader known by address only, such as `anonymous at 10.0.3.7: was refused /`."""
    sentence = f"{ANONYMOUS} at {plain(address or 'an unknown address')}: {did}"
    with contextlib.suppress(OSError):
        _write_refusal(_STRANGERS_RATION, None, did, sentence)


def _write_refusal(ration: RefusalRation, who: Actor | None, did: str, sentence: str) -> None:
    missing = ration.take()
    if missing is None:
        return
    AUDIT.info("%s", sentence)
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
    """Return one line of JSON in ASCII: no name can end the line, and no character in it is invisible."""
    asked = request if has_request_context() else None
    forwarded = None if asked is None else asked.headers.get("X-Forwarded-For")
    return json.dumps(
        {
            "time": format_ms(SystemClock().now_ms()),
            "event": event,
            "who": None if who is None else who.name[:LONGEST_NAME],
            "kind": ANONYMOUS if who is None else who.kind,
            "address": None if asked is None else asked.remote_addr,
            # a proxy's or a client's own statement, which is not checked
            "forwarded_for": None if forwarded is None else forwarded[:LONGEST_NAME],
            "did": did[:_LONGEST],
        }
    )


def trail() -> Trail:
    """Return the trail of the app that answers; NO_TRAIL outside of an app."""
    found: Trail = current_app.config.get(TRAIL, NO_TRAIL) if has_app_context() else NO_TRAIL
    return found


def show_log() -> None:
    """Send the pages' log to standard error: every line of the audit log, and all other warnings and errors."""
    pages = logging.getLogger("dashboard")
    if pages.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    pages.addHandler(handler)
    pages.propagate = False
    AUDIT.setLevel(logging.INFO)


class _Lines(logging.Formatter):
    """A moment in UTC, a kind, and one line. Names come from outside, so line ends in them are replaced."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        kind = "audit" if record.name == AUDIT.name else record.levelname.lower()
        line = f"{moment} {kind}: {plain(record.getMessage(), _LONGEST)}"
        return "\n".join([line, *_indented(self.formatException(record.exc_info))]) if record.exc_info else line


def _indented(traceback: str) -> list[str]:
    """Return the traceback's lines, indented: it often quotes a request, which must not look like a line of the log."""
    return [f"    {revealed(line)[:_LONGEST]}" for line in traceback.splitlines()]
