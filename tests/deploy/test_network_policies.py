"""The network policies against the schemas of Kubernetes, and whom they let through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
POLICIES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("network.yaml"))
PODS = {"network.yaml": "daemonset.yaml", "dashboard/network.yaml": "dashboard/deployment.yaml", "report/network.yaml": "report/cronjob.yaml", "upkeep/network.yaml": "upkeep/compact.yaml", "follow/network.yaml": "follow/deployment.yaml"}  # fmt: skip
NAMESPACE = "kubernetes.io/metadata.name"


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def pod_template(name: str) -> dict[str, Any]:
    spec = document(name)["spec"]
    found: dict[str, Any] = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", POLICIES)
def test_the_schemas_accept_it(name: str, version: str) -> None:
    kubernetes_validate.validate(document(name), version, strict=True)


def test_the_schemas_would_not_accept_a_misspelling() -> None:
    wrong = document("network.yaml")
    wrong["spec"]["ingres"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="ingres"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", POLICIES)
def test_kustomize_takes_it(name: str) -> None:
    assert "network.yaml" in document(name.replace("network.yaml", "kustomization.yaml"))["resources"]


@pytest.mark.parametrize("name", PODS)
def test_every_pod_is_closed_both_ways_but_for_what_is_named(name: str) -> None:
    policy = document(name)["spec"]
    labels = pod_template(PODS[name])["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])


def test_whom_they_let_in() -> None:
    let_in = {
        name: [
            (peer["namespaceSelector"]["matchLabels"][NAMESPACE], port["port"])
            for rule in document(name)["spec"]["ingress"]
            for peer in rule["from"]
            for port in rule["ports"]
        ]
        for name in PODS
    }
    assert let_in == {
        "network.yaml": [("monitoring", 9477)],
        "dashboard/network.yaml": [("ingress-nginx", "http")],
        "report/network.yaml": [],
        "upkeep/network.yaml": [],
        "follow/network.yaml": [("monitoring", "metrics")],
    }


@pytest.mark.parametrize("name", PODS)
def test_the_key_that_a_node_hands_to_its_pods_is_out_of_reach(name: str) -> None:
    blocks = [
        peer["ipBlock"]
        for rule in document(name)["spec"]["egress"]
        for peer in rule["to"]
        if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0"
    ]
    assert [each["except"] for each in blocks] == [["169.254.0.0/16"]]
