"""The kubelet's own address: a real HTTPS server that asks for a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.attribution.pods import PodsError, fetch_pods, parse_pods
from tests.agent.attribution_peers import PodsEndpoint, api_pod, pods_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    with pytest.raises(
        PodsError, match=r"nothing cannot be read: No such file or directory; check kubernetes\.kubelet_token_file"
    ):
        fetch_pods(endpoint.url, str(tmp_path / "nothing"), "")
    with pytest.raises(PodsError, match=r"check kubernetes\.kubelet_ca_file"):
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
