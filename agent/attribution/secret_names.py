"""Which names of options, variables, headers and parameters stand before a secret."""

from __future__ import annotations

import enum
import re

# one hump of a name: `apiKey`, `API_KEY` and `api-key` have the same two
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TOKENIZE = re.compile(r"tokeni[sz]")

_ANYWHERE = re.compile(
    "passw|passphrase|passcode|secret|credential|bearer|token|"
    "(?:api|access|private|auth|signing|encryption|decryption|shared|account|license|licence|master|session|service)key"
)
_WHOLE_PART = frozenset(
    {
        "auth",
        "authorization",
        "oauth",
        "pass",
        "pwd",
        "pw",
        "psw",
        "cred",
        "creds",
        "jwt",
        "cookie",
        "cookies",
        "pat",
        "sig",
    }
    | {"signature", "sas", "otp"}
)
_LAST_PART = frozenset({"key", "keys"})


class Secrecy(enum.Enum):
    """What is to become of a value."""

    NONE = 0
    UNLESS_NUMBER = 1
    ALWAYS = 2


def secrecy(name: str) -> Secrecy:
    """Whether a name stands before a secret; `tokens` are mostly counted ones (`--max-tokens 512`)."""
    parts = [part.lower() for part in _PART.findall(name)]
    joined = _TOKENIZE.sub("", "".join(parts))
    if "tokens" in parts and not _ANYWHERE.search(joined.replace("tokens", "")):
        return Secrecy.UNLESS_NUMBER
    secret = (
        _ANYWHERE.search(joined) is not None
        or not _WHOLE_PART.isdisjoint(parts)
        or any(part.endswith(("pass", "pwd")) for part in parts)
        or bool(parts and parts[-1] in _LAST_PART)
    )
    return Secrecy.ALWAYS if secret else Secrecy.NONE
