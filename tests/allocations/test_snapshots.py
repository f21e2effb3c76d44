"""Which GPUs finished jobs had, from what somebody saved of scontrol beside the export of sacct."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fallow import schema
from tests.allocations.conftest import stored
from tests.lakes import holds_nothing
from tests.ledger.rows import T0, device, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Outcome

AT = T0 // 1000
HEAD = "JobIDRaw|JobID|State|Submit|Start|End|NodeList|AllocTRES"
# an array of two tasks, whose tasks have ids of their own, and a run of job 9 that was requeued
JOBS = (
    f"7|7_1|COMPLETED|{AT - 60}|{AT}|{AT + 600}|gn[1-2]|gres/gpu=4",
    f"8|7_2|COMPLETED|{AT - 60}|{AT + 100}|{AT + 700}|gn1|gres/gpu=1",
    f"9|9|REQUEUED|{AT - 60}|{AT}|{AT + 100}|gn2|gres/gpu=1",
    f"9|9|COMPLETED|{AT + 100}|{AT + 200}|{AT + 900}|gn2|gres/gpu=1",
)
SAVED = """JobId=7 ArrayJobId=7 ArrayTaskId=1 JobName=a
   StartTime=2026-11-20T01:00:00 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:h100:2(IDX:0-1)

JobId=8 ArrayJobId=7 ArrayTaskId=2 JobName=a
   StartTime=2026-11-20T01:01:40 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn1 CPU_IDs=0-1 Mem=0 GRES=gpu:h100:1(IDX:3)

JobId=9 JobName=b
   StartTime=2026-11-20T01:03:20 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn2 CPU_IDs=0-1 Mem=0 GRES=gpu:h100:1(IDX:3)

"""
ON_GPUS = [
    ("7", "gn1", "GPU-gn1-0"), ("7", "gn1", "GPU-gn1-1"), ("7", "gn2", "GPU-gn2-0"), ("7", "gn2", "GPU-gn2-1"),
    ("8", "gn1", "GPU-gn1-3"), ("9", "gn2", "GPU-gn2-3"), ("9", "gn2", None),
]  # fmt: skip


def inventory(lake: Lake, *hosts: str) -> None:
    """As exporters' labels tell of it: the number of the device node (`device="nvidia3"`), or NVML's index alone (`gpu="3"`)."""
    for host, number in zip(hosts, ("minor_number", "gpu_index"), strict=False):
        rows = [device(f"GPU-{host}-{at}", source="scraped", **{number: at}) for at in range(4)]
        write(lake, schema.DEVICE, rows, host)


def as_json(*, nested: bool) -> str:
    """SAVED as `scontrol show job --json` gives it: times are nested since Slurm 23.02."""

    def job(number: int, nodes: str, start: int, details: list[str]) -> Any:
        time = {"set": True, "infinite": False, "number": start} if nested else start
        return {"job_id": number, "nodes": nodes, "start_time": time, "gres_detail": details, "job_state": ["RUNNING"]}

    jobs = [
        job(7, "gn[1-2]", AT, ["gpu:h100:2(IDX:0-1)"] * 2), job(8, "gn1", AT + 100, ["gpu:h100:1(IDX:3)"]),
        job(9, "gn2", AT + 200, ["gpu:h100:1(IDX:3)"]), job(10, "", 0, []),
    ]  # fmt: skip
    return json.dumps({"jobs": jobs, "errors": []})


@pytest.mark.parametrize(
    ("text", "zone"), [(SAVED, "Europe/Paris"), (as_json(nested=False), "UTC"), (as_json(nested=True), "UTC")]
)
def test_a_saved_snapshot_names_the_gpus_of_the_runs_that_it_shows(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, text: str, zone: str
) -> None:
    inventory(lake, "gn1", "gn2")
    jobs, saved = file("\n".join([HEAD, *JOBS]) + "\n"), file(text, "scontrol.txt")
    claims("import", "slurm", jobs)
    done = claims("import", "slurm", jobs, "--scontrol", saved, "--time-zone", zone)
    assert done.json["notes"] == []
    assert sorted([(row["claim_id"], row["host"], row.get("gpu")) for row in stored(lake)], key=str) == sorted(
        ON_GPUS, key=str
    )
    assert claims("import", "slurm", jobs, "--scontrol", saved, "--time-zone", zone).counts == (0, 7, 0)


def test_hosts_without_an_inventory_and_jobs_without_indices_are_said(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    inventory(lake, "gn1")
    jobs = file("\n".join([HEAD, *JOBS]) + "\n")
    done = claims("import", "slurm", jobs, "--scontrol", file(SAVED, "s.txt"), "--time-zone", "Europe/Paris")
    assert done.json["notes"] == [
        "the inventory of 1 hosts is not in the lake, so which GPUs jobs have there is not known: gn2"
    ]
    assert sum("gpu" in row for row in stored(lake)) == 3
    plain = file("JobId=7 JobName=a\n   StartTime=2026-11-20T01:00:00 EndTime=Unknown\n", "p.txt")
    assert "names no GPU of any job" in claims("import", "slurm", jobs, "--scontrol", plain).json["notes"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobIDRaw|Start\n", "is not what scontrol shows of jobs; save it while they run"),
        (SAVED.replace("gn[1-2]", "gn[2-1]"), "is not what scontrol shows of jobs: '2-1' is not a range of numbers"),
        (SAVED.replace("IDX:0-1", "IDX:0-99999999"), "'0-99999999' is not a range of numbers"),
        (as_json(nested=True)[:-40], "is not the JSON of scontrol"),
        (as_json(nested=True).replace('"gn[1-2]"', '"gn1"'), "is not the JSON of scontrol"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_remedy(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, text: str, said: str
) -> None:
    done = claims("import", "slurm", file("\n".join([HEAD, *JOBS])), "--scontrol", file(text, "s.txt"))
    assert (done.code, said in done.err) == (1, True), done.err
    assert holds_nothing(lake)
