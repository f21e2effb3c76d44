"""The user that the agent runs as."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from agent.deployment.shipped import SYSUSERS, shipped_text

if TYPE_CHECKING:
    from agent.deployment.host import Host

DEFAULT = "fallow"
SYSUSERS_FILE = "/etc/sysusers.d/fallow.conf"
HOME = "/var/lib/fallow"


def find_user(host: Host, name: str) -> tuple[int, int] | None:
    """Numbers of the user and its group on the host; None where there is none."""
    try:
        lines = host.at("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found = next((line.split(":") for line in lines if line.startswith(f"{name}:")), None)
    if found is not None:
        return int(found[2]), int(found[3])
    return None if host.is_image else _from_directory(name)


def _from_directory(name: str) -> tuple[int, int] | None:
    """A user of LDAP or the like."""
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def ensure_user(host: Host, name: str) -> tuple[int, int] | None:
    """Makes a missing user; the site may have given it a number in the file, which is therefore written once only."""
    if (
        name == DEFAULT
        and not host.at(SYSUSERS_FILE).exists()
        and not host.at("/usr/lib/sysusers.d/fallow.conf").exists()
    ):
        host.write(SYSUSERS_FILE, shipped_text(SYSUSERS))
    found = find_user(host, name)
    if found is not None:
        return found
    command = _command(host, name)
    if command is None:
        host.left_out.append(f"make the user {name}: there is neither systemd-sysusers nor useradd")
        return None
    host.note(f"made the user {name}")
    if host.dry_run:
        return None
    host.run(command, f"making the user {name}")
    return find_user(host, name)


def _command(host: Host, name: str) -> list[str] | None:
    if name == DEFAULT and shutil.which("systemd-sysusers"):
        return ["systemd-sysusers", *([f"--root={host.root}"] if host.is_image else [])]
    if shutil.which("useradd"):
        where = ["--root", host.root] if host.is_image else []
        options = ["--system", "--user-group", "--home-dir", HOME, "--no-create-home", "--shell", "/usr/sbin/nologin"]
        return ["useradd", *where, *options, name]
    return None
