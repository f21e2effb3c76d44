"""Pods and Workloads of Kueue: what becomes of each, and of those that agents saw as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.capacity.jobs import load_jobs
from fallow import schema
from tests.allocations.cluster_objects import condition, job, kubectl, pod, pod_spec, workload
from tests.allocations.conftest import agent_wrote, allocation, requested, stored
from tests.lakes import holds_nothing
from tests.ledger.rows import device, ms, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

WAITS = condition("QuotaReserved", 5, "False", "Pending")
ADMITTED = (condition("QuotaReserved", 60), condition("Admitted", 60))


@pytest.fixture
def bring(allocations: Allocations, file: File) -> Allocations:
    """Imports lists of objects together, each from a file of its own."""
    return lambda *lists: allocations(
        "import", "kubernetes", *(file(kubectl(*own), f"{n}.json") for n, own in enumerate(lists))
    )


def test_a_pod_is_an_allocation_from_its_placement_to_its_end(bring: Allocations, lake: Lake) -> None:
    labelled = {"labels": {"project": "mt", "kueue.x-k8s.io/queue-name": "lq"}}
    chosen = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "activeDeadlineSeconds": 600}
    pods = [
        pod("a", 0, 30, 90, spec=chosen | {"priority": 7, "priorityClassName": "high"}, **labelled),
        pod("b", 10, 40, spec={"nodeSelector": {"cloud.google.com/gke-nodepool": "p1"}}),
        pod("cpu", 10, 40, gpus=0),
        {"kind": "Service", "metadata": {"name": "web"}},
    ]
    done = bring(pods)
    assert (done.counts, done.said("as_of", "running")) == ((2, 0, 0), ("2026-11-20T00:01:30Z", 1))
    assert done.dropped == {"no GPU or MIG instance of its own": 1, "of a kind that tells nothing of GPUs": 1}
    counts = {"gpu_count": 2, "host_gpu_count": 2, "host_count": 1}
    shared = {"host": "gn1", "scheduler": "kubernetes", "account": "nlp", **counts}
    assert stored(lake) == [
        shared | {"allocation_id": "nlp/a", "name": "a", "time": ms(30), "end": ms(90), "submitted": ms(0),
                  "eligible": ms(0), "time_limit_s": 600, "planned_end": ms(630), "priority": 7, "qos": "high",
                  "partition": "lq", "project": "mt", "gpu_model": "NVIDIA-H100-80GB-HBM3", "state": "Succeeded"},
        shared | {"allocation_id": "nlp/b", "name": "b", "time": ms(40), "submitted": ms(10), "eligible": ms(10),
                  "partition": "p1", "state": "Running"},
    ]  # fmt: skip
    assert bring(pods).counts == (0, 2, 0)


MAIN = pod_spec(1)["containers"]


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        (pod_spec(1, "nvidia.com/mig-1g.10gb"), [(1, "mig-1g.10gb")]),
        ({"containers": MAIN * 3}, [(3, None)]),
        ({"containers": MAIN, "initContainers": pod_spec(4)["containers"]}, [(4, None)]),
        ({"containers": MAIN, "initContainers": [MAIN[0] | {"restartPolicy": "Always"}]}, [(2, None)]),
    ],
)
def test_what_a_pod_asks_for(bring: Allocations, lake: Lake, spec: dict[str, Any], asked: list[Any]) -> None:
    assert bring([pod("a", 0, 30, spec=spec)]).code == 0
    assert [(row["gpu_count"], row.get("gpu_model")) for row in stored(lake)] == asked


def test_a_pod_that_waits_is_a_request_until_it_is_placed(bring: Allocations, lake: Lake) -> None:
    done = bring([pod("a", 0), pod("other", 5, 20)])
    assert (done.counts, done.counts_of("request"), done.json["waiting"]) == ((1, 0, 0), (1, 0, 0), 1)
    [row] = requested(lake)
    told = {"allocation_id": "nlp/a", "time": ms(0), "as_of": ms(20), "reason": "Unschedulable", "gpu_count": 2}
    assert row.items() >= ({"host": "kubernetes"} | told).items()
    bring([pod("a", 0, 50)])
    jobs = load_jobs(lake).select("job", "submitted", "start").rows()
    assert jobs == [("nlp/a", ms(0), ms(50)), ("nlp/other", ms(5), ms(20))]


def test_pods_of_a_job_were_asked_for_with_it_and_could_begin_once_they_were_made(
    bring: Allocations, lake: Lake
) -> None:
    bring([job("train", 0, activeDeadlineSeconds=300), pod("train-x", 50, 60, owner="train")])
    [row] = stored(lake)
    assert (row["submitted"], row["eligible"], row["time_limit_s"]) == (ms(0), ms(50), 300)


def test_a_workload_waits_for_its_pods_and_is_closed_by_its_admission(bring: Allocations, lake: Lake) -> None:
    waits = workload("job-train", 0, WAITS, owner="train", priorityClassName="high", maximumExecutionTimeSeconds=60)
    done = bring([pod("train-x", 2, owner="train"), pod("other", 3, 50)], [waits])
    assert done.dropped == {"pod of a Workload that waits itself": 1}
    [row] = requested(lake)
    told = {"allocation_id": "nlp/job-train", "name": "train", "gpu_count": 8, "partition": "train", "priority": 100,
            "qos": "high", "reason": "Pending", "time_limit_s": 60, "state": "Pending"}  # fmt: skip
    assert row.items() >= (told | {"time": ms(0), "as_of": ms(5)}).items()
    by_class = {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}}
    admitted = workload("job-train", 0, *ADMITTED, owner="train", **by_class)
    done = bring([pod("train-x", 61, 62, owner="train"), pod("train-y", 5000, 5001, owner="train"), admitted])
    assert done.counts_of("request") == (1, 0, 0)
    rows = {row["name"]: row for row in stored(lake)}
    # the second stands for a pod that is over: nobody waited for it since the beginning
    assert [rows[name]["submitted"] for name in ("train-x", "train-y")] == [ms(0), ms(5000)]
    assert rows["train-x"].items() >= {"qos": "high", "priority": 100, "partition": "train"}.items()
    assert load_jobs(lake)["job"].to_list() == ["nlp/train-x", "nlp/other", "nlp/train-y"]


def test_a_workload_that_was_evicted_waits_again_and_one_that_finished_before_it_began_is_withdrawn(
    bring: Allocations, lake: Lake
) -> None:
    evicted = workload("w1", 0, condition("Admitted", 90, "False"), condition("Evicted", 90, reason="Preempted"))
    gone, held = workload("w2", 0, WAITS, condition("Finished", 70)), workload("w3", 0, WAITS, active=False)
    done = bring([evicted, gone, held, workload("w4", 0, *ADMITTED)])
    assert (done.said("waiting", "withdrawn"), done.counts_of("request")) == ((2, 1), (3, 0, 0))
    shown = [(row["allocation_id"], row["time"], row.get("withdrawn"), row["state"]) for row in requested(lake)]
    assert shown == [
        ("nlp/w1", ms(90), None, "Pending"),
        ("nlp/w2", ms(0), ms(70), "Finished"),
        ("nlp/w3", ms(0), None, "Inactive"),
    ]


def test_a_pod_of_a_jobset_or_of_a_group_has_its_workload(bring: Allocations) -> None:
    child = job("set-0", 1)
    child["metadata"]["ownerReferences"] = [{"uid": "uid-set", "name": "set"}]
    of_set = [child, pod("set-0-x", 2, owner="set-0"), workload("jobset-set", 0, WAITS, owner="set")]
    of_group = [pod("g-1", 2, labels={"kueue.x-k8s.io/pod-group-name": "g"}), workload("g", 0, WAITS)]
    done = bring([*of_set, *of_group])
    assert done.dropped == {"pod of a Workload that waits itself": 2, "Job, which its pods represent": 1}


def _agent_row(gpu: str, seen: float, ended: float | None) -> dict[str, Any]:
    told = {"scheduler": "kubernetes", "account": "nlp", "user": None, "gpu_count": 2}
    return allocation(gpu, ms(seen), None if ended is None else ms(ended), "nlp/a", **told)


def test_a_pod_that_an_agent_saw_is_one_allocation_on_its_gpus(bring: Allocations, lake: Lake) -> None:
    write(lake, schema.DEVICE, [device("GPU-1")], "gn1.example")
    bring([pod("a", 0, 30, 900)])  # before the agent's rows had arrived
    rows = [_agent_row(gpu, 37, ended) for gpu in ("GPU-1", "GPU-2") for ended in (None, 905)]
    agent_wrote(lake, "gn1.example", *rows, _agent_row("GPU-1", 2000, 2100))
    bring([pod("a", 0, 30, 900)])
    assert load_jobs(lake).select("job", "submitted", "start", "end", "gpus", "hosts").rows() == [
        ("nlp/a", ms(0), ms(37), ms(905), 2, ["gn1.example"]),
        ("nlp/a", None, ms(2000), ms(2100), 1, ["gn1.example"]),  # another pod of that name
    ]
    assert bring([pod("a", 0, 30, 900)]).counts == (0, 2, 0)


def test_an_end_belongs_to_the_last_that_agents_saw_of_a_pod(bring: Allocations, lake: Lake) -> None:
    agent_wrote(lake, "gn1", _agent_row("GPU-1", 37, None), _agent_row("GPU-1", 400, None))
    bring([pod("a", 0, 30, 900, gpus=1)])
    assert load_jobs(lake).select("start", "end").rows() == [(ms(37), ms(400)), (ms(400), ms(900))]


def test_an_object_in_two_files_counts_as_it_is_in_the_newer(bring: Allocations, lake: Lake) -> None:
    done = bring([pod("a", 0, 30, 90)], [pod("a", 0, 30)])
    assert done.dropped == {"listed more than once, of which the newest state counts": 1}
    assert [row["end"] for row in stored(lake)] == [ms(90)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is not JSON of Kubernetes objects"),
        (kubectl(pod("a", 0))[:-90], "is not JSON of Kubernetes objects"),
        ('{"kind": "Pod", "items": []}', "its kind is Pod"),
        ('{"kind": "List", "items": []}', "lists no object; export every namespace"),
        ("apiVersion: v1\nkind: List\n", "it is YAML; export it with"),
        ('{"kind": "PodList", "items": ["a"]}', "an item is no object: a"),
        ("[1]", "it has a value that is no object: 1"),
        ("NAMESPACE   NAME\nv   a\n", "it begins with 'NAMESPACE   NAME'"),
        ('{"kind": "Status", "message": "pods is forbidden"}', "what the API server answered: pods is forbidden"),
        (kubectl(pod("a", 0, spec={"containers": 3})), "the Pod nlp/a does not have the form that Kubernetes writes"),
        (
            kubectl(pod("a", 0)).replace("2026-11-20T00:00:00Z", "yesterday"),
            "the Pod nlp/a does not have the form that Kubernetes writes",
        ),
        (
            kubectl({"kind": "Workload", "metadata": {}}),
            "the Workload None/None does not have the form that Kubernetes writes",
        ),
    ],
)
def test_what_cannot_be_used_is_named(allocations: Allocations, file: File, lake: Lake, text: str, said: str) -> None:
    done = allocations("import", "kubernetes", file(text, "c.json"))
    assert (done.code, said in done.err) == (1, True), done.err
    assert holds_nothing(lake)


def test_pods_over_without_an_end_are_counted_and_left_out(bring: Allocations) -> None:
    lost, refused = pod("lost", 0, 30), pod("refused", 0, 30)
    lost["status"]["phase"] = refused["status"]["phase"] = "Failed"
    refused["status"] |= {"reason": "OutOfnvidia.com/gpu"}
    refused["status"]["conditions"].append(condition("Ready", 30, "False", "PodFailed"))
    done = bring([lost, refused, pod("other", 0, 30)])
    assert done.dropped == {"ended at an unknown time": 1, "rejected by its node, so it never had its GPUs": 1}
