"""Pods of processes by what the kubelet reports: at its address, and by GPU allocation where one pod is possible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution import AttributionSettings
from agent.attribution.kubelet import Allocation, Kubelet, PodName, match_by_gpu
from agent.attribution.lookups import AttributedProcess, Failures
from agent.attribution.placement import Placement
from agent.attribution.pod_resources import PodContainer
from agent.attribution.pods import PodsError, fetch_pods, parse_pods
from agent.collectors import PodServer
from fallow.config import load
from fallow.errors import UsageError
from tests.agent.attribution_peers import (
    BEARER,
    PodsEndpoint,
    api_pod,
    gpu_pod,
    pod_list,
    pod_resources_server,
    pods_server,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPU_A, GPU_B = "GPU-6f8d1c2e-0a1b-4c3d-9e5f-112233445566", "GPU-7f8d1c2e-0a1b-4c3d-9e5f-112233445566"
ID_1, ID_2 = "1" * 64, "2" * 64
UID_1, UID_2 = "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f", "1d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"
NOW = 1_795_000_000_000


def placed(
    uid: str | None, *gpus: str, container: str = "c", started_ms: int | None = NOW - 60_000
) -> AttributedProcess:
    where = Placement("containerd", container, uid)
    return AttributedProcess(0, started_ms, placement=where, gpus=dict.fromkeys(gpus, NOW))


ONE = placed(UID_1, GPU_A, container=ID_1)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[PodsEndpoint]:
    with pods_server(tmp_path) as endpoint:
        yield endpoint


def asked(kubelet: Kubelet, sightings: list[AttributedProcess], now_ms: int) -> dict[Placement, PodName]:
    """What the kubelet view says once everything that is asked has come back."""
    kubelet.refresh(sightings, now_ms)
    kubelet.wait(20)
    return kubelet.locate(sightings)


@pytest.fixture
def socket_settings(tmp_path: Path) -> AttributionSettings:
    return AttributionSettings(pod_resources=str(tmp_path / "k.sock"))


def test_the_address_names_pods_that_share_a_gpu(endpoint: PodsEndpoint, tmp_path: Path) -> None:
    endpoint.pods = [
        api_pod("a", UID_1, {f"containerd://{ID_1}": "main"}, app="x", team="vision"),
        api_pod("b", UID_2, {}),
    ]
    settings = told(endpoint, pod_resources=str(tmp_path / "k.sock"))
    failures = Failures()
    other = placed(UID_2, GPU_A, container=ID_2)
    shared = pod_list(gpu_pod("a", f"{GPU_A}::0"), gpu_pod("b", f"{GPU_A}::1"))
    with pod_resources_server(tmp_path / "k.sock", lambda _: shared):
        found = asked(Kubelet(settings, "/proc", failures), [ONE, other], NOW)
    assert failures.take() == []
    assert found[ONE.placement] == PodName("ml", "a", "main", '{"app":"x","team":"vision"}', "containerd")
    assert found[other.placement] == PodName("ml", "b", None, "{}")  # by the pod's UID: its container is not listed yet


def test_a_failure_is_told_once_and_the_view_stays(socket_settings: AttributionSettings, tmp_path: Path) -> None:
    failures = Failures()
    kubelet = Kubelet(socket_settings, "/proc", failures)
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("a", GPU_A))):
        assert asked(kubelet, [ONE], NOW)
    (tmp_path / "k.sock").unlink(missing_ok=True)
    for step in range(1, 4):  # the kubelet is being restarted
        assert asked(kubelet, [ONE], NOW + step * 40_000)
    incidents = failures.take()
    assert [incident["kind"] for incident in incidents] == ["attribution_failed"]
    assert incidents[0]["detail"].startswith(
        f"the kubelet's socket {tmp_path / 'k.sock'} is unusable: No such file or directory"
    )
    # a pod that came later may have the GPU of one that went: nothing is known of it
    assert asked(kubelet, [placed(UID_2, GPU_A, container=ID_2, started_ms=NOW + 50_000)], NOW + 160_000) == {}
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("b", GPU_A))):
        late = placed(UID_2, GPU_A, container=ID_2, started_ms=NOW + 50_000)
        assert asked(kubelet, [late], NOW + 200_000)[late.placement].pod == "b"
    assert failures.take() == []
    (tmp_path / "k.sock").unlink(missing_ok=True)
    asked(kubelet, [late], NOW + 240_000)
    assert len(failures.take()) == 1  # it worked in between


def test_a_host_without_a_kubelet_asks_nobody(tmp_path: Path) -> None:
    failures = Failures()
    kubelet = Kubelet(AttributionSettings(pod_resources=str(tmp_path / "none.sock")), "/proc", failures)
    assert not kubelet.on
    assert asked(kubelet, [ONE], NOW) == {}
    assert failures.take() == []
    assert kubelet.allocation(NOW) is None


def test_the_kubelet_is_asked_every_thirty_seconds_and_for_what_is_new(
    socket_settings: AttributionSettings, tmp_path: Path
) -> None:
    calls: list[object] = []

    def answer(context: object) -> Any:
        calls.append(context)
        return pod_list()

    kubelet, other = Kubelet(socket_settings, "/proc", Failures()), placed(UID_2, container=ID_2)
    with pod_resources_server(tmp_path / "k.sock", answer):
        for now_ms, sightings, count in [
            (NOW, [], 1),
            (NOW + 10_000, [], 1),
            (NOW + 20_000, [placed(UID_1, container=ID_1)], 2),
            (NOW + 22_000, [other], 2),
            (NOW + 30_000, [other], 2),
            (NOW + 50_000, [other], 3),
            (NOW - 3_600_000, [other], 4),  # the clock was put back
        ]:
            asked(kubelet, sightings, now_ms)
            assert len(calls) == count, now_ms - NOW


def test_a_container_that_the_list_never_names_does_not_keep_asking(endpoint: PodsEndpoint) -> None:
    kubelet = Kubelet(told(endpoint), "/proc", Failures())
    for step in range(5):
        asked(kubelet, [ONE], NOW + step * 40_000)
    assert len(endpoint.asked) == 3
    asked(kubelet, [ONE], NOW + 700_000)
    assert len(endpoint.asked) == 4


def test_a_failing_address_is_told_once(endpoint: PodsEndpoint) -> None:
    settings = told(endpoint, kubelet_ca_file="")
    failures = Failures()
    kubelet = Kubelet(settings, "/proc", failures)
    for step in range(2):
        asked(kubelet, [ONE], NOW + step * 40_000)
    details = [incident["detail"] for incident in failures.take()]
    assert len(details) == 1
    assert "certificate is not trusted" in details[0]
    assert BEARER not in details[0]


def metrics_pod(
    name: str = "llm-0", namespace: str = "ml", annotations: Any = None, ports: Any = (), **parts: Any
) -> dict[str, Any]:
    """A running pod with ports, as the kubelet shows it."""
    pod = api_pod(name, f"{name}-uid", {f"containerd://{ID_1}": "main"} if name == "llm-0" else {})
    pod["metadata"] |= {"namespace": namespace, "annotations": annotations}
    pod["spec"] = {"containers": [{"ports": list(ports)}], "hostNetwork": parts.get("host_network", False)}
    pod["status"] |= {"podIP": parts.get("ip", "10.0.0.5"), "phase": parts.get("phase", "Running")}
    return pod


HTTP, METRICS, TALK = {"containerPort": 8000}, {"containerPort": 9090, "name": "http-metrics"}, {"containerPort": 7}
ANNOTATED = {"prometheus.io/port": "8080", "prometheus.io/path": "stats", "prometheus.io/scheme": "https"}


@pytest.mark.parametrize(("pod", "url"), [
    (metrics_pod(ports=[HTTP]), "http://10.0.0.5:8000/metrics"),
    (metrics_pod(ports=[HTTP, METRICS]), "http://10.0.0.5:9090/metrics"),
    (metrics_pod(ports=[HTTP, METRICS], annotations=ANNOTATED), "https://10.0.0.5:8080/stats"),
    (metrics_pod(ports=[HTTP], ip="fd00::5"), "http://[fd00::5]:8000/metrics"),
    (metrics_pod(ports=[HTTP, TALK]), None),
    (metrics_pod(ports=[{"containerPort": 53, "protocol": "UDP"}]), None),
    (metrics_pod(ports=[HTTP], annotations={"prometheus.io/scrape": "false"}), None),
    (metrics_pod(ports=[HTTP], phase="Pending"), None),
    (metrics_pod(ports=[HTTP], ip=None), None),
    (metrics_pod(ports=[HTTP], ip="169.254.169.254"), None),
    (metrics_pod(ports=[HTTP], ip="::ffff:169.254.169.254"), None),
    (metrics_pod(ports=[HTTP], ip="::ffff:127.0.0.1"), None),
    (metrics_pod(ports=[HTTP], ip="127.0.0.1"), None),
    (metrics_pod(ports=[HTTP], host_network=True), "http://10.0.0.5:8000/metrics"),
    (metrics_pod(ports=[HTTP], host_network=True, annotations={"prometheus.io/port": "10255"}), None),
], ids=["only port", "named port", "annotations", "IPv6", "two ports", "UDP", "refuses", "not running", "no address",
        "link-local", "mapped link-local", "mapped loopback", "loopback", "host network",
        "a port of the host"])  # fmt: skip
def test_a_pods_metrics_are_where_it_says_clearly(pod: dict[str, Any], url: str | None) -> None:
    assert parse_pods({"items": [pod]})[0]["metrics"] == url


def test_pods_of_allowed_namespaces_alone_are_servers_with_their_gpus(endpoint: PodsEndpoint, tmp_path: Path) -> None:
    endpoint.pods = [
        metrics_pod(ports=[HTTP]),
        metrics_pod("idle-0", ports=[HTTP], ip="10.0.0.6"),
        metrics_pod("other-0", "kube-system", ports=[HTTP], ip="10.0.0.7"),
        metrics_pod("silent-0"),
    ]
    allowed = replace(told(endpoint, pod_resources=str(tmp_path / "k.sock")), server_namespaces=("ml",))
    kubelet = Kubelet(allowed, "/proc", Failures())
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("idle-0", GPU_B))):
        asked(kubelet, [ONE], NOW)
    assert kubelet.servers([ONE], NOW, -1) == [
        PodServer("ml", "llm-0", "http://10.0.0.5:8000/metrics", (GPU_A,), NOW),
        PodServer("ml", "idle-0", "http://10.0.0.6:8000/metrics", (GPU_B,), NOW),
    ]
    for now_ms, lists in ((NOW + 40_000, 1), (NOW + 80_000, 2)):
        asked(kubelet, [ONE], now_ms)
        assert len(endpoint.asked) == lists, "a list that a server's silence outdates is replaced"
        assert kubelet.servers([ONE], now_ms, NOW)
    assert kubelet.servers([ONE], NOW + 5_000_000, -1) == [], "an old list says nothing of today's addresses"


@pytest.mark.parametrize(
    ("url", "names", "cause"),
    [
        ("", "ml", "needs the kubelet's list"),
        ("https://node:10250", "ml,*", "'\\*' is not the name of a namespace"),
    ],
)
def test_namespaces_need_names_and_a_kubelet(url: str, names: str, cause: str) -> None:
    loaded = load({}, None, {"FALLOW_KUBERNETES_KUBELET_URL": url, "FALLOW_SERVING_POD_NAMESPACES": names})
    with pytest.raises(UsageError, match=cause):
        AttributionSettings.from_config(loaded)


A, B = PodContainer("ml", "a", "main"), PodContainer("ml", "b", "main")


SIDE = PodContainer("ml", "a", "side")
MATCHES: dict[str, tuple[list[AttributedProcess], dict[str, list[PodContainer]], dict[str, tuple[str, str | None]]]] = {
    "the only holder, with its container": ([placed("u", "g0")], {"g0": [A]}, {"u": ("a", "main")}),
    "holders that share a GPU": ([placed("u", "g0"), placed("v", "g0")], {"g0": [A, B]}, {}),
    "a second GPU tells them apart": (
        [placed("u", "g0", "g1"), placed("v", "g0")], {"g0": [A, B], "g1": [A]}, {"u": ("a", "main")},
    ),
    "a second process tells them apart": (
        [placed("u", "g0"), placed("u", "g1")], {"g0": [A, B], "g1": [A]}, {"u": ("a", "main")},
    ),
    "on a GPU that it was not given": ([placed("u", "g0")], {"g1": [A]}, {}),
    "on a GPU that another was given": ([placed("u", "g0", "g1")], {"g0": [A], "g1": [B]}, {}),
    "two that claim one allocation": ([placed("u", "g0"), placed("v", "g0")], {"g0": [A]}, {}),
    "an allocation from before the pod": ([placed("u", "g0", started_ms=NOW - 500)], {"g0": [A]}, {}),
    "a start that is not known": ([placed("u", "g0", started_ms=None)], {"g0": [A]}, {}),
    "a worker that the pod starts later": (
        [placed("u", "g0"), placed("u", "g0", started_ms=NOW + 9_000)], {"g0": [A]}, {"u": ("a", "main")},
    ),
    "containers of one pod": ([placed("u", "g0")], {"g0": [A, SIDE]}, {"u": ("a", None)}),
    "two containers of one pod": (
        [placed("u", "g0"), placed("u", "g0", container="d")], {"g0": [A]}, {"u": ("a", None)},
    ),
    "a process outside of pods": ([placed(None, "g0")], {"g0": [A]}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", MATCHES)
def test_a_pod_is_named_where_the_allocation_leaves_no_choice(case: str) -> None:
    sightings, holders, named = MATCHES[case]
    found = match_by_gpu(sightings, Allocation(holders, NOW), [])
    assert found == {uid: PodName("ml", pod, name, source="pod_resources") for uid, (pod, name) in named.items()}
    assert match_by_gpu(sightings, Allocation(holders, NOW), [("ml", "a")]) == {}, "it is known to be another's"


_GPUS = st.sampled_from(["g0", "g1", "g2"])
_PODS = [PodContainer("ml", name, "main") for name in "abc"]


@given(
    st.dictionaries(_GPUS, st.lists(st.sampled_from(_PODS), max_size=3, unique=True)),
    st.lists(st.tuples(st.sampled_from("uvw"), st.sets(_GPUS, min_size=1)), max_size=6),
)
def test_a_named_pod_holds_every_gpu_and_no_two_uids_have_the_same(
    holders: dict[str, list[PodContainer]], places: list[tuple[str, set[str]]]
) -> None:
    found = match_by_gpu([placed(uid, *gpus) for uid, gpus in places], Allocation(holders, NOW), [])
    for uid, gpus in places:
        if uid in found:
            assert all(found[uid].pod in {holder.pod for holder in holders.get(gpu, ())} for gpu in gpus)
    assert len({pod.pod for pod in found.values()}) == len(found)


def fetch(endpoint: PodsEndpoint) -> list[dict[str, Any]]:
    return fetch_pods(endpoint.url, str(endpoint.token_file), str(endpoint.ca_file))


def test_a_wrong_token_is_told_and_never_shown(endpoint: PodsEndpoint) -> None:
    endpoint.token_file.write_text("other.token-98765", encoding="ascii")
    with pytest.raises(PodsError, match=r"refuses the token \(401\); allow `get` on `nodes/pods`") as refused:
        fetch(endpoint)
    assert "98765" not in str(refused.value)
    endpoint.token_file.write_text("bad token\r\nX-Header: 98765", encoding="ascii")
    with pytest.raises(PodsError, match="contains no bearer token") as refused:
        fetch(endpoint)
    assert "98765" not in str(refused.value)


def test_an_unknown_authority_is_never_trusted(endpoint: PodsEndpoint) -> None:
    with pytest.raises(PodsError, match="certificate is not trusted"):
        fetch_pods(endpoint.url, str(endpoint.token_file), "")
    assert endpoint.asked == []  # the token did not leave the host


def test_a_certificate_for_another_name_is_never_trusted(tmp_path: Path) -> None:
    with (
        pods_server(tmp_path, "other.example.org") as endpoint,
        pytest.raises(PodsError, match="certificate is not trusted"),
    ):
        fetch(endpoint)
    assert endpoint.asked == []


@pytest.mark.parametrize(
    ("url", "says"),
    [("http://localhost:10255", "not a plain https address"), ("https://localhost:1", "cannot be queried")],
)
def test_addresses_that_do_not_work(url: str, says: str) -> None:
    with pytest.raises(PodsError, match=says):
        fetch_pods(url, "", "")


def test_files_that_are_missing_are_named(endpoint: PodsEndpoint, tmp_path: Path) -> None:
    with pytest.raises(PodsError, match=r"cannot read kubernetes\.kubelet_token_file .*/nothing: No such file"):
        fetch_pods(endpoint.url, str(tmp_path / "nothing"), "")
    with pytest.raises(PodsError, match=r"cannot read kubernetes\.kubelet_ca_file .*/nothing: No such file"):
        fetch_pods(endpoint.url, "", str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        *((body, 200, "cannot be queried") for body in (b"", b"no", b"[]", b'{"items": [{}]}', b'{"items": 3}')),
        (b'{"items": [{"metadata": null}]}', 200, "cannot be queried"),
        (None, 503, "status 503"),
    ],
)
def test_other_answers_are_errors(endpoint: PodsEndpoint, body: bytes | None, status: int, says: str) -> None:
    endpoint.body, endpoint.status = body, status
    with pytest.raises(PodsError, match=says):
        fetch(endpoint)


def test_an_empty_node_has_no_pods() -> None:
    assert parse_pods({"items": None}) == []
