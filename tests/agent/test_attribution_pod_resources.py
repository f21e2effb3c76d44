"""The kubelet's pod-resources socket: a real gRPC server, and the messages that it may send."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution import pod_resources as grpc_unary
from agent.attribution.pod_resources import METHOD, PodContainer, WireError, device_uuid, parse_list, read_minors
from tests.agent.attribution_peers import MESSAGES, gpu_pod, pod_list, pod_resources_server

if TYPE_CHECKING:
    from pathlib import Path

GPU_A, GPU_B = "GPU-6f8d1c2e-0a1b-4c3d-9e5f-112233445566", "GPU-7f8d1c2e-0a1b-4c3d-9e5f-112233445566"
MIG = "MIG-41b35f2a-9c7e-5d10-8f66-0c2d4e6f8a1b"


def test_the_socket_is_read_over_real_grpc(tmp_path: Path) -> None:
    answer = pod_list(
        gpu_pod("train-0", GPU_A, GPU_B), gpu_pod("serve-0", f"{MIG}::3", namespace="web"), gpu_pod("cpu-only")
    )
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
    for bus, uuid, minor in [
        ("0000:17:00.0", GPU_B, "1"),
        ("0000:65:00.0", GPU_A, "0"),
        ("0000:99:00.0", "GPU-????????", "2"),
    ]:
        folder = tmp_path / "driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID:\t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n",
            encoding="ascii",
        )
    assert read_minors(str(tmp_path)) == {0: GPU_A, 1: GPU_B}
    assert read_minors(str(tmp_path / "nothing")) == {}


@given(st.binary(max_size=200))
def test_other_bytes_are_a_clear_error_or_no_pods(message: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(parse_list(message, {}), dict)


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
            1
            for pod in pods
            for each in pod["containers"][0]["devices"][0]["device_ids"]
            if device_uuid(each, {}) == gpu
        )
    try:
        MESSAGES["ListPodResourcesResponse"].FromString(whole[:cut])
    except Exception:  # noqa: BLE001  # protobuf's own DecodeError has no stable home
        with pytest.raises(WireError):
            parse_list(whole[:cut], {})
    else:
        parse_list(whole[:cut], {})
