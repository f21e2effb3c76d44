"""The files that come with the agent: its unit, its user, the example settings and the lock of what it needs.

They lie in deploy/ and requirements/; a wheel carries them beside this module (pyproject.toml, force-include).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

UNIT = "systemd/fallow-agent.service"
SYSUSERS = "systemd/fallow.sysusers.conf"
EXAMPLE = "fallow.toml"
LOCK = "requirements.txt"
IN_WHEEL = "agent/deployment/files"

_IN_CHECKOUT = {LOCK: "requirements/base.txt"}


def shipped_text(name: str) -> str:
    """The text of a file by its path below deploy/; LOCK is the lock."""
    packed = files("agent.deployment") / "files" / name
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[2]
    return (checkout / _IN_CHECKOUT.get(name, f"deploy/{name}")).read_text(encoding="utf-8")
