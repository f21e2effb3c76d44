"""The hosts of a day that are built in one call give what each of them gives alone, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from polars.testing import assert_frame_equal

from analytics.inventory import load_inventory
from analytics.ledger.day import PARTS, SOURCES, build_day, load_allocations
from analytics.ledger.made_days import host_days
from fallow import schema
from tests.ledger.fleets import SHORT
from tests.ledger.rows import GB, allocation, device, fill, processes, samples, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.ledger.rows import Row


def fill_host(lake: Lake, host: str) -> None:
    """Rows that a batch could mix up: users, allocations, a split GPU, gaps, defects, servers, a shared GPU."""
    a, b, instance = f"GPU-a {host}", f"GPU-b {host}", f"MIG-1 {host}"
    gpu = [
        *samples(a, 0, 300, mem_used_bytes=GB, power_w=90.0),
        *samples(a, 300, 600, gpu_util_pct=80.0, process_count=2),
        *samples(a, 900, 1200, gpu_util_pct=300.0, health=None, process_count=None),
        *samples(b, 0, 600, gpu_util_pct=None, process_count=1),
        *samples(b, 600, 610, health="released", gpu_util_pct=None, process_count=None),
        *samples(instance, 0, 600, gpu_util_pct=0.0, process_count=1),
        *samples("GPU-moves", 0, 600),
    ]
    lists = [
        *processes(a, 300, 330, 360, user="ann"),
        *processes(a, 300, 330, 360, user=f"bob-{host}", pid=7, slurm_job_id="7"),
        *processes(instance, 0, 30, 60, user="cid"),
    ]
    devices = [device(a), device(b), device(instance, parent_gpu=b, mig_gpu_slices=3), device("GPU-moves")]
    fill(lake, gpu, lists, [allocation(a, 100, 500), allocation(None, 0, 900)], devices=devices, host=host)
    write(lake, schema.HOST, [{"time": row["time"], "cpu_util_pct": 5.0, "cpu_count": 8} for row in gpu[:9]], host)
    endpoints: list[Row] = [
        {"time": row["time"], "gpu": a, "endpoint": end, "model": "m", "health": "ok", "running_requests": 2.0}
        for end in ("y", "x")
        for row in gpu[:9]
    ]
    write(lake, schema.SERVING, endpoints, host)


def test_hosts_built_together_give_what_each_gives_alone_in_its_order(lake: Lake) -> None:
    for host in ("h3", "h1", "h2"):
        fill_host(lake, host)
    inventory = load_inventory(lake)
    files = {table.name: lake.files(table.name) for table in SOURCES}
    (hosts,) = host_days(inventory, load_allocations(lake, inventory), files).values()
    days = [hosts[host] for host in sorted(hosts)]
    together = build_day(days, SHORT)
    alone = [build_day([day], SHORT) for day in days]
    for table in PARTS:
        assert len(together[table.name])
        assert_frame_equal(together[table.name], pl.concat([each[table.name] for each in alone]))
