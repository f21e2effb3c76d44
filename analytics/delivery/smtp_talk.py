"""A conversation with the mail server: connected, protected and logged in as the settings say, and ended in any case."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from analytics.language.plain_text import plain

if TYPE_CHECKING:
    from analytics.delivery.settings import MailSettings

_FAREWELL_S = 5.0


class Refused(Exception):  # noqa: N818  # the server's decision
    """The server said no; the text says to what."""


class Conversation:
    """Opens on entry, which raises Refused, OSError and SMTPException, and closes on exit.

    It is shut down after `whole_s`, whatever is being said: a server that sends a byte now and then never runs into a
    timeout of the socket.
    """

    def __init__(self, settings: MailSettings, whole_s: float) -> None:
        self._settings = settings
        self._sock: socket.socket | None = None
        self._smtp: smtplib.SMTP | None = None
        self._timer = threading.Timer(whole_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> smtplib.SMTP:
        """The client, greeted and ready for a message."""
        self._timer.start()
        try:
            return self._open()
        except BaseException:
            self._end()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Says goodbye where the conversation went well."""
        if kind is None and self._smtp is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                self.wait_for_s(_FAREWELL_S)
                self._smtp.quit()
        self._end()

    def wait_for_s(self, seconds: float) -> None:
        """How long each answer may take from now on."""
        if self._sock is not None:
            self._sock.settimeout(seconds)

    def _open(self) -> smtplib.SMTP:
        settings = self._settings
        self._sock = socket.create_connection((settings.host, settings.port), settings.timeout_s)
        if settings.security == "tls":
            self._protect()
        smtp = self._client()
        code, text = smtp.getreply()
        if code != 220:
            raise Refused(f"{place(settings)} refuses to talk: {said(code, text)}")
        smtp.ehlo_or_helo_if_needed()
        if settings.security == "starttls":
            smtp = self._start_tls(smtp)
        if settings.user:
            smtp.login(settings.user, settings.password)
        return smtp

    def _start_tls(self, smtp: smtplib.SMTP) -> smtplib.SMTP:
        if not smtp.has_extn("starttls"):
            raise Refused(f"{place(self._settings)} offers no STARTTLS")
        code, _ = smtp.docmd("STARTTLS")
        if code != 220:
            raise Refused(f"{place(self._settings)} refuses STARTTLS ({code})")
        self._protect()
        # nothing that was said in the clear counts any more
        protected = self._client()
        protected.ehlo_or_helo_if_needed()
        return protected

    def _protect(self) -> None:
        if self._sock is None or self._settings.context is None:
            raise Refused("there is nothing to protect the connection with")
        self._sock = self._settings.context.wrap_socket(
            self._sock, server_hostname=self._settings.host, do_handshake_on_connect=False
        )
        self._sock.do_handshake()

    def _client(self) -> smtplib.SMTP:
        self._smtp = smtplib.SMTP(timeout=self._settings.timeout_s)
        self._smtp.sock = self._sock
        return self._smtp

    def _cut(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                # not the method of a TLS socket, which would take its state away from under the reader
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _end(self) -> None:
        self._timer.cancel()
        if self._smtp is not None:
            self._smtp.close()
        if self._sock is not None:
            self._sock.close()


def place(settings: MailSettings) -> str:
    """The server, for messages."""
    return f"the mail server {settings.host}:{settings.port}"


def said(code: int, text: bytes) -> str:
    """The server's answer, on one line."""
    return plain(f"{code} {text.decode('utf-8', 'replace')}", 200)


def in_words(error: Exception, settings: MailSettings) -> str:
    """Why it did not work, never with what was sent: smtplib's own texts may repeat it."""
    cause = error.__context__  # of smtplib's own word for any fault of the socket
    if isinstance(error, smtplib.SMTPServerDisconnected) and isinstance(cause, OSError):
        error = cause
    if isinstance(error, smtplib.SMTPException):
        return _refusal(error)
    why = connection_fault(error)
    if isinstance(error, TimeoutError):
        return f"{why} within {settings.timeout_s:g} s"
    return f"{why}; check mail.security ({settings.security}) and the port" if isinstance(error, ssl.SSLError) else why


def _refusal(error: smtplib.SMTPException) -> str:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"it does not accept mail.user and its password ({error.smtp_code})"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "it offers no login over this connection; check mail.security and mail.user"
    if isinstance(error, smtplib.SMTPResponseException):
        return said(error.smtp_code, error.smtp_error if isinstance(error.smtp_error, bytes) else b"")
    return "the connection ended before it had the whole message"


def connection_fault(error: Exception) -> str:
    """What an error of a socket or of TLS means, without anything that was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({(error.reason or 'it ended').replace('_', ' ').lower()})"
    if isinstance(error, TimeoutError):
        return "it did not answer"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    return (getattr(error, "strerror", None) or "the connection broke").lower()
