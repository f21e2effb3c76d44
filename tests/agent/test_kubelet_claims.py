"""What pods were given becomes claims: from a real gRPC server, over restarts, and while nobody answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution.kubelet import SILENT_MS, PodAllocations
from analytics.allocations.spans import flatten
from analytics.frames import read_frame
from fallow import schema
from tests.agent.attribution_peers import gpu_pod, pod_list, pod_resources_server
from tests.agent.simulation import START_MS
from tests.fakes.nvml import Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agent.simulation import SimulatedHost

GPU_A, GPU_B = "GPU-6f8d1c2e-0a1b-4c3d-9e5f-112233445566", "GPU-7f8d1c2e-0a1b-4c3d-9e5f-112233445566"
MIG = "MIG-1f8d1c2e-0a1b-4c3d-9e5f-112233445566"
NOW = 1_795_000_000_000
ASKED_EVERY_MS = 30_000


class Node:
    """One host's kubelet, which says what it is told to, and the agent's view of it."""

    def __init__(self, socket: Path) -> None:
        self.pods: list[dict[str, Any]] = []
        self.socket = socket
        self.owners = ProcessOwners(AttributionSettings(pod_resources=str(socket), scontrol=""))
        self.claims = PodAllocations()

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        self.owners.describe([], now_ms)
        self.owners.wait(20)
        return self.claims.rows(self.owners.allocation(now_ms), now_ms)

    def restart(self) -> None:
        """The agent ends and begins again with what the spool remembers."""
        self.claims = PodAllocations(json.loads(self.claims.as_text()))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "k.sock")


def row(pod: str, gpu: str, since_ms: int, count: int, **more: object) -> dict[str, Any]:
    return {
        "time": since_ms, "gpu": gpu, "claim_id": f"ml/{pod}", "scheduler": "kubernetes", "account": "ml", "name": pod,
        "gpu_count": count,
    } | more  # fmt: skip


def test_a_pod_is_a_claim_from_when_it_is_seen_until_it_is_gone(node: Node) -> None:
    node.pods = [gpu_pod("a", GPU_A, GPU_B), gpu_pod("b", MIG), {"name": "none", "namespace": "ml", "containers": []}]
    with pod_resources_server(node.socket, lambda _: pod_list(*node.pods)):
        assert node.rows(NOW) == [row("a", GPU_A, NOW, 2), row("a", GPU_B, NOW, 2), row("b", MIG, NOW, 1)]
        assert node.rows(NOW + 10_000) == []
        assert node.rows(NOW + ASKED_EVERY_MS) == []
        node.pods = [gpu_pod("c", GPU_A), gpu_pod("b", MIG)]
        later = NOW + 2 * ASKED_EVERY_MS
        assert node.rows(later) == [
            row("a", GPU_A, NOW, 2, end=later), row("a", GPU_B, NOW, 2, end=later), row("c", GPU_A, later, 1),
        ]  # fmt: skip


def test_a_pod_stays_one_claim_over_a_restart_of_the_agent(node: Node) -> None:
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


def test_a_host_that_left_its_cluster_lets_go_of_its_claims_after_a_day() -> None:
    claims = PodAllocations([[GPU_A, "ml/a", NOW]])
    begun = NOW + 3_600_000
    assert claims.rows(None, begun) == []
    assert claims.rows(None, begun + SILENT_MS) == [row("a", GPU_A, NOW, 1, end=begun)]


@pytest.mark.parametrize("noted", [[None], [[1, 2, 3]], [["GPU-a", "ml/a"]], ["x"], [{"gpu": 1}]])
def test_what_the_spool_remembers_wrongly_is_left_aside(noted: list[Any]) -> None:
    assert PodAllocations([*noted, [GPU_A, "ml/a", NOW]]).as_text() == f'[["{GPU_A}", "ml/a", {NOW}]]'


def test_the_agent_writes_claims_and_remembers_them(simulated: Callable[..., SimulatedHost], tmp_path: Path) -> None:
    scenario = Scenario((Gpu(GPU_A, util=constant(0)), Gpu(GPU_B, util=constant(0))), START_MS - 60_000)
    host = simulated(scenario, kubernetes__pod_resources=str(tmp_path / "k.sock"))
    pods = [gpu_pod("a", GPU_A), gpu_pod("b", GPU_B)]
    with pod_resources_server(tmp_path / "k.sock", lambda _: pod_list(*pods)):
        host.run(4)
        del pods[1]
        host.run(4)
    rows = host.rows("claim")
    assert [(each["claim_id"], each["gpu"], each["end"] is None) for each in rows] in (
        [("ml/a", GPU_A, True), ("ml/b", GPU_B, True), ("ml/b", GPU_B, False)],
        [("ml/a", GPU_A, True), ("ml/b", GPU_B, False), ("ml/b", GPU_B, True)],
    )
    ended = next(each["end"] for each in rows if each["end"] is not None)
    spans = flatten(read_frame(host.lake.files("claim"), schema.CLAIM)).select("gpu", "end", "job").rows()
    assert spans == [(GPU_A, 2**62, "pod:ml/a"), (GPU_B, ended, "pod:ml/b")]
