"""The live view: draws when something is new, a key is pressed or the window changes its size, and leaves no trace."""

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

from agent.snapshot import SnapshotBoard
from agent.top.render import Frame, frame_lines
from agent.top.style import glyphs
from agent.top.tables import SORTS
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from agent.top.sources import TopSource

_REDRAW_S = 1.0  # ages count on while nothing is new
_RETRY_S = 1.0
_SUSPEND = "\x1a"  # Ctrl-Z
_QUIT = "qQ\x03\x04"  # also Ctrl-C and Ctrl-D


class Watcher:
    """Looks in a thread of its own, so that a driver call that blocks never freezes the view."""

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
        """Ends looking; a thread that waits for the driver is left behind and ends with the process."""
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
            except Exception as error:  # noqa: BLE001  # the view says so and goes on, as old as it then is
                self.error = f"looking failed: {error!r}"
                self._stopping.wait(_RETRY_S)
            os.write(self._bell, b"n")


@dataclass
class Choices:
    processes: bool = True
    sort: str = "memory"
    quit: bool = False

    def press(self, key: str) -> None:
        """Does what the key stands for; unknown keys do nothing."""
        if key in _QUIT:
            self.quit = True
        elif key == "p":
            self.processes = not self.processes
        elif key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]


def watch(console: Console, source: TopSource, notice: str) -> None:
    """Shows the view until somebody quits it; `notice` is shown with it."""
    view = _View(console, Watcher(source), notice)
    view.watcher.start()
    try:
        while not view.choices.quit:
            view.show()
            if not view.choices.quit:  # Ctrl-Z: the terminal is the shell's again until it says `fg`
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
        """Takes the terminal, draws until the person quits or suspends, and gives the terminal back."""
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
    """The keys that were pressed; a terminal that has gone away quits."""
    try:
        return os.read(descriptor, 1024).decode(errors="replace") or "q"
    except OSError:
        return "q"


@contextlib.contextmanager
def _resizing() -> Iterator[int]:
    """A descriptor that can be read when the window has changed its size; signals that end it do so in order."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)  # a full pipe says the same as a fuller one
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
    """A descriptor that gives single keys; None where standard input is no terminal.

    Ctrl-C and Ctrl-Z come as keys too: they reach this process alone, and not the NVML worker in its group.
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
