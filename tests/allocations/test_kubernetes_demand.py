"""Kubernetes' objects on GPUs: when pods release them, shares of GPUs, devices by resource claims, forms of lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fallow import schema
from tests.allocations.cluster_objects import (
    claim,
    claims,
    condition,
    ended,
    kubectl,
    pod,
    pod_spec,
    resource_slice,
    template,
    workload,
)
from tests.allocations.conftest import requested, stored
from tests.lakes import holds_nothing
from tests.ledger.rows import T0, device, ms, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HOUR = 3600
START, NOON = 5, 3 * HOUR
NEVER_READY = condition("Ready", START, "False", "PodFailed")
WAITS = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}


@pytest.fixture
def bring(allocations: Allocations, file: File) -> Allocations:
    return lambda *objects: allocations("import", "kubernetes", file(kubectl(*objects), "cluster.json"))


def failed(*conditions: Any, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A pod that was placed at 5 s and failed."""
    found = pod("a", 0, START, spec=spec)
    found["status"] |= {"phase": "Failed", "startTime": "2026-11-20T00:00:05Z"} | status
    found["status"]["conditions"] += conditions
    return found


DISRUPTED = condition("DisruptionTarget", NOON, "True", "TerminationByKubelet")
DEADLINE = {"spec": {"activeDeadlineSeconds": NOON - START}, "reason": "DeadlineExceeded"}


@pytest.mark.parametrize(
    ("found", "end_s"),
    [
        (failed(NEVER_READY, containerStatuses=[WAITS], initContainerStatuses=[ended(NOON)]), NOON),
        (failed(NEVER_READY, containerStatuses=[ended(60)], initContainerStatuses=[ended(30), ended(NOON)]), NOON),
        (failed(containerStatuses=[ended(60)], ephemeralContainerStatuses=[ended(NOON)]), NOON),
        (failed(containerStatuses=[ended(NOON), ended(60)]), NOON),
        (failed(NEVER_READY, DISRUPTED, containerStatuses=[WAITS], reason="Evicted"), NOON),
        (failed(DISRUPTED, containerStatuses=[ended(NOON + 30)]), NOON + 30),
        (failed(DISRUPTED, condition("Ready", 60, "False"), initContainerStatuses=[ended(30)]), NOON),
        (failed(NEVER_READY, containerStatuses=[WAITS], **DEADLINE), NOON),
        (failed(containerStatuses=[ended(NOON + 30)], **DEADLINE), NOON + 30),
        (failed(condition("Ready", NOON, "False"), initContainerStatuses=[ended(30)]), NOON),
        (failed(NEVER_READY, containerStatuses=[WAITS | {"lastState": ended(NOON)["state"]}], reason="Evicted"), NOON),
        (failed(condition("Ready", NOON, "False", "PodFailed"), containerStatuses=[ended(NOON - 2)]), NOON - 2),
    ],
    ids=["in init", "in a sidecar", "in a debugger", "the last container", "evicted while pulling",
         "evicted, then stopped", "unready before it was evicted", "deadline while pulling",
         "stopped after its deadline", "no container is known", "waiting to restart",
         "a container is better than Ready"],
)  # fmt: skip
def test_a_pod_ends_with_the_last_thing_that_is_known_of_it(
    bring: Allocations, lake: Lake, found: dict[str, Any], end_s: float
) -> None:
    assert bring(found).code == 0
    assert [(row["time"], row["end"]) for row in stored(lake)] == [(ms(START), ms(end_s))]


@pytest.mark.parametrize(
    "found",
    [
        failed(NEVER_READY, containerStatuses=[WAITS]),
        failed(condition("Ready", START + 2, "False", "ContainersNotReady"), reason="Evicted"),
        failed(condition("DisruptionTarget", NOON, "False"), spec={"activeDeadlineSeconds": 60}),
        failed(containerStatuses=[{"state": {"terminated": {"finishedAt": "1970-01-01T00:00:00Z"}}}]),
    ],
)
def test_an_end_that_nothing_tells_is_unknown(bring: Allocations, lake: Lake, found: dict[str, Any]) -> None:
    done = bring(found)
    assert (done.code, "1 left out: ended at an unknown time" in done.err) == (1, True), done.err
    assert holds_nothing(lake)


