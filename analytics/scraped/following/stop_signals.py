"""SIGTERM and Ctrl-C, as a service takes them."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def stop_at_signals(stop: threading.Event) -> None:
    """The work ends where it next looks at the event; a second signal ends it at once."""

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
