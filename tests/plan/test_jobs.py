"""Jobs from claims and requests: each run once, what waits once, and what nobody knows unknown."""

from __future__ import annotations

import polars as pl

from analytics.frames import POLARS
from analytics.plan.jobs import JOB_SCHEMA, LATE_MS, ended_by_limit, jobs_of
from fallow.schema import REQUEST
from tests.allocations.conftest import Row, claim, frame


def request(claim_id: str, submitted: int, as_of: int, **more: object) -> Row:
    return {"claim_id": claim_id, "scheduler": "slurm", "time": submitted, "as_of": as_of, "host": "slurm", **more}


def requests(*rows: Row) -> pl.DataFrame:
    columns = {column.name: POLARS[column.type] for column in REQUEST.columns}
    return pl.DataFrame(rows, schema=columns | {"host": pl.String()})


def test_a_run_is_one_job_over_all_its_hosts_and_gpus() -> None:
    queue = {"submitted": 5, "eligible": 7, "time_limit_s": 1, "priority": 9, "project": "p"}
    rows = [claim(f"G{n}", 10, 400, host=f"h{n // 2}", gpu_count=4, **queue) for n in range(4)]
    jobs = jobs_of(frame(*rows), requests())
    assert jobs.schema == pl.Schema(JOB_SCHEMA)
    [job] = jobs.to_dicts()
    assert (job["job"], job["gpus"], job["hosts"], job["host_count"]) == ("1", 4, ["h0", "h1"], 2)
    assert (job["submitted"], job["eligible"], job["start"], job["end"], job["priority"]) == (5, 7, 10, 400, 9)
    assert (job["time_limit_ms"], job["planned_end"], job["project"], job["user"]) == (1000, 1010, "p", "u1")


def test_what_runs_has_no_end_before_somebody_saw_it() -> None:
    runs = [claim("G0", 10, None, planned_end=500), claim("G1", 10, None, "2"), claim("G2", 10, 20, "3")]
    jobs = jobs_of(frame(*runs), requests())
    assert dict(jobs.select("job", "end").iter_rows()) == {"1": None, "2": None, "3": 20}
    assert dict(jobs.select("job", "time_limit_ms").iter_rows()) == {"1": 490, "2": None, "3": None}


def test_a_run_whose_limit_has_passed_is_over_and_nobody_knows_how() -> None:
    runs = [claim("G0", 0, None, "1", planned_end=LATE_MS, state="RUNNING"), claim("G1", 0, 20, "2", state="COMPLETED")]
    jobs = jobs_of(frame(*runs), requests())
    seen = {moment: ended_by_limit(jobs, moment).sort("job") for moment in (2 * LATE_MS, 2 * LATE_MS + 1)}
    assert [each.select("end", "state").rows() for each in seen.values()] == [
        [(None, "RUNNING"), (20, "COMPLETED")],
        [(LATE_MS, None), (20, "COMPLETED")],
    ]


def test_a_run_that_another_one_followed_is_over() -> None:
    jobs = jobs_of(frame(claim("G0", 10, None, planned_end=500), claim("G1", 60, None, planned_end=550)), requests())
    assert jobs.sort("start")["end"].to_list() == [60, None]


def test_gpus_that_nobody_counted_are_unknown() -> None:
    counted = claim(None, 10, 20, "1", host_gpu_count=3)
    uncounted = [claim(None, 10, 20, "2", gpu_count=7), claim(None, 10, 20, "2", host="h2", gpu_count=7)]
    neither = claim(None, 10, 20, "3")
    jobs = jobs_of(frame(counted, *uncounted, neither), requests())
    assert dict(jobs.select("job", "gpus").iter_rows()) == {"1": 3, "2": 7, "3": None}


def test_a_request_counts_as_it_was_last_seen_and_not_once_it_was_given_gpus() -> None:
    asked = [
        request("1", 5, 6, gpu_count=4, state="PENDING", reason="Priority"),
        request("1", 5, 9, gpu_count=4, state="PENDING", reason="Resources"),
        request("2", 5, 9, state="PENDING"),
        request("2", 5, 12, state="CANCELLED", withdrawn=11),
        request("3", 5, 6, state="PENDING"),
        request("4", 5, 6, state="PENDING"),
        request("4", 70, 80, state="PENDING"),
    ]
    begun = [claim("G0", 10, None, "3", submitted=5), claim("G1", 10, 60, "4", submitted=5)]
    jobs = jobs_of(frame(*begun), requests(*asked))
    waiting = jobs.filter(pl.col("start").is_null())
    assert waiting.select("job", "submitted", "as_of", "withdrawn", "reason").rows() == [
        ("1", 5, 9, None, "Resources"),
        ("2", 5, 12, 11, None),
        ("4", 70, 80, None, None),
    ]
    assert jobs.filter(pl.col("start").is_not_null())["job"].to_list() == ["3", "4"]
    assert waiting["gpus"].to_list() == [4, None, None]


def test_each_task_of_an_array_waits_and_a_job_waits_once_at_a_time() -> None:
    asked = [
        request("1", 5, 9, gpu_count=2, task_count=3, state="PENDING"),
        request("2", 5, 6, state="PENDING"),
        request("2", 20, 30, state="PENDING"),  # it was given GPUs in between, which nobody saw
        request("3", 5, 6, state="Pending"),
        request("3", 5, 12, granted=11),
    ]
    jobs = jobs_of(frame(), requests(*asked))
    assert jobs.select("job", "submitted", "gpus").rows() == [("1", 5, 2)] * 3 + [("2", 20, None)]
