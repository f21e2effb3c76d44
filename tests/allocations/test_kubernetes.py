"""Pods and Workloads of Kueue: what becomes of each, and of those that agents saw as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.plan.jobs import load_jobs
from fallow import parquet, schema
from fallow.lake import AGENT_FIRST_SEQ, LakeFile
from tests.allocations.cluster_objects import condition, job, kubectl, pod, pod_spec, workload
from tests.allocations.conftest import requested, stored
from tests.lakes import holds_nothing
from tests.ledger.rows import claim, device, ms, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Outcome

WAITS = condition("QuotaReserved", 5, "False", "Pending")
ADMITTED = (condition("QuotaReserved", 60), condition("Admitted", 60))


@pytest.fixture
def bring(claims: Callable[..., Outcome], file: Callable[..., Path]) -> Callable[..., Outcome]:
    """Imports lists of objects together, each from a file of its own."""

    def imported(*lists: list[dict[str, Any]]) -> Outcome:
        return claims("import", "kubernetes", *(file(kubectl(*own), f"{n}.json") for n, own in enumerate(lists)))

    return imported


def test_a_pod_is_an_allocation_from_its_placement_to_its_end(bring: Callable[..., Outcome], lake: Lake) -> None:
    labelled = {"labels": {"project": "mt", "kueue.x-k8s.io/queue-name": "lq"}}
    chosen = {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "priority": 7,
        "priorityClassName": "high",
    }
    pods = [
        pod("a", 0, 30, 90, spec=chosen | {"activeDeadlineSeconds": 600}, **labelled),
        pod("b", 10, 40, spec={"nodeSelector": {"cloud.google.com/gke-nodepool": "p1"}}),
        pod("cpu", 10, 40, gpus=0),
        {"kind": "Node", "metadata": {"name": "gn1"}},
    ]
    done = bring(pods)
    assert (done.counts, done.json["as_of"], done.json["running"]) == ((2, 0, 0), "2026-11-20T00:01:30Z", 1)
    assert done.dropped == {"no GPU or MIG instance of its own": 1, "neither a pod, nor a Workload, nor a Job": 1}
    shared = {
        "host": "gn1", "scheduler": "kubernetes", "account": "nlp", "gpu_count": 2, "host_gpu_count": 2, "host_count": 1,
    }  # fmt: skip
    assert stored(lake) == [
        shared | {"claim_id": "nlp/a", "name": "a", "time": ms(30), "end": ms(90), "submitted": ms(0), "eligible": ms(0),
                  "time_limit_s": 600, "planned_end": ms(630), "priority": 7, "qos": "high", "partition": "lq", "project": "mt",
                  "gpu_model": "NVIDIA-H100-80GB-HBM3", "state": "Succeeded"},
        shared | {"claim_id": "nlp/b", "name": "b", "time": ms(40), "submitted": ms(10), "eligible": ms(10), "partition": "p1",
                  "state": "Running"},
    ]  # fmt: skip
    assert bring(pods).counts == (0, 2, 0)


@pytest.mark.parametrize(
    ("spec", "gpus", "model"),
    [
        (pod_spec(1, "nvidia.com/mig-1g.10gb"), 1, "mig-1g.10gb"),
        (pod_spec(1, "nvidia.com/gpu.shared"), None, None),
        (pod_spec(1, "amd.com/gpu"), None, None),
        ({"containers": pod_spec(1)["containers"] * 3}, 3, None),
        ({"containers": pod_spec(1)["containers"], "initContainers": pod_spec(4)["containers"]}, 4, None),
        ({"containers": pod_spec(1)["containers"],
          "initContainers": [pod_spec(1)["containers"][0] | {"restartPolicy": "Always"}]}, 2, None),
    ],
)  # fmt: skip
def test_what_a_pod_asks_for(
    bring: Callable[..., Outcome], lake: Lake, spec: dict[str, Any], gpus: int | None, model: str | None
) -> None:
    assert bring([pod("a", 0, 30, spec=spec)]).code == 0
    assert [(row["gpu_count"], row.get("gpu_model")) for row in stored(lake)] == (
        [] if gpus is None else [(gpus, model)]
    )


def test_a_pod_that_waits_is_a_request_until_it_is_placed(bring: Callable[..., Outcome], lake: Lake) -> None:
    done = bring([pod("a", 0), pod("other", 5, 20)])
    assert (done.counts, done.counts_of("request"), done.json["waiting"]) == ((1, 0, 0), (1, 0, 0), 1)
    [row] = requested(lake)
    assert (row["host"], row["claim_id"], row["time"], row["as_of"], row["reason"], row["gpu_count"]) == (
        "kubernetes", "nlp/a", ms(0), ms(20), "Unschedulable", 2,
    )  # fmt: skip
    bring([pod("a", 0, 50)])
    assert load_jobs(lake).select("job", "submitted", "start").rows() == [
        ("nlp/a", ms(0), ms(50)),
        ("nlp/other", ms(5), ms(20)),
    ]


def test_pods_of_a_job_were_asked_for_with_it_and_could_begin_once_they_were_made(
    bring: Callable[..., Outcome], lake: Lake
) -> None:
    bring([job("train", 0, activeDeadlineSeconds=300), pod("train-x", 50, 60, owner="train")])
    [row] = stored(lake)
    assert (row["submitted"], row["eligible"], row["time_limit_s"]) == (ms(0), ms(50), 300)


def test_a_workload_waits_for_its_pods_and_is_closed_by_its_admission(
    bring: Callable[..., Outcome], lake: Lake
) -> None:
    gated = [pod("train-x", 2, owner="train"), pod("other", 3, 50)]
    done = bring(
        gated,
        [workload("job-train", 0, WAITS, owner="train", priorityClassName="high", maximumExecutionTimeSeconds=60)],
    )
    assert done.dropped == {"pod of a Workload that waits itself": 1}
    [row] = requested(lake)
    assert {name: row[name] for name in ("claim_id", "name", "gpu_count", "partition", "priority", "qos", "reason", "time_limit_s")} == {
        "claim_id": "nlp/job-train", "name": "train", "gpu_count": 8, "partition": "train", "priority": 100, "qos": "high",
        "reason": "Pending", "time_limit_s": 60,
    }  # fmt: skip
    assert (row["time"], row["as_of"], row["state"]) == (ms(0), ms(5), "Pending")
    by_class = {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}}
    admitted = workload("job-train", 0, *ADMITTED, owner="train", **by_class)
    done = bring([pod("train-x", 61, 62, owner="train"), pod("train-y", 5000, 5001, owner="train"), admitted])
    assert done.counts_of("request") == (1, 0, 0)
    rows = {row["name"]: row for row in stored(lake)}
    # the second stands for a pod that is over: nobody waited for it since the beginning
    assert [rows[name]["submitted"] for name in ("train-x", "train-y")] == [ms(0), ms(5000)]
    assert (rows["train-x"]["qos"], rows["train-x"]["priority"], rows["train-x"]["partition"]) == ("high", 100, "train")
    assert load_jobs(lake)["job"].to_list() == ["nlp/train-x", "nlp/other", "nlp/train-y"]


def test_a_workload_that_was_evicted_waits_again_and_one_that_finished_before_it_began_is_withdrawn(
    bring: Callable[..., Outcome], lake: Lake
) -> None:
    evicted = workload("w1", 0, condition("Admitted", 90, "False"), condition("Evicted", 90, reason="Preempted"))
    gone = workload("w2", 0, WAITS, condition("Finished", 70))
    held = workload("w3", 0, WAITS, active=False)
    never = workload("w4", 0, *ADMITTED)
    done = bring([evicted, gone, held, never])
    assert (done.json["waiting"], done.json["withdrawn"], done.counts_of("request")) == (2, 1, (3, 0, 0))
    shown = [(row["claim_id"], row["time"], row.get("withdrawn"), row["state"]) for row in requested(lake)]
    assert shown == [
        ("nlp/w1", ms(90), None, "Pending"), ("nlp/w2", ms(0), ms(70), "Finished"), ("nlp/w3", ms(0), None, "Inactive"),
    ]  # fmt: skip


def test_a_pod_of_a_jobset_or_of_a_group_has_its_workload(bring: Callable[..., Outcome]) -> None:
    child = job("set-0", 1) | {
        "metadata": job("set-0", 1)["metadata"] | {"ownerReferences": [{"uid": "uid-set", "name": "set"}]}
    }
    group = {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}
    done = bring([
        child, pod("set-0-x", 2, owner="set-0"), workload("jobset-set", 0, WAITS, owner="set"),
        pod("g-1", 2, **group), workload("g", 0, WAITS),
    ])  # fmt: skip
    assert done.dropped == {"pod of a Workload that waits itself": 2, "Job, which its pods stand for": 1}


def agent_wrote(lake: Lake, host: str, *rows: dict[str, Any]) -> None:
    number = AGENT_FIRST_SEQ + 1
    data = parquet.encode(schema.CLAIM, parquet.table_from_rows(schema.CLAIM, rows))
    lake.put(LakeFile("claim", "2026-11-20", host, number, number), data)


def _agent_row(gpu: str, seen: float, ended: float | None, pod_name: str = "nlp/a") -> dict[str, Any]:
    return claim(gpu, seen, ended, None, pod_name) | {"scheduler": "kubernetes", "account": "nlp", "gpu_count": 2}


def test_a_pod_that_an_agent_saw_is_one_allocation_on_its_gpus(bring: Callable[..., Outcome], lake: Lake) -> None:
    write(lake, schema.DEVICE, [device("GPU-1")], "gn1.example")
    bring([pod("a", 0, 30, 900)])  # before the agent's rows had arrived
    rows = [_agent_row(gpu, 37, ended, "nlp/a") for gpu in ("GPU-1", "GPU-2") for ended in (None, 905)]
    agent_wrote(lake, "gn1.example", *rows, _agent_row("GPU-1", 2000, 2100))
    bring([pod("a", 0, 30, 900)])
    jobs = load_jobs(lake).select("job", "submitted", "start", "end", "gpus", "hosts").rows()
    assert jobs == [
        ("nlp/a", ms(0), ms(37), ms(905), 2, ["gn1.example"]),
        ("nlp/a", None, ms(2000), ms(2100), 1, ["gn1.example"]),  # another pod of that name
    ]
    assert bring([pod("a", 0, 30, 900)]).counts == (0, 2, 0)


def test_an_end_belongs_to_the_last_that_agents_saw_of_a_pod(bring: Callable[..., Outcome], lake: Lake) -> None:
    agent_wrote(lake, "gn1", _agent_row("GPU-1", 37, None), _agent_row("GPU-1", 400, None))
    bring([pod("a", 0, 30, 900, gpus=1)])
    assert load_jobs(lake).select("start", "end").rows() == [(ms(37), ms(400)), (ms(400), ms(900))]


def test_an_object_in_two_files_counts_as_it_is_in_the_newer(bring: Callable[..., Outcome], lake: Lake) -> None:
    done = bring([pod("a", 0, 30, 90)], [pod("a", 0, 30)])
    assert done.dropped == {"in another file as well, and newer there": 1}
    assert [row["end"] for row in stored(lake)] == [ms(90)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is not the JSON of a list of Kubernetes objects"),
        (kubectl(pod("a", 0))[:-90], "is not the JSON of a list of Kubernetes objects"),
        ('{"kind": "Pod", "items": []}', "its kind is Pod"),
        (kubectl(pod("a", 0, spec={"containers": 3})), "the Pod nlp/a is not as Kubernetes writes it"),
        (
            kubectl(pod("a", 0)).replace("2026-11-20T00:00:00Z", "yesterday"),
            "the Pod nlp/a is not as Kubernetes writes it",
        ),
        (kubectl({"kind": "Workload", "metadata": {}}), "the Workload None/None is not as Kubernetes writes it"),
    ],
)
def test_what_cannot_be_used_is_named(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, text: str, said: str
) -> None:
    done = claims("import", "kubernetes", file(text, "c.json"))
    assert (done.code, said in done.err) == (1, True), done.err
    assert holds_nothing(lake)


def test_pods_over_without_an_end_are_counted_and_left_out(bring: Callable[..., Outcome]) -> None:
    lost, refused = pod("lost", 0, 30), pod("refused", 0, 30)
    lost["status"]["phase"] = refused["status"]["phase"] = "Failed"
    refused["status"] |= {"reason": "OutOfnvidia.com/gpu"}
    refused["status"]["conditions"].append(condition("Ready", 30, "False", "PodFailed"))
    done = bring([lost, refused])
    assert done.dropped == {"over, and nobody knows since when": 1, "over as it began": 1}
