"""Tables of GPUs and processes, with short texts and colours. Narrow terminals drop the least important columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agent.top import model
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.outside_text import has_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.top.model import GpuLine, ProcessLine

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
    """Return line-drawing characters if the terminal's encoding has them, else ASCII."""
    try:
        "".join(vars(Glyphs()).values()).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return PLAIN
    return Glyphs()


def bar(share: float | None, width: int, shapes: Glyphs) -> tuple[str, str]:
    """Return a bar's filled and empty part for a share from 0 to 1: a share above 0 shows, and only 1 fills the bar."""
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
    """Return the size in GiB without the unit: `48.2`, `141`, or with `whole` `80` for a round 80; `-` if unknown."""
    if size is None:
        return "-"
    text = f"{size / GIB:.1f}" if size < 99.95 * GIB else f"{size / GIB:.0f}"
    return text.removesuffix(".0") if whole else text


def span(span_ms: int | None) -> str:
    """Return the duration in its two largest units, such as `4m 10s`, `2h 05m` or `3d 4h`; empty for None."""
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
    """Return a foreign name in a form safe for a terminal: invisible characters become `?`."""
    return "".join("?" if has_hidden(each) else each for each in text)


def cut(text: str, width: int, shapes: Glyphs) -> str:
    """Return the text cut to a number of columns, with an ellipsis where it was cut."""
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
    """Return the state in at most nine columns."""
    return _TITLES.get(state, state)


def state_style(state: str) -> str:
    """Return the style of a state; faults of a GPU stand out."""
    return _STYLES.get(state, "bold red")


def line_style(line: GpuLine) -> str:
    """Return the style of one GPU's state; a long idle time of a user stands out."""
    style = state_style(line.state)
    return f"bold {style}" if line.held_idle and (line.idle_ms or 0) >= LONG_IDLE_MS else style


def cell_style(line: GpuLine) -> str:
    """Return the style of one GPU's values: quiet where they are unknown."""
    return "" if line.state in (model.ACTIVE, model.IDLE, model.FREE) else QUIET


_Line = TypeVar("_Line")

GAP = 2


@dataclass(frozen=True)
class TopColumn(Generic[_Line]):
    """One column: its heading, the cell of a line for a width, and its desired width."""

    heading: str
    cell: Callable[[_Line, int], Text]
    width: int
    """The minimum width."""
    rank: int = 0
    """The column with the highest rank is dropped first; rank 0 stays."""
    most: int = 0
    """The maximum width of a column that may grow."""
    jump: int = 1
    """The minimum of its first growth, because a bar of one character is useless."""
    right: bool = False


def fit(columns: Sequence[TopColumn[_Line]], width: int) -> list[tuple[TopColumn[_Line], int]]:
    kept = list(columns)
    while len(kept) > 1 and _needed(kept) > width and any(each.rank for each in kept):
        kept.remove(max(kept, key=lambda each: each.rank))
    widths = {each.heading: each.width for each in kept}
    free = width - _needed(kept)
    while growing := [each for each in kept if _growth(each, widths[each.heading]) in range(1, free + 1)]:
        narrowest = min(growing, key=lambda each: widths[each.heading] / each.most)
        grown = _growth(narrowest, widths[narrowest.heading])
        widths[narrowest.heading] += grown
        free -= grown
    return [(each, widths[each.heading]) for each in kept]


def heading(columns: Sequence[tuple[TopColumn[_Line], int]], style: str) -> Text:
    cells = [_sized(Text(each.heading, style), width, right=each.right) for each, width in columns]
    return _joined(cells, style)


def body(columns: Sequence[tuple[TopColumn[_Line], int]], line: _Line) -> Text:
    return _joined([_sized(each.cell(line, width), width, right=each.right) for each, width in columns])


def _growth(column: TopColumn[_Line], width: int) -> int:
    """Return the next growth of a column of that width; 0 at its maximum width."""
    if width >= column.most:
        return 0
    return column.jump if width == column.width else 1


def _needed(columns: Sequence[TopColumn[_Line]]) -> int:
    return sum(each.width for each in columns) + GAP * (len(columns) - 1)


def _joined(cells: Sequence[Text], style: str = "") -> Text:
    return Text(" " * GAP, style).join(cells)


def _sized(cell: Text, width: int, *, right: bool) -> Text:
    missing = width - cell_len(cell.plain)
    if missing < 0:
        return Text(set_cell_size(cell.plain, width), cell.style)
    padding = Text(" " * missing)
    return padding + cell if right else cell + padding