def limits(**asked: object) -> dict[str, Any]:
    """A pod's spec that asks for resources of nvidia.com."""
    own = {f"nvidia.com/{name.replace('_', '-')}": str(count) for name, count in asked.items()}
    return {"containers": [{"name": "main", "resources": {"limits": own}}]}


GKE = "cloud.google.com/gke-"
SLICED = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED"}


def chosen(**labels: str) -> dict[str, Any]:
    return pod_spec(1) | {"nodeSelector": {f"{GKE}{name.replace('_', '-')}": each for name, each in labels.items()}}


def required(**labels: str) -> dict[str, Any]:
    rules = [
        {"key": f"{GKE}{name.replace('_', '-')}", "operator": "In", "values": [each]} for name, each in labels.items()
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    return pod_spec(1) | {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (limits(gpu=1, gpumem="4k", gpucores=25), "a share of a GPU: 25 % of its cores and 4,000 MiB of its memory"),
        (limits(gpu=2, gpumem_percentage=50), "a share of a GPU: 50 % of its memory"),
        (limits(gpu=1, gpucores=30), "a share of a GPU: 30 % of its cores"),
        (pod_spec(1, "nvidia.com/gpu.shared"), "a share of a GPU: how much is not known"),
        (pod_spec(1, "nvidia.com/mig-1g.10gb.shared"), "a share of a GPU: how much is not known"),
        (
            chosen(gpu_sharing_strategy="time-sharing", max_shared_clients_per_gpu="4"),
            "a share of a GPU: one of 4 clients",
        ),
        (chosen(gpu_sharing_strategy="mps"), "a share of a GPU: how much is not known"),
        (required(gpu_sharing_strategy="mps", max_shared_clients_per_gpu="8"), "a share of a GPU: one of 8 clients"),
        (pod_spec(1) | {"nodeSelector": SLICED}, "a share of a GPU: how much is not known"),
        (pod_spec(1, "amd.com/gpu"), "GPUs by amd.com/gpu, which this import does not count"),
        (pod_spec(1, "nvidia.com/GA102GL_A10"), "GPUs by nvidia.com/GA102GL_A10, which this import does not count"),
        (pod_spec(1, "example.com/nic"), "no GPU or MIG instance of its own"),
    ],
)
def test_a_pod_without_a_whole_gpu_is_left_out_for_its_own_reason(
    bring: Allocations, lake: Lake, spec: dict[str, Any], reason: str
) -> None:
    done = bring(pod("a", 0, 30, spec=spec), pod("whole", 0, 30, gpus=1))
    assert done.dropped == {reason: 1}
    assert [row["allocation_id"] for row in stored(lake)] == ["nlp/whole"]


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        (limits(gpu=2, gpucores=100, gpumem=4000), (2, None)),
        (limits(gpu=1, gpumem_percentage=100), (1, None)),
        (chosen(gpu_sharing_strategy="time-sharing", max_shared_clients_per_gpu="1"), (1, None)),
        (chosen(gpu_partition_size="1g.5gb"), (1, "mig-1g.5gb")),
        (pod_spec(2, "deviceclass.resource.kubernetes.io/gpu.nvidia.com"), (2, None)),
        ({"containers": limits(gpu=1, gpucores=25)["containers"] + pod_spec(3)["containers"]}, (3, None)),
    ],
)
def test_all_of_a_gpu_is_a_whole_gpu(bring: Allocations, lake: Lake, spec: dict[str, Any], asked: Any) -> None:
    assert bring(pod("a", 0, 30, spec=spec)).code == 0
    assert [(row["gpu_count"], row.get("gpu_model")) for row in stored(lake)] == [asked]


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}, 0),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, 0),
        ({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, 1),
        ({"nvidia.com/mig-1g.10gb.replicas": "2"}, 1),
        ({"nvidia.com/gpu.count": "2"}, 0),
        ({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "NVIDIA-A100-MIG-1g.5gb"}, 1),
        ({"nvidia.com/gpu.count": "8"}, 1),
    ],
)
def test_a_node_tells_whether_its_gpus_are_sliced(bring: Allocations, labels: dict[str, str], kept: int) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "gn1", "uid": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels},
        "status": {"capacity": {"nvidia.com/gpu": "8"}},
    }
    done = bring(node, pod("a", 0, 30), pod("b", 0))
    assert done.counts == (kept, 0, 0)


