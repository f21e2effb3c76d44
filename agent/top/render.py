"""The picture: a frame's lines for a width and a height. Only the terminal's own colours, so that light and dark both read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from agent.top import model
from agent.top.columns import Column, body, fit, heading
from agent.top.text import Glyphs, bar, cut, gib, number, shown, span
from fallow.clock import MINUTE_MS, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.snapshot import Snapshot
    from agent.top.model import GpuLine, ProcessLine, Summary

LONG_IDLE_MS = 5 * MINUTE_MS
"""From here on the ledger counts a holder's time as `held` (setting ledger.idle_after's default)."""

_STALE_INTERVALS = 3
_QUIET = "dim"
_TITLES = {"driver_down": "no driver", "reset_required": "reset!"}
_STATE_STYLES = {
    model.ACTIVE: "green",
    model.IDLE: "yellow",
    model.FREE: "cyan",
    model.SPLIT: _QUIET,
    model.UNKNOWN: _QUIET,
    "released": "magenta",
    "asleep": _QUIET,
}

SORTS: dict[str, Callable[[ProcessLine], tuple[str | float, ...]]] = {
    "memory": lambda line: (-(line.mem_used_bytes or 0), line.gpu_label, line.pid),
    "GPU": lambda line: (line.gpu_label, -(line.mem_used_bytes or 0), line.pid),
    "CPU": lambda line: (-(line.cpu_util_pct or 0), line.gpu_label, line.pid),
    "holder": lambda line: (line.holder, -(line.mem_used_bytes or 0), line.pid),
}


@dataclass(frozen=True)
class Frame:
    """What is to be shown, and how."""

    snapshot: Snapshot
    age_s: float
    source: str
    notice: str = ""
    processes: bool = True
    sort: str = "memory"
    keys: bool = False
    """Whether there is somebody at the keys, who is told what they do."""


def frame_lines(frame: Frame, width: int, height: int | None, shapes: Glyphs) -> list[Text]:
    """The lines from top to bottom, none wider than `width`, and no more than `height` where that is given."""
    gpus = model.gpu_lines(frame.snapshot)
    processes = model.process_lines(frame.snapshot)
    top = _head(frame, gpus, model.summarize(gpus, processes), width, shapes)
    foot = [_keys(frame)] if frame.keys else []
    room = None if height is None else max(0, height - len(top) - len(foot) - 1)
    table = _gpu_table(gpus, width, room, shapes)
    if frame.processes and processes:
        left = None if room is None else room - len(table) - 1
        table += _process_table(sorted(processes, key=SORTS[frame.sort]), width, left, shapes)
    lines = [*top, Text(), *table]
    if height is not None and frame.keys:
        lines += [Text()] * (height - len(lines) - len(foot))
    return [_cropped(line, width) for line in [*lines, *foot]][:height]


def _head(frame: Frame, gpus: list[GpuLine], summary: Summary, width: int, shapes: Glyphs) -> list[Text]:
    snapshot = frame.snapshot
    lines = [
        _parts(
            width, shapes, ("fallow top", "bold"), (shown(snapshot.host), "bold cyan"), *_what(snapshot, gpus, shapes)
        ),
        _parts(width, shapes, _freshness(frame)),
        _held(summary, width, shapes),
        _parts(width, shapes, *_totals(summary)),
    ]
    if frame.notice:
        lines.insert(2, Text(cut(shown(frame.notice), width, shapes), "magenta"))
    return lines


def _what(snapshot: Snapshot, gpus: list[GpuLine], shapes: Glyphs) -> list[tuple[str, str]]:
    boards = [line for line in gpus if ":" not in line.label]
    models = sorted({line.model for line in boards if line.model})
    counted = [f"{sum(line.model == each for line in boards)} {shapes.times} {shown(each)}" for each in models]
    return [
        *((each, "") for each in counted),
        *((f"driver {each}", _QUIET) for each in _all(snapshot, "driver_version")),
        *((f"CUDA {each}", _QUIET) for each in _all(snapshot, "cuda_driver_version")),
    ]


def _all(snapshot: Snapshot, column: str) -> list[str]:
    return sorted({str(device[column]) for device in snapshot.devices.values() if device.get(column) is not None})


def _freshness(frame: Frame) -> tuple[str, str]:
    snapshot = frame.snapshot
    length = format_duration(snapshot.interval_ms)
    if frame.age_s * 1000 > _STALE_INTERVALS * snapshot.interval_ms + 2000:
        return f"{frame.source}: nothing new for {span(int(frame.age_s * 1000))}, what follows is old", "bold red"
    if snapshot.mode == "released":
        return f"{frame.source}: the driver is released; `fallow agent resume` takes it up again", "bold magenta"
    ago = f", {frame.age_s:.0f} s ago" if frame.age_s >= 2 else ""
    return f"{frame.source}: means of {length}{ago}", _QUIET


def _held(summary: Summary, width: int, shapes: Glyphs) -> Text:
    """The sentence that the whole view is for."""
    if not summary.held_idle:
        return Text(f"0 of {summary.gpus} GPUs idle while held", "green")
    line = Text(f"{summary.held_idle} of {summary.gpus} GPUs idle while held", "bold yellow")
    line.append(f", {gib(summary.held_idle_bytes)} GiB held idle", "yellow")
    for number_of, (who, count, size) in enumerate(summary.held_idle_by):
        piece = f"{': ' if number_of == 0 else ', '}{shown(who)} {count} ({gib(size)} GiB)"
        if line.cell_len + len(piece) > width - len(shapes.ellipsis) - 1:
            line.append(shapes.ellipsis, "yellow")
            break
        line.append(piece, "")
    return line


def _totals(summary: Summary) -> list[tuple[str, str]]:
    parts = [(f"{number(summary.util_pct)} % mean utilization", "")]
    if summary.mem_total_bytes:
        parts.append((f"{gib(summary.mem_used_bytes)} of {gib(summary.mem_total_bytes, whole=True)} GiB", ""))
    if summary.power_w is not None:
        limit = "" if summary.power_limit_w is None else f" of {summary.power_limit_w / 1000:.1f}"
        parts.append((f"{summary.power_w / 1000:.1f}{limit} kW", ""))
    parts.append((f"{summary.processes} processes" if summary.processes != 1 else "1 process", ""))
    if summary.free:
        parts.append((f"{summary.free} free", _style(model.FREE)))
    parts += [(f"{count} {_TITLES.get(state, state)}", _style(state)) for state, count in summary.unwatched]
    return parts


def _parts(width: int, shapes: Glyphs, *parts: tuple[str, str]) -> Text:
    """The parts with dots between them, as many as there is room for."""
    line = Text()
    for text, style in parts:
        dot = shapes.dot if line.plain else ""
        if line.plain and line.cell_len + len(dot) + len(text) > width:
            break
        line.append(dot, _QUIET).append(cut(text, width, shapes), style)
    return line


def _gpu_table(gpus: list[GpuLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    columns = fit(_gpu_columns(gpus, shapes), width)
    lines = [heading(columns, "bold underline")]
    shown_gpus = gpus if room is None or len(gpus) < room else gpus[: max(0, room - 2)]
    lines += [body(columns, line) for line in shown_gpus]
    if hidden := len(gpus) - len(shown_gpus):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more GPUs; a taller terminal shows them", _QUIET))
    return lines


def _gpu_columns(gpus: list[GpuLine], shapes: Glyphs) -> list[Column[GpuLine]]:
    def text(cell: Callable[[GpuLine], str]) -> Callable[[GpuLine, int], Text]:
        return lambda line, width: Text(cut(cell(line), width, shapes), _row_style(line))

    label_width = max([3, *(len(line.label) for line in gpus)])
    model_width = min(28, max([5, *(len(line.model or "") for line in gpus)]))
    models = [Column("MODEL", text(lambda line: shown(line.model or "-")), model_width, rank=7)]
    return [
        Column("GPU", text(lambda line: line.label), label_width, right=True),
        *(models if len({line.model for line in gpus}) > 1 else []),  # one model for all stands in the head
        Column("STATE", lambda line, _: Text(_TITLES.get(line.state, line.state), _style(line.state, line)), 9),
        Column(" UTIL", lambda line, width: _util(line, width, shapes), 5, most=20),
        Column(
            "SM",
            text(lambda line: _percent(line.sm_pct)),
            5,
            rank=4 if any(_has_sm(line) for line in gpus) else 8,
            right=True,
        ),
        Column("MEMORY GiB", lambda line, width: _memory(line, width, shapes), 10, most=26),
        Column("POWER", text(_power), 9, rank=3, right=True),
        Column("TEMP", text(lambda line: _degrees(line, shapes)), 6, rank=5, right=True),
        Column("HOLDER", lambda line, width: _holder(line, width, shapes), 12, most=44),
        Column("IDLE", _idle, 8, right=True),
    ]


def _process_table(processes: list[ProcessLine], width: int, room: int | None, shapes: Glyphs) -> list[Text]:
    if room is not None and room < 3:
        return []
    columns = fit(_process_columns(processes, shapes), width)
    fitting = processes if room is None or len(processes) < room else processes[: room - 2]
    lines = [Text(), heading(columns, "bold underline")]
    lines += [body(columns, line) for line in fitting]
    if hidden := len(processes) - len(fitting):
        lines.append(Text(f"{shapes.ellipsis} {hidden} more processes", _QUIET))
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
        Column("KIND", text(lambda line: line.kind, _QUIET), 8, rank=4),
    ]


def _util(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    label = f"{_percent(line.util_pct):>5}"
    bar_width = width - 6
    if bar_width < 4 or line.util_pct is None:
        return Text(f"{label:>{5}}", _row_style(line))
    filled, rest = bar(line.util_pct / 100, bar_width, shapes)
    return Text.assemble((label, _row_style(line)), " ", (filled, _style(line.state, line)), (rest, _QUIET))


def _memory(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    label = (
        f"{gib(line.mem_used_bytes)}/{gib(line.mem_total_bytes, whole=True)}"
        if line.mem_used_bytes is not None
        else "-"
    )
    bar_width = width - 11
    if bar_width < 4 or line.mem_used_bytes is None or not line.mem_total_bytes:
        return Text(f"{label:>10}", _row_style(line))
    filled, rest = bar(line.mem_used_bytes / line.mem_total_bytes, bar_width, shapes)
    # memory that somebody keeps while nothing runs is what could be given to somebody else
    style = _style(line.state, line) if line.held_idle else "blue"
    return Text.assemble((f"{label:>10}", _row_style(line)), " ", (filled, style), (rest, _QUIET))


def _holder(line: GpuLine, width: int, shapes: Glyphs) -> Text:
    if line.state not in (model.ACTIVE, model.IDLE, model.FREE, model.UNKNOWN):
        return Text("")
    if line.holders is None:
        return Text("not known", _QUIET)
    if not line.holders:
        return Text("nobody", _QUIET)
    more = f" +{len(line.holders) - 1}" if len(line.holders) > 1 else ""
    style = "bold" if line.held_idle else _row_style(line)
    return Text(cut(shown(line.holders[0]), width - len(more), shapes) + more, style)


def _idle(line: GpuLine, _: int) -> Text:
    if line.idle_ms is None:
        return Text("")
    text = f"{'>' if line.idle_since_start else ''}{span(line.idle_ms)}"
    return Text(text, _style(line.state, line) if line.held_idle else _QUIET)


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


def _row_style(line: GpuLine) -> str:
    return _QUIET if line.state not in (model.ACTIVE, model.IDLE, model.FREE, "degraded") else ""


def _style(state: str, line: GpuLine | None = None) -> str:
    """The colour of a state; a holder's idleness stands out when it lasts."""
    style = _STATE_STYLES.get(state, "bold red")
    if line is not None and line.held_idle and (line.idle_ms or 0) >= LONG_IDLE_MS:
        return f"bold {style}"
    return style


def _keys(frame: Frame) -> Text:
    line = Text()
    for key, what in (
        ("q", "quit"), ("p", "hide processes" if frame.processes else "processes"), ("s", f"sort: {frame.sort}"),
    ):  # fmt: skip
        line.append(f" {key} ", "reverse").append(f" {what}   ", _QUIET)
    return line


def _cropped(line: Text, width: int) -> Text:
    line.truncate(width, overflow="crop")
    return line
