"""Who holds a GPU by a process, where a person, a container and a systemd unit may each be the best name."""

from __future__ import annotations

_ROOT = "root"


def process_holder(user: str | None, runtime: str | None, container: str | None, unit: str | None) -> str | None:
    """Return the holder of a process that belongs to no job: a person, else a container, else a unit, else the user.

    root is no person. In a container such as `lxc/web`, neither is a number: that user has no name outside. An unknown user
    stays unknown, because the name of a person may come later.
    """
    if container and user is not None and (user == _ROOT or user.isdigit()):
        return f"{runtime}/{container}" if runtime else container
    return unit if unit and user == _ROOT else user
