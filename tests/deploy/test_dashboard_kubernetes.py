"""The dashboard's manifests against the schemas of Kubernetes, and what they ask for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dashboard.access.choose import access_of
from dashboard.access.oidc import SignIn
from dashboard.access.tokens import WithTokens
from dashboard.command import add_arguments
from dashboard.protection import HEALTH
from fallow import config
from tests.deploy import kube_tools
from tests.deploy.rendered import kustomized, validate

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
DOCUMENTS = ("config.yaml", "deployment.yaml", "service.yaml")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "dashboard" / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def deployment() -> dict[str, Any]:
    found: dict[str, Any] = document("deployment.yaml")["spec"]
    return found


@pytest.fixture
def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["template"]["spec"]
    return found


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    [found] = pod["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schemas_accept_it(name: str, version: str) -> None:
    kubernetes_validate.validate(document(name), version, strict=True)


def test_the_schemas_would_not_accept_a_misspelling(deployment: dict[str, Any]) -> None:
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(
            document("deployment.yaml") | {"spec": deployment | {"replica": 2}}, VERSIONS[-1], strict=True
        )


def test_the_command_asks_everybody_who_they_are(container: dict[str, Any]) -> None:
    name, *flags = container["args"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(flags)
    assert (name, args.insecure) == ("dashboard", False)
    assert [each["containerPort"] for each in container["ports"]] == [args.port, args.health_port]


def test_the_settings_of_the_map_are_a_sign_in(tmp_path: Path, pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The files lie where the pod mounts them, here below another root."""
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert (mounts["config"], mounts["secret"]) == ("/etc/fallow", "/etc/fallow-secret")
    assert {each["name"] for each in pod["volumes"]} == set(mounts)
    (tmp_path / mounts["state"][1:]).mkdir(parents=True)
    data = document("config.yaml")["data"]
    for name in ("etc/fallow", "etc/fallow-secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/fallow/people.csv").write_text(data["people.csv"])
    (tmp_path / "etc/fallow-secret/client-secret").write_text("x")
    (tmp_path / "etc/fallow-secret/session-key").write_text("x" * 64)
    settings = tmp_path / "etc/fallow/fallow.toml"
    settings.write_text(
        data["fallow.toml"].replace('"/etc/', f'"{tmp_path}/etc/').replace('"/var/', f'"{tmp_path}/var/')
    )
    loaded = config.load({}, str(settings), {})
    found = access_of(loaded, address="0.0.0.0", local=False, insecure=False)  # noqa: S104  # not bound
    assert isinstance(found, WithTokens)
    assert isinstance(found.people_access, SignIn)
    assert (tmp_path / mounts["state"][1:] / "sessions.sqlite").is_file()


def test_health_is_asked_where_it_is_answered(container: dict[str, Any]) -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": HEALTH, "port": "health"}
    patience = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    assert patience >= 600


def test_the_service_finds_the_pods(deployment: dict[str, Any]) -> None:
    service = document("service.yaml")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert service["ports"][0]["targetPort"] == "http"


def test_it_may_do_nothing_beyond_an_ordinary_pod(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    # variables of the Service called fallow-dashboard would look like settings
    assert pod["enableServiceLinks"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


@kube_tools.needs("kubectl")
def test_what_kustomize_makes_of_it_is_accepted(tmp_path: Path) -> None:
    made = kustomized(tmp_path, ["dashboard"])
    assert {"Deployment", "Service"} <= {each["kind"] for each in made}
    validate(made)
    assert '"image": "fallow-dashboard"' not in json.dumps(made)
