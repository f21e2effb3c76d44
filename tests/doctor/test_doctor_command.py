"""The whole command over the fake driver: what is printed, and the exit code."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.doctor import command
from agent.doctor.case import DoctorCheck, DoctorFinding, Options, Status, error, ok, skipped, warning
from agent.doctor.checks import CHECKS
from agent.doctor.command import WIDTH, as_text, examine
from agent.doctor.host import HostFiles
from agent.doctor.look import look_at_driver
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.nvml import Fault, Gpu, MigInstance, Scenario, constant, ms_ago
from tests.in_process import run_in_process
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.doctor.case import Case
    from agent.doctor.look import DriverLook

TWO = (
    Gpu("GPU-a", persistence=False),
    Gpu("GPU-b", model="Tesla V100-SXM2-16GB", compute_capability=(7, 0), architecture=6),
)


def host(tmp_path: Path, library: Path, scenario: Scenario) -> HostFiles:
    path = scenario.write(tmp_path / "scenario")
    environment = clean_environment(scenario.environment(library, path))
    return HostFiles(dev=tmp_path / "dev", environment=environment)


def look(
    tmp_path: Path, library: Path, *faults: Fault, gpus: tuple[Gpu, ...] = TWO, timeout_s: float = 20
) -> DriverLook:
    return look_at_driver(host(tmp_path, library, Scenario(gpus, ms_ago(20), faults)), timeout_s)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    code = command.run(parser.parse_args(arguments))
    return code, capsys.readouterr().out


@pytest.fixture
def fake(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a host with two GPUs; returns its folder."""
    scenario = Scenario(TWO, ms_ago(20))
    for name, value in scenario.environment(library, scenario.write(tmp_path / "scenario")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return tmp_path


def test_the_driver_is_asked_in_a_process_of_its_own(tmp_path: Path, library: Path) -> None:
    seen = look(tmp_path, library)
    assert (seen.state, seen.driver_version, seen.cuda_version, seen.gpu_count) == ("ok", "580.65.06", (13, 0), 2)
    assert str(seen.library).startswith(str(library))
    first, second = seen.gpus
    assert (first.uuid, first.capability, first.persistence, first.mig) == ("GPU-a", (9, 0), False, False)
    assert (second.model, second.capability, second.persistence) == ("Tesla V100-SXM2-16GB", (7, 0), True)


def test_what_the_driver_says_of_each_gpu(tmp_path: Path, library: Path) -> None:
    split = Gpu("GPU-a", mig=(MigInstance("MIG-1", 1, slot=0), MigInstance("MIG-2", 2, slot=3)))
    gpus = look(tmp_path, library, gpus=(split, Gpu("GPU-b", mig_mode=constant(1)))).gpus
    assert [(gpu.mig, gpu.mig_instances) for gpu in gpus] == [(True, 2), (True, 0)]
    refused = Fault("no_permission", gpu=0, function="nvmlDeviceGetProcessUtilization")
    lacking = Fault("not_supported", gpu=1, function="nvmlDeviceGetTotalEnergyConsumption")
    first, second = look(tmp_path, library, refused, lacking).gpus
    assert (first.denied, second.denied) == (("nvmlDeviceGetProcessUtilization",), ())
    assert "nvmlDeviceGetTotalEnergyConsumption" in second.unsupported
    assert [bool(gpu.error) for gpu in look(tmp_path, library, Fault("lost", gpu=0)).gpus] == [True, False]


@pytest.mark.parametrize(("kind", "code"), [("mismatch", 18), ("driver_not_loaded", 9)])
def test_a_driver_that_refuses_tells_its_code(tmp_path: Path, library: Path, kind: Any, code: int) -> None:
    seen = look(tmp_path, library, Fault(kind))
    assert (seen.state, seen.code, seen.gpus) == ("refused", code, ())


@pytest.mark.long
def test_a_driver_that_never_returns_is_left_behind(tmp_path: Path, library: Path) -> None:
    seen = look(tmp_path, library, Fault("hang", function="nvmlInit"), timeout_s=10)
    assert (seen.state, seen.step) == ("hung", "nvmlInit")


@pytest.mark.long
def test_a_gpu_that_never_returns_does_not_hide_the_other(tmp_path: Path, library: Path) -> None:
    seen = look(tmp_path, library, Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage"), timeout_s=10)
    assert (seen.state, seen.hung) == ("ok", ("GPU 0: nvmlDeviceGetPowerUsage",))
    assert [gpu.uuid for gpu in seen.gpus] == ["GPU-b"]


def test_without_a_library_there_is_a_code(tmp_path: Path) -> None:
    seen = look_at_driver(HostFiles(dev=tmp_path, environment=clean_environment({"LD_LIBRARY_PATH": ""})), 20)
    if seen.state == "ok":
        pytest.skip("this machine has a driver of its own")
    assert (seen.state, seen.code) == ("refused", 12)


def test_json_has_a_fixed_shape(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_lake(fake / "lake")
    code, text = run(capsys, "--json", "--lake", str(fake / "lake"), "--spool", str(fake / "spool"))
    answer = json.loads(text)
    assert list(answer) == ["format", "fallow", "host", "time", "counts", "results"]
    assert list(answer["counts"]) == ["ok", "warning", "error", "skipped"]
    assert sum(answer["counts"].values()) == len(answer["results"])
    of_schedulers = {"host.jobs"}  # it says nothing without one
    assert {result["check"] for result in answer["results"]} == {check.id for check in CHECKS} - of_schedulers
    for result in answer["results"]:
        assert list(result) == ["check", "status", "subject", "found", "remedy", "next", "facts"]
        assert result["found"]
        assert bool(result["remedy"]) == bool(result["next"]) == (result["status"] in ("warning", "error"))
    assert code == (1 if answer["counts"]["error"] else 0)
    persistence = next(each for each in answer["results"] if each["check"] == "driver.persistence")
    assert (persistence["status"], persistence["facts"]["off"]) == ("warning", ["0"])


def test_text_fits_a_terminal_and_commands_stay_whole(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(capsys, "--spool", str(fake / "spool"))
    assert "\033" not in text, "no colour where nobody looks"
    commands = [line for line in text.splitlines() if line.lstrip().startswith("$ ")]
    assert "             $ sudo systemctl enable --now nvidia-persistenced" in commands
    prose = [line for line in text.splitlines() if line not in commands and "/" not in line]
    assert max(map(len, prose)) <= WIDTH


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize(
    "address", ["s3://u:SEKRETPW@bucket/p", "ftp://u:SEKRETPW@host/p", "s3://bucket/p?key=SEKRETPW"]
)
def test_an_address_that_is_refused_is_not_shown(
    fake: Path, capsys: pytest.CaptureFixture[str], how: tuple[str, ...], address: str
) -> None:
    code, text = run(capsys, *how, "--lake", address)
    assert code == 1
    assert fake.is_dir()
    assert f"fallow doctor --lake {address.partition('://')[0]}://..." in text
    assert "SEKRET" not in text


def test_what_is_named_and_not_there_is_wrong_use() -> None:
    for flag, value, said in (
        ("--python", "/nope/at/all", "--python: /nope/at/all does not exist"),
        ("--python", "~no-such-user/venv", "does not exist"),
        ("--user", "no-such-user", "there is no user no-such-user"),
    ):
        done = run_in_process("doctor", flag, value)
        assert (done.returncode, said in done.stderr) == (2, True)


def test_strict_fails_on_warnings_and_errors_always_do(
    fake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(*found: DoctorFinding) -> None:
        results = [replace(each, check="driver.module") for each in found]
        monkeypatch.setattr(command, "examine", lambda _host, _options: results)

    says(ok("fine"), warning("odd", "look", "ls"), skipped("no"))
    assert run(capsys)[0] == 0
    assert run(capsys, "--strict")[0] == 1
    says(error("broken", "mend", "ls"))
    assert run(capsys)[0] == 1
    assert fake.is_dir()


def test_a_check_that_breaks_is_a_finding_and_hides_no_other(tmp_path: Path, library: Path) -> None:
    def breaks(case: Case) -> Iterator[DoctorFinding]:
        yield ok(f"asked {case.driver.gpu_count}")
        raise RuntimeError("on purpose")

    def works(_: Case) -> Iterator[DoctorFinding]:
        yield ok("fine")

    machine = host(tmp_path, library, Scenario(TWO, ms_ago(20)))
    results = examine(machine, Options(timeout_s=20), (DoctorCheck("a.x", "", breaks), DoctorCheck("a.y", "", works)))
    judged = [(each.check, each.status) for each in results]
    assert judged == [("a.x", Status.OK), ("a.x", Status.ERROR), ("a.y", Status.OK)]
    assert "on purpose" in results[1].found


def test_the_text_as_a_whole() -> None:
    failed = error("nvmlInit fails with 18: " + "different versions " * 5, "reload it " * 9, "sudo x " * 20)
    found = {
        "driver.module": ok("nvidia 580.95.05, open kernel module"),
        "driver.match": skipped("no driver"),
        "driver.nvml": failed,
        "driver.gpus": skipped("no driver"),
        "host.clock": warning("nothing keeps the clock", "run chrony", "timedatectl status"),
    }
    results = [replace(each, check=check) for check, each in found.items()]
    text = as_text("title", results, colour=False)
    assert text.splitlines()[:4] == ["title", "", "driver", "  + ok       module: nvidia 580.95.05, open kernel module"]
    assert "  - skipped  match, gpus: no driver" in text.splitlines()
    assert text.splitlines()[-1] == "1 error, 1 warning, 1 ok, 2 skipped; begin with driver.nvml"
    painted = as_text("title", results, colour=True)
    assert "\033[31;1mx error   \033[0m" in painted
    assert "\033[33m! warning \033[0m" in painted


def test_every_check_is_documented() -> None:
    ids = [check.id for check in CHECKS]
    groups = [name.partition(".")[0] for name in ids]
    assert len(set(ids)) == len(ids)
    assert groups == sorted(groups, key=groups.index), "a group's checks stand together"
    page = (REPOSITORY / "docs/doctor.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| `{check.id}` |" in page
        assert check.meaning in page
