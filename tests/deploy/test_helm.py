"""The chart, rendered by helm itself: the same objects as the manifests', valid for Kubernetes, and wrong values refused."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fallow import __version__, config
from tests.deploy import kube_tools
from tests.deploy.rendered import CHART, VERSIONS, Document, RenderError, charted, kustomized, named, validate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [kube_tools.needs("helm"), kube_tools.needs("kubectl")]

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
    "bare": merged(
        MINIMAL,
        {
            "networkPolicy": {"enabled": False},
            "priorityClass": {"create": False, "name": ""},
            "agent": {"runtimeClassName": "", "tolerations": [], "maxUnavailable": 3},
        },
    ),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_accepts_it(tmp_path: Path, values: Document) -> None:
    documents = charted(tmp_path, values, "gpu-watch")
    for version in VERSIONS:
        validate(documents, version)
    cluster_wide = ("PriorityClass", "ClusterRole", "ClusterRoleBinding")
    assert {each["metadata"].get("namespace") for each in documents if each["kind"] not in cluster_wide} == {
        "gpu-watch"
    }
    done = kube_tools.run("helm", "lint", "--strict", CHART, "--values", tmp_path / "values.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


COMPONENTS: dict[tuple[str, ...], Document] = {
    (): MINIMAL,
    ("without-root",): on("agent.withoutRoot"),
    ("pod-labels", "metrics", "pseudonyms", "upkeep", "report", "dashboard", "follow"): merged(
        on("agent.podLabels", "upkeep", "report", "dashboard", "follow"),
        {"agent": {"metrics": {"enabled": True}, "pseudonyms": {"enabled": True}}},
    ),
}


@pytest.mark.parametrize(("components", "values"), COMPONENTS.items(), ids=[str(each) for each in COMPONENTS])
def test_it_says_what_the_manifests_say(tmp_path: Path, components: tuple[str, ...], values: Document) -> None:
    manifests = named(kustomized(tmp_path, components))
    del manifests["Namespace", "fallow"]  # helm makes it, and docs/deploying.md says how to label it
    chart = named(charted(tmp_path, values))
    assert chart.keys() == manifests.keys()
    for name, document in chart.items():
        if "labels" not in manifests[name]["metadata"]:  # nothing selects these
            del document["metadata"]["labels"]
        assert comparable(document) == comparable(manifests[name]), name


def comparable(document: Document) -> Any:
    """Without what helm or the manifests alone have: helm's own labels, the mark of settings, names of images."""
    text = json.dumps(document)
    for name in ("dashboard", "report", "upkeep", "follow"):
        text = text.replace(f"registry.example.com/fallow-{name}:", "registry.example.com/fallow-all:")
    return _plain(json.loads(text))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        items = [_plain(each) for each in value]
        if items and all(isinstance(each, dict) and ("name" in each or "mountPath" in each) for each in items):
            return {each.get("mountPath") or each["name"]: each for each in items}  # their order says nothing
        return items
    if not isinstance(value, dict):
        return value
    kept = {key: _plain(each) for key, each in value.items()}
    for key in [each for each in kept if each.startswith(("helm.sh/", "fallow/settings"))]:
        del kept[key]
    for key in ("app.kubernetes.io/managed-by", "app.kubernetes.io/version"):
        kept.pop(key, None)
    if isinstance(kept.get("fallow.toml"), str):
        kept["fallow.toml"] = tomllib.loads(kept["fallow.toml"])
    if kept.get("annotations") == {}:
        del kept["annotations"]
    return kept


def test_every_setting_reaches_the_file_as_it_was_meant(tmp_path: Path) -> None:
    maps = {
        name: each["data"] for (kind, name), each in named(charted(tmp_path, EVERYTHING)).items() if kind == "ConfigMap"
    }
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
    def mark(values: Document) -> str:
        pod = named(charted(tmp_path, values))["DaemonSet", "fallow-agent"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["fallow/settings"])

    other = merged(MINIMAL, {"settings": {"agent": {"pool": "h100"}}})
    assert mark(MINIMAL) == mark(MINIMAL) != mark(other)


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


def test_the_versions_are_those_of_fallow() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_schema_knows_every_value() -> None:
    """A value without a line in the schema could be misspelt unnoticed."""
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
