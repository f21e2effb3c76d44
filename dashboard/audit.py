"""Who did what: one line per action on the logger of this name, and the log as `fallow dashboard` shows it."""

from __future__ import annotations

import logging
import time

from analytics.ledger.text import plain

AUDIT = logging.getLogger(__name__)

_LONGEST = 4000


def audit(who: str, did: str) -> None:
    """Writes down that somebody did something, such as `ann: signed in as planner`."""
    AUDIT.info("%s: %s", plain(who), did)


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
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
