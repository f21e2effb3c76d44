"""What an attack is, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What was measured, and whether that holds the limit."""

    measured: str
    holds: bool


@dataclass(frozen=True)
class Attack:
    """One way to hurt fallow: what it measured before it was mended, what it may measure, and how to try it again.

    `run` is given a folder of its own.
    """

    name: str
    what: str
    before: str
    limit: str
    run: Callable[[Path], Outcome]
