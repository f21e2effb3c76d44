"""What kube-state-metrics adds: a pod's owner, wait and end; pods that wait; queues in numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from analytics.allocations.model import KnownHosts
from analytics.capacity.jobs import load_jobs
from analytics.plan.endings import find_endings
from analytics.scraped.who.allocations import OpenAllocations, allocations_of
from analytics.scraped.who.kube_metrics import KUBE_METRICS, kube_selectors
from analytics.scraped.windows import kube_samples
from fallow import schema
from fallow.cli import main
from fallow.clock import MINUTE_MS
from tests.allocations.conftest import requested, stored
from tests.answers import rows_of
from tests.findings.conftest import context_of
from tests.ledger.rows import T0, device, ms, samples, write
from tests.scraped.exposed import Exposed
from tests.scraped.held_server import HeldServer
from tests.scraped.who_rows import KubePod, bring, given, host_rows, kube, spans

if TYPE_CHECKING:
    from analytics.scraped.samples import Samples
    from fallow.lake import Lake

AT = T0 / 1000


def notes(samples: Samples) -> tuple[str, ...]:
    return allocations_of(given(), samples, OpenAllocations.none(), as_of_ms=ms(60), hosts=KnownHosts()).read.notes


def test_a_pod_is_its_owners_from_its_placement_to_its_end(lake: Lake) -> None:
    web = KubePod("nlp", "web-5d-x2", created=-100, placed=-20, ended=170, gpus=1, owner=("ReplicaSet", "web-5d"))
    above = ({"__name__": "kube_replicaset_owner", "namespace": "nlp", "replicaset": "web-5d",
              "owner_kind": "Deployment", "owner_name": "web", "owner_is_controller": "true"}, {0: 1.0})  # fmt: skip
    named = host_rows("h1", 0, 240, G0=["nlp/web-5d-x2"])  # the kubelet names it until the GPU is given away again
    bring(lake, (240, [named]), series=kube(*web.series(0, 240), above))
    assert stored(lake) == [
        {"host": "h1", "gpu": "G0", "scheduler": "kubernetes", "allocation_id": "nlp/web-5d-x2", "account": "nlp",
         "name": "Deployment/web", "time": ms(-20), "end": ms(170), "submitted": ms(-100), "eligible": ms(-100),
         "gpu_count": 1, "host_count": 1, "state": "Succeeded", "qos": "high"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pod_owner", "job_owner", "owner"),
    [
        ("Job/fit", "CronJob/nightly", "CronJob/nightly"),
        ("Job/fit", "<none>/<none>", "Job/fit"),
        ("RayCluster/ray", "", "RayCluster/ray"),
        ("StatefulSet/notebook-ann", "", "StatefulSet/notebook-ann"),
        ("<none>/<none>", "", "a"),
    ],
)
def test_whose_a_pod_is(pod_owner: str, job_owner: str, owner: str, lake: Lake) -> None:
    series = KubePod(
        "nlp",
        "a",
        created=0,
        placed=10,
        owner=tuple(pod_owner.split("/")),  # type: ignore[arg-type]  # two
    ).series(0, 240)
    if job_owner:
        kind, name = job_owner.split("/")
        of_job = {"__name__": "kube_job_owner", "namespace": "nlp", "job_name": "fit"}
        series.append((of_job | {"owner_kind": kind, "owner_name": name}, {0.0: 1.0}))
    bring(lake, (240, [host_rows("h1", 0, 240, G0=["nlp/a"])]), series=kube(*series))
    assert [row["name"] for row in stored(lake)] == [owner]


def test_a_job_of_kubernetes_has_its_limit_and_waited_since_it_was_made(lake: Lake) -> None:
    pod = KubePod("nlp", "fit-1", created=50, placed=100, gpus=2, owner=("Job", "fit"))
    said = {"kube_job_created": AT + 10, "kube_job_spec_active_deadline_seconds": 3600.0}
    facts = [({"__name__": name, "namespace": "nlp", "job_name": "fit"}, {0.0: value}) for name, value in said.items()]
    bring(lake, (240, [host_rows("h1", 120, 240, G0=["nlp/fit-1"])]), series=kube(*pod.series(60, 240), *facts))
    (found,) = stored(lake)
    times = {"submitted": ms(10), "eligible": ms(50), "time": ms(100), "planned_end": ms(3700)}
    assert found.items() >= (times | {"time_limit_s": 3600}).items()


OLD, NEW = (partial(KubePod, "nlp", "web-0", uid=uid) for uid in ("u1", "u2"))
"""A StatefulSet's pod, made again under its name: the label never changes, the UID does."""


