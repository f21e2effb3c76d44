"""Kinds of wasted time and their precedence."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.states import IN_USE

RELEASE, RIGHT_SIZE, TUNE, REPAIR, RETURN = "release", "right_size", "tune", "repair", "return"
"""The request of a recommendation: release idle GPUs, use a fitting card, use the same card better; for operators also
a repair, or cards that leave the site."""


@dataclass(frozen=True)
class WasteKind:
    """A step of the precedence: the problem, and the states of the time that it is about.

    A segment of time goes to the first kind that claims it, and within the kind to the first rule.
    """

    name: str
    states: tuple[str, ...]
    action: str
    request: str
    """The request to the people who act; empty without one."""
    of_user: bool = False
    """Only time of the user in the finding."""
    spelled: bool = False
    """Only intervals of at least `findings.held_min`; shorter ones are pauses."""


FAULTY = WasteKind("faulty", ("unavailable",), "repair", REPAIR, spelled=True)
NEVER_USED = WasteKind("never_used", ("free",), "release", RETURN)
LEFT_FREE = WasteKind("left_free", ("free",), "release", RETURN)
SURPLUS = WasteKind("surplus", ("free",), "release", RETURN)
ALLOCATED_IDLE = WasteKind("allocated_idle", ("reserved",), "reclaim", RELEASE, of_user=True, spelled=True)
HELD_IDLE = WasteKind("held_idle", ("held",), "reclaim", RELEASE, of_user=True, spelled=True)
STALLED = WasteKind("stalled", ("stalled",), "reclaim", RELEASE, of_user=True)
OVERSIZED = WasteKind("oversized", IN_USE, "right-size", RIGHT_SIZE, of_user=True)
INEFFICIENT = WasteKind("inefficient", IN_USE, "ask", TUNE, of_user=True)
OFF_PEAK = WasteKind("off_peak", ("free",), "schedule off-peak", "")
"""Free time that no earlier kind claims, in hours of the week in which its pool is not needed."""

PRECEDENCE = (FAULTY, NEVER_USED, LEFT_FREE, SURPLUS, ALLOCATED_IDLE, HELD_IDLE, STALLED, OVERSIZED, INEFFICIENT)
"""In order: the first kind that claims a segment of time has it."""
