"""How a publisher's run ended, whichever process it ran in."""

from __future__ import annotations

from typing import NamedTuple

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
