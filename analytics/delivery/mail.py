"""Compose a mail and hand it to the mail server, and know whether the server may have taken it.

The server takes nothing before the last byte of the message: after an earlier failure it can be sent again. Between
this byte and the server's answer the outcome is unknown, and only a person may decide to send again.
"""

from __future__ import annotations

import contextlib
import re
import smtplib
import socket
import ssl
import threading
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime

from analytics.delivery.model import FAILED, SENT, UNKNOWN, Delivery, DeliveryOutcome, Message
from analytics.delivery.settings import MailSettings
from analytics.language.sentences import plain
from fallow.clock import from_ms
from fallow.connection_faults import connection_fault

_CONTENT_ID = re.compile(r"[\"'(]cid:([^\"')\s]+)[\"')]")
_DEFAULT_ID = "picture"


def compose(
    message: Message,
    delivery: Delivery,
    sender: Address,
    recipient: str,
    now_ms: int,
    *,
    reply_to: Address | None = None,
) -> EmailMessage:
    """Return the message.

    The same arguments give the same bytes. Every part is 7-bit, so that any server forwards it.
    """
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"] = sender
    mail["To"] = recipient
    mail["Subject"] = " ".join(message.subject.split())
    mail["Date"] = format_datetime(from_ms(now_ms - now_ms % 1000))
    mail["Message-ID"] = message_id(delivery, sender)
    if reply_to is not None:
        mail["Reply-To"] = reply_to
    mail["List-Id"] = f"fallow {delivery.purpose} <{delivery.purpose}.fallow.{sender.domain}>"
    # no answering machine answers it (RFC 3834; the second is Exchange's)
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(message.text, cte="quoted-printable")
    if message.html is not None:
        _add_body(mail, message.html, message.picture)
    for part in message.attachments:
        main, _, sub = part.media_type.partition("/")
        mail.add_attachment(part.data, maintype=main, subtype=sub, filename=part.name)
    mail["Content-Language"] = message.language  # after the content, because setting content removes this header
    # boundaries are random otherwise
    for number, multipart in enumerate(each for each in mail.walk() if each.is_multipart()):
        multipart.set_boundary(f"=-{delivery.delivery_id}-{message.sha256[:16]}-{number}")
    return mail


def message_id(delivery: Delivery, sender: Address) -> str:
    """Return the id, which is the same in every try: mail programs show one of several messages with one id."""
    return f"<{delivery.delivery_id}@{sender.domain}>"


def _add_body(mail: EmailMessage, html: str, picture: bytes | None) -> None:
    mail.add_alternative(html, subtype="html", cte="quoted-printable")
    if picture is None:
        return
    named = _CONTENT_ID.search(html)
    body = list(mail.iter_parts())[-1]
    if isinstance(body, EmailMessage):
        content_id = named[1] if named else _DEFAULT_ID
        body.add_related(
            picture, maintype="image", subtype="png", cid=f"<{content_id}>", disposition="inline", filename="week.png"
        )


_FAREWELL_S = 5.0


class Refused(Exception):  # noqa: N818  # the server's decision
    """The server refused; the text names the refused command."""


class Conversation:
    """A conversation with the server. Entering raises Refused, OSError and SMTPException; leaving closes it.

    It ends after `whole_s` in any case: a server that sends a byte now and then never reaches a timeout of the socket.
    """

    def __init__(self, settings: MailSettings, whole_s: float) -> None:
        self._settings = settings
        self._sock: socket.socket | None = None
        self._smtp: smtplib.SMTP | None = None
        self._timer = threading.Timer(whole_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> smtplib.SMTP:
        """Return the client, connected and ready for a message."""
        self._timer.start()
        try:
            return self._open()
        except BaseException:
            self._end()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Quit if the conversation succeeded."""
        if kind is None and self._smtp is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                self.wait_for_s(_FAREWELL_S)
                self._smtp.quit()
        self._end()

    def wait_for_s(self, seconds: float) -> None:
        """Set how long each following answer may take."""
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
            raise Refused(f"{place(settings)} refuses to talk: {server_answer(code, text)}")
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
        # capabilities that the server sent without encryption no longer count
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
    return f"the mail server {settings.host}:{settings.port}"


def server_answer(code: int, text: bytes) -> str:
    """Return the server's answer on one line."""
    return plain(f"{code} {text.decode('utf-8', 'replace')}", 200)


def in_words(error: Exception, settings: MailSettings) -> str:
    """Return why it failed, never with sent text, which smtplib's own messages may repeat."""
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
        return server_answer(error.smtp_code, error.smtp_error if isinstance(error.smtp_error, bytes) else b"")
    return "the connection ended before it had the whole message"


_PERIOD = re.compile(rb"^\.", re.MULTILINE)
_WHOLE = 10
_LONGEST_S = 300.0
"""Time limit of a whole message, whatever mail.timeout is: well below the lease of a delivery."""


class MailChannel:
    repeatable = False

    def __init__(self, settings: MailSettings, recipient: str) -> None:
        self._settings, self._recipient = settings, recipient

    def send(self, message: Message, delivery: Delivery, now_ms: int) -> DeliveryOutcome:
        settings = self._settings
        mail = compose(message, delivery, settings.sender, self._recipient, now_ms, reply_to=settings.reply_to)
        return hand_in(settings, self._recipient, mail.as_bytes())


def hand_in(settings: MailSettings, recipient: str, data: bytes) -> DeliveryOutcome:
    """Give the message, with CRLF line ends, to the server for one recipient."""
    try:
        conversation = Conversation(settings, whole_s(settings))
        with conversation as smtp:
            _expect(smtp.mail(settings.sender.addr_spec), "the sender")
            _expect(smtp.rcpt(recipient), "the recipient")
            _expect(smtp.docmd("DATA"), "the message", (354,))
            # a server may look for viruses before it answers, and a timeout after the last byte leaves a doubt for ever
            conversation.wait_for_s(whole_s(settings))
            smtp.send(_PERIOD.sub(b"..", data) + b".\r\n")
            return _answer(smtp)
    except Refused as refusal:
        return DeliveryOutcome(FAILED, str(refusal))
    except (OSError, smtplib.SMTPException) as error:
        return DeliveryOutcome(FAILED, f"{place(settings)}: {in_words(error, settings)}")


def whole_s(settings: MailSettings) -> float:
    """Return the time limit of a whole message."""
    return min(_WHOLE * settings.timeout_s, _LONGEST_S)


def _answer(smtp: smtplib.SMTP) -> DeliveryOutcome:
    """Return the server's answer after the last byte."""
    try:
        code, text = smtp.getreply()
    except (OSError, smtplib.SMTPException):
        return DeliveryOutcome(
            UNKNOWN, "the connection ended after the whole message and before the mail server's answer"
        )
    if 200 <= code < 300:
        return DeliveryOutcome(SENT, server_answer(code, text))
    if not 400 <= code < 600:
        return DeliveryOutcome(
            UNKNOWN, f"the mail server's answer after the whole message says nothing: {server_answer(code, text)}"
        )
    return DeliveryOutcome(FAILED, f"the mail server refused the message: {server_answer(code, text)}")


def _expect(reply: tuple[int, bytes], what: str, wanted: tuple[int, ...] = (250, 251)) -> None:
    code, text = reply
    if code not in wanted:
        raise Refused(f"the mail server refused {what}: {server_answer(code, text)}")
