"""The user that the operating system knows this process by, whatever variables and flags say."""

from __future__ import annotations

import os
import pwd


def os_user() -> str:
    """The login name of the real user id, or `uid 65532` where the user directory has none."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