@pytest.mark.parametrize(
    ("device", "gpus"),
    [
        ("GPU-1,NVIDIA,4000,25:;", None),
        ("GPU-1,NVIDIA,81920,0:;", ["GPU-1"]),
        ("GPU-1,NVIDIA,81920,100:GPU-2,NVIDIA,81920,100:;", [None]),
    ],
)
def test_what_hami_gave_a_pod_is_on_it(bring: Allocations, lake: Lake, device: str, gpus: list[str | None]) -> None:
    done = bring(pod("a", 0, 30, gpus=1, annotations={"hami.io/vgpu-devices-allocated": device}), pod("b", 0))
    assert done.dropped == ({"a share of a GPU: 25 % of its cores": 1} if gpus is None else {})
    assert [row.get("gpu") for row in (stored(lake) if gpus else ())] == (gpus or [])


def reservation(group: str, created: float = 0, **notes: str) -> dict[str, Any]:
    found = pod(
        f"gpu-reservation-{group}", created, created + 5, gpus=1, labels={"runai-gpu-group": group}, annotations=notes
    )
    found["metadata"]["namespace"] = "kai-resource-reservation"
    return found


def sharer(name: str, *groups: str, end: float | None = None, **notes: str) -> dict[str, Any]:
    labels = {"runai-gpu-group" if len(groups) == 1 else f"runai-gpu-group/{each}": each for each in groups}
    notes = {key.replace("_", "-"): value for key, value in notes.items()}
    return pod(name, 0, 10, end, gpus=0, labels=labels, annotations=notes)


def test_a_reserved_gpu_is_that_of_the_pods_that_share_it(
    bring: Allocations, allocations: Allocations, lake: Lake
) -> None:
    uuid = "GPU-8983c66a-23df-e63b-4c2f-afcae9ec79b3"
    done = bring(
        reservation("g1", **{"run.ai/reserve_for_gpu_index": uuid}),
        reservation("g2"),
        reservation("g3"),
        sharer("a", "g1", gpu_fraction="0.25"),
        sharer("b", "g1", gpu_fraction="0.75", end=10 + HOUR),
        sharer("two", "g2", "g3", gpu_fraction="0.5", gpu_fraction_num_devices="2"),
        sharer("memory", "g2", gpu_memory="2000"),
        sharer("alone", "g9", gpu_fraction="0.5"),
    )
    assert done.dropped == {
        "reservation of a GPU, which the pods that share it have": 3,
        "a share of a GPU: 2000 MiB of its memory": 1,
        "a share of a GPU: 50 % of it": 1,
    }
    found = [(row["name"], row.get("gpu"), row.get("host_gpu_count"), row["gpu_share_ratio"]) for row in stored(lake)]
    assert found == [("a", uuid, None, 0.25), ("b", uuid, None, 0.75), ("two", None, 2, 0.5)]
    listed = allocations("list", "--since", "2026-11-20T00:00Z", "--until", "2026-11-21T00:00Z").rows("allocations")
    hours = {row["name"]: row["gpu_hours"] for row in listed}
    assert hours["b"] == pytest.approx(0.75)
    assert hours["two"] == pytest.approx(2 * 0.5 * (24 - 10 / HOUR))


