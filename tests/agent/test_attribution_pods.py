"""Pods of a node: asked at the kubelet's own address, and named by the allocation of GPUs alone where it leaves no choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.attribution.kubelet import Allocation, PodName, Sighting, match_by_gpu
from agent.attribution.placement import Placement
from agent.attribution.pod_resources import PodContainer
from agent.attribution.pods import PodsError, fetch_pods, parse_pods
from tests.agent.attribution_peers import PodsEndpoint, api_pod, pods_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_795_000_000_000
A, B = PodContainer("ml", "a", "main"), PodContainer("ml", "b", "main")


def seen(uid: str | None, *gpus: str, container: str = "c", started_ms: int | None = NOW - 60_000) -> Sighting:
    return Sighting(Placement("containerd", container, uid), started_ms, frozenset(gpus))


SIDE = PodContainer("ml", "a", "side")
MATCHES: dict[str, tuple[list[Sighting], dict[str, list[PodContainer]], dict[str, tuple[str, str | None]]]] = {
    "the only holder, with its container": ([seen("u", "g0")], {"g0": [A]}, {"u": ("a", "main")}),
    "holders that share a GPU": ([seen("u", "g0"), seen("v", "g0")], {"g0": [A, B]}, {}),
    "a second GPU tells them apart": (
        [seen("u", "g0", "g1"), seen("v", "g0")], {"g0": [A, B], "g1": [A]}, {"u": ("a", "main")},
    ),
    "a second process tells them apart": (
        [seen("u", "g0"), seen("u", "g1")], {"g0": [A, B], "g1": [A]}, {"u": ("a", "main")},
    ),
    "on a GPU that it was not given": ([seen("u", "g0")], {"g1": [A]}, {}),
    "on a GPU that another was given": ([seen("u", "g0", "g1")], {"g0": [A], "g1": [B]}, {}),
    "two that claim one allocation": ([seen("u", "g0"), seen("v", "g0")], {"g0": [A]}, {}),
    "an allocation from before the pod": ([seen("u", "g0", started_ms=NOW - 500)], {"g0": [A]}, {}),
    "a start that is not known": ([seen("u", "g0", started_ms=None)], {"g0": [A]}, {}),
    "a worker that the pod starts later": (
        [seen("u", "g0"), seen("u", "g0", started_ms=NOW + 9_000)], {"g0": [A]}, {"u": ("a", "main")},
    ),
    "containers of one pod": ([seen("u", "g0")], {"g0": [A, SIDE]}, {"u": ("a", None)}),
    "two containers of one pod": (
        [seen("u", "g0"), seen("u", "g0", container="d")], {"g0": [A]}, {"u": ("a", None)},
    ),
    "a process outside of pods": ([seen(None, "g0")], {"g0": [A]}, {}),
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
    found = match_by_gpu([seen(uid, *gpus) for uid, gpus in places], Allocation(holders, NOW), [])
    for uid, gpus in places:
        if uid in found:
            assert all(found[uid].pod in {holder.pod for holder in holders.get(gpu, ())} for gpu in gpus)
    assert len({pod.pod for pod in found.values()}) == len(found)


ID_1 = "1" * 64
UID_1 = "0d9c4f3e-5b1a-4c2d-8e7f-6a5b4c3d2e1f"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[PodsEndpoint]:
    with pods_server(tmp_path) as endpoint:
        yield endpoint


def fetch(endpoint: PodsEndpoint) -> list[dict[str, Any]]:
    return fetch_pods(endpoint.url, str(endpoint.token_file), str(endpoint.ca_file))


def test_pods_are_fetched_with_the_token(endpoint: PodsEndpoint) -> None:
    endpoint.pods = [api_pod("train-0", UID_1, {f"containerd://{ID_1}": "main"}, team="vision")]
    assert fetch(endpoint) == [
        {
            "namespace": "ml",
            "pod": "train-0",
            "uid": UID_1,
            "labels": {"team": "vision"},
            "containers": {f"containerd://{ID_1}": "main"},
        }
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
    with (
        pods_server(tmp_path, "other.example.org") as endpoint,
        pytest.raises(PodsError, match="certificate is not trusted"),
    ):
        fetch(endpoint)
    assert endpoint.asked == []


@pytest.mark.parametrize(
    ("url", "says"), [("http://localhost:10255", "no plain https address"), ("https://localhost:1", "cannot be asked")]
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
    "body", [b"", b"no", b"[]", b'{"items": [{}]}', b'{"items": 3}', b'{"items": [{"metadata": null}]}']
)
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
