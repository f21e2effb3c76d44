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
        """Read the token; `setting` names the file in errors. Raises ConfigError if the file has no token."""
        self._path = Path(path)
        self._setting = setting
        self._stamp = _stamp(self._path)
        self._token = self._read()
        if self._path.stat().st_mode & 0o004:
            log.warning("%s can be read by every user of this host; `chmod 640` it", path)

    def allows(self, authorization: str) -> bool:
        """Return whether an Authorization header has the token, in a time that does not depend on the wrong token."""
        self._reread()
        scheme, _, shown = authorization.partition(" ")
        # latin-1 can represent all bytes of a header
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
            raise ConfigError(f"{self._setting} {self._path} has no token", "write one word of ASCII to the file")
        return token


class Certificate:
    def __init__(self, certificate: str, key: str) -> None:
        """Read metrics.tls_certificate and metrics.tls_key. Raises ConfigError if the files cannot be used."""
        self._paths = Path(certificate), Path(key)
        self._stamps = [_stamp(path) for path in self._paths]
        self._context = self._load()

    def encrypt(self, connection: OpenConnection) -> None:
        """Encrypt a connection; its timeout limits each step of the handshake. Raises OSError if the client fails."""
        self._reload()
        encrypted = self._context.wrap_socket(connection.socket, server_side=True, do_handshake_on_connect=False)
        connection.socket = encrypted  # set before the handshake, so that the handshake can be interrupted
        encrypted.do_handshake()

    def _reload(self) -> None:
        stamps = [_stamp(path) for path in self._paths]
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = self._load()
            log.info("read the certificate %s again", self._paths[0])
        except ConfigError as error:  # the file may be incomplete, or its key may follow: both change the files again
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
    """Return a value that changes with the file, also after a rename; None if the file cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
