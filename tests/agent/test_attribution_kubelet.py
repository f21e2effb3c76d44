"""The kubelet's two faces: a real gRPC server on its socket, a real HTTPS server on its address."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution import AttributionSettings, grpc_unary
from agent.attribution.cgroup import Placement
from agent.attribution.failures import Failures
from agent.attribution.kubelet import Kubelet
from agent.attribution.pod_resources import METHOD, PodContainer, device_uuid, parse_list, read_minors
from agent.attribution.pods import PodsError, fetch_pods, parse_pods
from agent.attribution.pods_of_processes import PodName, Sighting
from agent.attribution.protobuf import WireError
from tests.agent.attribution_peers import (
    MESSAGES,
    TOKEN,
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
MIG = "MIG-41b35f2a-9c7e-5d10-8f66-0c2d4e6f8a1b"
ID_1, ID_2 = "1" * 64, "2" * 64
UID_1, UID_2 = "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f", "1d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"
NOW = 1_795_000_000_000


def seen(container_id: str, pod_uid: str, *gpus: str, started_ms: int = NOW - 60_000) -> Sighting:
    return Sighting(Placement("containerd", container_id, pod_uid), started_ms, frozenset(gpus))


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[PodsEndpoint]:
    with pods_server(tmp_path) as endpoint:
        yield endpoint


def fetch(endpoint: PodsEndpoint) -> list[dict[str, Any]]:
    return fetch_pods(endpoint.url, str(endpoint.token_file), str(endpoint.ca_file))


# the socket


def test_the_socket_is_read_over_real_grpc(tmp_path: Path) -> None:
    answer = pod_list(gpu_pod("train-0", GPU_A, GPU_B), gpu_pod("serve-0", f"{MIG}::3", namespace="web"), gpu_pod("cpu-only"))
    with pod_resources_server(tmp_path / "k.sock", lambda _: answer):
        found = parse_list(grpc_unary.call(str(tmp_path / "k.sock"), METHOD, 5), {})
    train = PodContainer("ml", "train-0", "main")
    assert found == {GPU_A: [train], GPU_B: [train], MIG: [PodContainer("web", "serve-0", "main")]}


def test_an_answer_larger_than_the_http2_window_arrives_whole(tmp_path: Path) -> None:
    answer = pod_list(*(gpu_pod(f"pod-{number}", f"GPU-{number:08d}", container="c" * 500) for number in range(2000)))
    with pod_resources_server(tmp_path / "k.sock", lambda _: answer):
        message = grpc_unary.call(str(tmp_path / "k.sock"), METHOD, 30)
    assert len(message) > 1_000_000
    assert len(parse_list(message, {})) == 2000


def test_a_refusal_says_why(tmp_path: Path) -> None:
    def refuse(context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit: 100 %")

    with pod_resources_server(tmp_path / "k.sock", refuse):
        with pytest.raises(grpc_unary.CallError, match="gRPC status 8: rejected by rate limit: 100 %"):
            grpc_unary.call(str(tmp_path / "k.sock"), METHOD, 5)
        with pytest.raises(grpc_unary.CallError, match="gRPC status 12"):
            grpc_unary.call(str(tmp_path / "k.sock"), "/v1.PodResourcesLister/Nothing", 5)


def test_a_server_that_never_answers_is_left_in_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "k.sock"))
        silent.listen()
        with pytest.raises(TimeoutError):
            grpc_unary.call(str(tmp_path / "k.sock"), METHOD, 0.2)


@pytest.mark.parametrize(("answer", "says"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed the connection"), (b"\0\0\1\0\0\0\0\0\0x", "does not speak HTTP/2"),
])  # fmt: skip
def test_a_server_that_speaks_something_else_is_an_error(tmp_path: Path, answer: bytes, says: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "k.sock"))
        server.listen()
        answering = threading.Thread(target=_answer_with, args=(server, answer))
        answering.start()
        with pytest.raises(grpc_unary.CallError, match=says):
            grpc_unary.call(str(tmp_path / "k.sock"), METHOD, 5)
        answering.join(10)


def _answer_with(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(answer)


@pytest.mark.parametrize(("name", "uuid"), [
    (GPU_A, GPU_A), (MIG, MIG), (f"{GPU_A}::0", GPU_A), (f"{MIG}::12", MIG), ("MIG-GPU-6f8d1c2e/7/0", "MIG-GPU-6f8d1c2e/7/0"),
    ("nvidia1", GPU_B), ("nvidia1/vgpu3", GPU_B), ("nvidia7", None), ("nvidia0/gi7", None), ("0", None), ("", None),
    ("mlx5_0", None), ("GPU-x y", None),
])  # fmt: skip
def test_device_ids(name: str, uuid: str | None) -> None:
    assert device_uuid(name, {0: GPU_A, 1: GPU_B}) == uuid


def test_gpus_given_by_dynamic_allocation() -> None:
    def claim(driver: str, device: str, *cdi: str) -> dict[str, Any]:
        resource = {"driver_name": driver, "device_name": device, "cdi_devices": [{"name": name} for name in cdi]}
        return {"claim_name": "c", "claim_namespace": "ml", "claim_resources": [resource]}

    container = {"name": "main", "dynamic_resources": [
        claim("gpu.nvidia.com", "gpu-1", "k8s.gpu.nvidia.com/claim=8d1c-gpu-1"),
        claim("gpu.nvidia.com", "gpu-0-mig-1g.10gb-19-0", f"nvidia.com/gpu={MIG}"),
        claim("gpu.other.com", "gpu-0"),
    ]}  # fmt: skip
    message = pod_list({"name": "p", "namespace": "ml", "containers": [container]}).SerializeToString()
    assert list(parse_list(message, {0: GPU_A, 1: GPU_B})) == [GPU_B, MIG]


def test_numbers_of_device_nodes_are_read_from_proc(tmp_path: Path) -> None:
    for bus, uuid, minor in [("0000:17:00.0", GPU_B, "1"), ("0000:65:00.0", GPU_A, "0"), ("0000:99:00.0", "GPU-????????", "2")]:
        folder = tmp_path / "driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID:\t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n", encoding="ascii"
        )
    assert read_minors(str(tmp_path)) == {0: GPU_A, 1: GPU_B}
    assert read_minors(str(tmp_path / "nothing")) == {}


@given(st.binary(max_size=200))
def test_other_bytes_are_a_clear_error_or_no_pods(message: bytes) -> None:
    try:
        assert isinstance(parse_list(message, {}), dict)
    except WireError as error:
        assert str(error)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
_PODS = st.lists(st.builds(
    lambda name, namespace, container, gpus: gpu_pod(name, *gpus, namespace=namespace, container=container),
    _TEXT, _TEXT, _TEXT, st.lists(st.sampled_from([GPU_A, GPU_B, MIG, f"{GPU_A}::1", "x"]), max_size=3),
), max_size=5)  # fmt: skip


@given(_PODS, st.integers(0, 400))
def test_decoding_agrees_with_protobuf_and_a_cut_message_never_passes_for_a_whole_one(
    pods: list[dict[str, Any]], cut: int
) -> None:
    whole = pod_list(*pods).SerializeToString()
    holders = parse_list(whole, {})
    for gpu, found in holders.items():
        names = {holder.pod for holder in found}
        assert len(names) <= sum(
            1 for pod in pods for each in pod["containers"][0]["devices"][0]["device_ids"] if device_uuid(each, {}) == gpu
        )
    try:
        MESSAGES["ListPodResourcesResponse"].FromString(whole[:cut])
    except Exception:  # noqa: BLE001  # protobuf's own DecodeError has no stable home
        with pytest.raises(WireError):
            parse_list(whole[:cut], {})
    else:
        parse_list(whole[:cut], {})


# the address


def test_pods_are_fetched_with_the_token(endpoint: PodsEndpoint) -> None:
    endpoint.pods = [api_pod("train-0", UID_1, {f"containerd://{ID_1}": "main"}, team="vision")]
    assert fetch(endpoint) == [
        {"namespace": "ml", "pod": "train-0", "uid": UID_1, "labels": {"team": "vision"}, "containers": {f"containerd://{ID_1}": "main"}}
    ]


def test_a_wrong_token_is_told_and_never_shown(endpoint: PodsEndpoint) -> None:
    endpoint.token_file.write_text("other.token-98765", encoding="ascii")
    with pytest.raises(PodsError, match=r"refuses the token \(401\); allow `get` on `nodes/pods`") as refused:
        fetch(endpoint)
    assert "98765" not in str(refused.value)
    endpoint.token_file.write_text("bad token\r\nX-Header: 98765", encoding="ascii")
    with pytest.raises(PodsError, match="holds no bearer token") as refused:
        fetch(endpoint)
    assert "98765" not in str(refused.value)


def test_an_unknown_authority_is_never_trusted(endpoint: PodsEndpoint) -> None:
    with pytest.raises(PodsError, match="certificate is not trusted"):
        fetch_pods(endpoint.url, str(endpoint.token_file), "")
    assert endpoint.asked == []  # the token did not leave the host


def test_a_certificate_for_another_name_is_never_trusted(tmp_path: Path) -> None:
    with pods_server(tmp_path, "other.example.org") as endpoint, pytest.raises(PodsError, match="certificate is not trusted"):
        fetch(endpoint)
    assert endpoint.asked == []


@pytest.mark.parametrize(("url", "says"), [("http://localhost:10255", "no https address"), ("https://localhost:1", "cannot be asked")])
def test_addresses_that_do_not_work(url: str, says: str) -> None:
    with pytest.raises(PodsError, match=says):
        fetch_pods(url, "", "")


def test_files_that_are_missing_are_named(endpoint: PodsEndpoint, tmp_path: Path) -> None:
    with pytest.raises(PodsError, match="nothing cannot be read: No such file or directory; check kubernetes.kubelet_token_file"):
        fetch_pods(endpoint.url, str(tmp_path / "nothing"), "")
    with pytest.raises(PodsError, match="check kubernetes.kubelet_ca_file"):
        fetch_pods(endpoint.url, "", str(tmp_path / "nothing"))


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"items": [{}]}', b'{"items": 3}', b'{"items": [{"metadata": null}]}'])
def test_other_answers_are_errors(endpoint: PodsEndpoint, body: bytes) -> None:
    endpoint.body = body
    with pytest.raises(PodsError, match="cannot be asked"):
        fetch(endpoint)


def test_an_error_status_is_told(endpoint: PodsEndpoint) -> None:
    endpoint.status = 503
    with pytest.raises(PodsError, match="status 503"):
        fetch(endpoint)


def test_an_empty_node_has_no_pods() -> None:
    assert parse_pods({"items": None}) == []


# both together


def asked(kubelet: Kubelet, sightings: list[Sighting], now_ms: int) -> dict[Placement, PodName]:
    """What the kubelet view says once everything that is asked has come back."""
    kubelet.refresh([sighting.placement for sighting in sightings], now_ms)
    kubelet.wait(20)
    return kubelet.locate(sightings)


@pytest.fixture
def socket_settings(tmp_path: Path) -> AttributionSettings:
    return AttributionSettings(pod_resources=str(tmp_path / "k.sock"))


def test_a_gpu_that_one_pod_was_given_names_the_pod(socket_settings: AttributionSettings, tmp_path: Path) -> None:
    kubelet = Kubelet(socket_settings, "/proc", Failures())
    sightings = [seen(ID_1, UID_1, GPU_A), seen(ID_2, UID_2, GPU_B)]
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(gpu_pod("a", GPU_A), gpu_pod("b", GPU_B))):
        found = asked(kubelet, sightings, NOW)
    assert found == {
        sightings[0].placement: PodName("ml", "a", "main", source="pod_resources"),
        sightings[1].placement: PodName("ml", "b", "main", source="pod_resources"),
    }
    assert kubelet.pods_by_gpu(NOW + 60_000) == {
        GPU_A: [PodContainer("ml", "a", "main")], GPU_B: [PodContainer("ml", "b", "main")],
    }  # fmt: skip
    assert kubelet.pods_by_gpu(NOW + 180_000) is None


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
    assert incidents[0]["detail"].startswith(f"the kubelet's socket {tmp_path / 'k.sock'} cannot be used: No such file or directory")
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
    assert kubelet.pods_by_gpu(NOW) is None


def test_the_kubelet_is_asked_every_thirty_seconds_and_for_what_is_new(socket_settings: AttributionSettings, tmp_path: Path) -> None:
    calls: list[float] = []

    def answer(_: object) -> Any:
        calls.append(time.monotonic())
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
    for step in range(8):
        asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + step * 40_000)
    assert len(endpoint.asked) == 3
    asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + 700_000)
    assert len(endpoint.asked) == 4


def test_a_failing_address_is_told_once(endpoint: PodsEndpoint) -> None:
    settings = AttributionSettings(kubelet_url=endpoint.url, kubelet_token_file=str(endpoint.token_file))
    failures = Failures()
    kubelet = Kubelet(settings, "/proc", failures)
    for step in range(3):
        asked(kubelet, [seen(ID_1, UID_1, GPU_A)], NOW + step * 40_000)
    details = [incident["detail"] for incident in failures.take()]
    assert len(details) == 1
    assert "certificate is not trusted" in details[0]
    assert TOKEN not in details[0]
