"""The bearer token and the TLS certificate, reloaded when their files change."""

from __future__ import annotations

import hmac
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.errors import ConfigError
from fallow.given_file import CERTIFICATE_BYTES, SECRET_BYTES, given_bytes

if TYPE_CHECKING:
    from fallow.http_server import OpenConnection

log = logging.getLogger("fallow.http")

_Stamp = tuple[int, int, int]


class Token:
    """The token that a client must send. If its file becomes unreadable, the former token stays in force."""

    def __init__(self, path: str, setting: str) -> None:
        """`setting` names the file. Raises ConfigError where the file holds no token."""
        self._path = Path(path)
        self._setting = setting
        self._stamp = _stamp(self._path)
        self._token = self._read()
        if self._path.stat().st_mode & 0o004:
            log.warning("%s can be read by every user of this host; `chmod 640` it", path)

    def allows(self, authorization: str) -> bool:
        """Whether an Authorization header carries the token; takes the same time for every wrong one."""
        self._reread()
        scheme, _, shown = authorization.partition(" ")
        # latin-1 holds whatever bytes came in a header
        return (
            hmac.compare_digest(shown.strip().encode("latin-1", "replace"), self._token) and scheme.lower() == "bearer"
        )

    def _reread(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # an invalid file is reported once, not at every scrape
        try:
            self._token = self._read()
            log.info("read the token in %s again", self._path)
        except ConfigError as error:
            log.warning("%s; the former token stays in force", error)

    def _read(self) -> bytes:
        token = given_bytes(self._setting, self._path, SECRET_BYTES).strip()
        if not token or not token.isascii() or len(token.split()) != 1:
            raise ConfigError(f"{self._setting} {self._path} holds no token", "write one word of ASCII into it")
        return token


class Certificate:
    def __init__(self, certificate: str, key: str) -> None:
        """The two files of metrics.tls_certificate and metrics.tls_key. Raises ConfigError where they cannot be used."""
        self._paths = Path(certificate), Path(key)
        self._stamps = [_stamp(path) for path in self._paths]
        self._context = self._load()

    def encrypt(self, connection: OpenConnection) -> None:
        """Encrypts a connection; its timeout bounds each step of the handshake. Raises OSError where the client fails."""
        self._reload()
        encrypted = self._context.wrap_socket(connection.socket, server_side=True, do_handshake_on_connect=False)
        connection.socket = encrypted  # known before the handshake, so that it can be shut in the middle of it
        encrypted.do_handshake()

    def _reload(self) -> None:
        stamps = [_stamp(path) for path in self._paths]
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = self._load()
            log.info("read the certificate %s again", self._paths[0])
        except ConfigError as error:  # it may be half written, or its key may follow: that is another change
            log.warning("%s; the former certificate stays in force", error)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._paths
        given_bytes("metrics.tls_certificate", certificate, CERTIFICATE_BYTES)
        given_bytes("metrics.tls_key", key, CERTIFICATE_BYTES)
        try:
            # without a password callback, a key with a passphrase would ask on the terminal
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigError(
                f"{certificate} and {key} are not a certificate and its key: {error}",
                "give PEM files without passphrase",
            ) from error
        return context


def _stamp(path: Path) -> _Stamp | None:
    """Changes with the file, also when a rename replaces it; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