def test_a_fraction_of_one_is_a_whole_gpu_and_a_group_without_a_fraction_is_a_share(
    bring: Allocations, lake: Lake
) -> None:
    done = bring(
        reservation("g1"),
        sharer("a", "g1", gpu_fraction="1"),
        sharer("b", "g1"),
        sharer("c", "g1", gpu_fraction="half"),
    )
    assert done.dropped["a share of a GPU: how much is not known"] == 2
    assert [(row["name"], row["host_gpu_count"], row.get("gpu_share_ratio")) for row in stored(lake)] == [
        ("a", 1, None)
    ]


def test_a_reservation_without_its_pods_is_nobodys_allocation(bring: Allocations, lake: Lake) -> None:
    done = bring(reservation("g1"))
    assert (done.code, "reservation of a GPU" in done.err) == (1, True)
    assert holds_nothing(lake)


def one(device_class: str = "gpu.nvidia.com", **more: Any) -> dict[str, Any]:
    return {
        "name": "r",
        "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1} | more,
    }


GOT = [("gpu.nvidia.com", "gpu-0"), ("gpu.nvidia.com", "gpu-1")]


@pytest.mark.parametrize(
    ("spec", "objects", "gpus"),
    [
        (claims(g="c"), [claim("c", *GOT)], 2),
        (claims(g="c"), [claim("c", asks=[one(count=4)])], 4),
        (claims(g="c"), [claim("c", asks=[{"name": "r", "deviceClassName": "gpu.nvidia.com"}])], 1),
        (claims(g="t-1"), [template("t-1", one(count=2), one("mig.nvidia.com"))], 3),
        (claims(g="c", net="n"), [claim("c", *GOT), claim("n", ("dra.net", "eth1"))], 2),
        (claims(g="c") | {"containers": pod_spec(1)["containers"]}, [claim("c", *GOT)], 3),
        (claims(g="t-1"), [claim("made", *GOT, annotations={"resource.kubernetes.io/pod-claim-name": "g"},
                                 ownerReferences=[{"uid": "uid-a", "name": "a", "controller": True}])], 2),
        (claims(g="t-1"), [template("t-1", {"name": "r", "firstAvailable": [
            {"name": "x", "deviceClassName": "gpu.nvidia.com", "count": 2},
            {"name": "y", "deviceClassName": "mig.nvidia.com", "count": 2}]})], 2),
    ],
)  # fmt: skip
def test_gpus_by_resource_claims_are_counted(
    bring: Allocations, lake: Lake, spec: dict[str, Any], objects: list[Any], gpus: int
) -> None:
    found = pod("a", 0, 30, gpus=0)
    found["spec"] = spec | {"nodeName": "gn1"}
    assert bring(found, *objects).code == 0
    assert [(row["gpu_count"], row["host_gpu_count"]) for row in stored(lake)] == [(gpus, gpus)]


def test_a_resource_that_a_class_of_devices_provides_is_what_its_claim_got(bring: Allocations, lake: Lake) -> None:
    found = pod("a", 0, 30, spec=pod_spec(1, "example.com/bignode"))
    found["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c", "requestMappings": []}
    assert bring(found, claim("c", *GOT)).code == 0
    assert [row["gpu_count"] for row in stored(lake)] == [2]


