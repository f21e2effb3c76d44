"""The channel of each target, and the channel that writes into folders and object stores."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping

from analytics.delivery.mail import MailChannel
from analytics.delivery.model import FAILED, SENT, Channel, Delivery, DeliveryOutcome, Message
from analytics.delivery.settings import MailSettings, Target, WebhookSettings
from analytics.delivery.webhook import WebhookChannel
from analytics.language.sentences import count
from fallow.config import Config
from fallow.errors import FallowError
from fallow.stores import open_store

_MOST = 100
_END = re.compile(r"(-[a-z]{2})?\.[a-z]{1,8}$")
"""The end of a name that shortening keeps: the language of an edition, and the suffix."""


class FolderChannel:
    repeatable = True

    def __init__(self, target: Target) -> None:
        self._target = target

    def send(
        self,
        message: Message,
        delivery: Delivery,  # noqa: ARG002
        now_ms: int,  # noqa: ARG002  # the content states its time
    ) -> DeliveryOutcome:
        """Write each document as `<week>/<name>`, completely or not at all."""
        try:
            store = open_store(self._target.address)
            store.make()
            for part in message.attachments:
                key = f"{safe(message.week)}/{safe(part.name)}"
                store.put(key, part.data)
                store.confirm(key, part.data)
        except FallowError as error:
            return DeliveryOutcome(FAILED, error.message)
        return DeliveryOutcome(SENT, count(len(message.attachments), "file"))


def safe(text: str) -> str:
    """Return a name that every file system and store accepts, unique for every text: teams may have any name."""
    whole = re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip(".-")
    if whole and whole == text and len(whole) <= _MOST:
        return whole
    end = _END.search(whole)
    kept = end[0] if end else ""
    name = whole.removesuffix(kept)[: _MOST - len(kept)]
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{kept}".lstrip("-")


def open_channels(
    targets: Iterable[Target], config: Config, sleep: Callable[[float], None] = time.sleep
) -> Mapping[Target, Channel]:
    """Return a channel for every target, without contacting it. Raises ConfigError and UsageError."""
    wanted = tuple(targets)
    kinds = {target.kind for target in wanted}
    mail = MailSettings.of(config) if "mail" in kinds else None
    webhook = WebhookSettings.of(config) if kinds - {"mail", "folder"} else None
    channels: dict[Target, Channel] = {}
    for target in wanted:
        if target.kind == "mail" and mail is not None:
            channels[target] = MailChannel(mail, target.address)
        elif target.kind == "folder":
            channels[target] = FolderChannel(target)
        elif webhook is not None:
            channels[target] = WebhookChannel(webhook, target, sleep)
    return channels
