"""A bell that ends a wait: any thread and any signal handler may ring it.

`threading.Event` does not allow that. Its lock is not reentrant: a handler that sets the event while the interrupted
code holds the lock waits for itself. This happens when two signals come at once.
"""

from __future__ import annotations

import contextlib
import os
import select

_MOST_RINGS = 4096


class Bell:
    """A signal that any thread can ring and one loop waits for."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for each in (self._read, self._write):
            os.set_blocking(each, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        """End the current wait, or the next."""
        with contextlib.suppress(OSError):  # closed already, or its pipe is full of rings
            os.write(self._write, b"!")

    def wait(self, seconds: float) -> bool:
        """Wait at most this long. Return whether the bell was rung."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return False
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, _MOST_RINGS)
        return True

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
