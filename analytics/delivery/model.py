"""What is sent, by which channel, and with which outcome."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

SENT, FAILED, UNKNOWN = "sent", "failed", "unknown"
"""It arrived; it did not and can be sent again; it may have arrived, and only a person may decide to send it again."""


@dataclass(frozen=True)
class Delivery:
    """One edition, or one nudge, to one place; `round` counts how often it was sent again on purpose."""

    purpose: str
    week: str
    edition: str
    target: str
    round: int = 0

    @property
    def delivery_id(self) -> str:
        """The same in every try, so that a receiver recognises a duplicate."""
        identity = "\0".join((self.purpose, self.week, self.edition, self.target, str(self.round)))
        return "D-" + hashlib.sha256(identity.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class DeliveryOutcome:
    """How a delivery ended: SENT, FAILED or UNKNOWN, why in words without secrets, and how often the server was asked."""

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
    """One finding in one line of a chat: what it says, and the smaller print below it."""

    finding_id: str
    text: str
    detail: str


@dataclass(frozen=True)
class Brief:
    """What a chat shows: a title, the window, sentences, the first decisions or asks, and how many there are beside them."""

    title: str
    window: str
    sentences: tuple[str, ...]
    heading: str
    lines: tuple[BriefLine, ...]
    rest: str


@dataclass(frozen=True)
class Message:
    """Everything that any channel may need of one edition, in the reader's language and made once.

    `html` is the mail's own body, in which `picture` stands under its content id; both are missing where the text is all.
    `attachments` are the formats that were asked for, with whatever channel they go.
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
        """Of the whole content, so that two deliveries of the same content can be recognised."""
        digest = hashlib.sha256()
        for name, data in self._pieces():
            digest.update(f"{len(name)}:{name}:{len(data)}:".encode())
            digest.update(data)
        return digest.hexdigest()

    @property
    def size_bytes(self) -> int:
        """Of everything in it."""
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
    """Whether sending again leaves no second copy, so that a try with unknown outcome may be repeated."""

    def send(self, message: Message, delivery: Delivery, now_ms: int) -> DeliveryOutcome:
        """Sends it and returns the outcome; every failure on the way is an outcome, not an exception."""
        ...
