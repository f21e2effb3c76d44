"""The mail as its reader's program takes it apart."""

from __future__ import annotations

import email
import re
from dataclasses import replace
from email import policy
from email.headerregistry import Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.delivery.mail import compose, message_id
from tests.delivery.hands import DELIVERY, PICTURE, example_message
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from email.message import EmailMessage

GOLDEN = Path(__file__).with_name("golden") / "mail.eml"
SENDER = Address("Zoë (GPU team)", addr_spec="gpu@example.org")


def composed(**changes: object) -> bytes:
    return compose(example_message(**changes), DELIVERY, SENDER, "lead@example.org", T0).as_bytes()


def read(data: bytes) -> EmailMessage:
    return email.message_from_bytes(data, policy=policy.default)


def shape(message: EmailMessage) -> object:
    if not message.is_multipart():
        return message.get_content_type()
    return {message.get_content_subtype(): [shape(part) for part in message.iter_parts()]}


def test_the_parts_lie_as_programs_expect_them() -> None:
    assert shape(read(composed())) == {
        "mixed": [
            {"alternative": ["text/plain", {"related": ["text/html", "image/png"]}]}, "text/html", "application/pdf",
        ]
    }  # fmt: skip


def test_a_text_alone_is_a_text() -> None:
    assert shape(read(composed(html=None, picture=None, attachments=()))) == "text/plain"


def test_the_picture_stands_where_the_body_names_it() -> None:
    message = read(composed())
    html = message.get_body(("html",))
    assert html is not None
    named = re.findall(r'src="cid:([^"]+)"', html.get_content())
    [picture] = [part for part in message.walk() if part.get_content_type() == "image/png"]
    assert named == [picture["Content-ID"].strip("<>")]
    assert picture.get_content() == PICTURE
    assert picture.get_content_disposition() == "inline"


def test_documents_come_whole() -> None:
    documents = {part.get_filename(): part for part in read(composed()).iter_attachments()}
    for part in example_message().attachments:
        content = documents[part.name].get_payload(decode=True)
        assert content == part.data


def test_headers() -> None:
    message = read(composed())
    assert message["From"].addresses[0].display_name == "Zoë (GPU team)"
    assert message["Date"].datetime.isoformat() == "2026-11-20T00:00:00+00:00"
    assert message["Message-ID"] == f"<{DELIVERY.delivery_id}@example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["List-Id"] == "fallow report <report.fallow.example.org>"
    assert message["MIME-Version"] == "1.0"
    assert message["Content-Language"] == "en"
    answer = compose(example_message(), DELIVERY, SENDER, "a@b.org", T0, reply_to=Address(addr_spec="help@example.org"))
    assert answer["Reply-To"].addresses[0].addr_spec == "help@example.org"


def test_the_same_gives_the_same_bytes_and_every_try_the_same_id() -> None:
    assert composed() == composed()
    later = compose(example_message(), DELIVERY, SENDER, "lead@example.org", T0 + 3_600_000)
    assert later["Message-ID"] == message_id(DELIVERY, SENDER)
    assert message_id(replace(DELIVERY, round=1), SENDER) != message_id(DELIVERY, SENDER)


@pytest.mark.parametrize(
    "subject",
    [
        "Rapport sur le gâchis de GPU",
        "שלום \N{RIGHT-TO-LEFT OVERRIDE}abc",
        "x" * 400,
        "ü" * 400,
        "two\r\nBcc: all@example.org\nlines",
        "=?utf-8?q?x?=",
    ],
    ids=["french", "right to left", "long", "long and beyond ASCII", "lines", "looks encoded"],
)
def test_any_subject_is_one_header_in_plain_letters(subject: str) -> None:
    data = composed(subject=subject)
    assert data.isascii()
    assert max(map(len, data.split(b"\r\n"))) <= 998
    message = read(data)
    assert message["Bcc"] is None
    assert message["Subject"].replace(" ", "") == "".join(subject.split()) or subject.startswith("=?")


def test_lines_end_as_smtp_wants_them() -> None:
    data = composed()
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", data)
    assert data.endswith(b"\r\n")


def test_the_golden_mail() -> None:
    """To see what changed, and to keep it: `python -m tests.delivery.test_message` writes the file anew."""
    assert composed() == GOLDEN.read_bytes()


if __name__ == "__main__":
    GOLDEN.write_bytes(composed())
