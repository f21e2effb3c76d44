"""Moments as commands print them; in a report the language and its time zone say how."""

from __future__ import annotations

from analytics.language.plain_text import moment
from analytics.language.quantities import Moment


class Stamp(Moment):
    """A moment whose English form is that of the commands: `2026-11-20 06:00 UTC`."""

    def __str__(self) -> str:
        return moment(self.moment_ms)
