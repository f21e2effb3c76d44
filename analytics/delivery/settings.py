"""Settings of mail and webhooks. Passwords come only from a file or the environment."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from urllib.parse import urlsplit

from fallow.config import Config
from fallow.errors import ConfigError, UsageError
from fallow.given_file import SECRET_BYTES, authorities, given_text
from fallow.stores import OBJECT_SCHEMES

CHATS = ("slack", "mattermost", "teams", "generic")
"""Kinds of webhooks; `analytics.delivery.webhook` has the JSON of each."""

_HOSTS = {
    "hooks.slack.com": "slack",
    "hooks.slack-gov.com": "slack",
    ".logic.azure.com": "teams",
    ".api.powerplatform.com": "teams",
    ".webhook.office.com": "teams",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HINT = "write mailto:NAME@HOST, https://..., slack+https://..., a folder or s3://bucket/prefix"
_DOMAIN = re.compile(r"(?!-)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")


@dataclass(frozen=True)
class Target:
    """One place: `kind` is mail, folder or one of CHATS, and `address` is its address, which may be a secret.

    `shown` may be printed and recorded. Two targets with the same `shown` are the same place.
    """

    kind: str
    address: str = field(repr=False)
    shown: str


def parse_targets(texts: Iterable[str], kind: str = "auto") -> tuple[Target, ...]:
    """Return the targets, each once. `kind` is the kind of an https:// address without a prefix. Raises UsageError."""
    found = [target for text in texts for target in _parse(text.strip(), kind)]
    return tuple({target.shown: target for target in found}.values())


def _parse(text: str, kind: str) -> list[Target]:
    scheme, separator, rest = text.partition(":")
    before, plus, url_scheme = scheme.rpartition("+")
    if scheme == "mailto" or ("@" in text and not separator):
        return [mail_target(each.strip()) for each in (rest if separator else text).split(",")]
    if url_scheme in ("https", "http"):
        if plus and before not in CHATS:
            raise UsageError(f"there is no webhook of the kind '{before}'", f"the kinds are {', '.join(CHATS)}")
        return [_webhook(f"{url_scheme}:{rest}", before or kind)]
    if scheme == "file" or scheme in OBJECT_SCHEMES or (text.startswith(("/", "./", "../", "~/"))):
        path = text if scheme in OBJECT_SCHEMES else text.removeprefix("file:").removeprefix("//")
        if path.strip("/"):
            return [_folder(path)]
    # it may be the address of a webhook with a typing error, which is a secret: it is not repeated
    raise UsageError("a target is neither a mail address, nor a webhook, nor a folder", _HINT)


def mail_target(text: str) -> Target:
    """Return the target of one mail address. Raises UsageError for an invalid address."""
    address = mail_address(text)
    return Target("mail", address, f"mailto:{address}")


def mail_address(text: str) -> str:
    """Return the address alone, with its domain in lower case and in ASCII. Raises UsageError."""
    try:
        address = Address(addr_spec=text)
        domain = address.domain.encode("idna").decode("ascii").lower()
    except (HeaderParseError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"'{text}' is not a mail address", "write it as name@example.org") from error
    if not address.username or not address.username.isascii() or not address.username.isprintable():
        raise UsageError(f"'{text}' is not a mail address that every server takes", "use one in plain letters")
    if not _DOMAIN.fullmatch(domain):
        raise UsageError(f"'{text}' is not a mail address", "write it as name@example.org")
    return str(Address(username=address.username, domain=domain).addr_spec)


def _webhook(url: str, kind: str) -> Target:
    """Return the target of a webhook. Path and query of the address let any person post, so they are never shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or not url.isprintable() or not url.isascii() or " " in url:
        raise UsageError(
            "a webhook's address has no host, or characters that no address may have", "write it as https://host/path"
        )
    if parts.username is not None:
        raise UsageError(f"the address of the webhook at {host} carries a name or password", "leave them out")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise UsageError(f"the webhook at {host} has an address without TLS", "write https://")
    chosen = _kind_of_host(host) if kind == "auto" else kind
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    place = f"[{host}]" if ":" in host else host
    return Target(chosen, url, f"{chosen}+{parts.scheme}://{place}{f':{port}' if port else ''}/#{digest}")


def _kind_of_host(host: str) -> str:
    return next(
        (kind for name, kind in _HOSTS.items() if host == name or (name.startswith(".") and host.endswith(name))),
        "generic",
    )


def _folder(location: str) -> Target:
    from fallow.stores import open_store  # only to learn what it is called: nothing is contacted

    root = open_store(location).root
    return Target("folder", location, root if "://" in root else f"file:{root}")


PASSWORD_VARIABLE = "FALLOW_SMTP_PASSWORD"  # noqa: S105  # a name
LONGEST_S = 60.0
"""Time limit of one answer of a webhook, so that all tries together end well before the lease of a delivery."""

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
        """Read the settings. Raises ConfigError and UsageError for missing or invalid settings."""
        host, port = _server(config.require("mail.server"), config.text("mail.security"))
        user, security = config.text("mail.user"), config.text("mail.security")
        if user and security == "none":
            raise ConfigError("mail.user is set and mail.security is none", "a password is only sent over TLS")
        reply_to = config.text("mail.reply_to")
        return cls(
            host=host,
            port=port,
            security=security,
            sender=_named("mail.from", config.require("mail.from")),
            reply_to=_named("mail.reply_to", reply_to) if reply_to else None,
            user=user,
            password=_password(config, environment) if user else "",
            context=None if security == "none" else authorities("mail.ca_file", config.text("mail.ca_file")),
            timeout_s=config.integer("mail.timeout") / 1000,
        )


@dataclass(frozen=True)
class WebhookSettings:
    context: ssl.SSLContext
    timeout_s: float

    @classmethod
    def of(cls, config: Config) -> WebhookSettings:
        """Read the settings. Raises ConfigError."""
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
    """Return `Zoë <zoe@example.org>`, or the address alone."""
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
