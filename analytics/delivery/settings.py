"""How mail and webhooks are to be sent, out of the settings; passwords from a file or the environment alone."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.utils import parseaddr

from analytics.delivery.targets import mail_address
from fallow.config import Config
from fallow.errors import ConfigError, UsageError
from fallow.given_file import SECRET_BYTES, authorities, given_text

PASSWORD_VARIABLE = "FALLOW_SMTP_PASSWORD"  # noqa: S105  # a name
LONGEST_S = 60.0
"""For one answer of a webhook's receiver, so that all tries together end well before the lease of a delivery."""

_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True)
class MailSettings:
    """The mail server, the sender and the time limits."""

    host: str
    port: int
    security: str
    sender: Address
    reply_to: Address | None
    user: str
    password: str = field(repr=False)
    context: ssl.SSLContext | None
    timeout_s: float

    @classmethod
    def of(cls, config: Config, environment: Mapping[str, str] = os.environ) -> MailSettings:
        """From the settings; raises ConfigError and UsageError for what is missing or cannot be used."""
        host, port = _server(config.require("mail.server", "mail.server"), config.text("mail.security"))
        user, security = config.text("mail.user"), config.text("mail.security")
        if user and security == "none":
            raise ConfigError("mail.user is set and mail.security is none", "a password is only sent over TLS")
        reply_to = config.text("mail.reply_to")
        return cls(
            host=host,
            port=port,
            security=security,
            sender=_named("mail.from", config.require("mail.from", "mail.from")),
            reply_to=_named("mail.reply_to", reply_to) if reply_to else None,
            user=user,
            password=_password(config, environment) if user else "",
            context=None if security == "none" else authorities("mail.ca_file", config.text("mail.ca_file")),
            timeout_s=config.integer("mail.timeout") / 1000,
        )


@dataclass(frozen=True)
class WebhookSettings:
    """How webhooks are called."""

    context: ssl.SSLContext
    timeout_s: float

    @classmethod
    def of(cls, config: Config) -> WebhookSettings:
        """From the settings; raises ConfigError."""
        context = authorities("webhook.ca_file", config.text("webhook.ca_file"))
        return cls(context, min(config.integer("webhook.timeout") / 1000, LONGEST_S))


def _server(text: str, security: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or (text.count(":") > 1 and not text.startswith("[")):
        return text.strip("[]"), _PORTS[security]
    if text.endswith("]"):
        return text.strip("[]"), _PORTS[security]
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
        raise ConfigError(f"mail.server '{text}' is not a host and a port", "write it as smtp.example.org:587")
    return host.strip("[]"), int(port)


def _named(name: str, text: str) -> Address:
    """`Zoë <zoe@example.org>` or the address alone."""
    display, address = parseaddr(text)
    try:
        return Address(display_name=display, addr_spec=mail_address(address or text))
    except UsageError as error:
        raise ConfigError(f"{name}: {error.message}", error.hint) from error


def _password(config: Config, environment: Mapping[str, str]) -> str:
    password = _password_as_given(config, environment)
    if not password.isascii():
        raise ConfigError("the password for mail.user has letters beyond ASCII", "choose one without them")
    return password


def _password_as_given(config: Config, environment: Mapping[str, str]) -> str:
    path = config.text("mail.password_file")
    if not path:
        if not (password := environment.get(PASSWORD_VARIABLE, "")):
            raise ConfigError(
                "mail.user is set and there is no password", f"set {PASSWORD_VARIABLE} or mail.password_file"
            )
        return password
    password = given_text("mail.password_file", path, SECRET_BYTES).rstrip("\r\n")
    if not password:
        raise ConfigError(f"mail.password_file {path} is empty", "put the password into its first line")
    return password
