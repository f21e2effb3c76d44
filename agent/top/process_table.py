"""The table of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from agent.top.columns import Column, body, fit, heading
from agent.top.style import HEADING, QUIET
from agent.top.text import Glyphs, cut, gib, number, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.top.model import ProcessLine

SORTS: dict[str, Callable[[ProcessLine], tuple[Any, ...]]] = {
    "memory": lambda line: (-(line.mem_used_bytes or 0), line.gpu_order, line.pid),
    "GPU": lambda line: (line.gpu_order, -(line.mem_used_bytes or 0), line.pid),
    "CPU": lambda line: (-(line.cpu_util_pct or 0), line.gpu_order, line.pid),
    "holder": lambda line: (line.holder, -(line.mem_used_bytes or 0), line.pid),
}


def process_table(processes: list[ProcessLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    """An empty line, the heading and as many processes as there is room for (None: all); nothing where that is none."""
    if room is not None and room < 3:
        return []
    columns = fit(_process_columns(processes, shapes), width)
    fitting = processes if room is None or len(processes) <= room - 2 else processes[: room - 3]
    lines = [Text(), heading(columns, HEADING)]
    lines += [body(columns, line) for line in fitting]
    if hidden := len(processes) - len(fitting):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more processes", QUIET))
    return lines


def _process_columns(processes: list[ProcessLine], shapes: Glyphs) -> list[Column[ProcessLine]]:
    def text(cell: Callable[[ProcessLine], str], style: str = "") -> Callable[[ProcessLine, int], Text]:
        return lambda line, width: Text(cut(cell(line), width, shapes), style)

    label_width = max([3, *(len(line.gpu_label) for line in processes)])
    return [
        Column("GPU", text(lambda line: line.gpu_label), label_width, right=True),
        Column("PID", text(lambda line: str(line.pid)), 7, right=True),
        Column("HOLDER", text(lambda line: shown(line.holder)), 12, most=36),
        Column("COMMAND", text(lambda line: shown(line.command or "-")), 10, most=32),
        Column("GPU GiB", text(lambda line: gib(line.mem_used_bytes)), 7, right=True),
        Column("CPU %", text(lambda line: number(line.cpu_util_pct)), 6, rank=2, right=True),
        Column("RAM GiB", text(lambda line: gib(line.host_mem_bytes)), 7, rank=3, right=True),
        Column("KIND", text(lambda line: line.kind, QUIET), 8, rank=4),
    ]
