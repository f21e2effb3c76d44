"""Somebody's work winds down, and GPUs are still theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.base import GPU_MS, finding_of, still_going
from analytics.findings.confidence import known_holder
from analytics.findings.holders import look_command, quote
from analytics.findings.work import OWNED
from analytics.ledger.text import moment
from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.findings.model import Context, Finding, Number

GAP_RATIO = 1.5
GAPS_MIN = 10
GAP_MIN_MS = 3 * DAY_MS
PAUSE_MS = HOUR_MS
RECENT_DAYS = 3
PRIOR_DAYS = 14
PRIOR_MIN_DAYS = 7
FALL_MAX = 0.2
NO_START_MS = 2 * DAY_MS
PROJECT_END_MS = 14 * DAY_MS
LULL_MAX = 0.5
LULL_HOLDERS_MIN = 3

_WORKING = ("low", "active")
_IDLE = ("reserved", "held")
