"""The picture: a frame's lines for a width and a height."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from agent.top import model
from agent.top.model import gpu_lines, process_lines, summarize
from agent.top.style import QUIET, Glyphs, cut, gib, number, shown, span, state_style, title
from agent.top.tables import SORTS, gpu_table, process_table
from fallow.clock import format_duration

if TYPE_CHECKING:
    from agent.snapshot import Snapshot
    from agent.top.model import GpuLine, TopSummary
    from agent.top.style import Glyphs

_STALE_INTERVALS = 3
_STALE_GRACE_MS = 2_000


def head_lines(frame: Frame, gpus: list[GpuLine], summary: TopSummary, width: int, shapes: Glyphs) -> list[Text]:
    """Host and hardware, freshness, a notice if there is one, who holds what without using it, totals."""
    snapshot = frame.snapshot
    host = (("fallow top", "bold"), (shown(snapshot.host), "bold cyan"))
    lines = [
        _parts(width, shapes, *host, *_what(snapshot, gpus, shapes)),
        _parts(width, shapes, _freshness(frame)),
        held_line(summary, width, shapes),
        _parts(width, shapes, *_totals(summary)),
    ]
    if frame.notice:
        lines.insert(2, Text(cut(shown(frame.notice), width, shapes), "magenta"))
    return lines


def held_line(summary: TopSummary, width: int, shapes: Glyphs) -> Text:
    """The sentence that the whole view is for."""
    if not summary.watched:
        return Text("the state of the GPUs is unknown", "bold")
    gpus = f"{summary.gpus} GPUs" if summary.watched == summary.gpus else f"{summary.watched} watched GPUs"
    if not summary.held_idle:
        return Text(f"0 of {gpus} idle while held", "green")
    line = Text(f"{summary.held_idle} of {gpus} idle while held", "bold yellow")
    line.append(f", {gib(summary.held_idle_bytes)} GiB held idle", "yellow")
    for number_of, (who, count, size) in enumerate(summary.held_idle_by):
        part = f"{': ' if number_of == 0 else ', '}{shown(who)} {count} ({gib(size)} GiB)"
        if line.cell_len + len(part) > width - len(shapes.ellipsis) - 1:
            line.append(shapes.ellipsis, "yellow")
            break
        line.append(part, "")
    return line


def _what(snapshot: Snapshot, gpus: list[GpuLine], shapes: Glyphs) -> list[tuple[str, str]]:
    boards = [line for line in gpus if ":" not in line.label]
    models = sorted({line.model for line in boards if line.model})
    counted = [f"{sum(line.model == each for line in boards)} {shapes.times} {shown(each)}" for each in models]
    return [
        *((each, "") for each in counted),
        *((f"driver {each}", QUIET) for each in _all(snapshot, "driver_version")),
        *((f"CUDA {each}", QUIET) for each in _all(snapshot, "cuda_driver_version")),
    ]


def _all(snapshot: Snapshot, column: str) -> list[str]:
    found = (device.get(column) for device in snapshot.devices.values())
    return sorted({str(value) for value in found if value is not None})


def _freshness(frame: Frame) -> tuple[str, str]:
    snapshot = frame.snapshot
    length = format_duration(snapshot.interval_ms)
    if frame.age_s * 1000 > _STALE_INTERVALS * snapshot.interval_ms + _STALE_GRACE_MS:
        return f"{frame.source}: nothing new for {span(int(frame.age_s * 1000))}; the values below are old", "bold red"
    if snapshot.mode == "released":
        return f"{frame.source}: the driver is released; `fallow agent resume` uses it again", "bold magenta"
    ago = f", {frame.age_s:.0f} s ago" if frame.age_s >= 2 else ""
    return f"{frame.source}: means of {length}{ago}", QUIET


def _totals(summary: TopSummary) -> list[tuple[str, str]]:
    """What is wrong comes first: the end of the line is what a narrow terminal loses."""
    parts = [(f"{count} {title(state)}", state_style(state)) for state, count in summary.unwatched]
    if summary.free:
        parts.append((f"{summary.free} free", state_style(model.FREE)))
    if summary.util_pct is not None:
        parts.append((f"{number(summary.util_pct)} % mean utilization", ""))
    if summary.mem_used_bytes is not None:
        parts.append((f"{gib(summary.mem_used_bytes)} of {gib(summary.mem_total_bytes, whole=True)} GiB", ""))
    if summary.power_w is not None:
        limit = "" if summary.power_limit_w is None else f" of {summary.power_limit_w / 1000:.1f}"
        parts.append((f"{summary.power_w / 1000:.1f}{limit} kW", ""))
    if summary.processes is not None:
        more = "+" if summary.processes_partly else ""
        parts.append((f"{summary.processes}{more} process{'' if (summary.processes, more) == (1, '') else 'es'}", ""))
    return parts


def _parts(width: int, shapes: Glyphs, *parts: tuple[str, str]) -> Text:
    """The parts with dots between them, as many as there is room for."""
    line = Text()
    for text, style in parts:
        dot = shapes.dot if line.plain else ""
        if line.plain and line.cell_len + len(dot) + len(text) > width:
            break
        line.append(dot, QUIET).append(cut(text, width, shapes), style)
    return line


_SHORT = 12
"""On a terminal of fewer lines the tables come first."""


@dataclass(frozen=True)
class Frame:
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
    gpus, processes = gpu_lines(frame.snapshot), process_lines(frame.snapshot)
    summary = summarize(gpus, processes)
    if height is not None and height < _SHORT:
        lines = [held_line(summary, width, shapes)]
    else:
        lines = [*head_lines(frame, gpus, summary, width, shapes), Text()]
    foot = [_keys(frame)] if frame.keys else []
    room = None if height is None else height - len(foot)
    lines += gpu_table(gpus, width, None if room is None else room - len(lines), shapes)
    if frame.processes and processes:
        processes.sort(key=SORTS[frame.sort])
        lines += process_table(processes, width, None if room is None else room - len(lines), shapes)
    if room is not None and foot:
        lines += [Text()] * (room - len(lines))
    for line in (*lines, *foot):
        line.truncate(width, overflow="crop")
    return [*lines[:room], *foot]


def _keys(frame: Frame) -> Text:
    line = Text()
    for key, what in (
        ("q", "quit"),
        ("p", "hide processes" if frame.processes else "processes"),
        ("s", f"sort: {frame.sort}"),
    ):
        line.append(f" {key} ", "reverse").append(f" {what}   ", QUIET)
    return line
