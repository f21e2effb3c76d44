"""Waking the sampling loop from signal handlers and other threads.

An eventfd instead of a threading.Event: ringing it takes no lock, so that a signal handler may do it at any moment.
"""

from __future__ import annotations

import contextlib
import os
import select


class Bell:
    """Rung by anyone, heard by the one loop that waits."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def ring(self) -> None:
        """Ends the wait that is under way, or the next one."""
        with contextlib.suppress(OSError):  # closed already, or rung very often
            os.eventfd_write(self._fd, 1)

    def wait(self, seconds: float) -> bool:
        """Waits so long at most; whether the bell was rung."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        return True

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._fd)