def told(*pods: KubePod, since: float = 0, until: float = 300) -> list[Any]:
    return [each for pod in pods for each in pod.series(since, until)]


def label(text: str) -> list[str | None]:
    """`..ww`: whom each sample names, web-0 or nobody."""
    return ["nlp/web-0" if char == "w" else None for char in text]


@pytest.mark.parametrize(
    ("series", "named", "expected"),
    [
        (told(OLD(created=0, placed=5, ended=95, gone=100), NEW(created=100, placed=115)),
         {"G0": "www.......", "G1": "....wwwwww"}, [("G0", 5, 90), ("G1", 115, None)]),
        # deleted without a completion, and kube-state-metrics, which told of others, is silent when the next one comes
        (told(OLD(created=0, placed=5, gone=60)) + told(KubePod("nlp", "b", 0, 5, node="h2"), until=330),
         {"G0": "ww..............", "G1": "............wwww"}, [("G0", 5, 60), ("G1", 360, None)]),
        (told(OLD(created=20, placed=25, ended=50, gone=95), NEW(created=60, placed=70)), {"G0": ".wwwwwwwww"},
         [("G0", 25, 50), ("G0", 70, None)]),
        # samples of kube-state-metrics may be rare, and pods short
        (told(NEW(created=200, placed=210), since=240), {"G0": "ww.....www"}, [("G0", 0, 60), ("G0", 210, None)]),
        (told(OLD(created=0, placed=5, ended=35), until=90), {"G0": "w......www"}, [("G0", 5, 30), ("G0", 210, None)]),
    ],
    ids=["comes back soon on another GPU", "comes back and nobody tells of it yet", "two short pods of one name",
         "a run before what is known of its pods", "long after one of its name, and nobody tells of it"],
)  # fmt: skip
def test_a_pod_of_the_same_name_is_another_run(
    series: list[Any], named: dict[str, str], expected: list[Any], lake: Lake
) -> None:
    until = 30 * len(named["G0"])
    rows = host_rows("h1", 0, until, **{gpu: label(text) for gpu, text in named.items()})
    bring(lake, (until, [rows]), series=kube(*series))
    assert [row[1:] for row in spans(lake) if row[0] == "nlp/web-0"] == expected


def test_pods_of_one_deployment_are_allocations_of_one_owner(lake: Lake) -> None:
    first = KubePod("nlp", "web-1", created=-10, placed=0, owner=("ReplicaSet", "web-5d"), gone=120)
    second = KubePod("nlp", "web-2", created=110, placed=115, owner=("ReplicaSet", "web-5d"))
    named = host_rows("h1", 0, 300, G0=[*["nlp/web-1"] * 4, *["nlp/web-2"] * 6])
    bring(lake, (300, [named]), series=kube(*told(first, second)))
    assert spans(lake) == [("nlp/web-1", "G0", 0, 120), ("nlp/web-2", "G0", 115, None)]
    assert {row["name"] for row in stored(lake)} == {"ReplicaSet/web-5d"}


