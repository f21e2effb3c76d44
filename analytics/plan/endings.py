"""Which GPUs come free on which day: planned ends of running jobs, ends of projects, and work that has faded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

EndingSource = Literal["time_limit", "project_end", "fading"]
"""What says so: the limit of a running job, `project_end` in the owners file, or how its work has faded."""


@dataclass(frozen=True)
class Chance:
    """A probability in a 90 % interval."""

    low: float
    point: float
    high: float


@dataclass(frozen=True)
class Ending:
    """GPUs of one pool and model that one job, project or user lets go of on a day.

    `name` is that of the job, project or user; `gpus` are UUIDs, in order, `hosts` and `islands` (NVLink, where known) those
    that they are on. `team` and `holder` are None where nobody is known. `day` is the last day on which they are in use, that
    of the window's end where it has passed. `chance` is how likely they are free after it; None is unknown.
    """

    name: str
    source: EndingSource
    day: date
    gpus: tuple[str, ...]
    pool: str
    model: str
    hosts: tuple[str, ...]
    islands: tuple[str, ...]
    team: str | None
    holder: str | None
    chance: Chance | None
