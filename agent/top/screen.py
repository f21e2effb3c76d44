"""The picture of a frame, and the live view, drawn after new data, a key press or a change of the window's size."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from agent.snapshot import SnapshotBoard
from agent.top import model
from agent.top.model import gpu_lines, process_lines, summarize
from agent.top.tables import (
    QUIET,
    SORTS,
    Glyphs,
    cut,
    gib,
    glyphs,
    gpu_table,
    number,
    process_table,
    shown,
    span,
    state_style,
    title,
)
from fallow.clock import format_duration
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from agent.snapshot import Snapshot
    from agent.top.model import GpuLine, TopSummary
    from agent.top.sources import TopSource

_STALE_INTERVALS = 3
_STALE_GRACE_MS = 2_000


def head_lines(frame: Frame, gpus: list[GpuLine], summary: TopSummary, width: int, shapes: Glyphs) -> list[Text]:
    """Return the head: host and hardware, age of the data, a notice if any, GPUs held idle by user, totals."""
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
    """Return the sentence about GPUs held idle, the purpose of the view."""
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
        return f"{frame.source}: no new data for {span(int(frame.age_s * 1000))}; the values below are old", "bold red"
    if snapshot.mode == "released":
        return f"{frame.source}: the driver is released; `fallow agent resume` uses it again", "bold magenta"
    ago = f", {frame.age_s:.0f} s ago" if frame.age_s >= 2 else ""
    return f"{frame.source}: means of {length}{ago}", QUIET


def _totals(summary: TopSummary) -> list[tuple[str, str]]:
    """Return the totals, with faults first, because a narrow terminal cuts the end of the line."""
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
    """Return the parts with dots between them, as many as fit."""
    line = Text()
    for text, style in parts:
        dot = shapes.dot if line.plain else ""
        if line.plain and line.cell_len + len(dot) + len(text) > width:
            break
        line.append(dot, QUIET).append(cut(text, width, shapes), style)
    return line


_SHORT = 12
"""On a terminal with fewer lines the tables come first."""


@dataclass(frozen=True)
class Frame:
    snapshot: Snapshot
    age_s: float
    source: str
    notice: str = ""
    processes: bool = True
    sort: str = "memory"
    keys: bool = False
    """Whether there is a keyboard, so that the keys are explained."""


def frame_lines(frame: Frame, width: int, height: int | None, shapes: Glyphs) -> list[Text]:
    """Return the lines from top to bottom, not wider than `width`, and at most `height` if given."""
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
        processes.sort(key=lambda line: (SORTS[frame.sort](line), line.row["pid"]))
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


_REDRAW_S = 1.0  # ages grow even without new data
_RETRY_S = 1.0
_SUSPEND = "\x1a"  # Ctrl-Z
_QUIT = "qQ\x03\x04"  # also Ctrl-C and Ctrl-D


class Watcher:
    """Looks in its own thread, so that a blocked driver call never freezes the view."""

    def __init__(self, source: TopSource) -> None:
        self.source = source
        self.board = SnapshotBoard()
        self.error = ""
        self.news, self._bell = os.pipe()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="look", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. A thread that waits for the driver is abandoned, and ends with the process."""
        self._stopping.set()
        self.source.stop()
        self._thread.join(timeout=_RETRY_S)
        if not self._thread.is_alive():
            self.source.close()

    def _look(self) -> None:
        while not self._stopping.is_set():
            try:
                self.board.publish(self.source.look())
                self.error = ""
            except FallowError as error:
                self.error = error.message
                self._stopping.wait(_RETRY_S)
            except Exception as error:  # noqa: BLE001  # the view shows the error and the age of its data
                self.error = f"the query failed: {error!r}"
                self._stopping.wait(_RETRY_S)
            os.write(self._bell, b"n")


@dataclass
class Choices:
    processes: bool = True
    sort: str = "memory"
    quit: bool = False

    def press(self, key: str) -> None:
        """Execute the key's action; unknown keys do nothing."""
        if key in _QUIT:
            self.quit = True
        elif key == "p":
            self.processes = not self.processes
        elif key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]


def watch(console: Console, source: TopSource, notice: str) -> None:
    view = _View(console, Watcher(source), notice)
    view.watcher.start()
    try:
        while not view.choices.quit:
            view.show()
            if not view.choices.quit:  # Ctrl-Z: the shell has the terminal until `fg`
                os.kill(os.getpid(), signal.SIGSTOP)
    finally:
        view.watcher.stop()


class _View:
    def __init__(self, console: Console, watcher: Watcher, notice: str) -> None:
        self.watcher = watcher
        self.choices = Choices()
        self._console = console
        self._notice = notice
        self._shapes = glyphs(console.encoding)

    def show(self) -> None:
        """Take the terminal, draw until the user quits or suspends, and restore the terminal."""
        with (
            _resizing() as resized,
            _keyboard() as keys,
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            waiting = [self.watcher.news, resized, *([] if keys is None else [keys])]
            while True:
                live.update(self._picture(keys=keys is not None), refresh=True)
                ready, _, _ = select.select(waiting, [], [], _REDRAW_S)
                pressed = "".join(_read(descriptor) for descriptor in ready if descriptor == keys)
                for descriptor in ready:
                    if descriptor != keys:
                        os.read(descriptor, 1024)
                for key in pressed:
                    self.choices.press(key)
                if self.choices.quit or _SUSPEND in pressed:
                    return

    def _picture(self, *, keys: bool) -> Group:
        newest, error = self.watcher.board.latest_with_age(), self.watcher.error
        if newest is None:
            return Group(error or "looking ...")
        frame = Frame(
            *newest,
            self.watcher.source.name,
            error or self._notice,
            self.choices.processes,
            self.choices.sort,
            keys=keys,
        )
        return Group(*frame_lines(frame, self._console.width, self._console.height, self._shapes))


def _read(descriptor: int) -> str:
    """Return the pressed keys; a closed terminal counts as quit."""
    try:
        return os.read(descriptor, 1024).decode(errors="replace") or "q"
    except OSError:
        return "q"


@contextlib.contextmanager
def _resizing() -> Iterator[int]:
    """Yield a descriptor that is readable after a window resize. Signals that end the view restore the terminal."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)  # a full pipe is signal enough
    former_wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    former = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    former[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
    try:
        yield read_end
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_wakeup)
        os.close(read_end)
        os.close(write_end)


@contextlib.contextmanager
def _keyboard() -> Iterator[int | None]:
    """Yield a descriptor that gives single keys; None where standard input is not a terminal.

    Ctrl-C and Ctrl-Z arrive as keys too, so that they reach only this process and not the NVML worker in its group.
    """
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        mode = termios.tcgetattr(descriptor)
        mode[3] &= ~termios.ISIG
        termios.tcsetattr(descriptor, termios.TCSANOW, mode)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)
