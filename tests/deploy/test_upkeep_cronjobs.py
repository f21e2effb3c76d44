"""The lake's upkeep in Kubernetes: what the two jobs may do, and that nothing is taken away before a site says so."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml

from fallow import config
from tests.deploy import kube_tools
from tests.deploy.rendered import MANIFESTS, VERSIONS, kustomized, named, validate
from tests.in_process import run_in_process

FOLDER = MANIFESTS / "upkeep"
JOBS = ("compact", "expire")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def pod_of(job: str) -> dict[str, Any]:
    found: dict[str, Any] = document(job)["spec"]["jobTemplate"]["spec"]["template"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*JOBS, "account", "config"])
def test_the_schemas_accept_it(name: str, version: str) -> None:
    validate([document(name)], version)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_may_do_nothing_beyond_an_ordinary_pod_and_two_never_run_at_once(job: str) -> None:
    pod = pod_of(job)["spec"]
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert document(job)["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize("job", JOBS)
def test_the_right_to_delete_is_not_that_of_the_agents(job: str) -> None:
    pod = pod_of(job)["spec"]
    [container] = pod["containers"]
    daemon_set = yaml.safe_load((MANIFESTS / "daemonset.yaml").read_text(encoding="utf-8"))
    agent_pod = daemon_set["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] != agent_pod["serviceAccountName"]
    secrets = {source["secretRef"]["name"] for source in container["envFrom"]}
    agent_secrets = {source["secretRef"]["name"] for source in agent_pod["containers"][0]["envFrom"]}
    assert secrets
    assert not secrets & agent_secrets


def test_the_policy_is_about_both() -> None:
    selected = document("network")["spec"]["podSelector"]["matchLabels"]
    assert [job for job in JOBS if selected.items() <= pod_of(job)["metadata"]["labels"].items()] == [*JOBS]


def test_the_settings_load_and_take_nothing_away(tmp_path: Any) -> None:
    file = tmp_path / "fallow.toml"
    file.write_text(document("config")["data"]["fallow.toml"], encoding="utf-8")
    loaded = config.load({}, str(file), {})
    assert loaded.text("lake.path").startswith("s3://")
    assert [name for name, origin in loaded.origins.items() if origin == str(file)] == ["lake.path"]


@pytest.mark.parametrize("job", JOBS)
def test_the_command_is_one_that_works_and_takes_nothing_away(job: str, lake: Any, tmp_path: Any) -> None:
    [container] = pod_of(job)["spec"]["containers"]
    file = tmp_path / "fallow.toml"
    file.write_text(document("config")["data"]["fallow.toml"], encoding="utf-8")
    before = {stored.key for stored in lake.store.list("")}
    run = partial(run_in_process, *container["args"], FALLOW_CONFIG=str(file), FALLOW_LAKE_PATH=lake.root)
    assert run().returncode == 0
    done = run(FALLOW_RETENTION_GPU="90d")
    assert done.returncode == 0, done.stderr
    assert {stored.key for stored in lake.store.list("")} == before


@kube_tools.needs("kubectl")
def test_what_kustomize_makes_of_it_is_accepted(tmp_path: Any) -> None:
    made = kustomized(tmp_path, ["upkeep"])
    validate(made)
    assert {("CronJob", f"fallow-{job}") for job in JOBS} <= named(made).keys()
    assert "image: fallow-upkeep" not in str(made)
