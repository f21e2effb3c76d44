"""Small files of /proc and /sys: their text, or None where they cannot be read."""

from __future__ import annotations

import os

_LARGEST_BYTES = 2**20
_LARGEST_NUMBER = 2**63 - 1


def read(path: str, first_bytes: int | None = None) -> bytes | None:
    """The whole file, or its first bytes; None where it is missing, denied or switched off (pressure gives EOPNOTSUPP)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if first_bytes is not None:
            return os.read(descriptor, first_bytes)
        text = b""
        # the kernel hands these files out a page at a time, so only an empty answer is the end
        while len(text) < _LARGEST_BYTES and (more := os.read(descriptor, 2**16)):
            text += more
    except OSError:
        return None
    else:
        return text
    finally:
        os.close(descriptor)


def whole(text: bytes | None) -> int | None:
    """The number in a text of digits; None for anything else, and for one that no 64-bit column holds."""
    digits = b"" if text is None else text.strip()
    if not digits.isdigit() or len(digits) > len(str(_LARGEST_NUMBER)):
        return None
    value = int(digits)
    return value if value <= _LARGEST_NUMBER else None
