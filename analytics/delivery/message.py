"""The mail itself: a text for everybody, a body with one picture for those whose program shows it, and the documents."""

from __future__ import annotations

import re
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING

from fallow.clock import from_ms

if TYPE_CHECKING:
    from email.headerregistry import Address

    from analytics.delivery.journal import Delivery
    from analytics.delivery.model import Parcel

_CONTENT_ID = re.compile(r"[\"'(]cid:([^\"')\s]+)[\"')]")
_DEFAULT_ID = "picture"


def compose(
    parcel: Parcel, delivery: Delivery, sender: Address, recipient: str, now_ms: int, *, reply_to: Address | None = None
) -> EmailMessage:
    """The message; the same arguments give the same bytes. Every part is 7-bit, so that any server passes it on."""
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = " ".join(parcel.subject.split())
    message["Date"] = format_datetime(from_ms(now_ms - now_ms % 1000))
    message["Message-ID"] = message_id(delivery, sender)
    if reply_to is not None:
        message["Reply-To"] = reply_to
    message["List-Id"] = f"fallow {delivery.purpose} <{delivery.purpose}.fallow.{sender.domain}>"
    # no answering machine answers it (RFC 3834; the second is Exchange's)
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(parcel.text, cte="quoted-printable")
    if parcel.html is not None:
        _add_body(message, parcel.html, parcel.picture)
    for part in parcel.attachments:
        main, _, sub = part.media_type.partition("/")
        message.add_attachment(part.data, maintype=main, subtype=sub, filename=part.name)
    message["Content-Language"] = parcel.language  # here, for whatever sets content clears what is said about it
    # boundaries are random otherwise
    for number, multipart in enumerate(each for each in message.walk() if each.is_multipart()):
        multipart.set_boundary(f"=-{delivery.delivery_id}-{parcel.sha256[:16]}-{number}")
    return message


def message_id(delivery: Delivery, sender: Address) -> str:
    """The same in every try of a delivery: programs show one of several messages with one id."""
    return f"<{delivery.delivery_id}@{sender.domain}>"


def _add_body(message: EmailMessage, html: str, picture: bytes | None) -> None:
    message.add_alternative(html, subtype="html", cte="quoted-printable")
    if picture is None:
        return
    named = _CONTENT_ID.search(html)
    body = list(message.iter_parts())[-1]
    if isinstance(body, EmailMessage):
        content_id = named[1] if named else _DEFAULT_ID
        body.add_related(
            picture, maintype="image", subtype="png", cid=f"<{content_id}>", disposition="inline", filename="week.png"
        )
