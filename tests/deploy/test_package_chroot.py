"""The packages in a bare Debian: install, upgrade under a running agent, roll back a bad version, remove."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY
from tests.deploy.chroot import (
    INTERVAL_S,
    LAKE,
    closes_intervals,
    debian,
    gaps,
    make_lake,
    reason_for_none,
    restart,
    status,
    stop,
    write_restart,
)
from tests.deploy.wheels import DIES, other_version, wheelhouse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.chroot import Chroot

__all__ = ["debian"]
FALLOW = "/usr/bin/fallow"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(290),
    pytest.mark.skipif(bool(reason := reason_for_none()), reason=reason or "it can be made"),
]


def build(kind: str, folder: Path, wheels: Path) -> Path:
    command = ["deploy/packages/build.sh", kind, folder, wheels]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip().rsplit("/", 1)[1]


def configure(debian: Chroot) -> None:
    """Sets what a site has to set, and starts the agent."""
    file = debian.at("/etc/fallow/fallow.toml")
    text = file.read_text(encoding="utf-8").replace('# path = "', 'path = "')
    file.write_text(text.replace('interval = "10s"', f'interval = "{INTERVAL_S}s"'), encoding="utf-8")
    make_lake(debian)
    write_restart(debian)
    restart(debian)


def test_a_debian_package_through_its_life(debian: Chroot, tmp_path: Path) -> None:
    before = debian.files()
    first = debian.put(build("deb", tmp_path, wheelhouse()), "/root")
    [version] = {wheel.name.split("-")[1] for wheel in wheelhouse().glob("fallow-*.whl")}
    assert "start the agent" in debian.run("dpkg", "-i", first).stderr
    assert status(debian) is None
    configure(debian)
    closes_intervals(debian, version)

    # an upgrade: the agent goes on while its version is replaced, and the change costs no interval
    newer = debian.put(build("deb", tmp_path, other_version("0.2.0", tmp_path / "0.2.0")), "/root")
    done = debian.run("dpkg", "-i", newer)
    assert "there is no systemd here: restart the agent" in done.stderr
    assert (status(debian) or {})["version"] == version
    [environment] = debian.at("/opt/fallow/versions").glob(f"{version}-*")
    assert (environment / "bin/fallow").exists()
    assert debian.run(FALLOW, "--version").stdout == "fallow 0.2.0\n"
    restart(debian)
    closes_intervals(debian, "0.2.0")
    assert (status(debian) or {})["missed_at_start"] == 0

    # a bad version, with a service manager of the site's own: the old agent runs again
    # time for an interval to close on a busy machine
    debian.variables |= {"AGENT_RESTART": "restart-agent", "AGENT_WAIT_S": "20"}
    bad = debian.put(build("deb", tmp_path, other_version("0.5.0", tmp_path / "0.5.0", DIES)), "/root")
    failed = debian.run("dpkg", "-i", bad, code=1)
    assert "fallow-agent: 0.5.0 does not work here: 0.2.0 runs again" in failed.stderr
    closes_intervals(debian, "0.2.0")
    assert not list(debian.at("/opt/fallow/versions").glob("0.5.0*"))

    # the way back is the package of the version before
    debian.variables["AGENT_WAIT_S"] = "60"
    assert f"{version} is in force and runs" in debian.run("dpkg", "-i", first).stderr
    closes_intervals(debian, version)

    stop(debian)
    assert len(gaps(debian)) <= 1, "only the version that does not work may cost intervals"
    debian.run("dpkg", "-r", "fallow-agent")
    own = ("/srv/fallow", "/var/lib/fallow", "/usr/local", "/opt/scenario")
    left = {path for path in debian.files() - before if not path.startswith(own)}
    accounts = {f"/etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")} | {
        "/etc/.pwd.lock"
    }
    assert left - accounts == {"/etc/fallow/fallow.toml"}
    debian.run("dpkg", "-P", "fallow-agent")
    assert not debian.at("/etc/fallow").exists()
    assert not debian.at("/var/lib/fallow").exists()
    assert debian.at(LAKE).exists()


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed (Debian: apt-get install rpm)")
def test_an_rpm_is_installed_upgraded_and_removed(debian: Chroot, tmp_path: Path) -> None:
    before = debian.files()
    # Debian's Python is not known to rpm
    rpm = ["rpm", "--root", str(debian.root), "--dbpath", "/var/lib/rpm"]
    change = [*rpm, "--nodeps", "--noplugins"]
    for version, verb, folder in (("0.1.1", "-i", "one"), ("0.2.0", "-U", "two")):
        package = build("rpm", tmp_path, other_version(version, tmp_path / folder))
        done = subprocess.run([*change, verb, package], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert debian.run(FALLOW, "--version").stdout == f"fallow {version}\n"
    listed = subprocess.run([*rpm, "-ql", "fallow-agent"], capture_output=True, text=True, check=True).stdout.split()
    assert {"/usr/lib/systemd/system/fallow-agent.service", "/usr/lib/sysusers.d/fallow.conf"} <= set(listed)
    configure(debian)
    closes_intervals(debian, "0.2.0")
    stop(debian)
    assert gaps(debian) == []
    done = subprocess.run([*change, "-e", "fallow-agent"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left = {path for path in debian.files() - before if path.startswith(("/opt/fallow", "/usr/lib", "/usr/bin"))}
    assert left == set()
