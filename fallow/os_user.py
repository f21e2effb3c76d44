"""The user that the operating system knows this process by, whatever variables and flags say."""

from __future__ import annotations

import os
import pwd


def login_name() -> str | None:
    """The name of the real user id; None where the user directory has none, as in a container."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def os_user() -> str:
    """The same, or `uid 65532` where there is no name."""
    return login_name() or f"uid {os.getuid()}"
