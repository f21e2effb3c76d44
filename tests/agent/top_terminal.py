"""`fallow top` on a pseudo-terminal, and how to read what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

from tests.conftest import REPOSITORY

PROGRAM = (
    "import argparse, sys\n"
    "from agent.top import command\n"
    "from fallow.errors import FallowError\n"
    "parser = argparse.ArgumentParser()\n"
    "command.add_arguments(parser)\n"
    "try:\n"
    "    sys.exit(command.run(parser.parse_args()))\n"
    "except FallowError as error:\n"
    "    sys.exit(f'fallow: {error}')\n"
)


def line_of(lines: list[str], label: str) -> str:
    """The line of the GPU table for a GPU's label."""
    [found] = [line for line in lines[5:] if line.split()[:1] == [label]][:1]
    return found


class Terminal:
    """A program on a pseudo-terminal, and all that it has written."""

    def __init__(self, environment: dict[str, str], columns: int, rows: int, *arguments: str) -> None:
        self.main, child = pty.openpty()
        self.resize(columns, rows)
        self._child = child
        self.before = termios.tcgetattr(child)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, *arguments], stdin=child, stdout=child, stderr=child, cwd=REPOSITORY,
            env=environment, start_new_session=True,
        )  # fmt: skip
        self.written = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self.main, keys)

    def await_text(self, pattern: str, timeout_s: float = 120) -> str:
        """What was written up to here, when the pattern has come since the last call."""
        since, deadline = "", time.monotonic() + timeout_s
        while not re.search(pattern, since, re.DOTALL):
            assert time.monotonic() < deadline, f"{pattern!r} never came: {since[-3000:]!r}"
            since += self._read()
        return since

    def ended(self) -> tuple[int, bool]:
        """The exit code, and whether the terminal is as it was before."""
        code = self.process.wait(120)
        while self._read():
            pass
        return code, termios.tcgetattr(self._child) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self._child)

    def _read(self) -> str:
        if not select.select([self.main], [], [], 0.2)[0]:
            return ""
        piece = os.read(self.main, 65536).decode(errors="replace")
        self.written += piece
        return piece
