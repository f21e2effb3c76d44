"""Short texts for narrow columns (sizes, spans, bars), and the colours of states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.top import model
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.outside_text import has_hidden

if TYPE_CHECKING:
    from agent.top.model import GpuLine

GIB = 1 << 30


@dataclass(frozen=True)
class Glyphs:
    full: str = "━"
    half: str = "╸"
    track: str = "─"
    ellipsis: str = "…"
    dot: str = " · "
    degree: str = " °C"
    times: str = "\N{MULTIPLICATION SIGN}"


PLAIN = Glyphs(full="#", half="", track="-", ellipsis="..", dot=" | ", degree=" C", times="x")


def glyphs(encoding: str) -> Glyphs:
    """Line-drawing characters where the terminal's encoding has them, else ASCII."""
    try:
        "".join(vars(Glyphs()).values()).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return PLAIN
    return Glyphs()


def bar(share: float | None, width: int, shapes: Glyphs) -> tuple[str, str]:
    """The filled part and the rest of a bar for a share from 0 to 1; anything above 0 shows, only all of it fills."""
    if share is None or width <= 0:
        return "", " " * width
    steps = 2 if shapes.half else 1
    filled = round(min(max(share, 0.0), 1.0) * width * steps)
    if share > 0:
        filled = max(filled, 1)
    if share < 1:
        filled = min(filled, width * steps - 1)
    whole, half = divmod(filled, steps)
    drawn = shapes.full * whole + (shapes.half if half else "")
    return drawn, shapes.track * (width - len(drawn))


def gib(size: int | None, *, whole: bool = False) -> str:
    """The size in GiB without its unit, such as `48.2` or `141`, or with `whole` `80` for a round 80; `-` where unknown."""
    if size is None:
        return "-"
    text = f"{size / GIB:.1f}" if size < 99.95 * GIB else f"{size / GIB:.0f}"
    return text.removesuffix(".0") if whole else text


def span(span_ms: int | None) -> str:
    """The span in its two largest units, such as `4m 10s`, `2h 05m` or `3d 4h`; empty where there is none."""
    if span_ms is None:
        return ""
    if span_ms < MINUTE_MS:
        return f"{span_ms // SECOND_MS}s"
    if span_ms < HOUR_MS:
        return f"{span_ms // MINUTE_MS}m {span_ms % MINUTE_MS // SECOND_MS:02d}s"
    if span_ms < DAY_MS:
        return f"{span_ms // HOUR_MS}h {span_ms % HOUR_MS // MINUTE_MS:02d}m"
    return f"{span_ms // DAY_MS}d {span_ms % DAY_MS // HOUR_MS}h"


def number(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def shown(text: str) -> str:
    """A name from outside as it may stand on a terminal: what nobody sees becomes `?`."""
    return "".join("?" if has_hidden(each) else each for each in text)


def cut(text: str, width: int, shapes: Glyphs) -> str:
    """The text in so many columns, with an ellipsis where something is missing."""
    if len(text) <= width:
        return text
    return text[: max(0, width - len(shapes.ellipsis))] + shapes.ellipsis[:width]


QUIET = "dim"
HEADING = "bold underline"
LONG_IDLE_MS = 5 * MINUTE_MS
"""From here on the ledger counts a user's time as `held` (the default of the setting ledger.idle_after)."""

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
    """How the state of one GPU is written: a user's idleness stands out when it lasts."""
    style = state_style(line.state)
    return f"bold {style}" if line.held_idle and (line.idle_ms or 0) >= LONG_IDLE_MS else style


def cell_style(line: GpuLine) -> str:
    """How the values of one GPU are written: quietly where nothing is known of it."""
    return "" if line.state in (model.ACTIVE, model.IDLE, model.FREE) else QUIET
