"""Waits and planned ends of scraped allocations are what plans read."""

from __future__ import annotations

from datetime import UTC, date
from typing import TYPE_CHECKING

import pytest

from analytics.plan.endings import find_endings
from analytics.plan.jobs import load_jobs
from fallow import schema
from fallow.cli import main
from tests.answers import rows_of
from tests.findings.conftest import context_of
from tests.ledger.rows import device, samples, write
from tests.scraped.who_rows import KubePod, bring, host_rows, kube

if TYPE_CHECKING:
    from fallow.lake import Lake

HOUR = 3600


def scraped(lake: Lake) -> None:
    """Four hours of two GPUs: a Job with a limit of a day on G0, since a wait of 20 min, and a pod that waits for two GPUs from hour 1 on."""
    write(lake, schema.DEVICE, [device(gpu, source="scraped") for gpu in ("G0", "G1")])
    rows = [
        row
        for gpu in ("G0", "G1")
        for row in samples(gpu, 0, 4 * HOUR, every_s=30, process_count=None, gpu_util_pct=80.0 if gpu == "G0" else 0.0,
                           gpu_util_coverage_ratio=0.005, mem_used_bytes=10**9 if gpu == "G0" else 0)
    ]  # fmt: skip
    write(lake, schema.GPU, rows)
    runs = KubePod("nlp", "fit-1", created=600, placed=1800, owner=("Job", "fit"))
    waits = KubePod("nlp", "big", created=HOUR, gpus=2)
    limit = (
        {"__name__": "kube_job_spec_active_deadline_seconds", "namespace": "nlp", "job_name": "fit"},
        {0.0: 86_400.0},
    )
    left = None
    for hour in range(4):
        since = hour * HOUR
        named = [None] * 60 + ["nlp/fit-1"] * 60 if hour == 0 else ["nlp/fit-1"]
        series = kube(*runs.series(max(since, 1800), since + HOUR), *waits.series(since, since + HOUR), limit)
        left = bring(
            lake,
            (since + HOUR, [host_rows("h1", since, since + HOUR, G0=named, G1=[None])]),
            before=left,
            series=series,
        )


def test_waits_and_planned_ends_of_scraped_pods_are_those_of_the_plans(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped(lake)
    assert main(["plan", "queue", "--lake", lake.root, "--json"]) == 0
    (rank,) = rows_of(capsys.readouterr().out)["queue-rank"]
    assert (rank["rank"], rank["jobs"], rank["jobs_still_waiting"]) == ("high", 2, 1)
    # what waits is told of once an hour, so it waited for as long as its last word says
    assert rank["hours"] == pytest.approx(1 / 3 + 359 / 120)
    found = find_endings(context_of(lake), load_jobs(lake), 14, UTC)
    assert (found.running, found.with_limit) == (1, 1)
    (each,) = found.rows
    assert (each.name, each.source, each.day, each.gpus) == ("pod:nlp/fit-1", "time_limit", date(2026, 11, 21), ("G0",))
