"""Links by which whoever was asked answers without an account: signed, for one ask, one verb and one addressee.

The signature is HMAC-SHA256 (itsdangerous), compared in constant time. The link itself is what entitles: who has it may say
this one thing, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlsplit

from itsdangerous import BadData, URLSafeSerializer

from analytics.decide.answers import VERBS, Answer
from analytics.decide.asks import Ask
from fallow.clock import DAY_MS
from fallow.config import Config
from fallow.errors import ConfigError
from fallow.keys import read_key

PATH = "/answer/"
GRACE_MS = 14 * DAY_MS
"""How long after the deadline a link still works: people are on leave."""

LONGEST_TOKEN = 2000
_FIRST = "a"
"""Of every token: a compressed one would begin with a dot, and proxies often refuse such names."""

_GPUS_NAMED = 8
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class AnswerLinks:
    """Makes and reads the links of one site: `address` is where its dashboard is reached, without a slash at the end."""

    address: str
    key: bytes

    @classmethod
    def of(cls, config: Config) -> AnswerLinks | None:
        """By dashboard.address and dashboard.link_key_file; None unless both are set. Raises ConfigError."""
        address, path = config.text("dashboard.address"), config.text("dashboard.link_key_file")
        if path and not address:
            raise ConfigError(
                "dashboard.link_key_file is set and dashboard.address is not",
                "say where people reach the dashboard, such as https://gpus.example.org",
            )
        if not path:
            return None
        return cls(_checked(address), read_key(path, "dashboard.link_key_file"))

    def url(self, ask: Ask, verb: str, addressee: str, language: str) -> str:
        """The address that says this verb about this ask for this addressee."""
        answer = Answer(
            verb=verb,
            finding_ids=ask.finding_ids,
            addressee=addressee,
            action=ask.action,
            gpus=ask.gpus[:_GPUS_NAMED],
            gpu_count=len(ask.gpus),
            host=ask.about.host,
            simulated=ask.about.simulated,
            language=language,
            expires_ms=ask.about.deadline_ms + GRACE_MS,
        )
        return f"{self.address}{PATH}{self.sign(answer)}"

    def sign(self, answer: Answer) -> str:
        return _FIRST + str(self._serializer.dumps(asdict(answer)))

    def read(self, token: str, now_ms: int) -> Answer | None:
        """What the token says; None for one that is forged, expired, too long or of another version, without a difference."""
        if len(token) > LONGEST_TOKEN or not token.startswith(_FIRST):
            return None
        try:
            found = self._serializer.loads(token.removeprefix(_FIRST))
        except BadData:
            return None
        answer = _answer(found)
        return answer if answer is not None and now_ms < answer.expires_ms else None

    @property
    def _serializer(self) -> URLSafeSerializer:
        # the salt keeps these apart from whatever else may be signed with the key
        return URLSafeSerializer(
            self.key,
            salt="fallow answer 1",
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )


def _answer(found: object) -> Answer | None:
    """The content of a token with the right signature; None for one that another version has signed."""
    if not isinstance(found, Mapping) or set(found) != {each.name for each in fields(Answer)}:
        return None
    answer = Answer(**{**found, "finding_ids": tuple(found["finding_ids"]), "gpus": tuple(found["gpus"])})
    return answer if answer.verb in VERBS else None


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        host, parts = "", urlsplit("")
    local = parts.scheme == "http" and host in _LOOPBACK
    if not host or not (parts.scheme == "https" or local) or parts.query or parts.fragment or parts.username:
        raise ConfigError(
            f"dashboard.address '{address}' cannot be linked to", "write it as https://gpus.example.org: links need TLS"
        )
    return address.rstrip("/")
