"""A page of memory that worker and supervisor share: the driver call being made, and on which GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

PAGE_BYTES = 256


class StatusPage:
    """Written by the worker before and after each call, read by the supervisor when no answer comes."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def announce(self, uuid: str, call: str) -> None:
        """Notes the call about to be made; two empty strings when it has returned."""
        text = f"{uuid} {call}".encode()[: PAGE_BYTES - 1]
        self._memory[: len(text) + 1] = text + b"\0"

    def current(self) -> tuple[str, str]:
        """GPU UUID and name of the call being made; empty strings for none (or a call about no GPU)."""
        uuid, _, call = self._memory[:PAGE_BYTES].split(b"\0", 1)[0].decode(errors="replace").partition(" ")
        return uuid, call
