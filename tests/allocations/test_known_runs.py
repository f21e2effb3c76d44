"""Runs and requests in the lake: one run is one, whoever tells of it; requests are only ever added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.allocations.publish import add_requests
from analytics.capacity.jobs import load_jobs
from analytics.frames import POLARS, typed
from fallow.clock import DAY_MS
from fallow.compaction import LakeCompactor
from fallow.lake_init import opened_for_writing
from fallow.schema import REQUEST
from tests.allocations.cluster_objects import kubectl, pod
from tests.allocations.conftest import agent_wrote, allocation, requested, stored
from tests.ledger.rows import T0, ms
from tests.scraped.who_rows import bring, host_rows, spans

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HEAD = "JobIDRaw|JobID|User|Account|State|Submit|Start|End|TimelimitRaw|NodeList|AllocTRES"


def sacct(job: str, start_s: float, end_s: float | None, *, nodes: str = "h1", gpus: int = 2) -> str:
    """One job of bob's, submitted a minute before its start."""
    at = T0 // 1000
    end, state = ("Unknown", "RUNNING") if end_s is None else (f"{at + end_s:.0f}", "COMPLETED")
    times = f"{at + start_s - 60:.0f}|{at + start_s:.0f}|{end}|60"
    return f"{HEAD}\n{job}|{job}|bob|ml|{state}|{times}|{nodes}|gres/gpu={gpus}\n"


def scrape(lake: Lake, until_s: float = 300) -> None:
    """Job 7 from 30 s to 240 s on both GPUs, as labels have it."""
    named = [None, *["slurm:7@1001"] * 7, None, None]
    bring(lake, (until_s, [host_rows("h1", 0, 300, G0=named, G1=named)]))


@pytest.mark.parametrize("sacct_first", [False, True])
def test_a_job_of_labels_and_of_sacct_is_one_with_the_gpus_of_one_and_the_facts_of_the_other(
    allocations: Allocations, file: File, lake: Lake, *, sacct_first: bool
) -> None:
    if not sacct_first:
        scrape(lake)
    allocations("import", "slurm", file(sacct("7", 22, 231)))
    if sacct_first:
        scrape(lake)
    assert spans(lake) == [("7", "G0", 22, 231), ("7", "G1", 22, 231)]
    known = stored(lake)
    facts = {(row["user"], row["account"], row["submitted"], row["planned_end"]) for row in known}
    assert facts == {("bob", "ml", ms(-38), ms(3622))}
    scrape(lake)
    assert allocations("import", "slurm", file(sacct("7", 22, 231))).counts_of("allocation")[0] == 0
    assert stored(lake) == known
    assert load_jobs(lake).select("job", "gpus", "start").rows() == [("7", 2, ms(22))]


def test_a_job_on_more_hosts_than_are_scraped_keeps_its_count_on_the_others(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    scrape(lake)
    allocations("import", "slurm", file(sacct("7", 22, 231, nodes="h[1-2]", gpus=4)))
    assert [(row["host"], row.get("gpu"), row.get("host_gpu_count")) for row in stored(lake)] == [
        ("h1", "G0", None),
        ("h1", "G1", None),
        ("h2", None, 2),
    ]
    assert load_jobs(lake)["gpus"].to_list() == [4]


def test_labels_that_linger_give_a_job_no_more_gpus_than_sacct_counts(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    short, long = ["slurm:7", "slurm:7", None, None], ["slurm:7", "slurm:7", "slurm:7", None]
    bring(lake, (120, [host_rows("h1", 0, 120, G0=short, G1=long)]))
    allocations("import", "slurm", file(sacct("7", -5, 80, gpus=1)))
    assert spans(lake) == [("7", "G1", -5, 80)]


def test_a_requeued_job_has_its_gpus_in_each_run(allocations: Allocations, file: File, lake: Lake) -> None:
    named = ["slurm:7", "slurm:7", *[None] * 6, "slurm:7", "slurm:7"]
    bring(lake, (300, [host_rows("h1", 0, 300, G0=named)]))
    jobs = sacct("7", -5, 50, gpus=1) + sacct("7", 228, None, gpus=1).partition("\n")[2]
    allocations("import", "slurm", file(jobs))
    assert spans(lake) == [("7", "G0", -5, 50), ("7", "G0", 228, None)]


def test_older_history_lengthens_a_run_that_is_known_from_its_middle(lake: Lake) -> None:
    """Followed first, imported afterwards; GPUs that only one of both saw stay."""
    bring(lake, (120, [host_rows("h1", 60, 120, G0=["nlp/a"], G1=["nlp/a"])]))
    older = host_rows("h1", -90, 60, G0=[None, None, "nlp/a", "nlp/a", "nlp/a"])
    bring(lake, (60, [older]))
    assert spans(lake) == [("nlp/a", "G0", -30, None), ("nlp/a", "G1", -30, None)]


TWO_DAYS_S = 2 * 86_400
OTHERS = host_rows("h2", TWO_DAYS_S - 60, TWO_DAYS_S, G9=[None])
"""A host that has samples while h1 has none."""


def test_a_run_that_goes_on_after_an_end_was_told_runs_again(lake: Lake) -> None:
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["nlp/a"])]))
    left = bring(lake, (TWO_DAYS_S, []), before=left)
    assert spans(lake) == [("nlp/a", "G0", 0, None)]  # a window without any sample shows no end
    bring(lake, (TWO_DAYS_S, [OTHERS]), before=left)
    assert spans(lake) == [("nlp/a", "G0", 0, 60)]
    bring(lake, (120, [host_rows("h1", 60, 120, G0=["nlp/a"])]))
    assert spans(lake) == [("nlp/a", "G0", 0, None)]


