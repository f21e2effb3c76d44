"""Puts a simulated fleet into a lake, host by host and day by day, so that memory stays at one host-day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from analytics.simulation import tables
from analytics.simulation.days import SimulatedDay, host_days
from analytics.simulation.placement import SimulatedFleet
from analytics.simulation.plan import FleetPlan, plan_fleet
from analytics.simulation.queue import SCHEDULER, Row, SimulatedQueue, simulated_queue
from analytics.simulation.tables import serving_table
from fallow.clock import utc_day
from fallow.lake import Lake, LakeFile
from fallow.parquet import encode, table_from_rows
from fallow.schema import AGENT, CLAIM, DEVICE, EVENT, GPU, HOST, PROCESS, REQUEST, SERVING, LakeTable

METADATA = {"simulated": "true"}
"""Stands in every simulated Parquet file beside schema version and writer."""


def write_fleet(lake: Lake, fleet: SimulatedFleet, progress: Callable[[float], None] | None = None) -> FleetPlan:
    """Simulates the fleet into the lake and returns its plan.

    Same fleet, same files to the byte. `progress` is called with the share done, 0 to 1, after each host-day. Raises
    LakeError where the lake cannot be written.
    """
    plan = plan_fleet(fleet)
    queue = simulated_queue(plan)
    days = (day for host in plan.hosts for day in host_days(fleet, host))
    for done, day in enumerate(days, 1):
        for table, data in day_tables(fleet, day, queue):
            _put(lake, table, day, data)
        if progress is not None:
            progress(done / (len(plan.hosts) * fleet.days))
    _put_requests(lake, queue.requests)
    return plan


def day_tables(fleet: SimulatedFleet, day: SimulatedDay, queue: SimulatedQueue) -> Iterator[tuple[LakeTable, pa.Table]]:
    """The tables of one host-day that have rows."""
    first = day.day_ms == fleet.since_ms
    every = (
        (GPU, tables.gpu_table(day)),
        (PROCESS, tables.process_table(day)),
        (HOST, tables.host_table(day)),
        (DEVICE, tables.device_table(day)),
        (EVENT, tables.event_table(day, first=first)),
        (AGENT, tables.agent_table(day)),
        (SERVING, serving_table(day)),
        (CLAIM, tables.allocation_table(day, queue, first=first, until_ms=fleet.until_ms)),
    )
    yield from ((table, data) for table, data in every if data.num_rows)


def _put_requests(lake: Lake, requests: Iterable[Row]) -> None:
    """A file for each day on which somebody was seen to wait, under the scheduler's name."""
    days: dict[str, list[Row]] = {}
    for each in requests:
        days.setdefault(utc_day(cast("int", each["as_of"])), []).append(each)
    for date, rows in sorted(days.items()):
        data = table_from_rows(REQUEST, rows)
        number = 1000 * max(cast("int", row["as_of"]) for row in rows)
        lake.put(LakeFile(REQUEST.name, date, SCHEDULER, number, number), encode(REQUEST, data, METADATA))


def _put(lake: Lake, table: LakeTable, day: SimulatedDay, data: pa.Table) -> None:
    """One file per table, date and host; its sequence numbers are its first and last row's time in microseconds."""
    span = pc.min_max(data.column("time").cast("int64"))
    first, last = (1000 * span[end].as_py() for end in ("min", "max"))
    lake.put(LakeFile(table.name, utc_day(day.day_ms), day.plan.host.name, first, last), encode(table, data, METADATA))
