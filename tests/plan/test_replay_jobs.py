"""Jobs rebuilt for a replay from the queue's records and from use of GPUs that no job accounts for."""

from __future__ import annotations

import polars as pl

from analytics.plan.replay.replay_jobs import WORK_NEEDS, RebuiltJobs, rebuilt_jobs
from fallow.clock import HOUR_MS
from tests.plan.replays import gpu_rows, job_row, jobs_frame

DAY_H = 24.0


def rebuilt(jobs: pl.DataFrame, rows: pl.DataFrame, needs: pl.DataFrame | None = None) -> RebuiltJobs:
    needs = pl.DataFrame(schema=WORK_NEEDS) if needs is None else needs
    places = {("P", "H100")}
    return rebuilt_jobs(jobs, rows, needs, window=(0, 24 * HOUR_MS), team_of=lambda user, _: user, places=places)


def hours(found: RebuiltJobs, name: str, column: str) -> float | None:
    value = found.jobs.filter(pl.col("user") == name)[column].item()
    return None if value is None else value / HOUR_MS


def test_a_job_comes_when_it_could_have_begun_and_lasts_as_long_as_it_did() -> None:
    jobs = jobs_frame(
        job_row("ada", 6, 9, submitted=HOUR_MS, eligible=4 * HOUR_MS),
        job_row("bo", 6, 9, submitted=None),
        job_row("cy", -2, 3),
        job_row("di", 20, None),
    )
    found = rebuilt(jobs, gpu_rows(DAY_H, {"a/0": [(6, 9, "active", "slurm:ada")]}))
    assert (hours(found, "ada", "asked"), hours(found, "ada", "ran_ms")) == (4, 3)
    assert (hours(found, "bo", "asked"), hours(found, "bo", "started")) == (None, 6)
    assert (hours(found, "cy", "started"), hours(found, "cy", "ran_ms")) == (-2, 5)
    assert found.jobs.filter(pl.col("user") == "cy")["before_window"].item()
    assert hours(found, "di", "ran_ms") == 24  # it may still run for as long as its limit says
    assert (found.queued, found.unasked) == (4, 1)


def test_jobs_that_wait_at_the_end_are_replayed_and_those_that_gave_up_are_counted() -> None:
    waits = job_row("ada", None, None, submitted=20 * HOUR_MS, hosts=[], as_of=24 * HOUR_MS)
    gave_up = job_row("bo", None, None, submitted=2 * HOUR_MS, hosts=[], as_of=9 * HOUR_MS, withdrawn=9 * HOUR_MS)
    vanished = job_row("cy", None, None, submitted=2 * HOUR_MS, hosts=[], as_of=9 * HOUR_MS)
    nowhere = job_row("di", 3, 4, gpus=None)
    found = rebuilt(jobs_frame(waits, gave_up, vanished, nowhere), gpu_rows(DAY_H, {"a/0": []}))
    assert found.jobs["user"].to_list() == ["ada"]
    assert hours(found, "ada", "ran_ms") == 24
    assert (found.never_ran, found.unplaced) == (2, 1)


def test_idle_intervals_are_those_in_which_no_gpu_of_the_job_worked() -> None:
    job = "slurm:ada"
    first = [(2, 4, "active", job), (4, 10, "held", job), (10, 11, "low", job), (11, 14, "held", job)]
    second = [(2, 5, "low", job), (5, 8, "reserved", job), (8, 9, "unknown", None), (9, 14, "held", job)]
    rows = gpu_rows(DAY_H, {"a/0": first, "a/1": second})
    found = rebuilt(jobs_frame(job_row("ada", 2, 14, gpus=2)), rows)
    idle_intervals = [(each["begin"] / HOUR_MS, each["end"] / HOUR_MS) for each in found.jobs["idle_intervals"].item()]
    assert idle_intervals == [(3, 6), (7, 8), (9, 12)]
    assert (hours(found, "ada", "used_ms"), found.jobs["gpus_used"].item()) == (9, 2)
    fewer_seen = rebuilt(jobs_frame(job_row("ada", 2, 14, gpus=3)), rows)
    assert fewer_seen.jobs["idle_intervals"].item() is None


def test_use_without_a_job_is_one_job_where_it_came_and_went_together() -> None:
    use = {
        "a/0": [(2, 6, "active", "ada"), (6, 9, "held", "ada")],
        "a/1": [(2.05, 9.05, "active", "ada")],
        "a/2": [(2, 4, "active", "ada"), (5, 6, "active", "pod:x")],
        "b/0": [(2, 9, "active", "bo")],
    }
    found = rebuilt(jobs_frame(), gpu_rows(DAY_H, use))
    kept = found.jobs.sort("started", "gpus", "user", descending=[False, True, False])
    assert kept.select("user", "gpus").rows() == [("ada", 2), ("ada", 1), ("bo", 1), ("x", 1)]
    assert kept["asked"].null_count() == 4
    assert found.queued == 0
    assert [each / HOUR_MS for each in kept["ran_ms"]] == [7.05, 2, 7, 1]


def test_use_by_somebody_whose_job_has_gpus_of_that_host_is_not_counted_twice() -> None:
    rows = gpu_rows(DAY_H, {"a/0": [(3, 5, "active", "ada")], "a/1": [(8, 9, "active", "ada")]})
    found = rebuilt(jobs_frame(job_row("ada", 2, 6)), rows)
    assert found.jobs.select("job", "started").rows() == [("ada", 2 * HOUR_MS), (None, 8 * HOUR_MS)]


def test_needs_are_the_most_over_a_jobs_gpus_and_unknown_where_one_is() -> None:
    job = "slurm:ada"
    rows = gpu_rows(DAY_H, {"a/0": [(2, 6, "active", job)], "a/1": [(2, 6, "active", job)]})
    known = [("a", "a/0", "ada", None, job, 5, 20.0), ("a", "a/1", "ada", None, job, 9, None)]
    needs = pl.DataFrame(known, schema=WORK_NEEDS, orient="row")
    found = rebuilt(jobs_frame(job_row("ada", 2, 6, gpus=2)), rows, needs)
    assert found.jobs.select("mem_bytes", "sm_pct").row(0) == (9, None)


def test_kinds_are_told_by_the_queue() -> None:
    jobs = [job_row("ada", 2, 6), job_row("bo", 2, 2.5), job_row("cy", 2, 6, name="jupyter-1"), job_row("di", 2, 20)]
    jobs.append(job_row("ed", 2, 6, scheduler="kubernetes", time_limit_ms=None))
    found = rebuilt(jobs_frame(*jobs), gpu_rows(DAY_H, {"a/0": [], "a/1": []}))
    kinds = {"ada": "batch", "bo": "test", "cy": "notebook", "di": "batch", "ed": "serving"}
    assert dict(found.jobs.select("user", "kind").iter_rows()) == kinds
    assert found.jobs.filter("is_deferrable")["user"].to_list() == ["ada"]  # di is not done by the morning
