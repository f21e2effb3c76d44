"""Colours of states: only the terminal's own names, so that light and dark both read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.top import model
from fallow.clock import MINUTE_MS

if TYPE_CHECKING:
    from agent.top.model import GpuLine

QUIET = "dim"
HEADING = "bold underline"
LONG_IDLE_MS = 5 * MINUTE_MS
"""From here on the ledger counts a holder's time as `held` (the default of the setting ledger.idle_after)."""

_TITLES = {"driver_down": "no driver", "reset_required": "reset!"}
_STYLES = {
    model.ACTIVE: "green",
    model.IDLE: "yellow",
    model.FREE: "cyan",
    model.SPLIT: QUIET,
    model.UNKNOWN: QUIET,
    "released": "magenta",
    "asleep": QUIET,
}


def title(state: str) -> str:
    """The state in nine columns at most."""
    return _TITLES.get(state, state)


def state_style(state: str) -> str:
    """How a state is written; what is wrong with a GPU stands out."""
    return _STYLES.get(state, "bold red")


def line_style(line: GpuLine) -> str:
    """How the state of one GPU is written: a holder's idleness stands out when it lasts."""
    style = state_style(line.state)
    return f"bold {style}" if line.held_idle and (line.idle_ms or 0) >= LONG_IDLE_MS else style


def cell_style(line: GpuLine) -> str:
    """How the values of one GPU are written: quietly where nothing is known of it."""
    return "" if line.state in (model.ACTIVE, model.IDLE, model.FREE) else QUIET
