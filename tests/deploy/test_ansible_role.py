"""The Ansible role in a bare Debian, by Ansible itself: a fresh host, second run, changed setting, new version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY
from tests.deploy.chroot import (
    INTERVAL_S,
    LAKE,
    closes_intervals,
    debian,
    make_lake,
    reason_for_none,
    status,
    stop,
    write_restart,
)
from tests.deploy.test_package_chroot import build
from tests.deploy.wheels import other_version, wheelhouse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.chroot import Chroot

__all__ = ["debian"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(290),
    pytest.mark.skipif(bool(reason := reason_for_none()), reason=reason or "it can be made"),
]

ANSIBLE = "ansible-core>=2.18,<2.20"  # the newest that runs on Debian 12's Python
RECAP = re.compile(r"ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0")


def install_ansible(debian: Chroot, folder: Path) -> None:
    """Ansible in an environment of its own inside, from wheels: nothing in there reaches an index."""
    wheels = folder / "ansible-wheels"
    download = ["-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11", "--dest", wheels]
    command = [sys.executable, *download]
    done = subprocess.run([*command, ANSIBLE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no ansible-core from the index: {done.stderr.strip().splitlines()[-1]}")
    place = debian.put(wheels, "/root")
    [pip] = [path.name for path in wheelhouse().glob("pip-*.whl")]
    debian.run("python3", "-m", "venv", "--without-pip", "/root/control")
    debian.put(wheelhouse() / pip, "/root")
    install = (f"/root/{pip}/pip", "install", "--quiet", "--no-index", "--find-links", place, "ansible-core")
    debian.run("/root/control/bin/python", *install)


def play(debian: Chroot, package: str, *options: str, **settings: str) -> tuple[int, str]:
    """Runs the role; how much it changed, and what Ansible printed."""
    values = {
        "fallow_agent_package": package,
        "fallow_agent_settings": {
            "lake": {"path": LAKE},
            "agent": {"spool": "/var/lib/fallow", "interval": f"{INTERVAL_S}s"} | settings,
        },
        "fallow_agent_restart_command": "/usr/local/bin/restart-agent",
        "fallow_agent_reload_command": "sh -c 'kill -HUP $(cat /run/agent.pid)'",
    }
    debian.at("/root/values.json").write_text(json.dumps(values), encoding="utf-8")
    inputs = ("-i", "/root/inventory", "-e", "@/root/values.json", "/root/ansible/playbook.yml")
    command = ("/root/control/bin/ansible-playbook", *inputs, *options)
    try:
        done = debian.run(*command)
    except AssertionError as failed:
        log = debian.at("/run/agent.log")
        told = log.read_text() if log.exists() else "was never started"
        raise AssertionError(f"{failed}\nthe agent: {told}") from None
    found = RECAP.search(done.stdout)
    assert found is not None, done.stdout
    return int(found[2]), done.stdout


def test_the_role_on_a_fresh_host_again_and_with_changes(debian: Chroot, tmp_path: Path) -> None:
    install_ansible(debian, tmp_path)
    debian.put(REPOSITORY / "deploy" / "ansible", "/root")
    debian.at("/root/inventory").write_text(
        "[gpu]\nlocalhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"
    )
    write_restart(debian)
    package = debian.put(build("deb", tmp_path, other_version("0.1.1", tmp_path / "one")), "/root")

    before = debian.files()
    play(debian, package, "--check")
    assert debian.files() == before, "a dry run has changed the host"
    assert play(debian, package)[0] > 0
    closes_intervals(debian, "0.1.1")
    make_lake(debian)
    pid = running_pid(debian)

    assert play(debian, package)[0] == 0, "a second run changes something"
    assert running_pid(debian) == pid

    changed, printed = play(debian, package, pool="train")
    assert changed == 2, printed  # the file, and one reload
    assert printed.count("RUNNING HANDLER") == 1
    assert running_pid(debian) == pid

    newer = debian.put(build("deb", tmp_path, other_version("0.2.0", tmp_path / "two")), "/root")
    play(debian, newer, pool="train")
    closes_intervals(debian, "0.2.0")
    assert running_pid(debian) != pid
    assert (status(debian) or {})["missed_at_start"] == 0
    stop(debian)


def running_pid(debian: Chroot) -> int:
    return int((status(debian) or {})["pid"])
