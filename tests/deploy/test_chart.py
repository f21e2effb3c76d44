"""The chart, rendered by helm itself: valid for Kubernetes, wrong values refused, and what each pod may do."""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml

from agent.metrics import MetricsSettings
from analytics.commands.report_send import add_send_arguments
from analytics.delivery.settings import MailSettings
from dashboard.access.choose import access_of
from dashboard.access.oidc import SignIn
from dashboard.access.tokens import WithTokens
from dashboard.command import add_arguments
from dashboard.protection import HEALTH
from fallow import __version__, config
from tests.deploy import kube_tools
from tests.deploy.kube_tools import CHART, VERSIONS, Document, RenderError, charted, named, validate
from tests.in_process import run_in_process

pytestmark = kube_tools.needs("helm")

IMAGES = {
    "agent": {"image": {"repository": "registry.example.com/fallow-agent"}},
    "analyticsImage": {"repository": "registry.example.com/fallow-all"},
}
MINIMAL: Document = {"lake": {"path": "s3://example-bucket/fallow"}} | IMAGES


def merged(*layers: Document) -> Document:
    """Values over values, as helm lays them."""
    whole: Document = {}
    for layer in layers:
        for key, value in layer.items():
            whole[key] = merged(whole.get(key, {}), value) if isinstance(value, dict) else value
    return whole


def on(*parts: str) -> Document:
    """Values that switch parts on, each as `part` or `part.key`."""
    layers: list[Document] = []
    for part in parts:
        name, _, key = part.partition(".")
        layers.append({name: {"enabled": True} if not key else {key: True}})
    return merged(MINIMAL, *layers)


