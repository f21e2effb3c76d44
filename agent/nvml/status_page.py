"""A page of memory that worker and supervisor share: the driver call being made, and on which GPU."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

PAGE_BYTES = 256
_COUNTER = struct.Struct("=Q")


class StatusPage:
    """Written by the worker before and after each call, read by the supervisor when no answer comes.

    The counter is odd while a call is being made, so that after a call nothing but the counter has to be written.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._count = 0
        self._labels: dict[tuple[str, str], bytes] = {}

    def announce(self, uuid: str, call: str) -> None:
        """Notes the call about to be made."""
        label = self._labels.get((uuid, call))
        if label is None:
            label = f"{uuid} {call}".encode()[: PAGE_BYTES - _COUNTER.size - 1] + b"\0"
            self._labels[uuid, call] = label
        self._memory[_COUNTER.size : _COUNTER.size + len(label)] = label
        self._count += 1
        _COUNTER.pack_into(self._memory, 0, self._count)

    def returned(self) -> None:
        """Notes that the call has returned."""
        self._count += 1
        _COUNTER.pack_into(self._memory, 0, self._count)

    def current(self) -> tuple[str, str]:
        """GPU and name of the call being made; two empty strings for none."""
        if self.progress() % 2 == 0:
            return "", ""
        text = self._memory[_COUNTER.size : PAGE_BYTES].split(b"\0", 1)[0].decode(errors="replace")
        uuid, _, call = text.partition(" ")
        return uuid, call

    def progress(self) -> int:
        """Another number whenever a call has begun or returned."""
        return int(_COUNTER.unpack_from(self._memory)[0])
