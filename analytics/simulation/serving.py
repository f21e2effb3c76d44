"""What the simulated inference servers say of themselves, in step with what their GPUs do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from analytics.simulation.calibration import PROCESS_INTERVAL_MS
from analytics.simulation.days import GpuDay, SimulatedDay, row_range
from analytics.simulation.stays import Stay
from analytics.simulation.tables import on_grid_ms, pid_of, table_of
from fallow.parquet import arrow_schema
from fallow.schema import SERVING

_REQUESTS_PER_S = 6.0
"""What a server answers at full load."""
_TOKENS_PER_REQUEST = 180.0
_PORT = 8000


def serving_table(day: SimulatedDay) -> pa.Table:
    """One row per server each PROCESS_INTERVAL_MS, while an agent sees the host and the server is loaded."""
    parts = [_rows(day, gpu, stay) for gpu in day.gpus for stay in gpu.stays if stay.server is not None]
    return pa.concat_tables(parts) if parts else arrow_schema(SERVING).empty_table()


def _rows(day: SimulatedDay, gpu: GpuDay, stay: Stay) -> pa.Table:
    server = stay.server
    assert server is not None  # noqa: S101  # the caller chose those that have one
    interval_ms = on_grid_ms(PROCESS_INTERVAL_MS, day.interval_ms)
    every, count = interval_ms // day.interval_ms, len(day.times_ms)
    scraped = np.zeros(count, np.bool_)
    scraped[row_range(stay, day.day_ms, count, day.interval_ms)] = True
    rows = np.flatnonzero(scraped & day.seen & ~gpu.lost)
    rows = rows[rows % every == 0]
    # what happened since the scrape before
    sums = np.concatenate([[0.0], np.cumsum(gpu.util_pct)])
    load = (sums[rows + 1] - sums[np.maximum(rows + 1 - every, 0)]) / np.minimum(every, rows + 1) / 100
    now = gpu.util_pct[rows] / 100
    rate = np.round(_REQUESTS_PER_S * load, 2)
    speaks = server.kv_cache_ratio is not None
    return table_of(
        SERVING,
        {
            "time": day.times_ms[rows],
            "interval_ms": interval_ms,
            "endpoint": f"http://127.0.0.1:{_PORT + gpu.position}/metrics",
            "model": server.model,
            "engine": server.engine,
            "health": "ok",
            "gpu": day.plan.host.gpus[gpu.position].uuid,
            "pid": pid_of(stay, gpu.position),
            "kv_cache_used_ratio": np.round((server.kv_cache_ratio or 0.0) * now, 3) if speaks else None,
            "running_requests": np.rint(12 * now),
            "waiting_requests": np.rint(np.maximum(0.0, 20 * (now - 0.8))),
            "requests_per_s": rate,
            "generated_tokens_per_s": np.round(_TOKENS_PER_REQUEST * rate, 1) if speaks else None,
        },
        len(rows),
    )
