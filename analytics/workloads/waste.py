"""The kinds of wasted time, and which of them a piece of time belongs to first."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.states import IN_USE

RELEASE, RIGHT_SIZE, TUNE, REPAIR, RETURN = "release", "right_size", "tune", "repair", "return"
"""What is asked: idle GPUs back, a card that fits, better use of the same card; of operators a repair, or cards that leave the site too."""


@dataclass(frozen=True)
class WasteKind:
    """One step of the precedence: what is wrong, and the states of the time that it is about.

    A piece of time goes to the first kind, and in it to the first rule, that claims it.
    """

    name: str
    states: tuple[str, ...]
    action: str
    """What is recommended about GPUs whose waste is of this kind."""
    asked: str
    """What the people who act are asked; empty where nobody is."""
    of_holder: bool = False
    """Only time of the user whom the finding names."""
    spelled: bool = False
    """Only intervals that last `findings.held_min`; shorter ones are pauses."""


FAULTY = WasteKind("faulty", ("unavailable",), "repair", REPAIR, spelled=True)
NEVER_USED = WasteKind("never_used", ("free",), "return", RETURN)
SURPLUS = WasteKind("surplus", ("free",), "return", RETURN)
ALLOCATED_IDLE = WasteKind("allocated_idle", ("reserved",), "release", RELEASE, of_holder=True, spelled=True)
HELD_IDLE = WasteKind("held_idle", ("held",), "reclaim", RELEASE, of_holder=True, spelled=True)
OVERSIZED = WasteKind("oversized", IN_USE, "right-size", RIGHT_SIZE, of_holder=True)
INEFFICIENT = WasteKind("inefficient", IN_USE, "ask", TUNE, of_holder=True)
OFF_PEAK = WasteKind("off_peak", ("free",), "schedule off-peak", "")
"""Free time that nothing above claims, in hours of the week in which its pool is not needed."""

PRECEDENCE = (FAULTY, NEVER_USED, SURPLUS, ALLOCATED_IDLE, HELD_IDLE, OVERSIZED, INEFFICIENT)
"""Faulty > never used > unallocated surplus > allocated and idle > held idle > oversized > inefficient."""
