"""The audit log: one line per action, and how `fallow dashboard` shows it."""

from __future__ import annotations

import logging
import time

from analytics.language.plain_text import plain
from fallow.outside_text import revealed

AUDIT = logging.getLogger(__name__)

_LONGEST = 4000


def audit(who: str, did: str) -> None:
    """Writes down that somebody did something, such as `ann: signed in as planner`."""
    AUDIT.info("%s: %s", _named(who), did)


def audit_stranger(address: str | None, did: str) -> None:
    """The same of somebody of whom only the address is known, such as `somebody at 10.0.3.7: was refused /`."""
    AUDIT.info("somebody at %s: %s", plain(address or "an unknown address"), did)


def _named(who: str) -> str:
    """A name that says more than a name stands in quotes: it could pass for what somebody else did."""
    name = plain(who).replace('"', "?")
    return f'"{name}"' if not name or " " in name or ":" in name else name


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
