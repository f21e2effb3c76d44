"""Facts that a run leaves in the spool for the next one: whatever happened to them, they never keep it from starting."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.spool.spool import Spool

log = logging.getLogger("fallow.agent")


def read_fact(spool: Spool, key: str, kind: type, default: Any) -> Any:
    """The fact as JSON of that kind; the default, and a line in the log, where it is damaged."""
    text = spool.noted(key)
    if text is None:
        return default
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, kind):
        return value
    log.warning("what the spool remembers of %s cannot be read and is left aside", key)
    return default
