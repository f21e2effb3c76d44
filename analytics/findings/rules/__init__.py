"""The rules, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.rules.blind_spot import BlindSpot
from analytics.findings.rules.co_location import CoLocation
from analytics.findings.rules.compute_oversized import ComputeOversized
from analytics.findings.rules.held import Held
from analytics.findings.rules.hoarding import Hoarding
from analytics.findings.rules.imbalance import Imbalance
from analytics.findings.rules.inefficient import Inefficient
from analytics.findings.rules.input_starved import InputStarved
from analytics.findings.rules.loaded_no_traffic import LoadedNoTraffic
from analytics.findings.rules.low_efficiency import LowEfficiency
from analytics.findings.rules.memory_oversized import MemoryOversized
from analytics.findings.rules.mig_fit import MigFit
from analytics.findings.rules.never_used import NeverUsed
from analytics.findings.rules.partial_use import PartialUse
from analytics.findings.rules.preallocated import Preallocated
from analytics.findings.rules.reserved_unused import ReservedUnused
from analytics.findings.rules.slow_uptake import SlowUptake
from analytics.findings.rules.stalls import Stalls
from analytics.findings.rules.standing_surplus import StandingSurplus
from analytics.findings.rules.throttled import Throttled
from analytics.findings.rules.wind_down import WindDown
from analytics.findings.rules.zombie_holder import ZombieHolder

if TYPE_CHECKING:
    from analytics.findings.model import Rule

RULES: tuple[Rule, ...] = (
    Held(),
    ReservedUnused(),
    NeverUsed(),
    StandingSurplus(),
    ZombieHolder(),
    LoadedNoTraffic(),
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
    WindDown(),
    SlowUptake(),
    Hoarding(),
    BlindSpot(),
)