def test_a_pod_that_is_made_again_under_its_name_is_another_run(lake: Lake) -> None:
    first, second = OLD(created=-100, placed=-60, ended=35, gone=90), NEW(created=100, placed=110)
    left = bring(lake, (300, [host_rows("h1", 0, 300, G0=["nlp/web-0"])]), series=kube(*told(first, second)))
    assert spans(lake) == [("nlp/web-0", "G0", -60, 35), ("nlp/web-0", "G0", 110, None)]
    over = host_rows("h1", 300, 420, G0=label("w..."))
    bring(lake, (420, [over]), before=left, series=kube(*second.series(300, 330)))
    assert spans(lake) == [("nlp/web-0", "G0", -60, 35), ("nlp/web-0", "G0", 110, 330)]


def test_a_run_begins_when_its_pod_was_placed_also_where_that_is_told_a_window_later(lake: Lake) -> None:
    pod = KubePod("nlp", "a", created=0, placed=20, ended=100)
    left = bring(lake, (60, [host_rows("h1", 30, 60, G0=["nlp/a"])]))
    for _ in range(2):
        over = host_rows("h1", 30, 180, G0=[*["nlp/a"] * 3, None, None])
        left = bring(lake, (180, [over]), before=left, series=kube(*pod.series(60, 180)))
    assert spans(lake) == [("nlp/a", "G0", 20, 100)]


def test_a_pod_whose_series_end_within_a_step_is_told_of() -> None:
    """Servers that keep staleness markers: the marker is no sample."""
    server, at = HeldServer(), T0 - T0 % (5 * MINUTE_MS)
    told = Exposed("kube_pod_info", (("namespace", "nlp"), ("pod", "a")), 1.0, at + 60_000)
    server.write([told, replace(told, value=None, time_ms=at + 90_000)])
    found = kube_samples(server, "", at, at + 5 * MINUTE_MS)  # type: ignore[arg-type]
    assert found is not None
    assert found.frame["value"].to_list() == [1.0]


def test_a_label_that_outlives_its_pod_holds_nothing(lake: Lake) -> None:
    pod = KubePod("nlp", "a", created=-100, placed=-60, ended=95)
    named = [host_rows("h1", since, since + 300, G0=["nlp/a"]) for since in (0, 300)]
    left = bring(lake, (300, named[:1]), series=kube(*pod.series(0, 300)))
    bring(lake, (600, named[1:]), before=left, series=kube(*pod.series(300, 600)))
    assert spans(lake) == [("nlp/a", "G0", -60, 95)]


def test_a_pod_that_no_label_names_is_there_by_its_number_until_one_does(lake: Lake) -> None:
    pod = KubePod("nlp", "a", created=0, placed=50, gpus=2, node="h1.example")
    bare = KubePod("nlp", "cpu", created=0, placed=50, gpus=0)
    hosts = [host_rows("h1", 0, 60, G0=[None], G1=[None])]
    left = bring(lake, (60, hosts), series=kube(*pod.series(0, 60), *bare.series(0, 60)))
    assert [(row["host"], row["host_gpu_count"]) for row in stored(lake)] == [("h1", 2)]
    assert spans(lake) == [("nlp/a", None, 50, None)]
    named = host_rows("h1", 60, 180, G0=[*["nlp/a"] * 3, None], G1=[*["nlp/a"] * 3, None])
    bring(lake, (180, [named]), before=left, series=kube(*pod.series(60, 180)))
    assert spans(lake) == [("nlp/a", "G0", 50, 150), ("nlp/a", "G1", 50, 150)]


