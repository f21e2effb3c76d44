"""What a publisher is told, in a thread or on the command line of its own process, and how its run ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from agent.settings import Compaction
from fallow.clock import HOUR_MS, MINUTE_MS

EXIT_SPOOL = 3
"""Where it could not use the spool: that says nothing of the store."""

EXIT_DAMAGED = 4
"""Where the spool's file is damaged."""

EXIT_NAME_TAKEN = 7
"""Where another agent publishes under this host's name: that says nothing of the store."""

EXIT_LATE = 5
"""Where it did not come to an end in time."""

EXIT_KILLED = 6
"""Where something else ended it."""

NAME_CONFLICT = "name_conflict"
"""The fact of the spool that says which other agent of this host's name there is; empty: none."""

LONGEST_S = 600
"""After so long a publisher hangs in the store; the next one goes on where it was."""


class Outcome(NamedTuple):
    """The exit code that a process of its own ends with, and what there is to say, line by line."""

    exit_code: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublisherArguments:
    """From which spool into which lake, under which host's name."""

    spool: str
    lake: str
    host: str
    keep_ms: int = HOUR_MS
    """How long published rows stay in the spool."""
    every_ms: int = 5 * MINUTE_MS
    """How often publishers run."""
    lake_id: str = ""
    """The id that the lake must have; empty: that which it had first."""
    is_last: bool = False
    """Whether the agent's run ends with it."""
    compaction: Compaction = field(default_factory=Compaction)

    def as_text(self) -> str:
        """One argument of a command line, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PublisherArguments:
        values = json.loads(text)
        return cls(**{**values, "compaction": Compaction(**values["compaction"])})
