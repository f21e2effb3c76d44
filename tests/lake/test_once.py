"""A reader sees each row exactly once at every moment of any interleaving of publishing, compaction, repair, expiry and kills."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.settings import Compaction
from agent.spool.compaction import Compactor as OwnCompactor
from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from analytics.lake_care.compact import Compactor
from analytics.lake_care.expire import carry_out, plan
from analytics.lake_care.repair import Repairer
from analytics.lake_care.retention import Retention
from analytics.ledger.settings import LedgerSettings
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, SystemClock
from fallow.lake import Lake, LakeFile
from fallow.leases import DEFAULT_TIMES
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.publishing.conftest import S3

START_MS = 20_000 * DAY_MS + 20 * HOUR_MS


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class World:
    """One host's agent and a service, of which each change of the lake may be the last; the reader looks at each."""

    lake: Lake
    spool: Spool
    now_ms: int = START_MS
    number: int = 0
    expected: set[int] = field(default_factory=set)
    going: frozenset[int] = frozenset()
    """Rows that may be there or not: those that are just published or expire."""
    left: int | None = None
    looks: int = 0

    def publish(self, rows: int) -> None:
        found = [
            {
                "gpu": f"GPU-{number % 2}",
                "time": self.now_ms + number % 7,
                "interval_ms": 10_000,
                "pcie_rx_bytes_s": number,
            }
            for number in range(self.number, self.number + rows)
        ]
        self.spool.append({"gpu": found})  # type: ignore[typeddict-item]  # some columns
        self.number += rows
        self.going = frozenset(range(self.number)) - self.expected
        Publisher(self.spool, self.lake, "h", clock=self).publish()
        self.expected |= self.going
        self.going = frozenset()

    def own(self) -> None:
        OwnCompactor(self.spool, self.lake, "h", Compaction(), self).run()

    def service(self) -> None:
        Compactor(self.lake, self.now_ms, HOUR_MS, HOUR_MS).run()

    def repair(self) -> None:
        Repairer(self.lake, self.now_ms, HOUR_MS, dry_run=False).run()

    def monotonic_s(self) -> float:
        return self.now_ms / 1000

    def seen(self) -> list[int]:
        data = parquet.read(self.lake.files("gpu"), schema.GPU, ["pcie_rx_bytes_s"])
        return sorted(int(each) for each in data["pcie_rx_bytes_s"].to_pylist())

    def look(self) -> None:
        self.looks += 1
        found = self.seen()
        assert len(found) == len(set(found)), "a row is there twice"
        assert self.expected <= set(found) | self.going, "a row is lost"
        assert set(found) <= self.expected | self.going
