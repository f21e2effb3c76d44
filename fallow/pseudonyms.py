"""Users by pseudonyms: the same for one name and one key on every host, and telling nobody without the key who it is."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import ConfigError
from fallow.keys import read_key

if TYPE_CHECKING:
    from fallow.config import Config

SWITCH, KEY_FILE = "agent.pseudonymise_users", "agent.pseudonym_key_file"

_PREFIX = "u-"
_DIGITS = 16
"""64 bits: among 100,000 users two share a pseudonym with a chance of 3 in 10^10."""

_TOO_OPEN = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


class Pseudonyms:
    """Makes pseudonyms such as `u-3f9a07c2d41be865`: the first eight bytes of HMAC-SHA-256 (RFC 2104) of the name."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}

    @classmethod
    def load(cls, path: str) -> Pseudonyms:
        """With the key in a file; raises ConfigError where it cannot be read, is short, or others can read or change it."""
        key = read_key(path, KEY_FILE)
        mode = Path(path).stat().st_mode
        if mode & _TOO_OPEN:
            raise ConfigError(
                f"the key of the pseudonyms in {path} has mode {stat.S_IMODE(mode):04o}: others can read or change it",
                f"chmod 640 {path}",
            )
        return cls(key)

    @classmethod
    def from_config(cls, config: Config, key_file: str | None = None) -> Pseudonyms | None:
        """Those that the settings, or a key file beside them, ask for; None where users stay as they are.

        Raises ConfigError where there shall be pseudonyms and no key can be had: plain names never take their place.
        """
        if key_file is None:
            if not config.switch(SWITCH):
                return None
            key_file = config.text(KEY_FILE)
        if not key_file:
            raise ConfigError(
                f"{SWITCH} is on, and {KEY_FILE} names no key",
                "make one with `fallow pseudonym new-key FILE`, and give every host the same",
            )
        return cls.load(key_file)

    def of(self, name: str) -> str:
        r"""The pseudonym of a name; `+` and `\` between domain and user count as one."""
        known = self._known.get(name)
        if known is None:
            import hmac  # loads OpenSSL, 4 MiB: only for those who ask for pseudonyms

            digest = hmac.digest(self._key, name.replace("+", "\\").encode("utf-8", "surrogateescape"), "sha256")
            known = self._known[name] = _PREFIX + digest.hex()[:_DIGITS]
        return known