def test_nodes_of_a_named_cluster_are_the_hosts_that_exporters_name_with_its_label(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    write(lake, schema.DEVICE, [device("GPU-0")], "gn1.example@west")
    two = [pod(name, 0, 30, gpus=1, spec={"nodeName": node}) for name, node in (("a", "gn1"), ("b", "gn2"))]
    two[1]["spec"]["nodeName"] = "gn2"
    assert allocations("import", "kubernetes", file(kubectl(*two), "c.json"), "--cluster", "west").code == 0
    assert [row["host"] for row in stored(lake)] == ["gn1.example@west", "gn2@west"]


@pytest.mark.parametrize("name", ["", " ", "a@b"])
def test_a_cluster_without_a_name_is_refused(allocations: Allocations, file: File, lake: Lake, name: str) -> None:
    done = allocations("import", "kubernetes", file(kubectl(pod("a", 0, 30, gpus=1)), "c.json"), "--cluster", name)
    assert (done.code, f"--cluster '{name}' is not the name of a cluster" in done.err) == (2, True)
    assert stored(lake) == []


UUIDS = [("gpu-0", "GPU-3c0"), ("gpu-1", "GPU-3c1")]


@pytest.mark.parametrize(
    ("slices", "spec", "gpus"),
    [
        ([resource_slice(*UUIDS)], claims(g="c"), ["GPU-3c0", "GPU-3c1"]),
        ([resource_slice(*UUIDS, basic=True)], claims(g="c"), ["GPU-3c0", "GPU-3c1"]),
        (
            [resource_slice(*UUIDS, generation=2), resource_slice(("gpu-1", "GPU-old"))],
            claims(g="c"),
            ["GPU-3c0", "GPU-3c1"],
        ),
        ([resource_slice(UUIDS[0])], claims(g="c"), [None]),
        ([resource_slice(*UUIDS, driver="gpu.amd.com")], claims(g="c"), [None]),
        ([resource_slice(*UUIDS)], claims(g="c") | {"containers": pod_spec(1)["containers"]}, [None]),
    ],
    ids=["v1", "v1beta1", "the newest of a pool", "a GPU is missing", "another driver", "a GPU beside the claim"],
)
def test_the_gpus_of_a_claim_have_the_uuids_of_their_resource_slice(
    bring: Allocations, lake: Lake, slices: list[Any], spec: dict[str, Any], gpus: list[str | None]
) -> None:
    found = pod("a", 0, 30, gpus=0)
    found["spec"] = spec | {"nodeName": "gn1"}
    assert bring(found, claim("c", *GOT), *slices).code == 0
    assert [row.get("gpu") for row in stored(lake)] == gpus


def test_a_check_says_what_the_import_would_give_and_writes_nothing(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    cluster = file(kubectl(pod("a", 0, 30), pod("b", 0), pod("cpu", 0, 30, gpus=0)), "cluster.json")
    done = allocations("import", "kubernetes", cluster, "--check")
    assert done.said("allocations", "named", "published", "tables") == (1, 0, False, [])
    assert (done.dropped, holds_nothing(lake)) == ({"no GPU or MIG instance of its own": 1}, True)
    assert "nothing is published" in allocations("import", "kubernetes", cluster, "--check", as_json=False).out
    assert allocations("import", "kubernetes", cluster).counts == (1, 0, 0)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], "1 left out: devices by resource claims, which the export lacks"),
        ([claim("c") | {"spec": {"resourceClassName": "gpu.nvidia.com"}}],
         "devices by resource claims of gpu.nvidia.com, which this"),
        ([claim("c", ("gpu.amd.com", "gpu-1"))],
         "devices by resource claims of gpu.amd.com, which this import does not count"),
        ([claim("c", asks=[one(allocationMode="All", count=0)])],
         "devices by resource claims of gpu.nvidia.com, which this import does not"),
        ([claim("c", *GOT, users=("a", "b"))], "a share of a GPU: one of 2 pods with its claim"),
        ([claim("c", asks=[one(adminAccess=True)])], "no GPU or MIG instance of its own"),
    ],
)  # fmt: skip
def test_claims_that_cannot_be_counted_are_no_empty_lake(
    bring: Allocations, lake: Lake, objects: list[Any], reason: str
) -> None:
    found = pod("a", 0, 30, gpus=0)
    found["spec"] = claims(g="c") | {"nodeName": "gn1"}
    done = bring(found, *objects)
    assert (done.code, reason in done.err) == (1, True), done.err
    assert holds_nothing(lake)


