"""Pods of processes by all that the kubelet says, while it answers and while it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.attribution import AttributionSettings
from agent.attribution.kubelet import Kubelet, PodName, Sighting
from agent.attribution.lookups import Failures
from agent.attribution.placement import Placement
from tests.agent.attribution_peers import (
    BEARER,
    PodsEndpoint,
    api_pod,
    gpu_pod,
    pod_list,
    pod_resources_server,
    pods_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPU_A, GPU_B = "GPU-6f8d1c2e-0a1b-4c3d-9e5f-112233445566", "GPU-7f8d1c2e-0a1b-4c3d-9e5f-112233445566"
ID_1, ID_2 = "1" * 64, "2" * 64
UID_1, UID_2 = "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f", "1d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"
NOW = 1_795_000_000_000


def seen(container_id: str, pod_uid: str, *gpus: str, started_ms: int = NOW - 60_000) -> Sighting:
    return Sighting(Placement("containerd", container_id, pod_uid), started_ms, frozenset(gpus))


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[PodsEndpoint]:
    with pods_server(tmp_path) as endpoint:
        yield endpoint


def asked(kubelet: Kubelet, sightings: list[Sighting], now_ms: int) -> dict[Placement, PodName]:
    """What the kubelet view says once everything that is asked has come back."""
    kubelet.refresh([sighting.placement for sighting in sightings], now_ms)
    kubelet.wait(20)
    return kubelet.locate(sightings)


@pytest.fixture
def socket_settings(tmp_path: Path) -> AttributionSettings:
    return AttributionSettings(pod_resources=str(tmp_path / "k.sock"))


def test_the_address_names_pods_that_share_a_gpu(endpoint: PodsEndpoint, tmp_path: Path) -> None:
    endpoint.pods = [
        api_pod("a", UID_1, {f"containerd://{ID_1}": "main"}, app="x", team="vision"), api_pod("b", UID_2, {}),
    ]  # fmt: skip
    settings = AttributionSettings(
        pod_resources=str(tmp_path / "k.sock"), kubelet_url=endpoint.url, kubelet_token_file=str(endpoint.token_file),
        kubelet_ca_file=str(endpoint.ca_file),
    )  # fmt: skip
    failures = Failures()
    one, other = seen(ID_1, UID_1, GPU_A), seen(ID_2, UID_2, GPU_A)
    shared = pod_list(gpu_pod("a", f"{GPU_A}::0"), gpu_pod("b", f"{GPU_A}::1"))
    with pod_resources_server(tmp_path / "k.sock", lambda _: shared):
        found = asked(Kubelet(settings, "/proc", failures), [one, other], NOW)
    assert failures.take() == []
    assert found[one.placement] == PodName("ml", "a", "main", '{"app":"x","team":"vision"}', "containerd")
    assert found[other.placement] == PodName("ml", "b", None, "{}")  # by the pod's UID: its container is not listed yet


def test_a_failure_is_told_once_and_the_view_stays(socket_settings: AttributionSettings, tmp_path: Path) -> None:
    failures = Failures()
    kubelet = Kubelet(socket_settings, "/proc", failures)
    sighting = seen(ID_1, UID_1, GPU_A)
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("a", GPU_A))):
        assert asked(kubelet, [sighting], NOW)
    (tmp_path / "k.sock").unlink(missing_ok=True)
    for step in range(1, 4):  # the kubelet is being restarted
        assert asked(kubelet, [sighting], NOW + step * 40_000)
    incidents = failures.take()
    assert [incident["kind"] for incident in incidents] == ["attribution_failed"]
    assert incidents[0]["detail"].startswith(
        f"the kubelet's socket {tmp_path / 'k.sock'} cannot be used: No such file or directory"
    )
    # a pod that came later may have the GPU of one that went: nothing is known of it
    assert asked(kubelet, [seen(ID_2, UID_2, GPU_A, started_ms=NOW + 50_000)], NOW + 160_000) == {}
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("b", GPU_A))):
        late = seen(ID_2, UID_2, GPU_A, started_ms=NOW + 50_000)
        assert asked(kubelet, [late], NOW + 200_000)[late.placement].pod == "b"
    assert failures.take() == []
    (tmp_path / "k.sock").unlink(missing_ok=True)
    asked(kubelet, [late], NOW + 240_000)
    assert len(failures.take()) == 1  # it worked in between


def test_a_host_without_a_kubelet_asks_nobody(tmp_path: Path) -> None:
    failures = Failures()
    kubelet = Kubelet(AttributionSettings(pod_resources=str(tmp_path / "none.sock")), "/proc", failures)
    assert not kubelet.on
    assert asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW) == {}
    assert failures.take() == []
    assert kubelet.allocation(NOW) is None


def test_the_kubelet_is_asked_every_thirty_seconds_and_for_what_is_new(
    socket_settings: AttributionSettings, tmp_path: Path
) -> None:
    calls: list[object] = []

    def answer(context: object) -> Any:
        calls.append(context)
        return pod_list()

    kubelet = Kubelet(socket_settings, "/proc", Failures())
    with pod_resources_server(tmp_path / "k.sock", answer):
        for now_ms, sightings, count in [
            (NOW, [], 1), (NOW + 10_000, [], 1), (NOW + 20_000, [seen(ID_1, UID_1)], 2), (NOW + 22_000, [seen(ID_2, UID_2)], 2),
            (NOW + 30_000, [seen(ID_2, UID_2)], 2), (NOW + 50_000, [seen(ID_2, UID_2)], 3),
            (NOW - 3_600_000, [seen(ID_2, UID_2)], 4),  # the clock was put back
        ]:  # fmt: skip
            asked(kubelet, sightings, now_ms)
            assert len(calls) == count, now_ms - NOW


def test_a_container_that_the_list_never_names_does_not_keep_asking(endpoint: PodsEndpoint) -> None:
    settings = AttributionSettings(
        kubelet_url=endpoint.url, kubelet_token_file=str(endpoint.token_file), kubelet_ca_file=str(endpoint.ca_file)
    )
    kubelet = Kubelet(settings, "/proc", Failures())
    for step in range(5):
        asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + step * 40_000)
    assert len(endpoint.asked) == 3
    asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + 700_000)
    assert len(endpoint.asked) == 4


def test_a_failing_address_is_told_once(endpoint: PodsEndpoint) -> None:
    settings = AttributionSettings(kubelet_url=endpoint.url, kubelet_token_file=str(endpoint.token_file))
    failures = Failures()
    kubelet = Kubelet(settings, "/proc", failures)
    for step in range(2):
        asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + step * 40_000)
    details = [incident["detail"] for incident in failures.take()]
    assert len(details) == 1
    assert "certificate is not trusted" in details[0]
    assert BEARER not in details[0]
