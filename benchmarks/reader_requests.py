"""Requests of an hourly refresh of the ledger to an object store: those of every refresh, and those for each host.

Hosts publish a day and the morning of the next into a store in memory, as in benchmarks/rollout.py. The refresh at noon
reads the last week with its history, as the dashboard and `fallow findings --since 7d` do; the one an hour later is
counted. Two fleets of different sizes give both parts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.spool.spool import Spool
from analytics.ledger.build import load_ledger, load_recent
from analytics.ledger.settings import LedgerSettings
from analytics.window import READ_MS
from benchmarks.measure import Figure
from benchmarks.rollout import FIRST_MS, CountedStore, live_day, recorded_rows
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS, SystemClock, Window
from fallow.stores import objects
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from agent.rows import Rows
    from fallow.lake import Lake

FLEETS = (1, 3)
"""Hosts of the two fleets."""
NOON = 12
WHAT = ("put", "list", "get", "listed")


def measure() -> Iterator[Figure]:
    """Yield requests of a refresh: `reader_*_base` for all hosts together, and `reader_*_per_host`."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        recorded = recorded_rows(Path(name) / "recorded", patched)
        found = [_refreshed(Path(name) / str(hosts), patched, recorded, hosts) for hosts in FLEETS]
    few, many = FLEETS
    how = (
        f"refresh of a week at {NOON + 1}:00, files of five minutes and hours of today, fleets of {few} and {many}"
        " hosts"
    )
    for what in WHAT:
        per_host = (found[1][what] - found[0][what]) / (many - few)
        yield Figure(f"reader_{what}_per_host", per_host, "1", how)
        yield Figure(f"reader_{what}_base", found[0][what] - few * per_host, "1", how)


def _refreshed(folder: Path, patched: pytest.MonkeyPatch, recorded: dict[int, Rows], hosts: int) -> Counter[str]:
    """Return the requests of the second refresh of a fleet."""
    folder.mkdir()
    counted = CountedStore()
    patched.setattr(objects, "_client", lambda *_: counted)
    lake = made_lake("s3://bench/fallow")
    today_ms = FIRST_MS + DAY_MS
    names = [f"bench-{number}" for number in range(hosts)]
    spools = {host: Spool(str(folder / host), for_agent=True) for host in names}
    for host, spool in spools.items():
        rows = {tick: _of_host(own, host) for tick, own in recorded.items()}
        live_day(spool, lake, rows, counted, FIRST_MS, host=host)
        live_day(spool, lake, rows, counted, today_ms, host=host, hours=range(NOON))
    _refresh(lake, patched, today_ms + NOON * HOUR_MS)
    for host, spool in spools.items():
        rows = {tick: _of_host(own, host) for tick, own in recorded.items()}
        live_day(spool, lake, rows, counted, today_ms, host=host, hours=range(NOON, NOON + 1))
        spool.close()
    counted.requests.clear()
    _refresh(lake, patched, today_ms + (NOON + 1) * HOUR_MS)
    return counted.requests


def _of_host(rows: Rows, host: str) -> Rows:
    """Return the rows with GPUs of a host's own."""
    return {
        table: [row | {"gpu": f"{row['gpu']}-{host}"} if row.get("gpu") else row for row in own]
        for table, own in rows.items()
    }


def _refresh(lake: Lake, patched: pytest.MonkeyPatch, now_ms: int) -> None:
    patched.setattr(SystemClock, "now_ms", lambda _: now_ms)
    window = Window(now_ms - WEEK_MS)
    if load_recent(lake, LedgerSettings(), window, now_ms - WEEK_MS - READ_MS) is None:
        load_ledger(lake, LedgerSettings())
