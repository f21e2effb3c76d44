"""The arguments of a publisher, in a thread or in its own process, and the outcome of its run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from agent.settings import Compaction
from fallow.clock import HOUR_MS, MINUTE_MS

EXIT_SPOOL = 3
"""The spool was not usable, which is no sign of a fault of the store."""

EXIT_DAMAGED = 4
"""The spool's file is damaged."""

EXIT_NAME_TAKEN = 7
"""Another agent publishes under this host name, which is no sign of a fault of the store."""

EXIT_LATE = 5
"""The publisher did not end in time."""

EXIT_KILLED = 6
"""Another cause ended the publisher."""

NAME_CONFLICT = "name_conflict"
"""The fact of the spool that names another agent with this host name; empty: there is none."""

LONGEST_S = 600
"""After this time a publisher counts as blocked in the store. The next one continues its work."""


class Outcome(NamedTuple):
    """The exit code of a publisher, also of one in a thread, and its messages, line by line."""

    exit_code: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublisherArguments:
    """The spool, the lake and the host name of a publisher's run, and its limits."""

    spool: str
    lake: str
    host: str
    keep_ms: int = HOUR_MS
    """How long published rows stay in the spool, in ms."""
    every_ms: int = 5 * MINUTE_MS
    """Time between two publishers, in ms."""
    lake_id: str = ""
    """The required id of the lake; empty: the id that it had first."""
    is_last: bool = False
    """Whether this publisher is the last of the agent's run."""
    compaction: Compaction = field(default_factory=Compaction)

    def as_text(self) -> str:
        """Return the arguments as one text for a command line, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PublisherArguments:
        values = json.loads(text)
        return cls(**{**values, "compaction": Compaction(**values["compaction"])})