def test_a_workload_of_shares_asks_for_no_whole_gpu_and_one_of_claims_for_what_they_count(
    bring: Allocations, lake: Lake
) -> None:
    waits = [
        workload(name, 0, condition("QuotaReserved", 5, "False", "Pending"), pods=3) for name in ("shares", "claims")
    ]
    waits[0]["spec"]["podSets"][0]["template"]["spec"] = limits(gpu=1, gpucores=25)
    waits[1]["spec"]["podSets"][0]["template"]["spec"] = claims(g="t-1")
    done = bring(*waits, template("t-1", one(count=2)))
    assert done.dropped["a share of a GPU: 25 % of its cores"] == 1
    assert [(row["name"], row["gpu_count"]) for row in requested(lake)] == [("claims", 6)]


def snake(value: Any) -> Any:
    """The object as the client library for Python writes it: every field in snake_case, absent ones null."""
    if isinstance(value, list):
        return [snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    maps = ("labels", "annotations", "nodeSelector", "limits")
    own = {
        "".join(f"_{x.lower()}" if x.isupper() else x for x in key): each if key in maps else snake(each)
        for key, each in value.items()
    }
    return own | ({"restart_policy": None} if "resources" in value else {})


def listed(kind: str, *items: dict[str, Any], last: bool = False) -> str:
    own = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in items]
    parts = {"kind": kind, "apiVersion": "v1"}
    return json.dumps({"items": own} | parts if last else parts | {"items": own})


LABELLED = pod("a", 0, 30, spec={"nodeSelector": {"agentpool": "p_1"}}, labels={"app.kubernetes.io/part-of": "x_y"})


@pytest.mark.parametrize(
    "text",
    [
        listed("PodList", LABELLED),
        listed("PodList", LABELLED, last=True),
        json.dumps({"api_version": "v1", "items": [snake(LABELLED) | {"kind": None}], "kind": "PodList"}),
        json.dumps({"items": [snake(LABELLED)], "kind": "List"}).replace("T00:00:00Z", " 00:00:00+00:00"),
        kubectl(LABELLED).replace("2026-11-20T00:00:30Z", "2026-11-20T00:00:30.000000Z"),
        json.dumps(LABELLED),
        json.dumps([LABELLED]),
        "\n".join(json.dumps(each) for each in (LABELLED, pod("cpu", 0, 30, gpus=0))),
        listed("PodList", LABELLED) + "\n" + listed("NodeList"),
        "\n".join(json.dumps({"type": "ADDED", "object": each}) for each in (LABELLED, pod("cpu", 0, 30, gpus=0))),
    ],
    ids=[
        "typed",
        "typed, the kind comes last",
        "snake_case",
        "snake_case as str() writes times",
        "times of microseconds",
        "one object",
        "an array",
        "an object on each line",
        "lists one after another",
        "events of a watch",
    ],
)
def test_every_form_of_a_list_is_read(allocations: Allocations, file: File, lake: Lake, text: str) -> None:
    done = allocations("import", "kubernetes", file(text, "pods.json"))
    assert done.code == 0, done.err
    [row] = stored(lake)
    told = {"allocation_id": "nlp/a", "time": T0 + 30_000, "gpu_count": 2, "partition": "p_1", "project": "x_y"}
    assert row.items() >= told.items()


def test_typed_lists_of_claims_and_pods_are_read_together(allocations: Allocations, file: File, lake: Lake) -> None:
    found = pod("a", 0, 30, gpus=0)
    found["spec"] = claims(g="c") | {"nodeName": "gn1"}
    files = [file(listed("PodList", found), "p.json"), file(listed("ResourceClaimList", claim("c", *GOT)), "c.json")]
    assert allocations("import", "kubernetes", *files).code == 0
    assert [row["gpu_count"] for row in stored(lake)] == [2]
