"""Every metric family of the agent, in the order in which a scrape shows them."""

from __future__ import annotations

from agent.metrics.catalogue import (
    AGENT,
    DEVICE,
    ERRORS,
    FAILING,
    FAILING_SINCE,
    FREE,
    GPU,
    GPU_HEALTH,
    GPU_INFO,
    GR_ENGINE,
    HOST,
    IDLE,
    INFO,
    INTERVAL,
    MODE,
    NAME_CONFLICT,
    PROCESS,
    PROCESS_INFO,
    PUBLISHED,
    RECOVERY,
    SAMPLE_AGE,
    SAMPLE_TIME,
    SERVING,
    SERVING_GPU,
    SERVING_UP,
    SPOOL_BYTES,
    SPOOL_ROWS,
    STARTED,
    UP,
    UTIL_SOURCE,
    XID,
    XID_TIME,
    Family,
)

FAMILIES: tuple[Family, ...] = (
    UP, INFO, MODE, STARTED, INTERVAL, SAMPLE_TIME, SAMPLE_AGE, GPU_INFO, GPU_HEALTH, *GPU, UTIL_SOURCE, IDLE, *DEVICE, FREE, GR_ENGINE, *ERRORS,
    RECOVERY, XID, XID_TIME, PROCESS_INFO, *PROCESS, *HOST, SERVING_UP, SERVING_GPU, *SERVING, *AGENT, PUBLISHED, FAILING,
    FAILING_SINCE, NAME_CONFLICT, SPOOL_ROWS, SPOOL_BYTES,
)  # fmt: skip
