"""The address and the login of a metrics server; secrets come from files and the environment, and are never shown."""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from fallow.config import Config
from fallow.errors import ConfigError
from fallow.given_file import CERTIFICATE_BYTES, SECRET_BYTES, authorities, given_bytes, given_text
from fallow.outside_text import visible

TOKEN_VARIABLE = "FALLOW_PROM_TOKEN"  # noqa: S105  # a name
PASSWORD_VARIABLE = "FALLOW_PROM_PASSWORD"  # noqa: S105  # a name

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NEXT_HEADER = re.compile(r",\s*(?=[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*:)")
"""A comma inside a value does not end it."""
_EXAMPLE = "give it as https://prometheus.example.org:9090 or with a path, https://mimir.example.org/prometheus"
_PAGES = re.compile(r"/(graph|query|alerts|targets|vmui|api(/v1(/\w+)?)?)/?$")
"""Endings that people copy from a browser's address along with the server's own."""


@dataclass(frozen=True)
class ServerAddress:
    """`url` ends without a slash and holds no secret; user and password in it are taken as `user` and `password`."""

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read again for every request, because tokens are replaced, mostly every hour."""

    user: str = ""
    password: str = field(default="", repr=False)
    tenant: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid server address or header."""
        parts = _split(self.url)
        if parts.username is not None:
            object.__setattr__(self, "user", self.user or unquote(parts.username))
            object.__setattr__(self, "password", self.password or unquote(parts.password or ""))
        shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"'{visible(shown, 200)}' is not the address of a metrics server", _EXAMPLE)
        if parts.query or parts.fragment:
            raise ConfigError(f"the address {visible(shown, 200)} has more after it (? or #)", _EXAMPLE)
        object.__setattr__(self, "url", _PAGES.sub("", shown.rstrip("/")).rstrip("/"))
        if (self.token or self.token_file) and self.user:
            raise ConfigError("there are both a token and a user for the metrics server", "give one of the two")
        self.sent_headers()

    @classmethod
    def of(cls, config: Config, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the address of settings `prometheus.*`. Raises UsageError without a URL, ConfigError for bad files."""
        user, token_file = config.text("prometheus.user"), config.text("prometheus.token_file")
        password_file = config.text("prometheus.password_file")
        password = environment.get(PASSWORD_VARIABLE, "").strip()
        return cls(
            url=config.require("prometheus.url", "--url"),
            token="" if user or token_file else environment.get(TOKEN_VARIABLE, "").strip(),
            token_file=token_file,
            user=user,
            password=_secret("prometheus.password_file", password_file) if user and password_file else password,
            tenant=config.text("prometheus.tenant"),
            headers=dict(map(_header, filter(None, _NEXT_HEADER.split(config.text("prometheus.headers").strip())))),
            ca_file=config.text("prometheus.ca_file"),
            certificate=config.text("prometheus.certificate"),
            key=config.text("prometheus.key"),
        )

    @property
    def has_login(self) -> bool:
        return bool(self.token or self.token_file or self.user or "authorization" in map(str.lower, self.headers))

    @property
    def is_overheard(self) -> bool:
        """Return whether a login goes over a network unencrypted."""
        parts = urlsplit(self.url)
        local = parts.hostname in {"localhost", "::1"} or (parts.hostname or "").startswith("127.")
        return self.has_login and parts.scheme == "http" and not local

    def sent_headers(self) -> dict[str, str]:
        """Return the headers of every request. Raises ConfigError for invalid ones, or a file that cannot be read."""
        sent = dict(self.headers)
        if self.tenant:
            sent["X-Scope-OrgID"] = self.tenant
        token = _secret("prometheus.token_file", self.token_file) if self.token_file else self.token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if self.user:
            sent["Authorization"] = "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()
        for name, value in sent.items():
            _check_header(name, value)
        return sent

    def masked(self, text: str) -> str:
        """Return a text of the server without secrets that it may repeat."""
        sent = self.sent_headers()
        secrets = [sent.get("Authorization", "").rpartition(" ")[2], self.password, *sent.values()]
        for secret in sorted({each for each in secrets if len(each) > 3} - {self.tenant}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context. Raises ConfigError for files that are not PEM."""
        context = authorities("prometheus.ca_file", self.ca_file)
        if self.certificate:
            given_bytes("prometheus.certificate", self.certificate, CERTIFICATE_BYTES)
            if self.key:
                given_bytes("prometheus.key", self.key, CERTIFICATE_BYTES)
            try:
                context.load_cert_chain(self.certificate, self.key or None, password=_no_password)
            except OSError as error:
                reason = error.strerror or "it is not PEM, or not of this key"
                raise ConfigError(
                    f"cannot use prometheus.certificate {self.certificate}: {reason}",
                    "give a PEM file that this user may read, with its key",
                ) from error
        return context


def _split(url: str) -> SplitResult:
    """Return the URL's parts, empty where it is invalid, so that no secret in it is shown."""
    try:
        parts = urlsplit(url.strip())
        return parts if parts.port != 0 and not re.search(r"[\s\x00-\x1f]", url.strip()) else SplitResult(*[""] * 5)
    except ValueError:
        return SplitResult(*[""] * 5)


def _no_password() -> str:
    """Return no password for an encrypted key: asking for one would block a service."""
    return ""


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ConfigError("a header is without a colon", "write each as `Name: value`")
    return name.strip(), value.strip()


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError(f"'{visible(name, 80)}' is not the name of a header", "write each as `Name: value`")
    if not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"the header {name} has characters that cannot be sent", "use printable ASCII without line ends"
        )


def _secret(setting: str, path: str) -> str:
    text = given_text(setting, path, SECRET_BYTES).strip()
    if not text:
        raise ConfigError(f"{setting} {path} is empty", "put the secret into its first line")
    return text
