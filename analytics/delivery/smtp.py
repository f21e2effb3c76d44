"""Handing one message to the mail server, and knowing at every moment whether it can have been taken.

Up to the last byte of the message nothing is delivered: whatever breaks before can be sent again. Between that byte and the
server's answer nobody knows, and only a person may decide.
"""

from __future__ import annotations

import re
import smtplib
from typing import TYPE_CHECKING

from analytics.delivery.message import compose
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Outcome
from analytics.delivery.smtp_talk import Conversation, Refused, in_words, place, said

if TYPE_CHECKING:
    from analytics.delivery.journal import Delivery
    from analytics.delivery.model import Parcel
    from analytics.delivery.settings import MailSettings

_PERIOD = re.compile(rb"^\.", re.MULTILINE)
_WHOLE = 10
_LONGEST_S = 300.0
"""For a whole message, whatever mail.timeout is: well below the lease of a delivery."""


class MailChannel:
    """Mail to one address."""

    repeatable = False

    def __init__(self, settings: MailSettings, recipient: str) -> None:
        self._settings, self._recipient = settings, recipient

    def send(self, parcel: Parcel, delivery: Delivery, now_ms: int) -> Outcome:
        """One message to one address."""
        settings = self._settings
        message = compose(parcel, delivery, settings.sender, self._recipient, now_ms, reply_to=settings.reply_to)
        return hand_in(settings, self._recipient, message.as_bytes())


def hand_in(settings: MailSettings, recipient: str, data: bytes) -> Outcome:
    """Gives the message, with lines that end in CRLF, to the server for one recipient."""
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
        return Outcome(FAILED, str(refusal))
    except (OSError, smtplib.SMTPException) as error:
        return Outcome(FAILED, f"{place(settings)}: {in_words(error, settings)}")


def whole_s(settings: MailSettings) -> float:
    """How long a whole message may take."""
    return min(_WHOLE * settings.timeout_s, _LONGEST_S)


def _answer(smtp: smtplib.SMTP) -> Outcome:
    """What the server says after the last byte."""
    try:
        code, text = smtp.getreply()
    except (OSError, smtplib.SMTPException):
        return Outcome(UNKNOWN, "the connection ended after the whole message and before the mail server's answer")
    if 200 <= code < 300:
        return Outcome(SENT, said(code, text))
    if not 400 <= code < 600:
        return Outcome(UNKNOWN, f"the mail server's answer after the whole message says nothing: {said(code, text)}")
    return Outcome(FAILED, f"the mail server refused the message: {said(code, text)}")


def _expect(reply: tuple[int, bytes], what: str, wanted: tuple[int, ...] = (250, 251)) -> None:
    code, text = reply
    if code not in wanted:
        raise Refused(f"the mail server refused {what}: {said(code, text)}")
