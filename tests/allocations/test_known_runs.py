"""Allocations that labels of a metrics server told of beside those of agents, sacct and kubectl: one run is one, whoever tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.plan.jobs import load_jobs
from fallow import parquet, schema
from fallow.lake import AGENT_FIRST_SEQ, LakeFile
from tests.allocations.cluster_objects import kubectl, pod
from tests.allocations.conftest import stored
from tests.ledger.rows import T0, claim, ms
from tests.scraped.who_rows import bring, host_rows, spans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Outcome

HEAD = "JobIDRaw|JobID|User|Account|State|Submit|Start|End|TimelimitRaw|NodeList|AllocTRES"


def sacct(job: str, start_s: float, end_s: float | None, *, nodes: str = "h1", gpus: int = 2) -> str:
    """One job of bob's, submitted a minute before its start."""
    at = T0 // 1000
    end = "Unknown" if end_s is None else f"{at + end_s:.0f}"
    state = "RUNNING" if end_s is None else "COMPLETED"
    times = f"{at + start_s - 60:.0f}|{at + start_s:.0f}|{end}|60"
    return f"{HEAD}\n{job}|{job}|bob|ml|{state}|{times}|{nodes}|gres/gpu={gpus}\n"


def scrape(lake: Lake, until_s: float = 300) -> None:
    """Job 7 from 30 s to 240 s on both GPUs, as labels have it."""
    named = [None, *["slurm:7@1001"] * 7, None, None]
    bring(lake, (until_s, [host_rows("h1", 0, 300, G0=named, G1=named)]))


@pytest.mark.parametrize("sacct_first", [False, True])
def test_a_job_of_labels_and_of_sacct_is_one_with_the_gpus_of_one_and_the_facts_of_the_other(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, *, sacct_first: bool
) -> None:
    if not sacct_first:
        scrape(lake)
    claims("import", "slurm", file(sacct("7", 22, 231)))
    if sacct_first:
        scrape(lake)
    assert spans(lake) == [("7", "G0", 22, 231), ("7", "G1", 22, 231)]
    assert {(row["user"], row["account"], row["submitted"], row["planned_end"]) for row in stored(lake)} == {
        ("bob", "ml", ms(-38), ms(3622))
    }
    known = stored(lake)
    scrape(lake)
    assert claims("import", "slurm", file(sacct("7", 22, 231))).counts_of("claim")[0] == 0
    assert stored(lake) == known
    assert load_jobs(lake).select("job", "gpus", "start").rows() == [("7", 2, ms(22))]


def test_a_job_on_more_hosts_than_are_scraped_keeps_its_count_on_the_others(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    scrape(lake)
    claims("import", "slurm", file(sacct("7", 22, 231, nodes="h[1-2]", gpus=4)))
    assert [(row["host"], row.get("gpu"), row.get("host_gpu_count")) for row in stored(lake)] == [
        ("h1", "G0", None), ("h1", "G1", None), ("h2", None, 2),
    ]  # fmt: skip
    assert load_jobs(lake)["gpus"].to_list() == [4]


def test_labels_that_linger_give_a_job_no_more_gpus_than_sacct_counts(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    short, long = ["slurm:7", "slurm:7", None, None], ["slurm:7", "slurm:7", "slurm:7", None]
    bring(lake, (120, [host_rows("h1", 0, 120, G0=short, G1=long)]))
    claims("import", "slurm", file(sacct("7", -5, 80, gpus=1)))
    assert spans(lake) == [("7", "G1", -5, 80)]


def test_a_requeued_job_has_its_gpus_in_each_run(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    named = ["slurm:7", "slurm:7", *[None] * 6, "slurm:7", "slurm:7"]
    bring(lake, (300, [host_rows("h1", 0, 300, G0=named)]))
    jobs = sacct("7", -5, 50, gpus=1) + sacct("7", 228, None, gpus=1).partition("\n")[2]
    claims("import", "slurm", file(jobs))
    assert spans(lake) == [("7", "G0", -5, 50), ("7", "G0", 228, None)]


def test_older_history_lengthens_a_run_that_is_known_from_its_middle(lake: Lake) -> None:
    """Followed first, imported afterwards; GPUs that only one of both saw stay."""
    bring(lake, (120, [host_rows("h1", 60, 120, G0=["nlp/a"], G1=["nlp/a"])]))
    older = host_rows("h1", -90, 60, G0=[None, None, "nlp/a", "nlp/a", "nlp/a"])
    bring(lake, (60, [older]))
    assert spans(lake) == [("nlp/a", "G0", -30, None), ("nlp/a", "G1", -30, None)]


def test_a_run_that_goes_on_after_an_end_was_told_runs_again(lake: Lake) -> None:
    day = 86_400
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["nlp/a"])]))
    bring(lake, (2 * day, []), before=left)
    assert spans(lake) == [("nlp/a", "G0", 0, 60)]
    bring(lake, (120, [host_rows("h1", 60, 120, G0=["nlp/a"])]))
    assert spans(lake) == [("nlp/a", "G0", 0, None)]


def agent_wrote(lake: Lake, *rows: dict[str, Any]) -> None:
    number = AGENT_FIRST_SEQ + 1
    data = parquet.encode(schema.CLAIM, parquet.table_from_rows(schema.CLAIM, rows))
    lake.put(LakeFile("claim", "2026-11-20", "h1", number, number), data)


def test_a_pod_that_an_agent_saw_too_is_one_allocation(lake: Lake) -> None:
    agent_wrote(lake, claim("G0", 37, None, None, "nlp/a") | {"scheduler": "kubernetes", "account": "nlp"})
    bring(lake, (300, [host_rows("h1", 0, 300, G0=[None, None, *["nlp/a"] * 6, None, None])]))
    assert load_jobs(lake).select("job", "start", "end").rows() == [("nlp/a", ms(37), ms(240))]


def test_a_pod_that_kubectl_told_of_gets_its_gpus(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    claims("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
    (known,) = stored(lake)
    bring(lake, (300, [host_rows(known["host"], 0, 300, G0=[None, *["nlp/a"] * 6, None, None, None])]))
    assert spans(lake) == [("nlp/a", "G0", 20, 200)]
    assert stored(lake)[0]["submitted"] == known["submitted"]
    again = claims("import", "kubernetes", file(kubectl(pod("a", 0, 20, 200, gpus=1)), "c.json"))
    assert (again.counts[0], spans(lake)) == (0, [("nlp/a", "G0", 20, 200)])
