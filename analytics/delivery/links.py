"""Links that answer a nudge without an account: signed, for one item, one verb and one addressee.

The signature is HMAC-SHA256 (itsdangerous), compared in constant time. The link itself is the permission: its owner may
give this one answer and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, timedelta
from urllib.parse import urlsplit

from itsdangerous import BadData, URLSafeSerializer

from analytics.decide.answers import VERBS, Answer
from analytics.decide.nudge_items import NudgeItem
from fallow.clock import start_of_day_ms
from fallow.config import Config
from fallow.errors import ConfigError
from fallow.keys import read_key

PATH = "/answer/"
GRACE_DAYS = 14
"""Days after the deadline during which a link still works: people are on leave."""

LONGEST_TOKEN = 2000
_FIRST = "a"
"""First character of every token: a compressed token would begin with a dot, and proxies often refuse such names."""

_GPUS_NAMED = 8
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class AnswerLinks:
    """Makes and reads the links of one site. `address` is the address of its dashboard, without a slash at the end."""

    address: str
    key: bytes

    @classmethod
    def of(cls, config: Config) -> AnswerLinks | None:
        """Read dashboard.address and dashboard.link_key_file; None unless both are set. Raises ConfigError."""
        address, path = config.text("dashboard.address"), config.text("dashboard.link_key_file")
        if path and not address:
            raise ConfigError(
                "dashboard.link_key_file is set and dashboard.address is not",
                "say where people reach the dashboard, such as https://gpus.example.org",
            )
        if not path:
            return None
        return cls(_checked(address), read_key(path, "dashboard.link_key_file"))

    def url(self, item: NudgeItem, verb: str, addressee: str, language: str) -> str:
        """Return the address with which this addressee gives this answer about this item."""
        answer = Answer(
            verb=verb,
            finding_ids=item.finding_ids,
            addressee=addressee,
            action=item.action,
            gpus=item.gpus[:_GPUS_NAMED],
            gpu_count=len(item.gpus),
            host=item.about.host,
            simulated=item.about.simulated,
            language=language,
            expires_ms=start_of_day_ms(item.about.deadline + timedelta(days=1 + GRACE_DAYS), UTC),
        )
        return f"{self.address}{PATH}{self.sign(answer)}"

    def sign(self, answer: Answer) -> str:
        return _FIRST + str(self._serializer.dumps(asdict(answer)))

    def read(self, token: str, now_ms: int) -> Answer | None:
        """Return the answer in a token; None for a forged, expired or too long token, or one of another version."""
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
    """Return the content of a correctly signed token; None if another version signed it."""
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
