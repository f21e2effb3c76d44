"""The rules, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.rules.blind_spot import BlindSpot
from analytics.rules.co_location import CoLocation
from analytics.rules.compute_oversized import ComputeOversized
from analytics.rules.held import Held
from analytics.rules.hoarding import Hoarding
from analytics.rules.imbalance import Imbalance
from analytics.rules.inefficient import Inefficient
from analytics.rules.input_starved import InputStarved
from analytics.rules.loaded_no_traffic import LoadedNoTraffic
from analytics.rules.low_efficiency import LowEfficiency
from analytics.rules.memory_oversized import MemoryOversized
from analytics.rules.mig_fit import MigFit
from analytics.rules.never_used import NeverUsed
from analytics.rules.partial_use import PartialUse
from analytics.rules.preallocated import Preallocated
from analytics.rules.reserved_unused import ReservedUnused
from analytics.rules.slow_uptake import SlowUptake
from analytics.rules.stalls import Stalls
from analytics.rules.standing_surplus import StandingSurplus
from analytics.rules.throttled import Throttled
from analytics.rules.wind_down import WindDown
from analytics.rules.zombie_holder import ZombieHolder

if TYPE_CHECKING:
    from analytics.workloads.model import Rule

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
