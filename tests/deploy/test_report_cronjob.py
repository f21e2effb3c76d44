"""The report's CronJob against the schemas of Kubernetes, and what it may do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml

from analytics.commands.report_send import add_send_arguments
from analytics.delivery.settings import MailSettings
from fallow import config
from tests.deploy import kube_tools
from tests.deploy.rendered import kustomized, validate

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "report" / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def job() -> dict[str, Any]:
    found: dict[str, Any] = document("cronjob.yaml")["spec"]
    return found


@pytest.fixture
def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["jobTemplate"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["cronjob.yaml", "config.yaml"])
def test_the_schemas_accept_it(name: str, version: str) -> None:
    kubernetes_validate.validate(document(name), version, strict=True)


def test_the_schemas_would_not_accept_a_misspelling(job: dict[str, Any]) -> None:
    with pytest.raises(kubernetes_validate.ValidationError, match="timezone"):
        kubernetes_validate.validate(
            document("cronjob.yaml") | {"spec": job | {"timezone": "Etc/UTC"}}, VERSIONS[-1], strict=True
        )


def test_when_it_runs(job: dict[str, Any], tmp_path: Path) -> None:
    assert job["schedule"] == "0 6 * * 1"
    assert job["concurrencyPolicy"] == "Forbid"
    assert 5 * 86_400 < job["startingDeadlineSeconds"] < 7 * 86_400
    assert ZoneInfo(job["timeZone"])
    assert loaded(tmp_path).text("report.timezone") == job["timeZone"]


def test_a_failed_run_is_tried_again_and_wrong_settings_are_not(job: dict[str, Any]) -> None:
    spec = job["jobTemplate"]["spec"]
    assert spec["backoffLimit"] > 0
    [rule] = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2])
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what podFailurePolicy asks for


def test_the_command_is_one_and_holds_no_secret(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    report, send, *flags = container["args"]
    assert (report, send) == ("report", "send")
    parser = argparse.ArgumentParser()
    add_send_arguments(parser)
    args = parser.parse_args(flags)
    # a user of a number alone has no login name
    assert (args.week, args.catch_up, args.to, args.actor) == ("last", True, None, "cronjob")
    assert {source["secretRef"]["name"] for source in container["envFrom"]} == {"fallow-report", "fallow-lake"}


def test_it_may_do_nothing_beyond_an_ordinary_pod(pod: dict[str, Any]) -> None:
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


def loaded(folder: Path) -> config.Config:
    file = folder / "fallow.toml"
    file.write_text(document("config.yaml")["data"]["fallow.toml"], encoding="utf-8")
    return config.load({}, str(file), {})


def test_the_settings_of_the_map_are_valid(tmp_path: Path) -> None:
    mail = MailSettings.of(loaded(tmp_path), {"FALLOW_SMTP_PASSWORD": "x"})
    assert (mail.host, mail.port, mail.security) == ("smtp.example.org", 587, "starttls")


@kube_tools.needs("kubectl")
def test_what_kustomize_makes_of_it_is_accepted(tmp_path: Path) -> None:
    made = kustomized(tmp_path, ["report"])
    assert "CronJob" in {each["kind"] for each in made}
    validate(made)
    assert '"image": "fallow-report"' not in json.dumps(made)
