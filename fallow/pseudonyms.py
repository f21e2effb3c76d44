"""Pseudonyms of users: the same for a name and a key on all hosts; without the key they do not reveal the name."""

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
"""64 bits: the probability that two of 100,000 users share a pseudonym is 3 in 10^10."""

_TOO_OPEN = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


class Pseudonyms:
    """Makes pseudonyms such as `u-3f9a07c2d41be865`: the first eight bytes of HMAC-SHA-256 (RFC 2104) of the name."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}

    @classmethod
    def load(cls, path: str) -> Pseudonyms:
        """Return pseudonyms with the key in a file; raises ConfigError if unreadable, too short or open to others."""
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
        """Return the pseudonyms that the settings or a key file require; None if users keep their names.

        Raises ConfigError if pseudonyms are required and the key is missing: names never replace pseudonyms.
        """
        if key_file is None:
            if not config.switch(SWITCH):
                return None
            key_file = config.text(KEY_FILE)
        if not key_file:
            raise ConfigError(
                f"{SWITCH} is on, and {KEY_FILE} names no key",
                "create a key with `fallow pseudonym new-key FILE`, and copy it to all hosts",
            )
        return cls.load(key_file)

    def of(self, name: str) -> str:
        r"""Return the pseudonym of a name; `+` and `\` between domain and user are equivalent."""
        known = self._known.get(name)
        if known is None:
            import hmac  # loads OpenSSL, 4 MiB: only if pseudonyms are used

            digest = hmac.digest(self._key, name.replace("+", "\\").encode("utf-8", "surrogateescape"), "sha256")
            known = self._known[name] = _PREFIX + digest.hex()[:_DIGITS]
        return known
