"""The workers of a Dask scheduler read samples from an object store, and write the derived files into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.ledger import cache
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.workers import HERE, Workers
from analytics.simulation import SimulatedFleet, write_fleet
from fallow.clock import DAY_MS, MINUTE_MS
from tests.lakes import made_lake
from tests.ledger.dask_cluster import running
from tests.ledger.rows import silent

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.publishing.conftest import S3

FLEET = SimulatedFleet(gpus=16, days=2, seed=1, interval_ms=10 * MINUTE_MS, until_ms=20_700 * DAY_MS)


@pytest.mark.long
def test_workers_build_the_same_ledger_in_an_object_store(
    s3: S3, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "HOSTS_A_FILE", 1)
    far = made_lake(s3.location)
    with running(tmp_path, "", "") as cluster:
        made = []
        for each, workers in ((lake, HERE), (far, Workers(scheduler=cluster.address))):
            write_fleet(each, FLEET)
            made.append(load_ledger(each, LedgerSettings(), workers=workers, warn=silent))
    here, there = made
    assert there.segments.equals(here.segments)
    assert there.idle_intervals.equals(here.idle_intervals)
    assert there.rollups.hourly().equals(here.rollups.hourly())
    assert {file.key for file in far.all_files("hourly")} == {file.key for file in lake.all_files("hourly")}
