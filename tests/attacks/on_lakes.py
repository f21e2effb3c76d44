"""Attacks on what is written: two imports at the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.attacks.model import Outcome
from tests.attacks.races import races

if TYPE_CHECKING:
    from pathlib import Path

_RACES = 100


def two_imports(folder: Path) -> Outcome:
    """Samples, allocations and the same file twice, in turn, by two processes that begin at the same moment."""
    seen = races(_RACES, str(folder))
    return Outcome(
        f"{seen.races} races: {seen.lost} of {seen.rows} rows lost, {seen.doubled} doubled, {len(seen.failed)} imports failed",
        holds=not (seen.lost or seen.doubled or seen.failed),
    )