def test_a_job_that_labels_ended_runs_again_though_its_scheduler_told_nothing_since(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    allocations("import", "slurm", file(sacct("7", 0, None, gpus=1)))
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["slurm:7@1001"])]))
    bring(lake, (TWO_DAYS_S, [OTHERS]), before=left)
    assert spans(lake) == [("7", "G0", 0, 60)]
    bring(lake, (120, [host_rows("h1", 60, 120, G0=["slurm:7@1001"])]))
    assert [(*spans(lake), row["user"]) for row in stored(lake)] == [(("7", "G0", 0, None), "bob")]


@pytest.mark.parametrize("start_s", [0, -20])
@pytest.mark.parametrize(("as_of_s", "end_s"), [(50, 60), (60, None)])
def test_a_scheduler_that_has_a_job_running_outranks_labels_that_ended(
    allocations: Allocations, file: File, lake: Lake, *, start_s: int, as_of_s: int, end_s: int | None
) -> None:
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["slurm:7@1001"])]))
    bring(lake, (TWO_DAYS_S, [OTHERS]), before=left)
    # another job's end is the newest moment of the file
    jobs = sacct("7", start_s, None, gpus=1) + sacct("8", -100, as_of_s, nodes="h3").partition("\n")[2]
    allocations("import", "slurm", file(jobs))
    assert ("7", "G0", start_s, end_s) in spans(lake)
    assert {row["user"] for row in stored(lake) if row.get("gpu") == "G0"} == {"bob"}
    (listed,) = (each for each in allocations("list").rows("allocations") if each["allocation_id"] == "7")
    assert (listed["standing"], listed["state"]) == ("ended", None)  # by its time limit at the latest
    # the same scheduler has it running later still
    allocations("import", "slurm", file(sacct("7", start_s, None, gpus=1) + sacct("9", 0, 70).partition("\n")[2]))
    assert ("7", "G0", start_s, None) in spans(lake)


@pytest.mark.parametrize("newest", [0, 1])
def test_each_file_of_an_import_tells_of_its_own_moment(
    allocations: Allocations, file: File, lake: Lake, *, newest: int
) -> None:
    """Job 7 ends in the newer file, whichever comes first; job 9 is in the older one alone, and labels end it later."""
    left = bring(lake, (60, [host_rows("h2", 0, 60, G1=["slurm:9@1001"])]))
    bring(lake, (TWO_DAYS_S, [OTHERS]), before=left)
    older = sacct("7", 22, None) + sacct("9", -20, None, nodes="h2", gpus=1).partition("\n")[2]
    older += sacct("8", -100, 50, nodes="h3").partition("\n")[2]
    files = [file(older, "older"), file(sacct("7", 22, 231), "newer")]
    allocations("import", "slurm", files[1 - newest], files[newest])
    assert {(7, 22, 231), (9, -20, 60)} <= {(int(job), start, end) for job, _, start, end in spans(lake)}


def test_a_pod_that_an_agent_saw_too_is_one_allocation(lake: Lake) -> None:
    agent_wrote(lake, "h1", allocation("G0", ms(37), None, "nlp/a", scheduler="kubernetes", account="nlp", user=None))
    bring(lake, (300, [host_rows("h1", 0, 300, G0=[None, None, *["nlp/a"] * 6, None, None])]))
    assert load_jobs(lake).select("job", "start", "end").rows() == [("nlp/a", ms(37), ms(240))]


