"""The user of this process in the operating system, whatever variables and flags say."""

from __future__ import annotations

import os
import pwd


def login_name() -> str | None:
    """Return the name of the real user id; None without an entry in the user directory, as in a container."""
    return _name(os.getuid())


def os_user() -> str:
    """Return the name of the real user id, or `uid 65532` without a name."""
    return login_name() or f"uid {os.getuid()}"


def effective_user() -> str:
    """Return the name of the effective user id, whose permissions count for files, or `uid 65532` without a name."""
    return _name(os.geteuid()) or f"uid {os.geteuid()}"


def _name(user_id: int) -> str | None:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return None
