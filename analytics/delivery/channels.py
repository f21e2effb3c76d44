"""The channel of each target; every setting that it needs is looked at before anything is sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from analytics.delivery.folder import FolderChannel
from analytics.delivery.settings import MailSettings, WebhookSettings
from analytics.delivery.smtp import MailChannel
from analytics.delivery.webhook import WebhookChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from analytics.delivery.model import Channel
    from analytics.delivery.targets import Target
    from fallow.config import Config


def open_channels(
    targets: Iterable[Target], config: Config, sleep: Callable[[float], None] = time.sleep
) -> Mapping[Target, Channel]:
    """A channel for every target; nothing is contacted yet. Raises ConfigError and UsageError."""
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
