"""Random small hosts for Hypothesis: rows around midnight, with errors of real agents, schedulers and importers."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from hypothesis import strategies as st

from analytics.ledger.settings import LedgerSettings
from fallow import schema
from fallow.clock import MINUTE_MS
from fallow.stall_evidence import NO_CONTEXT_BYTES
from tests.lakes import made_lake
from tests.ledger.rows import GB, T0, Row, by_day, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake

Fleet = tuple[list[Row], list[Row], list[Row]]
"""The gpu, process and allocation rows of one host."""

SHORT = LedgerSettings(
    idle_after_ms=MINUTE_MS, stalled_after_ms=MINUTE_MS // 2
)  # so that small fleets hold GPUs and stall

STEP_MS = st.sampled_from([10_000] * 6 + [9_998, 10_003, 20_000, 30_000, 30_001, 45_000, 700_000])
UTIL = st.sampled_from([0.0, 0.0, 0.0, 0.0, None, 0.25, 8.0, 10.0, 12.0, 99.75, 300.0, -1.0, float("nan")])
MAXIMUM = st.sampled_from([None, None, 0.0, 1.0, 101.0])
COUNT = st.sampled_from([0, 1, 1, 1, None])
HEALTH = st.sampled_from(["ok"] * 8 + [None, "degraded", "lost", "missing", "wedged", "asleep", "released", "unknown"])
MEMORY = st.sampled_from([None, 0, NO_CONTEXT_BYTES - 1, NO_CONTEXT_BYTES, GB, GB + 1, -GB])
POWER = st.sampled_from([None, 70.5, 300.0, float("nan"), -5.0])
COVERED = st.sampled_from([None, 1.0, 0.5, 1.5])
ALIKE = {
    "gpu_util_pct": UTIL,
    "gpu_util_max_pct": MAXIMUM,
    "process_count": COUNT,
    "health": HEALTH,
    "mem_used_bytes": MEMORY,
    "power_w": POWER,
    "sm_active_pct": UTIL,
    "gpu_util_coverage_ratio": COVERED,
}
USER = st.sampled_from(["ann", "bob", "CORP+ann", "root", "100000", None])
WORK = st.sampled_from(
    [
        {},
        {},
        {"slurm_job_id": "7", "slurm_account": "r+d"},
        {"pod": "chat-0", "namespace": "web"},
        {"ray_job_id": "03"},
        {"unit": "vllm.service"},
        {"container": "web", "container_runtime": "lxc", "unit": "nginx.service"},
        {"unit": "ray.service", "ray_job_id": "03"},
    ]
)
DAY_S = 86_400


@st.composite
def rows_of(draw: st.DrawFn, gpu: str, firsts_s: tuple[int, ...]) -> list[Row]:
    """Rows of one GPU: episodes of like rows, jitter, gaps, counters, and values that cannot be."""
    at = T0 + 1000 * draw(st.sampled_from(firsts_s))
    energy, epoch = draw(st.sampled_from([None, 0])), at
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 6))):
        alike = {name: draw(values) for name, values in ALIKE.items()}
        if energy is not None and draw(st.integers(0, 3)) == 0:
            energy, epoch = draw(st.sampled_from([(0, at), (-7, epoch), (energy // 2, epoch)]))
        for _ in range(draw(st.integers(1, 9))):
            interval, step = draw(st.sampled_from([10_000, 10_000, 15_000])), draw(STEP_MS)
            counted = {"energy_mj": energy, "counters_since": epoch}
            rows.append(
                {"gpu": gpu, "time": at, "offset_ms": draw(st.integers(-400, 400)), "interval_ms": interval}
                | alike
                | counted
            )
            if draw(st.integers(0, 7)) == 0:  # a second agent, or an import beside an agent, saw something else
                rows.append(
                    rows[-1] | {"gpu_util_pct": draw(UTIL), "process_count": draw(COUNT), "health": draw(HEALTH)}
                )
            energy = None if energy is None else energy + 90 * step
            at += step
    return rows


@st.composite
def fleets(draw: st.DrawFn, firsts_s: tuple[int, ...] = (-90, -90, 3600, -DAY_S)) -> Fleet:
    """One host: its gpu, process and allocation rows, around T0 or where its GPUs begin."""
    gpus = ["a", "b"][: draw(st.integers(1, 2))]
    first_s = firsts_s[0]
    moments = st.integers(first_s // 10 - 3, first_s // 10 + 70).map(lambda tens: 10.0 * tens)
    gpu_rows = [row for gpu in gpus for row in draw(rows_of(gpu, firsts_s))]
    lists: dict[tuple[str, float, int], Row] = {}
    for _ in range(draw(st.integers(0, 12))):
        gpu, at, pid = draw(st.sampled_from(gpus)), draw(moments), draw(st.integers(1, 3))
        who = {"user": draw(USER)} | draw(WORK)
        base = {"gpu": gpu, "time": T0 + round(1000 * at), "interval_ms": 30_000, "pid": pid, "kind": "compute"}
        lists[gpu, at, pid] = base | who
    allocations = [
        draw(allocation_of(f"j{number}", gpus, start))
        for number, start in enumerate(draw(st.lists(moments, max_size=3)))
    ]
    return gpu_rows, list(lists.values()), [row for rows in allocations for row in rows]


@st.composite
def allocation_of(draw: st.DrawFn, allocation_id: str, gpus: list[str], first_s: float) -> list[Row]:
    """One allocation on one GPU: as it began, and perhaps once more as it ended."""
    start = T0 + round(1000 * first_s)
    begun: Row = {"gpu": draw(st.sampled_from(gpus)), "time": start, "end": None, "allocation_id": allocation_id}
    begun |= {
        "user": draw(USER),
        "scheduler": draw(st.sampled_from(["slurm", "kubernetes", "csv", None])),
        "account": draw(st.sampled_from([None, "physics", "web"])),
        "planned_end": draw(st.sampled_from([None, start + 200_000])),
    }
    ended = begun | {"end": start + 1000 * draw(st.integers(1, 400))}
    return draw(st.sampled_from([[begun], [ended], [begun, ended]]))


@contextmanager
def lake_of(fleet: Fleet, split: Callable[[Row], object] = by_day) -> Iterator[Lake]:
    """The fleet as a lake, for as long as it is looked at."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        lake = made_lake(folder)
        for table, rows in zip((schema.GPU, schema.PROCESS, schema.ALLOCATION), fleet, strict=True):
            write(lake, table, rows, split=split)
        # of one GPU the power limit is known, and so whether it draws little
        write(lake, schema.DEVICE, [{"gpu": "a", "time": T0, "power_limit_w": 700.0, "model": "NVIDIA H100 80GB HBM3"}])
        yield lake
