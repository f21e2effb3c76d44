"""The picture: a frame's lines for a width and a height."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from agent.top.gpu_table import gpu_table
from agent.top.head import head_lines, held_line
from agent.top.model import gpu_lines, process_lines, summarize
from agent.top.process_table import SORTS, process_table
from agent.top.style import QUIET

if TYPE_CHECKING:
    from agent.supervise.snapshot import Snapshot
    from agent.top.text import Glyphs

_SHORT = 12
"""On a terminal of fewer lines the tables come first."""


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
        ("q", "quit"), ("p", "hide processes" if frame.processes else "processes"), ("s", f"sort: {frame.sort}"),
    ):  # fmt: skip
        line.append(f" {key} ", "reverse").append(f" {what}   ", QUIET)
    return line
