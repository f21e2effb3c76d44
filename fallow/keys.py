"""Signing keys in files."""

from __future__ import annotations

from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, given_bytes

LEAST_BYTES = 32


def read_key(path: str, setting: str) -> bytes:
    """Return the content of the file that a setting names; raises ConfigError if it cannot be read or is too short."""
    key = given_bytes(setting, path, SECRET_BYTES).strip()
    if len(key) < LEAST_BYTES:
        raise ConfigError(
            f"the key in {path} is shorter than {LEAST_BYTES} bytes", f"make one with: openssl rand -hex 32 > {path}"
        )
    return key
