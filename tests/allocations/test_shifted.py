"""Claims that come again at other times, because they were read in another time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fallow import parquet, schema
from fallow.lake import LakeFile
from tests.allocations.conftest import stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Outcome

HEAD = "JobIDRaw|Submit|Start|End|NodeList|AllocTRES\n"
JOBS = (
    "1|2026-11-20T09:00:00|2026-11-20T10:00:00|2026-11-20T11:00:00|n1|gres/gpu=1\n"
    "2|2026-11-20T09:00:00|2026-11-20T00:10:00|2026-11-20T00:50:00|n1|gres/gpu=1\n"
    "3|2026-11-20T09:00:00|2026-11-20T12:00:00|Unknown|n2|gres/gpu=1\n"
)
HOUR = 3_600_000
NOON = 1_795_176_000_000  # 2026-11-20 12:00 UTC
PARIS = ("--time-zone", "Europe/Paris")


def starts(lake: Lake) -> dict[str, int]:
    rows = stored(lake)
    assert len({row["claim_id"] for row in rows}) == len(rows), "each is there once"
    return {row["claim_id"]: row["time"] - NOON for row in rows}


def test_the_same_jobs_in_another_zone_are_refused(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    jobs = file(HEAD + JOBS, "jobs.txt")
    assert claims("import", "slurm", jobs).counts == (3, 0, 0)
    before = stored(lake)
    done = claims("import", "slurm", jobs, *PARIS)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"fallow: {jobs}: 3 jobs are in the lake already, 1 h apart: they were imported with another --time-zone; "
        "nothing was imported; --replace puts these in their place\n"
    )
    assert stored(lake) == before
    assert claims("import", "slurm", jobs).counts == (0, 3, 0), "in the same zone they are there already"


@pytest.mark.parametrize(("zones", "shift"), [(((), PARIS), -HOUR), ((PARIS, ()), 0)])
def test_replace_puts_them_in_their_place_also_over_midnight(
    claims: Callable[..., Outcome],
    file: Callable[..., Path],
    lake: Lake,
    zones: tuple[tuple[str, ...], tuple[str, ...]],
    shift: int,
) -> None:
    first, second = zones
    jobs = file(HEAD + JOBS, "jobs.txt")
    claims("import", "slurm", jobs, *first)
    done = claims("import", "slurm", jobs, *second, "--replace")
    assert done.json["notes"] == ["3 jobs are in the lake already, 1 h apart: these are in their place now"]
    assert starts(lake) == {"1": shift - 2 * HOUR, "2": shift - 12 * HOUR + 600_000, "3": shift}
    assert claims("import", "slurm", jobs, *second).counts == (0, 3, 0)


def test_a_lake_that_has_them_twice_is_mended(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    """Lakes from before this was refused."""
    twice = HEAD + JOBS + "1|2026-11-20T08:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|n1|gres/gpu=1\n"
    claims("import", "slurm", file(twice))
    assert len(stored(lake)) == 4
    claims("import", "slurm", file(HEAD + JOBS), *PARIS, "--replace")
    assert starts(lake) == {"1": -3 * HOUR, "2": -13 * HOUR + 600_000, "3": -HOUR}


def test_what_the_lake_knows_of_their_gpus_stays(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    table = file("start,end,gpu,host,claim_id\n2026-11-20T10:00,2026-11-20T11:00,GPU-a,n1,7\n", "own.csv")
    counted = file("start,end,host,gpu_count,claim_id\n2026-11-20T10:00,2026-11-20T11:00,n1,1,7\n", "count.csv")
    claims("import", "csv", table)
    claims("import", "csv", counted, *PARIS, "--replace")
    (row,) = stored(lake)
    assert (row["gpu"], row["time"] - NOON, row["end"] - NOON) == ("GPU-a", -3 * HOUR, -2 * HOUR)


def test_jobs_over_the_end_of_summer_time_move_too(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    jobs = file(
        HEAD + "1|2026-10-24T09:00:00|2026-10-24T10:00:00|2026-10-24T11:00:00|n1|gres/gpu=1\n"
        "2|2026-10-24T09:00:00|2026-10-24T10:00:00|2026-10-26T10:00:00|n1|gres/gpu=1\n"
        "3|2026-10-26T09:00:00|2026-10-26T10:00:00|2026-10-26T11:00:00|n1|gres/gpu=1\n"
    )
    claims("import", "slurm", jobs)
    assert "3 jobs are in the lake already, 1 h or 2 h apart" in claims("import", "slurm", jobs, *PARIS).err
    claims("import", "slurm", jobs, *PARIS, "--replace")
    assert len(stored(lake)) == 3


@pytest.mark.parametrize(
    "again",
    [
        "1|2026-11-20T11:00:00|2026-11-20T12:00:00|2026-11-20T14:30:00|n1|gres/gpu=1\n",  # requeued, and lasted longer
        "1|2026-11-20T09:00:00|2026-11-20T12:00:00|2026-11-20T13:00:00|n1|gres/gpu=1\n",  # submitted once
        "1|2026-11-20T11:07:00|2026-11-20T12:07:00|2026-11-20T13:07:00|n1|gres/gpu=1\n",  # no zones are so far apart
        "1|2026-11-20T11:00:00|2026-11-20T12:00:00|2026-11-20T13:00:00|n2|gres/gpu=1\n",  # elsewhere
    ],
)
def test_a_job_that_began_again_is_another_claim(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, again: str
) -> None:
    claims("import", "slurm", file(HEAD + JOBS))
    claims("import", "slurm", file(HEAD + again), *PARIS)
    assert len(stored(lake)) == 4


def test_a_table_may_name_one_reservation_twice_a_day(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    head = "start,end,host,gpu_count,user\n"
    for hour in (8, 12, 16):
        claims("import", "csv", file(f"{head}2026-11-20T{hour:02d}:00,2026-11-20T{hour + 2:02d}:00,n1,1,ann\n"), *PARIS)
    assert len(stored(lake)) == 3
    moved = claims("import", "csv", file(f"{head}2026-11-20T08:00,2026-11-20T10:00,n1,1,ann\n"))
    assert "1 allocation is in the lake already, 1 h apart: it was imported with another --time-zone" in moved.err


def test_claims_of_agents_are_left_alone(claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake) -> None:
    known = {"gpu": "a", "time": NOON - 2 * HOUR, "end": NOON - HOUR, "claim_id": "1", "scheduler": "slurm"}
    rows = parquet.encode(schema.CLAIM, parquet.table_from_rows(schema.CLAIM, [known]))
    lake.put(LakeFile("claim", "2026-11-20", "n1", 10**15, 10**15), rows)
    claims("import", "slurm", file(HEAD + JOBS), *PARIS, "--replace")
    assert len(stored(lake)) == 4