def test_a_pod_that_kubectl_told_of_gets_its_gpus(allocations: Allocations, file: File, lake: Lake) -> None:
    allocations("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
    (known,) = stored(lake)
    bring(lake, (300, [host_rows(known["host"], 0, 300, G0=[None, *["nlp/a"] * 6, None, None, None])]))
    assert spans(lake) == [("nlp/a", "G0", 20, 200)]
    assert stored(lake)[0]["submitted"] == known["submitted"]
    again = allocations("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
    assert (again.counts[0], spans(lake)) == (0, [("nlp/a", "G0", 20, 200)])


def test_the_end_that_kubectl_reports_replaces_the_one_that_labels_show(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    allocations("import", "kubernetes", file(kubectl(pod("a", 0, 20, None, gpus=1)), "c.json"))
    host = stored(lake)[0]["host"]
    bring(lake, (300, [host_rows(host, 0, 300, G0=[None, *["nlp/a"] * 6, None, None, None])]))
    assert spans(lake) == [("nlp/a", "G0", 20, 210)]
    allocations("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
    assert [(*spans(lake), row["state"]) for row in stored(lake)] == [(("nlp/a", "G0", 20, 200), "Succeeded")]


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_kubectl_has_after_its_labels_ended_still_has_its_gpu(
    allocations: Allocations, file: File, lake: Lake, *, phase: str
) -> None:
    first = pod("a", 0, 20, None, gpus=1)
    first["status"]["phase"] = phase
    allocations("import", "kubernetes", file(kubectl(first), "first.json"))
    host = stored(lake)[0]["host"]
    bring(lake, (300, [host_rows(host, 0, 300, G0=[None, *["nlp/a"] * 6, None, None, None])]))
    assert spans(lake) == [("nlp/a", "G0", 20, 210)]
    later = kubectl(pod("a", 0, 20, None, gpus=1), pod("b", 0, 20, 400, gpus=1))
    allocations("import", "kubernetes", file(later, "later.json"))
    assert ("nlp/a", "G0", 20, None) in spans(lake)


def test_labels_of_a_pod_that_kubectl_has_later_get_its_start_and_end(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    labels = host_rows("gn1", 0, 300, G0=[None, *["nlp/a"] * 6, None, None, None])
    bring(lake, (300, [labels]))
    for _ in range(2):
        allocations("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
        assert spans(lake) == [("nlp/a", "G0", 20, 200)]
        bring(lake, (300, [labels]))
    assert spans(lake) == [("nlp/a", "G0", 20, 200)]


LATER_MS = 2 * 10**12


def requests(*rows: dict[str, object]) -> pl.DataFrame:
    base: dict[str, object] = {"scheduler": "slurm", "time": T0}
    columns = {column.name: POLARS[column.type] for column in REQUEST.columns}
    return typed(pl.DataFrame([base | row for row in rows], schema=columns), REQUEST)


def counts(lake: Lake, *rows: dict[str, object]) -> tuple[int, int, int]:
    opened_for_writing(lake)
    done = add_requests(lake, requests(*rows))
    return done.new, done.already_there, done.files_written


def test_what_is_seen_again_later_is_added_and_nothing_is_added_twice(lake: Lake) -> None:
    first = {"allocation_id": "1", "as_of": T0 + 10}
    assert counts(lake, first, first | {"scheduler": "csv"}) == (2, 0, 2)
    assert counts(lake, first | {"as_of": T0 + 20}) == (1, 0, 1)
    assert counts(lake, first, first | {"as_of": T0 + 15}, first | {"as_of": T0 + 20}) == (0, 3, 0)
    assert counts(lake, first | {"as_of": T0 + 15, "reason": "Priority"}) == (1, 0, 1)


def test_what_was_granted_under_other_ids_is_noted_only_of_what_was_seen_to_wait(lake: Lake) -> None:
    granted = {"allocation_id": "ns/w", "scheduler": "kubernetes", "as_of": T0 + 20, "granted": T0 + 15}
    assert counts(lake, granted) == (0, 0, 0)
    counts(lake, {"allocation_id": "ns/w", "scheduler": "kubernetes", "as_of": T0 + 10})
    assert counts(lake, granted) == (1, 0, 1)
    assert counts(lake, granted | {"as_of": T0 + 99}) == (0, 1, 0)
    assert load_jobs(lake).is_empty()


def test_requests_of_a_day_become_one_file_and_later_ones_stay_seen(lake: Lake) -> None:
    for number in range(3):
        counts(lake, {"allocation_id": str(number), "as_of": T0 + number})
    LakeCompactor(lake, LATER_MS, DAY_MS, DAY_MS).run()
    assert len(lake.files("request")) == 1
    assert counts(lake, {"allocation_id": "0", "as_of": T0 + 1}) == (1, 0, 1)  # an older export, imported late
    assert [row["allocation_id"] for row in requested(lake)] == ["0", "0", "1", "2"]
