"""The user of a process on a GPU: a person, a container or a systemd unit."""

from __future__ import annotations

_ROOT = "root"


def process_user(user: str | None, runtime: str | None, container: str | None, unit: str | None) -> str | None:
    """Return the user of a process that belongs to no job: a person, else a container, else a unit, else the user.

    root is not a person. In a container such as `lxc/web`, a numeric user is not a person either, because the user has
    no name outside. An unknown user stays unknown, because the person's name may arrive later.
    """
    if container and user is not None and (user == _ROOT or user.isdigit()):
        return f"{runtime}/{container}" if runtime else container
    return unit if unit and user == _ROOT else user
