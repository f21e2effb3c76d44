"""The kubelet's pod-resources socket: a real gRPC server, the messages that it may send, the resulting allocations."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution import pod_resources as grpc_unary
from agent.attribution.kubelet import SILENT_MS, PodAllocations
from agent.attribution.pod_resources import METHOD, PodContainer, WireError, device_uuid, parse_list, read_minors
from analytics.allocations.spans import flatten
from analytics.frames import read_frame
from fallow import schema
from tests.agent.attribution_peers import MESSAGES, gpu_pod, pod_list, pod_resources_server
from tests.agent.simulation import START_MS
from tests.fakes.nvml import Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agent.simulation import SimulatedHost

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


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed the connection"),
        (b"\0\0\1\0\0\0\0\0\0x", "does not speak HTTP/2"),
    ],
)
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
    (GPU_A, GPU_A), (MIG, MIG), (f"{GPU_A}::0", GPU_A), (f"{MIG}::12", MIG),
    ("MIG-GPU-6f8d1c2e/7/0", "MIG-GPU-6f8d1c2e/7/0"), ("nvidia1", GPU_B), ("nvidia1/vgpu3", GPU_B), ("nvidia7", None),
    ("nvidia0/gi7", None), ("0", None), ("", None), ("mlx5_0", None), ("GPU-x y", None),
])  # fmt: skip
def test_device_ids(name: str, uuid: str | None) -> None:
    assert device_uuid(name, {0: GPU_A, 1: GPU_B}) == uuid


def test_gpus_given_by_dynamic_allocation() -> None:
    def allocation(driver: str, device: str, *cdi: str) -> dict[str, Any]:
        resource = {"driver_name": driver, "device_name": device, "cdi_devices": [{"name": name} for name in cdi]}
        return {"claim_name": "c", "claim_namespace": "ml", "claim_resources": [resource]}

    container = {
        "name": "main",
        "dynamic_resources": [
            allocation("gpu.nvidia.com", "gpu-1", "k8s.gpu.nvidia.com/allocation=8d1c-gpu-1"),
            allocation("gpu.nvidia.com", "gpu-0-mig-1g.10gb-19-0", f"nvidia.com/gpu={MIG}"),
            allocation("gpu.other.com", "gpu-0"),
        ],
    }
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


NOW = 1_795_000_000_000
ASKED_EVERY_MS = 30_000


class Node:
    """One host's kubelet, which says what it is told to, and the agent's view of it."""

    def __init__(self, socket: Path) -> None:
        self.pods: list[dict[str, Any]] = []
        self.socket = socket
        self.owners = ProcessOwners(AttributionSettings(pod_resources=str(socket), scontrol=""))
        self.allocations = PodAllocations()

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        self.owners.describe([], now_ms)
        self.owners.wait(20)
        return self.allocations.rows(self.owners.allocation(now_ms), now_ms)

    def restart(self) -> None:
        """The agent ends and begins again with what the spool remembers."""
        self.allocations = PodAllocations(json.loads(self.allocations.as_text()))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "k.sock")


def row(pod: str, gpu: str, since_ms: int, count: int, **more: object) -> dict[str, Any]:
    return {
        "time": since_ms,
        "gpu": gpu,
        "allocation_id": f"ml/{pod}",
        "scheduler": "kubernetes",
        "account": "ml",
        "name": pod,
        "gpu_count": count,
    } | more


def test_a_pod_is_a_allocation_from_when_it_is_seen_until_it_is_gone(node: Node) -> None:
    node.pods = [gpu_pod("a", GPU_A, GPU_B), gpu_pod("b", MIG), {"name": "none", "namespace": "ml", "containers": []}]
    with pod_resources_server(node.socket, lambda _: pod_list(*node.pods)):
        assert node.rows(NOW) == [row("a", GPU_A, NOW, 2), row("a", GPU_B, NOW, 2), row("b", MIG, NOW, 1)]
        assert node.rows(NOW + 10_000) == []
        assert node.rows(NOW + ASKED_EVERY_MS) == []
        node.pods = [gpu_pod("c", GPU_A), gpu_pod("b", MIG)]
        later = NOW + 2 * ASKED_EVERY_MS
        assert node.rows(later) == [
            row("a", GPU_A, NOW, 2, end=later),
            row("a", GPU_B, NOW, 2, end=later),
            row("c", GPU_A, later, 1),
        ]


def test_a_pod_stays_one_allocation_over_a_restart_of_the_agent(node: Node) -> None:
    node.pods = [gpu_pod("a", GPU_A), gpu_pod("b", GPU_B)]
    with pod_resources_server(node.socket, lambda _: pod_list(*node.pods)):
        node.rows(NOW)
        node.restart()
        node.pods = [gpu_pod("a", GPU_A)]
        later = NOW + 3_600_000
        assert node.rows(later) == [row("b", GPU_B, NOW, 1, end=later)]


def test_a_kubelet_that_does_not_answer_changes_nothing_for_a_day(node: Node) -> None:
    node.pods = [gpu_pod("a", GPU_A)]
    with pod_resources_server(node.socket, lambda _: pod_list(*node.pods)):
        node.rows(NOW)
    node.socket.unlink(missing_ok=True)
    assert node.rows(NOW + ASKED_EVERY_MS) == []
    assert node.rows(NOW + SILENT_MS - 1) == []
    assert node.rows(NOW + SILENT_MS) == [row("a", GPU_A, NOW, 1, end=NOW)]  # as long as it was known to last
    assert node.rows(NOW + SILENT_MS + ASKED_EVERY_MS) == []
    with pod_resources_server(node.socket, lambda _: pod_list(*node.pods)):
        again = NOW + SILENT_MS + 3 * ASKED_EVERY_MS
        assert node.rows(again) == [row("a", GPU_A, again, 1)]


def test_a_host_that_left_its_cluster_lets_go_of_its_allocations_after_a_day() -> None:
    allocations = PodAllocations([[GPU_A, "ml/a", NOW]])
    begun = NOW + 3_600_000
    assert allocations.rows(None, begun) == []
    assert allocations.rows(None, begun + SILENT_MS) == [row("a", GPU_A, NOW, 1, end=begun)]


@pytest.mark.parametrize("noted", [[None], [[1, 2, 3]], [["GPU-a", "ml/a"]], ["x"], [{"gpu": 1}]])
def test_what_the_spool_remembers_wrongly_is_left_aside(noted: list[Any]) -> None:
    assert PodAllocations([*noted, [GPU_A, "ml/a", NOW]]).as_text() == f'[["{GPU_A}", "ml/a", {NOW}]]'


def test_the_agent_writes_allocations_and_remembers_them(
    simulated: Callable[..., SimulatedHost], tmp_path: Path
) -> None:
    scenario = Scenario((Gpu(GPU_A, util=constant(0)), Gpu(GPU_B, util=constant(0))), START_MS - 60_000)
    host = simulated(scenario, kubernetes__pod_resources=str(tmp_path / "k.sock"))
    pods = [gpu_pod("a", GPU_A), gpu_pod("b", GPU_B)]
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(*pods)):
        host.run(4)
        del pods[1]
        host.run(4)
    rows = host.rows("allocation")
    assert [(each["allocation_id"], each["gpu"], each["end"] is None) for each in rows] in (
        [("ml/a", GPU_A, True), ("ml/b", GPU_B, True), ("ml/b", GPU_B, False)],
        [("ml/a", GPU_A, True), ("ml/b", GPU_B, False), ("ml/b", GPU_B, True)],
    )
    ended = next(each["end"] for each in rows if each["end"] is not None)
    spans = flatten(read_frame(host.lake.files("allocation"), schema.ALLOCATION)).select("gpu", "end", "job").rows()
    assert spans == [(GPU_A, 2**62, "pod:ml/a"), (GPU_B, ended, "pod:ml/b")]