@pytest.mark.parametrize("cut", [150, 300])
def test_a_pod_that_no_label_named_is_counted_though_another_one_of_its_name_is_named(cut: int, lake: Lake) -> None:
    first, second = OLD(created=0, placed=31, ended=59, gone=120), NEW(created=120, placed=170)
    named, left = label("......wwww"), None
    for since, until in ((0, cut), (cut, 300))[: 300 // cut]:
        rows = host_rows("h1", since, until, G0=named[since // 30 : until // 30])
        series = kube(*first.series(since, until), *second.series(max(since, 120), until))
        left = bring(lake, (until, [rows]), before=left, series=series)
    assert spans(lake) == [("nlp/web-0", None, 31, 59), ("nlp/web-0", "G0", 170, None)]


def test_a_counted_pod_that_is_told_of_no_more_is_over(lake: Lake) -> None:
    other, pod = (KubePod("nlp", name, created=0, placed=at, node="h1") for name, at in (("b", 5), ("a", 10)))
    left = bring(lake, (60, []), series=kube(*told(pod, other, until=60)))
    series = kube(*told(pod, other, since=60, until=120))
    again = allocations_of(given(), series, left, as_of_ms=ms(120), hosts=KnownHosts())
    assert again.read.rows.is_empty()
    bring(lake, (180, []), before=again.open, series=kube(*other.series(120, 180)))
    assert spans(lake) == [("nlp/a", None, 10, 120), ("nlp/b", None, 5, None)]


def test_one_sample_a_window_and_another_target_scraped_later_make_no_pod_gone(lake: Lake) -> None:
    pod, waits = KubePod("nlp", "a", created=0, placed=0, node="h1"), KubePod("nlp", "b", created=0)
    queue = {"__name__": "kueue_pending_workloads", "cluster_queue": "cq", "status": "active", "instance": "kueue"}
    bring(lake, (30, []), series=kube(*told(pod, waits, until=30), (queue, {29.0: 1.0})))
    assert spans(lake) == [("nlp/a", None, 0, None)]
    assert "withdrawn" not in requested(lake)[0]


GONE = partial(KubePod, "nlp", "a", created=-90_000, placed=-86_000, ended=100, node="h1", is_completed=False)
"""Evicted, so that only its phase tells that it is over."""


@pytest.mark.parametrize(
    ("since_s", "named", "expected"),
    [
        (120, None, []),
        (120, "nlp/a", []),
        (0, None, [("nlp/a", None, -86_000, 120)]),
        (0, "nlp/a", [("nlp/a", "G0", -86_000, 120)]),
    ],
)
def test_a_pod_that_was_over_in_its_first_sample_has_no_invented_hours(
    since_s: float, named: str | None, expected: list[Any], lake: Lake
) -> None:
    hosts = [host_rows("h1", since_s, 300, G0=[named])]
    bring(lake, (300, hosts), series=kube(*GONE().series(since_s, 300)))
    assert spans(lake) == expected


def test_a_pod_that_ended_between_two_windows_ends_with_its_last_sample_alive(lake: Lake) -> None:
    left = bring(lake, (90, []), series=kube(*GONE().series(0, 90)))
    bring(lake, (300, []), before=left, series=kube(*GONE().series(120, 300)))
    assert spans(lake) == [("nlp/a", None, -86_000, 90)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia_com_gpumem": 4000.0, "nvidia_com_gpucores": 25.0}, 0),
        ({"nvidia_com_gpumem_percentage": 50.0}, 0),
        ({"nvidia_com_gpu_shared": 1.0}, 0),
        ({"amd_com_gpu": 8.0}, 0),
        ({"nvidia_com_gpumem": 4000.0, "nvidia_com_gpucores": 100.0}, 1),
        ({"nvidia_com_gpumem_percentage": 100.0}, 1),
    ],
)
def test_a_pod_with_a_share_is_noted_and_not_counted_whole(limits: dict[str, float], expected: int, lake: Lake) -> None:
    of_pod = {"namespace": "nlp", "pod": "a", "uid": "u-a", "container": "main"}
    own = [
        ({"__name__": "kube_pod_container_resource_limits", "resource": name, **of_pod}, {0.0: value})
        for name, value in limits.items()
    ]
    series = kube(*KubePod("nlp", "a", created=0, placed=10, node="h1").series(0, 60), *own)
    bring(lake, (60, []), series=series)
    assert len(spans(lake)) == expected
    assert len(notes(series)) == 1 - expected


def test_a_reservation_namespace_gets_no_bill(lake: Lake) -> None:
    series = kube(
        *KubePod("kai-resource-reservation", "gpu-reservation-x", created=0, placed=10, node="h1").series(0, 60)
    )
    bring(lake, (60, []), series=series)
    assert spans(lake) == []
    assert notes(series) == (
        "1 pod in a reservation namespace: not counted, because the pods that share the GPU have it",
    )


def test_what_waits_is_a_request_until_it_is_placed_or_gone(lake: Lake) -> None:
    waits, leaves = (KubePod("nlp", name, created=10, gpus=4) for name in ("a", "b"))
    left = bring(lake, (60, []), series=kube(*waits.series(0, 60), *leaves.series(0, 60)))
    assert requested(lake)[0] == {
        "host": "kubernetes", "scheduler": "kubernetes", "allocation_id": "nlp/a", "account": "nlp", "name": "a",
        "time": ms(10), "as_of": ms(30), "eligible": ms(10), "gpu_count": 4, "host_count": 1, "task_count": 1,
        "state": "Pending", "qos": "high", "reason": "Unschedulable",
    }  # fmt: skip
    left = bring(lake, (120, []), before=left, series=kube(*waits.series(60, 120)))
    placed = KubePod("nlp", "a", created=10, placed=130, gpus=4, node="h1")
    bring(lake, (180, []), before=left, series=kube(*placed.series(120, 180)))
    assert load_jobs(lake).select("job", "submitted", "start", "withdrawn").rows() == [
        ("nlp/a", ms(10), ms(130), None),
        ("nlp/b", ms(10), None, ms(60)),
    ]
    assert len(requested(lake)) == 3  # a wait is told again once an hour, not once a window


def test_containers_and_instances_are_counted_as_the_scheduler_does(lake: Lake) -> None:
    pod = KubePod("nlp", "a", created=0, placed=10, gpus=1, node="h1", resource="nvidia_com_mig_1g_10gb")
    side, init = (
        ({"__name__": f"kube_pod_{kind}_resource_limits", "namespace": "nlp", "pod": "a", "uid": "u-a",
          "container": name, "resource": "nvidia_com_mig_1g_10gb"}, {0.0: count})
        for kind, name, count in (("container", "side", 1.0), ("init_container", "setup", 3.0))
    )  # fmt: skip
    bring(lake, (60, []), series=kube(*pod.series(0, 60), side, init))
    (found,) = stored(lake)
    assert (found["gpu_count"], found["gpu_model"]) == (3, "mig-1g.10gb")


def test_labels_that_the_server_renamed_are_the_exporters(lake: Lake) -> None:
    pod, own = KubePod("nlp", "a", created=0, placed=10, node="h1"), {"namespace": "monitoring", "pod": "ksm-0"}
    renamed = [
        ({(f"exported_{key}" if key in own else key): value for key, value in labels.items()} | own, values)
        for labels, values in pod.series(0, 60)
    ]
    bring(lake, (60, []), series=kube(*renamed))
    assert spans(lake) == [("nlp/a", None, 10, None)]


def test_queues_and_quotas_are_said_and_are_no_rows() -> None:
    queue = {"cluster_queue": "cq"}
    quota = {"namespace": "nlp", "resource": "requests.nvidia.com/gpu", "type": "hard"}
    series: list[Any] = [
        ({"__name__": "kueue_pending_workloads", "status": status, **queue}, {0: number})
        for status, number in (("active", 3.0), ("inadmissible", 2.0))
    ]
    for name, values in {
        "kueue_admission_wait_time_seconds_sum": {0: 100.0, 30: 700.0},
        "kueue_admission_wait_time_seconds_count": {0: 1.0, 30: 6.0},
        "kueue_cluster_queue_nominal_quota": {0: 64.0},
        "kueue_cluster_queue_resource_usage": {0: 40.0},
    }.items():
        series += [({"__name__": name, "instance": replica, **queue}, values) for replica in ("kueue-0", "kueue-1")]
    assert notes(kube(*series, ({"__name__": "kube_resourcequota", **quota}, {0: 16.0}))) == (
        (
            "queue cq of Kueue has a quota of 64 GPUs, 40 of them in use; it has 5 Workloads that wait; it admitted 5,"
            " which had waited 2.0 min on average"
        ),
        (
            "namespace nlp has a quota of 16 GPUs: fallow reads quotas from `quota_gpus` of the owners table"
            " (money.owners)"
        ),
    )
    waited = "kueue_admission_wait_time_seconds"
    begun_anew = {f"{waited}_sum": {0: 100.0, 30: 700.0}, f"{waited}_count": {0: 900.0, 30: 6.0}}
    assert notes(kube(*(({"__name__": name, **queue}, values) for name, values in begun_anew.items()))) == (
        "queue cq of Kueue reports nothing",
    )


def test_selectors_ask_for_every_name_once() -> None:
    selectors = kube_selectors('cluster="a"')
    assert all(sum(f"{name}|" in each or f'{name}"' in each for each in selectors) == 1 for name in KUBE_METRICS)
    assert all('cluster="a"}' in each for each in selectors)


def test_no_series_at_all_is_no_row() -> None:
    found = allocations_of(given(), kube(), OpenAllocations.none(), as_of_ms=ms(60), hosts=KnownHosts())
    assert (found.read.rows.height, found.read.requests.height, found.read.notes) == (0, 0, ())


HOUR = 3600


def scraped(lake: Lake) -> None:
    """Four hours of two GPUs: a Job with a day's limit on G0 after a 20 min wait; from hour 1 a pod waits for two."""
    write(lake, schema.DEVICE, [device(gpu, source="scraped") for gpu in ("G0", "G1")])
    sampled = partial(
        samples, first_s=0, last_s=4 * HOUR, every_s=30, process_count=None, gpu_util_coverage_ratio=0.005
    )
    rows = sampled("G0", gpu_util_pct=80.0, mem_used_bytes=10**9) + sampled("G1", gpu_util_pct=0.0, mem_used_bytes=0)
    write(lake, schema.GPU, rows)
    runs = KubePod("nlp", "fit-1", created=600, placed=1800, owner=("Job", "fit"))
    waits, left = KubePod("nlp", "big", created=HOUR, gpus=2), None
    limit = {"__name__": "kube_job_spec_active_deadline_seconds", "namespace": "nlp", "job_name": "fit"}
    for since in range(0, 4 * HOUR, HOUR):
        named = [None] * 60 + ["nlp/fit-1"] * 60 if since == 0 else ["nlp/fit-1"]
        told_now = [*runs.series(max(since, 1800), since + HOUR), *waits.series(since, since + HOUR)]
        hosts = [host_rows("h1", since, since + HOUR, G0=named, G1=[None])]
        left = bring(lake, (since + HOUR, hosts), before=left, series=kube(*told_now, (limit, {0.0: 86_400.0})))


def test_waits_and_planned_ends_of_scraped_pods_are_those_of_the_plans(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped(lake)
    assert main(["plan", "queue", "--lake", lake.root, "--json"]) == 0
    (rank,) = rows_of(capsys.readouterr().out)["queue_rank"]
    assert (rank["rank"], rank["jobs"], rank["jobs_still_waiting"]) == ("high", 2, 1)
    # what waits is told of once an hour, so it waited for as long as its last word says
    assert rank["hours"] == pytest.approx(1 / 3 + 359 / 120)
    found = find_endings(context_of(lake), load_jobs(lake), 14, UTC)
    assert (found.running, found.with_limit) == (1, 1)
    (each,) = found.rows
    assert (each.name, each.source, each.day, each.gpus) == ("pod:nlp/fit-1", "time_limit", date(2026, 11, 21), ("G0",))
