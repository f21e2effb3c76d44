"""Jobs from allocations and requests: each run once, what waits once, and what nobody knows unknown."""

from __future__ import annotations

import polars as pl
import pytest

from analytics.capacity.causes import cause_of
from analytics.capacity.jobs import JOB_SCHEMA, LATE_MS, ended_by_limit, jobs_of
from analytics.frames import POLARS
from fallow.schema import REQUEST
from tests.allocations.conftest import Row, allocation, frame


def request(allocation_id: str, submitted: int, as_of: int, **more: object) -> Row:
    return {
        "allocation_id": allocation_id,
        "scheduler": "slurm",
        "time": submitted,
        "as_of": as_of,
        "host": "slurm",
        **more,
    }


def requests(*rows: Row) -> pl.DataFrame:
    columns = {column.name: POLARS[column.type] for column in REQUEST.columns}
    return pl.DataFrame(rows, schema=columns | {"host": pl.String()})


def test_a_run_is_one_job_over_all_its_hosts_and_gpus() -> None:
    queue = {"submitted": 5, "eligible": 7, "time_limit_s": 1, "priority": 9, "project": "p"}
    rows = [allocation(f"G{n}", 10, 400, host=f"h{n // 2}", gpu_count=4, **queue) for n in range(4)]
    jobs = jobs_of(frame(*rows), requests())
    assert jobs.schema == pl.Schema(JOB_SCHEMA)
    [job] = jobs.to_dicts()
    assert (job["job"], job["gpus"], job["hosts"], job["host_count"]) == ("1", 4, ["h0", "h1"], 2)
    assert (job["submitted"], job["eligible"], job["start"], job["end"], job["priority"]) == (5, 7, 10, 400, 9)
    assert (job["time_limit_ms"], job["planned_end"], job["project"], job["user"]) == (1000, 1010, "p", "u1")


def test_what_runs_has_no_end_before_somebody_saw_it() -> None:
    runs = [allocation("G0", 10, None, planned_end=500), allocation("G1", 10, None, "2"), allocation("G2", 10, 20, "3")]
    jobs = jobs_of(frame(*runs), requests())
    assert dict(jobs.select("job", "end").iter_rows()) == {"1": None, "2": None, "3": 20}
    assert dict(jobs.select("job", "time_limit_ms").iter_rows()) == {"1": 490, "2": None, "3": None}


def test_a_run_whose_limit_has_passed_is_over_and_nobody_knows_how() -> None:
    runs = [
        allocation("G0", 0, None, "1", planned_end=LATE_MS, state="RUNNING"),
        allocation("G1", 0, 20, "2", state="COMPLETED"),
    ]
    jobs = jobs_of(frame(*runs), requests())
    seen = {moment: ended_by_limit(jobs, moment).sort("job") for moment in (2 * LATE_MS, 2 * LATE_MS + 1)}
    assert [each.select("end", "state").rows() for each in seen.values()] == [
        [(None, "RUNNING"), (20, "COMPLETED")],
        [(LATE_MS, None), (20, "COMPLETED")],
    ]


def test_a_run_that_another_one_followed_is_over() -> None:
    jobs = jobs_of(
        frame(allocation("G0", 10, None, planned_end=500), allocation("G1", 60, None, planned_end=550)), requests()
    )
    assert jobs.sort("start")["end"].to_list() == [60, None]


def test_gpus_that_nobody_counted_are_unknown() -> None:
    counted = allocation(None, 10, 20, "1", host_gpu_count=3)
    uncounted = [allocation(None, 10, 20, "2", gpu_count=7), allocation(None, 10, 20, "2", host="h2", gpu_count=7)]
    neither = allocation(None, 10, 20, "3")
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
    begun = [allocation("G0", 10, None, "3", submitted=5), allocation("G1", 10, 60, "4", submitted=5)]
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


def held(jobs: pl.DataFrame) -> dict[str, list[tuple[int, int, str]]]:
    """By job the times in which its scheduler held it, and why."""
    return {
        job: [(span["time"], span["end"], span["cause"]) for span in spans or ()]
        for job, spans in jobs.select("job", "held").iter_rows()
    }


def test_each_moment_of_a_wait_has_the_next_reason_that_was_seen() -> None:
    """Priority and Resources blame the queue; after the last reason nobody saw another."""
    seen = [(20, "AssocGrpGRES"), (30, "Priority"), (50, "QOSMaxGRESPerUser"), (60, "QOSMaxGRESPerUser")]
    asked = [request("1", 10, as_of, reason=reason) for as_of, reason in seen]
    begun = allocation("G0", 70, 80, "1", submitted=10, eligible=12, reason="AssocGrpGRES")
    spans = {"1": [(12, 20, "account_limit"), (30, 50, "qos_limit"), (50, 70, "qos_limit")]}
    assert held(jobs_of(frame(begun), requests(*asked))) == spans
    assert held(jobs_of(frame(), requests(*asked))) == {
        "1": [(10, 20, "account_limit"), (30, 50, "qos_limit"), (50, 60, "qos_limit")]
    }


def test_accounting_alone_tells_the_last_reason_of_a_job_that_has_begun() -> None:
    begun = [
        allocation(f"G{number}", 70, 80, str(number), submitted=10, reason=reason)
        for number, reason in enumerate(("AssocGrpGRES", None, "Resources"))
    ]
    assert held(jobs_of(frame(*begun), requests())) == {"0": [(10, 70, "account_limit")], "1": [], "2": []}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("AssocMaxGRESPerJob", "never"),
        ("QOSMinGRES", "never"),
        ("PartitionTimeLimit", "never"),
        ("AssocGrpGRES", "account_limit"),
        ("AssocMaxJobsLimit", "account_limit"),
        ("QOSGrpGRES", "qos_limit"),
        ("QOSMaxGRESPerUser", "qos_limit"),
        ("PartitionDown", "partition"),
        ("Licenses", "licence"),
        ("JobHeldAdmin", "hold"),
        ("Reservation", "reservation"),
        ("ReqNodeNotAvail, Reserved for maintenance", "reservation"),
        ("ReqNodeNotAvail, UnavailableNodes:gn1", "drained"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "drained"),
        ("Resources", None),
        ("Priority", None),
        ("Unschedulable", None),
    ],
)
def test_a_schedulers_words_lead_to_one_cause(reason: str, cause: str | None) -> None:
    """Slurm's are those of squeue(1), JOB REASON CODES."""
    assert pl.select(cause_of(pl.lit(reason))).item() == cause
