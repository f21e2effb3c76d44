"""Contents, channels and outcomes of deliveries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

SENT, FAILED, UNKNOWN = "sent", "failed", "unknown"
"""It arrived; it failed and can be sent again; or it may have arrived, and only a person may decide to send it again.
"""


@dataclass(frozen=True)
class Delivery:
    """One edition, or one nudge, to one place. `round` counts deliberate repetitions."""

    purpose: str
    week: str
    edition: str
    target: str
    round: int = 0

    @property
    def delivery_id(self) -> str:
        """Return the id, which is the same in every try, so that a receiver recognises a duplicate."""
        identity = "\0".join((self.purpose, self.week, self.edition, self.target, str(self.round)))
        return "D-" + hashlib.sha256(identity.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class DeliveryOutcome:
    """The outcome of a delivery: SENT, FAILED or UNKNOWN, the reason without secrets, and the number of tries."""

    step: str
    reason: str = ""
    tries: int = 1


@dataclass(frozen=True)
class MessagePart:
    """One document: its file name, its media type such as `text/html`, and its bytes."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True)
class BriefLine:
    """One finding in one line of a chat: its text, and smaller text below."""

    finding_id: str
    text: str
    detail: str


@dataclass(frozen=True)
class Brief:
    """The content of a chat message: title, window, sentences, first recommendations, and the number of the others."""

    title: str
    window: str
    sentences: tuple[str, ...]
    heading: str
    lines: tuple[BriefLine, ...]
    rest: str


@dataclass(frozen=True)
class Message:
    """Everything that any channel may need of one edition, in the reader's language.

    `html` is the mail's own body, which shows `picture` under its content id; both are None for text alone.
    `attachments` are the requested formats, for every channel.
    """

    subject: str
    language: str
    text: str
    html: str | None
    picture: bytes | None
    attachments: tuple[MessagePart, ...]
    brief: Brief
    week: str
    scope: str
    since_ms: int
    until_ms: int
    finding_ids: tuple[str, ...]

    @cached_property
    def sha256(self) -> str:
        """Return the hash of the whole content, so that two deliveries of the same content can be recognised."""
        digest = hashlib.sha256()
        for name, data in self._pieces():
            digest.update(f"{len(name)}:{name}:{len(data)}:".encode())
            digest.update(data)
        return digest.hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for _, data in self._pieces())

    def _pieces(self) -> list[tuple[str, bytes]]:
        pieces = [("subject", self.subject.encode()), ("text", self.text.encode())]
        if self.html is not None:
            pieces.append(("html", self.html.encode()))
        if self.picture is not None:
            pieces.append(("picture", self.picture))
        return pieces + [(part.name, part.data) for part in self.attachments]


class Channel(Protocol):
    """One way to one place."""

    repeatable: bool
    """True if sending again leaves no second copy, so that a try with unknown outcome may be repeated."""

    def send(self, message: Message, delivery: Delivery, now_ms: int) -> DeliveryOutcome:
        """Send and return the outcome. Every failure is an outcome, not an exception."""
        ...
