"""The user that the operating system knows this process by, whatever variables and flags say."""

from __future__ import annotations

import os
import pwd


def login_name() -> str | None:
    """The name of the real user id; None where the user directory has none, as in a container."""
    return _name(os.getuid())


def os_user() -> str:
    """The same, or `uid 65532` where there is no name."""
    return login_name() or f"uid {os.getuid()}"


def effective_user() -> str:
    """The same of the user whose permissions count for files."""
    return _name(os.geteuid()) or f"uid {os.geteuid()}"


def _name(user_id: int) -> str | None:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return None