EVERYTHING = merged(
    on("dashboard", "report", "upkeep", "follow", "agent.podLabels", "agent.withoutRoot"),
    {
        "imagePullSecrets": [{"name": "registry"}],
        "settings": {"money": {"pue": 1.2, "currency": "EUR"}},
        "agent": {
            "metrics": {"enabled": True, "podMonitorLabels": {"release": "prometheus"}},
            "pseudonyms": {"enabled": True},
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
            "podAnnotations": {"example.org/note": "a note"},
            "image": {"digest": "sha256:" + "0" * 64},
            "settings": {"agent": {"command_arguments": True, "spool_max": 4_000_000_000}},
        },
        "dashboard": {"replicas": 2, "state": {"existingClaim": "sign-ins"}},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/fallow"}},
        "networkPolicy": {"storePorts": [443, 9000], "metadataService": True},
    },
)
VALUES = {
    "minimal": MINIMAL,
    "everything": EVERYTHING,
    "without-root": on("agent.withoutRoot"),
    "no-agent": on("dashboard") | {"agent": {"enabled": False}},
    "bare": merged(MINIMAL, {"networkPolicy": {"enabled": False}, "priorityClass": {"create": False, "name": ""}})
    | {"agent": IMAGES["agent"] | {"runtimeClassName": "", "tolerations": [], "maxUnavailable": 3}},
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_accepts_it(tmp_path: Path, values: Document) -> None:
    documents = charted(tmp_path, values, "gpu-watch")
    for version in VERSIONS:
        validate(documents, version)
    cluster_wide = ("PriorityClass", "ClusterRole", "ClusterRoleBinding")
    own = {each["metadata"].get("namespace") for each in documents if each["kind"] not in cluster_wide}
    assert own == {"gpu-watch"}
    done = kube_tools.run("helm", "lint", "--strict", CHART, "--values", tmp_path / "values.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_reaches_the_file_as_it_was_meant(tmp_path: Path) -> None:
    documents = named(charted(tmp_path, EVERYTHING)).items()
    maps = {name: each["data"] for (kind, name), each in documents if kind == "ConfigMap"}
    file = tmp_path / "fallow.toml"
    found = {}
    for name, data in maps.items():
        file.write_text(data["fallow.toml"], encoding="utf-8")
        found[name] = config.load({}, str(file), {})
    assert found.keys() == {"fallow-agent", "fallow-dashboard", "fallow-report", "fallow-upkeep", "fallow-follow"}
    agent = found["fallow-agent"]
    assert (agent.switch("agent.command_arguments"), agent.integer("agent.spool_max")) == (True, 4_000_000_000)
    assert {each.number("money.pue") for each in found.values()} == {1.2}
    assert found["fallow-report"].text("mail.from") == "GPU team <gpu@example.org>"


def test_variables_are_filled_in_from_those_before_them(tmp_path: Path) -> None:
    daemon_set = named(charted(tmp_path, EVERYTHING))["DaemonSet", "fallow-agent"]
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    seen: set[str] = set()
    for variable in container["env"]:
        used = {name for name in ("POD_IP", "METRICS_IP", "NODE_IP") if f"$({name})" in variable.get("value", "")}
        assert used <= seen
        seen.add(variable["name"])
    assert "HTTPS_PROXY" in seen
    assert container["image"] == "registry.example.com/fallow-agent@sha256:" + "0" * 64


def test_other_settings_start_the_pods_anew(tmp_path: Path) -> None:
    other = merged(MINIMAL, {"settings": {"agent": {"pool": "h100"}}})
    charts = [named(charted(tmp_path, values)) for values in (MINIMAL, MINIMAL, other)]
    first, again, changed = (
        template_of(each, "fallow-agent")["metadata"]["annotations"]["fallow/settings"] for each in charts
    )
    assert first == again != changed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "set lake.path to an object store"),
        ({"lake": {"path": "s3://b/f"}}, "set agent.image.repository"),
        (on("report") | {"analyticsImage": {}}, "set analyticsImage.repository"),
        (merged(MINIMAL, {"agent": {"withoutroot": True}}), "withoutroot"),
        (merged(MINIMAL, {"agent": {"settings": {"agent": {"interval": ["10s"]}}}}), "interval"),
        (merged(MINIMAL, {"lake": {"path": "bucket"}}), "lake"),
        (merged(MINIMAL, {"report": {"schedule": "daily"}}), "schedule"),
        (merged(on("dashboard"), {"dashboard": {"replicas": 2}}), "set dashboard.state.existingClaim"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path: Path, values: Document, said: str) -> None:
    with pytest.raises(RenderError, match=said):
        charted(tmp_path, values)


def test_the_schema_knows_every_value() -> None:
    """A value without a line in the schema could be misspelt unnoticed."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def unknown(values: Any, properties: Document, path: str) -> list[str]:
        missing = []
        for key, value in values.items():
            known = properties.get(key)
            if known is None:
                missing.append(f"{path}{key}")
            elif isinstance(value, dict) and "properties" in known:
                missing += unknown(value, known["properties"], f"{path}{key}.")
        return missing

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert unknown(values, schema["properties"], "") == []


PARTS = merged(
    on("dashboard", "report", "upkeep", "follow", "agent.podLabels"),
    {"agent": {"metrics": {"enabled": True}, "pseudonyms": {"enabled": True}}},
)
PODS = {
    "fallow-agent": "DaemonSet",
    "fallow-dashboard": "Deployment",
    "fallow-follow": "Deployment",
    "fallow-report": "CronJob",
    "fallow-compact": "CronJob",
    "fallow-expire": "CronJob",
}
UPKEEP = ("fallow-compact", "fallow-expire")
Documents = dict[tuple[str, str], Document]


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    return named(charted(tmp_path_factory.mktemp("chart"), PARTS))


def template_of(chart: Documents, name: str) -> Document:
    spec = chart[PODS[name], name]["spec"]
    found: Document = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
    return found


def container_of(chart: Documents, name: str) -> Document:
    [container] = template_of(chart, name)["spec"]["containers"]
    found: Document = container
    return found


def environment(container: Document) -> dict[str, str | None]:
    """Variables and their values in their order, None for one that Kubernetes fills in."""
    return {variable["name"]: variable.get("value") for variable in container.get("env", ())}


def settings_file(chart: Documents, name: str, folder: Path) -> Path:
    file = folder / "fallow.toml"
    file.write_text(chart["ConfigMap", name]["data"]["fallow.toml"], encoding="utf-8")
    return file


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for name, kind in PODS.items()])
def test_a_misspelling_would_not_be_accepted(chart: Documents, kind: str, name: str) -> None:
    wrong = chart[kind, name] | {"spec": chart[kind, name]["spec"] | {"hostPid": True}}
    with pytest.raises(kubernetes_validate.ValidationError, match="hostPid"):
        validate([wrong])


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_do_next_to_nothing(chart: Documents, name: str) -> None:
    pod = template_of(chart, name)["spec"]
    assert container_of(chart, name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostIPC"} & pod.keys()
    if name == "fallow-agent":  # it watches the host's processes; only with labels of pods does it get a token
        assert pod["automountServiceAccountToken"] is True
        return
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "hostPID" not in pod
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_rights_in_the_cluster_are_to_read_the_pods_of_a_kubelet_and_only_on_request(
    chart: Documents, tmp_path: Path
) -> None:
    [role] = [document for (kind, _), document in chart.items() if kind == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]
    bare = named(charted(tmp_path, MINIMAL))
    assert not [kind for kind, _ in bare if kind.startswith(("Role", "ClusterRole"))]
    assert template_of(bare, "fallow-agent")["spec"]["automountServiceAccountToken"] is False


def test_what_the_agent_sees_takes_and_writes(chart: Documents) -> None:
    agent, pod = container_of(chart, "fallow-agent"), template_of(chart, "fallow-agent")["spec"]
    writable = [mount["mountPath"] for mount in agent["volumeMounts"] if not mount.get("readOnly")]
    assert writable == [environment(agent)["FALLOW_AGENT_SPOOL"]]
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert set(on_host.values()) == {"/var/lib/fallow", "/var/lib/kubelet/pod-resources"}
    # a kubelet that restarts is found again
    [mount] = [mount for mount in agent["volumeMounts"] if mount["name"] == "pod-resources"]
    socket = Path(config.load({}, None, {}).text("kubernetes.pod_resources"))
    assert mount["mountPath"] == on_host["pod-resources"] == str(socket.parent)
    assert (pod["hostPID"], environment(agent)["NVIDIA_VISIBLE_DEVICES"]) == (True, "all")
    assert all(amounts.keys() == {"cpu", "memory"} for amounts in agent["resources"].values()), "it takes no GPU"
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in affinity["nodeSelectorTerms"]:  # one that holds is enough, so each has to say it
        [paused] = [each for each in term["matchExpressions"] if each["key"] == "nvidia.com/gpu.deploy.dcgm-exporter"]
        assert paused["operator"] == "NotIn", "it leaves a node whose driver is upgraded"
        assert "paused-for-driver-upgrade" in paused["values"]


def test_the_agents_probes_start_no_program_and_ask_for_health_alone(chart: Documents) -> None:
    """A command costs the node 100 times what a request does, and every minute."""
    agent = container_of(chart, "fallow-agent")
    [port] = [each for each in agent["ports"] if each["containerPort"] == 9478]
    for kind in ("startup", "readiness", "liveness"):
        assert agent[f"{kind}Probe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    address = str(environment(agent)["FALLOW_METRICS_HEALTH_LISTEN"])
    for pod_ip in ("10.244.1.7", "fd00:10:244::7"):  # Kubernetes puts it in place of $(POD_IP), without brackets
        loaded = config.load({"metrics.health_listen": address.replace("$(POD_IP)", pod_ip)}, None, {})
        settings = MetricsSettings.for_health(loaded)
        assert (settings.host, settings.port) == (pod_ip, port["containerPort"])
    policy = chart["NetworkPolicy", "fallow-agent"]["spec"]
    opened = {each["port"] for rule in policy["ingress"] for each in rule["ports"]}
    assert not opened & {port["name"], port["containerPort"]}


def test_prometheus_finds_the_port_and_the_token_that_the_pods_have(tmp_path: Path) -> None:
    chart = named(charted(tmp_path, merged(PARTS, on("agent.withoutRoot"))))
    pod, container = template_of(chart, "fallow-agent"), container_of(chart, "fallow-agent")
    monitor = chart["PodMonitor", "fallow-agent"]["spec"]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [port] = [each["containerPort"] for each in container["ports"] if each["name"] == endpoint["port"]]
    variables = environment(container)
    token_file = Path(str(variables["FALLOW_METRICS_TOKEN_FILE"]))
    listen = str(variables["FALLOW_METRICS_LISTEN"]).replace("$(METRICS_IP)", "10.244.1.7")
    assert MetricsSettings.from_config(config.load({"metrics.listen": listen}, None, {})).port == port == 9477
    [mount] = [each for each in container["volumeMounts"] if each["mountPath"] == str(token_file.parent)]
    [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
    credentials = endpoint["authorization"]["credentials"]
    assert (volume["secret"]["secretName"], token_file.name) == (credentials["name"], credentials["key"])
    assert volume["secret"]["defaultMode"] == 0o440  # others shall not read it, and the agent's own group can
    assert pod["spec"]["securityContext"]["fsGroup"] == pod["spec"]["securityContext"]["runAsGroup"]


def test_variables_name_settings(chart: Documents) -> None:
    known = {setting.variable for setting in config.SETTINGS} | {"FALLOW_CONFIG"}
    for name in PODS:
        assert {each for each in environment(container_of(chart, name)) if each.startswith("FALLOW_")} <= known


def test_the_dashboard_asks_everybody_who_they_are_and_is_found_and_probed(chart: Documents) -> None:
    container, template = container_of(chart, "fallow-dashboard"), template_of(chart, "fallow-dashboard")
    name, *flags = container["args"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(flags)
    assert (name, args.insecure) == ("dashboard", False)
    assert [each["containerPort"] for each in container["ports"]] == [args.port, args.health_port]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": HEALTH, "port": "health"}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 600
    service = chart["Service", "fallow-dashboard"]["spec"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == "http"
    # variables of the Service called fallow-dashboard would look like settings
    assert template["spec"]["enableServiceLinks"] is False


def test_the_dashboards_settings_are_a_sign_in(chart: Documents, tmp_path: Path) -> None:
    """The files lie where the pod mounts them, here below another root."""
    pod = template_of(chart, "fallow-dashboard")["spec"]
    mounts = {each["name"]: each["mountPath"] for each in container_of(chart, "fallow-dashboard")["volumeMounts"]}
    assert (mounts["config"], mounts["secret"]) == ("/etc/fallow", "/etc/fallow-secret")
    assert {each["name"] for each in pod["volumes"]} == set(mounts)
    for mount in mounts.values():
        (tmp_path / mount[1:]).mkdir(parents=True, exist_ok=True)
    data = chart["ConfigMap", "fallow-dashboard"]["data"]
    (tmp_path / "etc/fallow/people.csv").write_text(data["people.csv"])
    (tmp_path / "etc/fallow-secret/client-secret").write_text("x")
    (tmp_path / "etc/fallow-secret/session-key").write_text("x" * 64)
    settings = tmp_path / "etc/fallow/fallow.toml"
    text = data["fallow.toml"].replace('"/etc/', f'"{tmp_path}/etc/').replace('"/var/', f'"{tmp_path}/var/')
    settings.write_text(text)
    loaded = config.load({}, str(settings), {})
    found = access_of(loaded, address="0.0.0.0", local=False, insecure=False)  # noqa: S104  # not bound
    assert isinstance(found, WithTokens)
    assert isinstance(found.people_access, SignIn)
    assert (tmp_path / mounts["state"][1:] / "sessions.sqlite").is_file()


def test_when_the_report_runs_and_what_is_tried_again(chart: Documents, tmp_path: Path) -> None:
    job = chart["CronJob", "fallow-report"]["spec"]
    assert job["schedule"] == "0 6 * * 1"
    assert job["concurrencyPolicy"] == "Forbid"
    assert 5 * 86_400 < job["startingDeadlineSeconds"] < 7 * 86_400
    ZoneInfo(job["timeZone"])  # raises where there is no such zone
    loaded = config.load({}, str(settings_file(chart, "fallow-report", tmp_path)), {})
    assert loaded.text("report.timezone") == job["timeZone"]
    mail = MailSettings.of(loaded, {"FALLOW_SMTP_PASSWORD": "x"})
    assert (mail.host, mail.port, mail.security) == ("smtp.example.org", 587, "starttls")
    spec = job["jobTemplate"]["spec"]
    assert spec["backoffLimit"] > 0
    [rule] = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what podFailurePolicy asks for


def test_the_reports_command_is_one_and_holds_no_secret(chart: Documents) -> None:
    container = container_of(chart, "fallow-report")
    report, send, *flags = container["args"]
    assert (report, send) == ("report", "send")
    parser = argparse.ArgumentParser()
    add_send_arguments(parser)
    args = parser.parse_args(flags)
    # a user of a number alone has no login name
    assert (args.week, args.catch_up, args.to, args.actor) == ("last", True, None, "cronjob")
    assert {source["secretRef"]["name"] for source in container["envFrom"]} == {"fallow-report", "fallow-lake"}


def test_the_follower_runs_the_command_and_listens_where_it_is_asked(chart: Documents, tmp_path: Path) -> None:
    container = container_of(chart, "fallow-follow")
    loaded = config.load({}, str(settings_file(chart, "fallow-follow", tmp_path)), {})
    assert container["args"] == ["follow", "prometheus"]
    assert loaded.text("follow.listen") == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert {"name": "XDG_STATE_HOME", "value": mounts["state"]} in container["env"]
    assert template_of(chart, "fallow-follow")["spec"]["terminationGracePeriodSeconds"] == 90
    assert chart["Deployment", "fallow-follow"]["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize("name", UPKEEP)
def test_the_right_to_delete_is_not_that_of_the_agents(chart: Documents, name: str) -> None:
    def secrets(of: str) -> set[str]:
        return {source["secretRef"]["name"] for source in container_of(chart, of)["envFrom"]}

    account, agents = (template_of(chart, each)["spec"]["serviceAccountName"] for each in (name, "fallow-agent"))
    assert account != agents
    assert secrets(name)
    assert not secrets(name) & secrets("fallow-agent")
    assert chart["CronJob", name]["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize("name", UPKEEP)
def test_upkeep_takes_nothing_away_before_a_site_says_so(
    chart: Documents, name: str, lake: Any, tmp_path: Path
) -> None:
    file = settings_file(chart, "fallow-upkeep", tmp_path)
    loaded = config.load({}, str(file), {})
    assert [setting for setting, origin in loaded.origins.items() if origin == str(file)] == ["lake.path"]
    before = {stored.key for stored in lake.store.list("")}
    arguments = container_of(chart, name)["args"]
    run = partial(run_in_process, *arguments, FALLOW_CONFIG=str(file), FALLOW_LAKE_PATH=lake.root)
    assert run().returncode == 0
    done = run(FALLOW_RETENTION_GPU="90d")
    assert done.returncode == 0, done.stderr
    assert {stored.key for stored in lake.store.list("")} == before


def policy_of(chart: Documents, name: str) -> Document:
    found: Document = chart["NetworkPolicy", "fallow-upkeep" if name in UPKEEP else name]["spec"]
    return found


@pytest.mark.parametrize("name", PODS)
def test_every_pod_is_closed_both_ways_but_for_what_is_named(chart: Documents, name: str) -> None:
    policy = policy_of(chart, name)
    assert policy["podSelector"]["matchLabels"].items() <= template_of(chart, name)["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])
    assert all(rule["from"] and rule["ports"] for rule in policy["ingress"])
    peers = [peer.get("ipBlock", {}) for rule in policy["egress"] for peer in rule["to"]]
    blocks = [each for each in peers if each.get("cidr") == "0.0.0.0/0"]
    # the key that a node hands to its pods is out of reach
    assert [each["except"] for each in blocks] == [["169.254.0.0/16"]]


def test_the_agent_reaches_the_servers_of_named_namespaces_alone(tmp_path: Path) -> None:
    asked = {"agent": {"settings": {"serving": {"pod_namespaces": "llm, search"}}}}
    chart = named(charted(tmp_path, merged(on("agent.podLabels"), asked)))
    validate(chart.values())
    _, servers = chart["NetworkPolicy", "fallow-agent-kubelet"]["spec"]["egress"]
    [to] = servers["to"]
    [expression] = to["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("In", ["llm", "search"])
    bare = named(charted(tmp_path, on("agent.podLabels")))
    assert len(bare["NetworkPolicy", "fallow-agent-kubelet"]["spec"]["egress"]) == 1


def test_whom_the_policies_let_in(chart: Documents) -> None:
    let_in = [
        (name, peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port["port"])
        for name in PODS
        for rule in policy_of(chart, name)["ingress"]
        for peer, port in product(rule["from"], rule["ports"])
    ]
    assert let_in == [
        ("fallow-agent", "monitoring", 9477),
        ("fallow-dashboard", "ingress-nginx", "http"),
        ("fallow-follow", "monitoring", "metrics"),
    ]
