"""The manifests against the schemas of Kubernetes, and what they allow the agent."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from agent.metrics import MetricsSettings
from fallow import config
from tests.deploy import kube_tools
from tests.deploy.rendered import kustomized, named, validate

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
COMPONENTS = ("pod-labels", "without-root")
OTHERS = ("dashboard", "follow", "metrics", "pseudonyms", "report", "upkeep")


def documents(*paths: Path) -> list[dict[str, Any]]:
    return [document for path in paths for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def manifests() -> list[dict[str, Any]]:
    """Everything that is applied as it stands."""
    paths = [*sorted(FOLDER.glob("*.yaml")), FOLDER / "pod-labels" / "rights.yaml"]
    return documents(*(path for path in paths if path.name != "kustomization.yaml"))


@pytest.fixture
def pod() -> dict[str, Any]:
    [daemon_set] = [document for document in manifests() if document["kind"] == "DaemonSet"]
    spec: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def agent(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document", manifests(), ids=lambda document: f"{document['kind']}-{document['metadata']['name']}"
)
def test_the_schemas_accept_it(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_would_not_accept_a_misspelling(pod: dict[str, Any]) -> None:
    [daemon_set] = [document for document in manifests() if document["kind"] == "DaemonSet"]
    daemon_set["spec"]["template"]["spec"] = pod | {"hostPid": True}
    with pytest.raises(kubernetes_validate.ValidationError, match="hostPid"):
        kubernetes_validate.validate(daemon_set, VERSIONS[-1], strict=True)


def test_kustomize_finds_every_file() -> None:
    [listed] = documents(FOLDER / "kustomization.yaml")
    assert {*listed["resources"], "kustomization.yaml"} == {path.name for path in FOLDER.glob("*.yaml")}
    assert {path.parent.name for path in FOLDER.glob("*/kustomization.yaml")} == {*COMPONENTS, *OTHERS}


@kube_tools.needs("kubectl")
@pytest.mark.parametrize("components", [(), COMPONENTS[:1], COMPONENTS[1:], COMPONENTS], ids=str)
def test_what_kustomize_makes_of_it_is_accepted(tmp_path: Path, components: tuple[str, ...]) -> None:
    made = kustomized(tmp_path, components)
    validate(made)
    text = json.dumps(made)
    assert '"image": "fallow-agent"' not in text
    assert ('"pod-resources"' in text) == ("without-root" not in components)
    assert ("nodes/pods" in text) == ("pod-labels" in components)
    assert ('"automountServiceAccountToken": true' in text) == ("pod-labels" in components)


@kube_tools.needs("kubectl")
def test_prometheus_finds_the_port_and_the_token_that_the_pods_have(tmp_path: Path) -> None:
    made = named(kustomized(tmp_path, ["metrics", "without-root"]))
    pod = made["DaemonSet", "fallow-agent"]["spec"]["template"]
    [endpoint] = made["PodMonitor", "fallow-agent"]["spec"]["podMetricsEndpoints"]
    assert (
        made["PodMonitor", "fallow-agent"]["spec"]["selector"]["matchLabels"].items()
        <= pod["metadata"]["labels"].items()
    )
    [container] = pod["spec"]["containers"]
    [port] = [each["containerPort"] for each in container["ports"] if each["name"] == endpoint["port"]]
    variables = environment(container)
    token_file = Path(str(variables["FALLOW_METRICS_TOKEN_FILE"]))
    listen = str(variables["FALLOW_METRICS_LISTEN"]).replace("$(METRICS_IP)", "10.244.1.7")
    assert MetricsSettings.from_config(config.load({"metrics.listen": listen}, None, {})).port == port == 9477
    assert list(variables).index("METRICS_IP") < list(variables).index("FALLOW_METRICS_LISTEN")
    [mount] = [each for each in container["volumeMounts"] if each["mountPath"] == str(token_file.parent)]
    [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    credentials = endpoint["authorization"]["credentials"]
    assert (volume["secret"]["secretName"], token_file.name) == (credentials["name"], credentials["key"])
    assert volume["secret"]["defaultMode"] == 0o440  # others shall not read it, and the agent's own group can
    assert pod["spec"]["securityContext"]["fsGroup"] == pod["spec"]["securityContext"]["runAsGroup"]


def test_the_agent_may_do_next_to_nothing(pod: dict[str, Any], agent: dict[str, Any]) -> None:
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert "hostNetwork" not in pod
    assert "hostIPC" not in pod


def test_it_can_write_only_its_spool(pod: dict[str, Any], agent: dict[str, Any]) -> None:
    writable = [mount["mountPath"] for mount in agent["volumeMounts"] if not mount.get("readOnly")]
    assert writable == [environment(agent)["FALLOW_AGENT_SPOOL"]]
    assert {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume} == {
        "/var/lib/fallow",
        "/var/lib/kubelet/pod-resources",
    }


def test_rights_in_the_cluster_are_to_read_the_pods_of_a_kubelet_and_only_on_request() -> None:
    [role] = [document for document in manifests() if document["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]
    [base] = documents(FOLDER / "kustomization.yaml")
    assert "components" not in base


def test_it_sees_every_process_and_every_gpu_and_takes_none(pod: dict[str, Any], agent: dict[str, Any]) -> None:
    assert pod["hostPID"] is True
    assert environment(agent)["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert agent["resources"].keys() == {"requests", "limits"}
    assert all(amounts.keys() == {"cpu", "memory"} for amounts in agent["resources"].values())
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]


def test_it_leaves_a_node_whose_driver_is_upgraded(pod: dict[str, Any]) -> None:
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    for term in terms:  # one that holds is enough, so each has to say it
        [paused] = [each for each in term["matchExpressions"] if each["key"] == "nvidia.com/gpu.deploy.dcgm-exporter"]
        assert paused["operator"] == "NotIn"
        assert "paused-for-driver-upgrade" in paused["values"]


def test_probes_start_no_program_and_ask_for_health_alone(agent: dict[str, Any]) -> None:
    """A command costs the node 100 times what a request does, and every minute."""
    probes = [agent[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    [port] = agent["ports"]
    assert [each["httpGet"] for each in probes] == [{"path": "/healthz", "port": port["name"]}] * 3
    variables = {each["name"]: each for each in agent["env"]}
    assert variables["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    address = str(environment(agent)["FALLOW_METRICS_HEALTH_LISTEN"])
    for pod_ip in ("10.244.1.7", "fd00:10:244::7"):  # Kubernetes puts it in place of $(POD_IP), without brackets
        loaded = config.load({"metrics.health_listen": address.replace("$(POD_IP)", pod_ip)}, None, {})
        settings = MetricsSettings.for_health(loaded)
        assert (settings.host, settings.port) == (pod_ip, port["containerPort"])
    order = list(variables)
    assert order.index("POD_IP") < order.index("FALLOW_METRICS_HEALTH_LISTEN"), "what comes later is not filled in"


def test_no_policy_opens_the_port_of_the_probes(agent: dict[str, Any]) -> None:
    [policy] = [document for document in manifests() if document["kind"] == "NetworkPolicy"]
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert opened == {9477}
    assert not opened & {port[key] for port in agent["ports"] for key in ("name", "containerPort")}


def test_a_kubelet_that_restarts_is_found_again(pod: dict[str, Any], agent: dict[str, Any]) -> None:
    socket = Path(config.load({}, None, {}).text("kubernetes.pod_resources"))
    [mount] = [mount for mount in agent["volumeMounts"] if mount["name"] == "pod-resources"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "pod-resources"]
    assert mount["mountPath"] == volume["hostPath"]["path"] == str(socket.parent)


def test_the_settings_load(agent: dict[str, Any]) -> None:
    [config_map] = [document for document in manifests() if document["kind"] == "ConfigMap"]
    [(name, text)] = config_map["data"].items()
    [mount] = [mount for mount in agent["volumeMounts"] if mount["name"] == "config"]
    assert environment(agent)["FALLOW_CONFIG"] == f"{mount['mountPath']}/{name}"
    in_file = {f"{section}.{key}" for section, entries in tomllib.loads(text).items() for key in entries}
    assert in_file <= {setting.name for setting in config.SETTINGS}
    for container in (agent, *patched("pod-labels"), *patched("without-root")):
        names = {name for name in environment(container) if name.startswith("FALLOW_")} - {"FALLOW_CONFIG"}
        assert names <= {setting.variable for setting in config.SETTINGS}


def test_the_settings_of_the_map_are_valid(tmp_path: Path, agent: dict[str, Any]) -> None:
    [config_map] = [document for document in manifests() if document["kind"] == "ConfigMap"]
    file = tmp_path / "fallow.toml"
    file.write_text(config_map["data"]["fallow.toml"], encoding="utf-8")
    variables = {name: value for name, value in environment(agent).items() if name.startswith("FALLOW_AGENT") and value}
    loaded = config.load({}, str(file), variables)
    assert loaded.text("lake.path").startswith("s3://")
    assert loaded.text("agent.spool") == "/var/lib/fallow"


def environment(container: dict[str, Any]) -> dict[str, str | None]:
    """Variables and their values, None for one that Kubernetes fills in."""
    return {variable["name"]: variable.get("value") for variable in container.get("env", ())}


def patched(component: str) -> list[dict[str, Any]]:
    [patch] = documents(FOLDER / component / "daemonset.yaml")
    containers: list[dict[str, Any]] = patch["spec"]["template"]["spec"]["containers"]
    return containers
