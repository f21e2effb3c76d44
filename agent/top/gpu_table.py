"""The table of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from agent.top import model
from agent.top.columns import Column, body, fit, heading
from agent.top.style import HEADING, QUIET, cell_style, line_style, title
from agent.top.text import Glyphs, bar, cut, gib, shown, span

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.top.model import GpuLine


def gpu_table(gpus: list[GpuLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    """The heading and as many GPUs as there is room for (None: all)."""
    columns = fit(_gpu_columns(gpus, shapes), width)
    lines = [heading(columns, HEADING)]
    shown_gpus = gpus if room is None or len(gpus) <= room - 1 else gpus[: max(0, room - 2)]
    lines += [body(columns, line) for line in shown_gpus]
    if hidden := len(gpus) - len(shown_gpus):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more GPUs; a taller terminal shows them", QUIET))
    return lines


def _gpu_columns(gpus: list[GpuLine], shapes: Glyphs) -> list[Column[GpuLine]]:
    def text(cell: Callable[[GpuLine], str]) -> Callable[[GpuLine, int], Text]:
        return lambda line, width: Text(cut(cell(line), width, shapes), cell_style(line))

    label_width = max([3, *(len(line.label) for line in gpus)])
    model_width = min(28, max([5, *(len(_model(line)) for line in gpus)]))
    models = [Column("MODEL", text(_model), model_width, rank=4)]
    return [
        Column("GPU", text(lambda line: line.label), label_width, right=True),
        *(models if len({line.model for line in gpus}) > 1 else []),  # one model for all stands in the head
        Column("STATE", lambda line, _: Text(title(line.state), line_style(line)), 9),
        Column(" UTIL", lambda line, width: _util(line, width, shapes), 5, most=20, jump=5),
        Column(
            "SM",
            text(lambda line: _percent(line.sm_pct)),
            5,
            rank=3 if any(_has_sm(line) for line in gpus) else 8,
            right=True,
        ),
        Column("MEMORY GiB", lambda line, width: _memory(line, width, shapes), 10, most=26, jump=5),
        Column("POWER", text(_power), 9, rank=2, right=True),
        Column("TEMP", text(lambda line: _degrees(line, shapes)), 6, rank=5, right=True),
        Column("HOLDER", lambda line, width: _holder(line, width, shapes), 15, most=30),
        Column("IDLE", _idle, 8, right=True),
    ]


def _util(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    label = f"{_percent(line.util_pct):>5}"
    bar_width = width - 6
    if bar_width < 4 or line.util_pct is None:
        return Text(f"{label:>{5}}", cell_style(line))
    filled, rest = bar(line.util_pct / 100, bar_width, shapes)
    return Text.assemble((label, cell_style(line)), " ", (filled, line_style(line)), (rest, QUIET))


def _memory(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    label = (
        f"{gib(line.mem_used_bytes)}/{gib(line.mem_total_bytes, whole=True)}"
        if line.mem_used_bytes is not None
        else "-"
    )
    bar_width = width - 11
    if bar_width < 4 or line.mem_used_bytes is None or not line.mem_total_bytes:
        return Text(f"{label:>10}", cell_style(line))
    filled, rest = bar(line.mem_used_bytes / line.mem_total_bytes, bar_width, shapes)
    # memory that somebody keeps while nothing runs is what could be given to somebody else
    style = line_style(line) if line.held_idle else "blue"
    return Text.assemble((f"{label:>10}", cell_style(line)), " ", (filled, style), (rest, QUIET))


def _holder(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    if line.state not in (model.ACTIVE, model.IDLE, model.FREE, model.UNKNOWN):
        return Text("")
    if line.holders is None:
        return Text("not known", QUIET)
    if not line.holders:
        return Text("nobody", QUIET)
    more = f" +{len(line.holders) - 1}" if len(line.holders) > 1 else ""
    style = "bold" if line.held_idle else cell_style(line)
    return Text(cut(shown(line.holders[0]), width - len(more), shapes) + more, style)


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
    """Whole percents; a little is not nothing."""
    if value is None:
        return "-"
    return "<1 %" if 0 < value < 0.5 else f"{value:.0f} %"


def _has_sm(line: GpuLine) -> bool:
    return line.sm_pct is not None
