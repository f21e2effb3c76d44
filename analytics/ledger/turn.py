"""The turn to keep derived tables: taken at the first write, so that whoever only reads waits for nobody and needs no permission."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from analytics.ledger.manifest import DERIVED
from fallow import schema
from fallow.lake import Lake, LakeFile, SameLake
from fallow.leases import DEFAULT_TIMES, leased
from fallow.output import say

_TIMES = replace(DEFAULT_TIMES, wait_s=300)
"""Whoever has waited so long builds the tables for itself alone."""

_TABLES = (*DERIVED, schema.GPU_LIFETIME)


class KeptMeanwhile(Exception):  # noqa: N818  # nothing is wrong
    """Another command has kept other tables since this one looked: look again. This one has the turn by now."""


class TurnToKeep(SameLake):
    """The lake as its derived tables are kept by one command at a time; what was read is compared when the turn comes.

    `put` and `delete` raise KeptMeanwhile, and LakeError as `leased` does.
    """

    def __init__(self, lake: Lake, tell: Callable[[str], None] = say) -> None:
        super().__init__(lake)
        self._tell = tell
        self._leases = ExitStack()
        self._mine: Lake | None = None
        self._seen = self._derived()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mine = None
        self._leases.close()

    def put(self, file: LakeFile, data: bytes) -> LakeFile:
        return self._taken().put(file, data)

    def delete(self, file: LakeFile) -> None:
        self._taken().delete(file)

    def _taken(self) -> Lake:
        if self._mine is None:
            self._mine = self._leases.enter_context(leased(self, "ledger", "the ledger", times=_TIMES, tell=self._tell))
            if self._derived() != self._seen:
                raise KeptMeanwhile
        return self._mine

    def _derived(self) -> set[tuple[str, int, str]]:
        files = [file for table in _TABLES for file in self.all_files(table.name)]
        return {(file.key, file.size_bytes, file.version) for file in files}