def gpu_table(gpus: list[GpuLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    """Return the heading and as many GPUs as fit (None: all)."""
    columns = fit(_gpu_columns(gpus, shapes), width)
    lines = [heading(columns, HEADING)]
    shown_gpus = gpus if room is None or len(gpus) <= room - 1 else gpus[: max(0, room - 2)]
    lines += [body(columns, line) for line in shown_gpus]
    if hidden := len(gpus) - len(shown_gpus):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more GPUs; a taller terminal shows them", QUIET))
    return lines


def _gpu_columns(gpus: list[GpuLine], shapes: Glyphs) -> list[TopColumn[GpuLine]]:
    def text(cell: Callable[[GpuLine], str]) -> Callable[[GpuLine, int], Text]:
        return lambda line, width: Text(cut(cell(line), width, shapes), cell_style(line))

    label_width = max([3, *(len(line.label) for line in gpus)])
    model_width = min(28, max([5, *(len(_model(line)) for line in gpus)]))
    models = [TopColumn("MODEL", text(_model), model_width, rank=4)]
    return [
        TopColumn("GPU", text(lambda line: line.label), label_width, right=True),
        *(models if len({line.model for line in gpus}) > 1 else []),  # a common model is in the head
        TopColumn("STATE", lambda line, _: Text(title(line.state), line_style(line)), 9),
        TopColumn(" UTIL", lambda line, width: _util(line, width, shapes), 5, most=20, jump=5),
        TopColumn(
            "SM",
            text(lambda line: _percent(line.sm_pct)),
            5,
            rank=3 if any(line.sm_pct is not None for line in gpus) else 8,
            right=True,
        ),
        TopColumn("MEMORY GiB", lambda line, width: _memory(line, width, shapes), 10, most=26, jump=5),
        TopColumn("POWER", text(_power), 9, rank=2, right=True),
        TopColumn("TEMP", text(lambda line: _degrees(line, shapes)), 6, rank=5, right=True),
        TopColumn("USER", lambda line, width: _user(line, width, shapes), 15, most=30),
        TopColumn("IDLE", _idle, 8, right=True),
    ]


def _util(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    label = f"{_percent(line.util_pct):>5}"
    bar_width = width - 6
    if bar_width < 4 or line.util_pct is None:
        return Text(label, cell_style(line))
    filled, empty = bar(line.util_pct / 100, bar_width, shapes)
    return Text.assemble((label, cell_style(line)), " ", (filled, line_style(line)), (empty, QUIET))


def _memory(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    if line.mem_used_bytes is None:
        return Text(f"{'-':>10}", cell_style(line))
    label = f"{gib(line.mem_used_bytes)}/{gib(line.mem_total_bytes, whole=True)}"
    bar_width = width - 11
    if bar_width < 4 or not line.mem_total_bytes:
        return Text(f"{label:>10}", cell_style(line))
    filled, empty = bar(line.mem_used_bytes / line.mem_total_bytes, bar_width, shapes)
    # memory that a user holds while no kernel runs is what another user could have
    style = line_style(line) if line.held_idle else "blue"
    return Text.assemble((f"{label:>10}", cell_style(line)), " ", (filled, style), (empty, QUIET))


def _user(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    if line.state not in (model.ACTIVE, model.IDLE, model.FREE, model.UNKNOWN):
        return Text("")
    if line.users is None:
        return Text("not known", QUIET)
    if not line.users:
        return Text("no user", QUIET)
    more = f" +{len(line.users) - 1}" if len(line.users) > 1 else ""
    style = "bold" if line.held_idle else cell_style(line)
    return Text(cut(shown(line.users[0]), width - len(more), shapes) + more, style)


def _idle(line: GpuLine, _: int) -> Text:
    if line.idle_ms is None:
        return Text("")
    text = f"{'>' if line.idle_since_start else ''}{span(line.idle_ms)}"
    return Text(text, line_style(line) if line.held_idle else QUIET)


def _model(line: GpuLine) -> str:
    return shown((line.model or "-").removeprefix("NVIDIA "))


def _power(line: GpuLine) -> str:
    if line.power_w is None:
        return "-"
    return f"{line.power_w:.0f} W" if line.power_limit_w is None else f"{line.power_w:.0f}/{line.power_limit_w:.0f} W"


def _degrees(line: GpuLine, shapes: Glyphs) -> str:
    return "-" if line.temperature_c is None else f"{line.temperature_c}{shapes.degree}"


def _percent(value: float | None) -> str:
    """Return whole percents; a small share above 0 is not shown as 0."""
    if value is None:
        return "-"
    return "<1 %" if 0 < value < 0.5 else f"{value:.0f} %"


SORTS: dict[str, Callable[[ProcessLine], tuple[Any, ...]]] = {
    "memory": lambda line: (-line.mem_used_bytes, line.gpu_order),
    "GPU": lambda line: (line.gpu_order, -line.mem_used_bytes),
    "CPU": lambda line: (-(line.row.get("cpu_util_pct") or 0), line.gpu_order),
    "user": lambda line: (line.user, -line.mem_used_bytes),
}


def process_table(processes: list[ProcessLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    """Return an empty line, the heading and as many processes as fit (None: all); nothing where none fits."""
    if room is not None and room < 3:
        return []
    columns = fit(_process_columns(processes, shapes), width)
    fitting = processes if room is None or len(processes) <= room - 2 else processes[: room - 3]
    lines = [Text(), heading(columns, HEADING)]
    lines += [body(columns, line) for line in fitting]
    if hidden := len(processes) - len(fitting):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more processes", QUIET))
    return lines


def _process_columns(processes: list[ProcessLine], shapes: Glyphs) -> list[TopColumn[ProcessLine]]:
    def text(cell: Callable[[ProcessLine], str], style: str = "") -> Callable[[ProcessLine, int], Text]:
        return lambda line, width: Text(cut(cell(line), width, shapes), style)

    label_width = max([3, *(len(line.gpu_label) for line in processes)])
    return [
        TopColumn("GPU", text(lambda line: line.gpu_label), label_width, right=True),
        TopColumn("PID", text(lambda line: str(line.row["pid"])), 7, right=True),
        TopColumn("USER", text(lambda line: shown(line.user)), 12, most=36),
        TopColumn("COMMAND", text(lambda line: shown(line.row.get("command") or "-")), 10, most=32),
        TopColumn("GPU GiB", text(lambda line: gib(line.row.get("mem_used_bytes"))), 7, right=True),
        TopColumn("CPU %", text(lambda line: number(line.row.get("cpu_util_pct"))), 6, rank=2, right=True),
        TopColumn("RAM GiB", text(lambda line: gib(line.row.get("host_mem_bytes"))), 7, rank=3, right=True),
        TopColumn("KIND", text(lambda line: line.row.get("kind") or "", QUIET), 8, rank=4),
    ]
