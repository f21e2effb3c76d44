"""The rules, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.rules.co_location import CoLocation
from analytics.findings.rules.compute_oversized import ComputeOversized
from analytics.findings.rules.held import Held
from analytics.findings.rules.imbalance import Imbalance
from analytics.findings.rules.inefficient import Inefficient
from analytics.findings.rules.input_starved import InputStarved
from analytics.findings.rules.low_efficiency import LowEfficiency
from analytics.findings.rules.memory_oversized import MemoryOversized
from analytics.findings.rules.mig_fit import MigFit
from analytics.findings.rules.never_used import NeverUsed
from analytics.findings.rules.partial_use import PartialUse
from analytics.findings.rules.preallocated import Preallocated
from analytics.findings.rules.stalls import Stalls
from analytics.findings.rules.throttled import Throttled

if TYPE_CHECKING:
    from analytics.findings.model import Rule

RULES: tuple[Rule, ...] = (
    Held(),
    NeverUsed(),
    PartialUse(),
    Imbalance(),
    InputStarved(),
    Throttled(),
    Inefficient(),
    Stalls(),
    LowEfficiency(),
    CoLocation(),
    ComputeOversized(),
    MemoryOversized(),
    MigFit(),
    Preallocated(),
)
