"""The Dask cluster for Kubernetes: its pods and its service are valid, and the scheduler is where the page says."""

from __future__ import annotations

import yaml

from tests.conftest import REPOSITORY
from tests.deploy.kube_tools import validate


def test_the_pods_and_the_service_of_the_dask_cluster_are_valid() -> None:
    text = (REPOSITORY / "deploy" / "dask" / "kubernetes.yaml").read_text(encoding="utf-8")
    cluster, scaler = yaml.safe_load_all(text)
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    worker, scheduler, service = spec["worker"]["spec"], spec["scheduler"]["spec"], spec["scheduler"]["service"]
    meta = {"metadata": {"name": f"{name}-scheduler"}}
    validate([{"apiVersion": "v1", "kind": "Pod", **meta, "spec": pod} for pod in (worker, scheduler)])
    validate([{"apiVersion": "v1", "kind": "Service", **meta, "spec": service}])
    ports = {port["name"]: port["port"] for port in service["ports"]}
    assert ports == {port["name"]: port["containerPort"] for port in scheduler["containers"][0]["ports"]}
    assert service["selector"]["dask.org/cluster-name"] == scaler["spec"]["cluster"] == name
    address = f"dask://{name}-scheduler:{ports['tcp-comm']}"
    assert address in text
    assert address in (REPOSITORY / "docs" / "dask.md").read_text(encoding="utf-8")
