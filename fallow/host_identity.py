"""The origin of a host's files: the host, the machine, and the installation of the agent.

The metadata of an agent's file names all three. A merged file names each installation whose rows it contains, separated
by commas. Files of imports name none.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, given_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

HOST_KEY = "fallow_host"
INSTALL_KEY = "fallow_install"
MACHINE_KEY = "fallow_machine"

_APP_ID = bytes.fromhex("5f0c9b1ae4d84f0d9a6b7c23d1f86e94")
"""Hashed with the machine id, so that the id never leaves the host, as machine-id(5) requires."""

_BLOCK_BYTES = 64
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_INSTALL_ID = re.compile(r"[0-9a-f]{32}")
_UNSET = "0" * 32


@dataclass(frozen=True)
class HostIdentity:
    """An installation of the agent: its host's name in the lake, a random id, and a machine hash (empty: unknown)."""

    host: str
    install: str
    machine: str

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the files that the installation writes."""
        origin = {HOST_KEY: self.host, INSTALL_KEY: self.install, MACHINE_KEY: self.machine}
        return {key: value for key, value in origin.items() if value}


def new_install_id() -> str:
    return os.urandom(16).hex()


def is_install_id(text: str) -> bool:
    return _INSTALL_ID.fullmatch(text) is not None


def merged_origin(origins: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the metadata of a merged file, given the metadata of the files that it replaces."""
    found: dict[str, set[str]] = {}
    for each in origins:
        for key in (HOST_KEY, INSTALL_KEY, MACHINE_KEY):
            found.setdefault(key, set()).update(listed(each.get(key, "")) if key != HOST_KEY else {each.get(key, "")})
    return {key: ",".join(sorted(values - {""})) for key, values in found.items() if values - {""}}


def listed(text: str) -> tuple[str, ...]:
    """Return the installations or machines in a value of a file's metadata."""
    return tuple(each for each in text.split(",") if each)


def machine_hash(file: str = "/etc/machine-id") -> str:
    """Return the hash of the machine id, 32 hex digits, as sd_id128_get_machine_app_specific() computes it.

    Empty without a machine id, as in most containers.
    """
    try:
        text = given_text("agent.machine_id", file, SECRET_BYTES, encoding="ascii").strip().replace("-", "")
    except ConfigError:
        return ""
    if not _MACHINE_ID.fullmatch(text) or text == _UNSET:
        return ""
    digest = bytearray(_hmac_sha256(bytes.fromhex(text), _APP_ID)[:16])
    digest[6] = digest[6] & 0x0F | 0x40  # a UUID of version 4, as systemd marks it
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()


def _hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return the HMAC of RFC 2104; the key is at most a block."""
    sha256, padded = _sha256(), key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(bytes(each ^ 0x36 for each in padded) + message).digest()
    digest: bytes = sha256(bytes(each ^ 0x5C for each in padded) + inner).digest()
    return digest


def _sha256() -> Callable[[bytes], Any]:
    """Return Python's own SHA-256: hashlib would load OpenSSL, which costs a resident agent 3 MB."""
    for name in ("_sha2", "_sha256", "hashlib"):  # since Python 3.12, before it, and builds with neither
        with contextlib.suppress(ImportError):
            found: Callable[[bytes], Any] = importlib.import_module(name).sha256
            return found
    raise ImportError("sha256")
