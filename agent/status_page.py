"""A page of memory that worker and supervisor share: the driver call being made, and on which GPU."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

PAGE_BYTES = 256
_COUNTER = struct.Struct("=Q")


class StatusPage:
    """Written by the worker before and after each call, read by the supervisor when no answer comes."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._calls = 0

    def announce(self, uuid: str, call: str) -> None:
        """Notes the call about to be made; two empty strings when it has returned."""
        self._calls += 1
        text = f"{uuid} {call}".encode()[: PAGE_BYTES - _COUNTER.size - 1]
        self._memory[: _COUNTER.size + len(text) + 1] = _COUNTER.pack(self._calls) + text + b"\0"

    def current(self) -> tuple[str, str]:
        """GPU and name of the call being made; two empty strings for none."""
        text = self._memory[_COUNTER.size : PAGE_BYTES].split(b"\0", 1)[0].decode(errors="replace")
        uuid, _, call = text.partition(" ")
        return uuid, call

    def progress(self) -> int:
        """Another number whenever a call has begun or returned."""
        return int(_COUNTER.unpack(self._memory[: _COUNTER.size])[0])
