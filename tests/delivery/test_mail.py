"""Mail as its reader's program takes it apart, and to a real server: TLS, login, and what each way of failing means."""

from __future__ import annotations

import email
import re
import socket
from dataclasses import replace
from email import policy
from email.headerregistry import Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.delivery.mail import MailChannel, compose, message_id
from analytics.delivery.model import FAILED, SENT, UNKNOWN, DeliveryOutcome
from analytics.delivery.settings import MailSettings
from fallow import config
from fallow.errors import ConfigError
from tests.delivery.hands import DELIVERY, PICTURE, example_message
from tests.delivery.mail_server import DROP, HANG, Mailbox, mail_server
from tests.ledger.rows import T0

if TYPE_CHECKING:
    import ssl
    from email.message import EmailMessage

PASSWORD = "correct-horse-battery"  # noqa: S105  # a test's own


def settings(port: int, security: str = "none", **changes: str) -> MailSettings:
    flags = {
        "mail.server": f"localhost:{port}",
        "mail.security": security,
        "mail.from": "Zoë <gpu@example.org>",
        "mail.timeout": "300ms",
    }
    given = {f"mail.{key}": value for key, value in changes.items() if key != "password"}
    environment = {"FALLOW_SMTP_PASSWORD": changes["password"]} if "password" in changes else {}
    return MailSettings.of(config.load(flags | given, None, {"FALLOW_CONFIG": ""}), environment)


def send(mail: MailSettings, recipient: str = "lead@example.org") -> DeliveryOutcome:
    return MailChannel(mail, recipient).send(example_message(), DELIVERY, T0)


def test_what_arrives_is_what_was_sent(mailbox: Mailbox) -> None:
    assert send(settings(mailbox.port)) == DeliveryOutcome(SENT, "250 queued as 4711")
    [(address, _)] = mailbox.mails
    [message] = mailbox.messages
    assert address == "lead@example.org"
    text = message.get_body(("plain",))
    assert text is not None
    assert text.get_content().splitlines() == example_message().text.splitlines()
    assert [part.get_filename() for part in message.iter_attachments()] == [
        each.name for each in example_message().attachments
    ]


def test_starttls_with_login(server_context: ssl.SSLContext, ca_file: Path) -> None:
    with mail_server(Mailbox(), starttls=server_context, password=PASSWORD) as box:
        mail = settings(box.port, "starttls", ca_file=str(ca_file), user="fallow", password=PASSWORD, timeout="5s")
        assert send(mail).step == SENT
        wrong = replace(mail, password="wrong")  # noqa: S106
        assert send(wrong) == DeliveryOutcome(
            FAILED, f"the mail server localhost:{box.port}: it does not accept mail.user and its password (535)"
        )
        assert PASSWORD not in repr(mail)
        assert len(box.mails) == 1


def test_tls_from_the_first_byte(server_context: ssl.SSLContext, ca_file: Path) -> None:
    with mail_server(Mailbox(), tls=server_context) as box:
        assert send(settings(box.port, "tls", ca_file=str(ca_file), timeout="5s")).step == SENT
        assert len(box.mails) == 1


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_a_certificate_of_nobody_known_is_not_accepted(server_context: ssl.SSLContext, security: str) -> None:
    contexts = {security: server_context}
    with mail_server(Mailbox(), **contexts) as box:
        outcome = send(settings(box.port, security, timeout="5s"))
        assert outcome.step == FAILED
        assert "its certificate is not accepted" in outcome.reason
        assert box.mails == []


def test_a_certificate_for_another_name_is_not_accepted(server_context: ssl.SSLContext, ca_file: Path) -> None:
    with mail_server(Mailbox(), tls=server_context) as box:
        mail = settings(box.port, "tls", ca_file=str(ca_file), server=f"127.0.0.1:{box.port}", timeout="5s")
        assert "its certificate is not accepted" in send(mail).reason


def test_a_server_without_starttls_gets_nothing_in_the_clear(mailbox: Mailbox, ca_file: Path) -> None:
    mail = settings(mailbox.port, "starttls", ca_file=str(ca_file), user="fallow", password=PASSWORD)
    assert send(mail) == DeliveryOutcome(FAILED, f"the mail server localhost:{mailbox.port} offers no STARTTLS")
    assert mailbox.mails == []


@pytest.mark.parametrize(
    ("sender", "recipient", "message", "said"),
    [
        ("421 closing", "", "", "refused the sender: 421 closing"),
        ("", "450 greylisted", "", "refused the recipient: 450 greylisted"),
        ("", "550 no such user", "", "refused the recipient: 550 no such user"),
        ("", "", "451 try later", "refused the message: 451 try later"),
        ("", "", "552 too large", "refused the message: 552 too large"),
        (DROP, "", "", "connection"),
        ("", DROP, "", "connection"),
        ("", HANG, "", "it did not answer within 0.3 s"),
    ],
    ids=["421", "450", "550", "451", "552", "drop at sender", "drop at recipient", "silent"],
)
def test_what_fails_before_the_last_byte_did_not_arrive(
    mailbox: Mailbox, sender: str, recipient: str, message: str, said: str
) -> None:
    mailbox.to_sender, mailbox.to_recipient["lead@example.org"] = sender, recipient
    mailbox.to_message = [message] if message else []
    outcome = send(settings(mailbox.port))
    assert outcome.step == FAILED
    assert said in outcome.reason
    assert mailbox.mails == []


@pytest.mark.long
@pytest.mark.parametrize("answer", [DROP, HANG])
def test_what_ends_between_the_last_byte_and_the_answer_is_not_known(mailbox: Mailbox, answer: str) -> None:
    mailbox.to_message = [answer]
    outcome = send(settings(mailbox.port))
    assert outcome.step == UNKNOWN
    assert len(mailbox.mails) == 1  # it has arrived, and the sender cannot know


def test_recipients_are_told_apart(mailbox: Mailbox) -> None:
    mailbox.to_recipient["gone@example.org"] = "550 no such user"
    mail = settings(mailbox.port)
    steps = [send(mail, address).step for address in ("a@example.org", "gone@example.org", "b@example.org")]
    assert steps == [SENT, FAILED, SENT]
    assert [address for address, _ in mailbox.mails] == ["a@example.org", "b@example.org"]
    assert [message["To"] for message in mailbox.messages] == ["a@example.org", "b@example.org"]


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "connection refused" in send(settings(port)).reason


@pytest.mark.parametrize("security", ["none", "tls"])
def test_a_server_that_never_says_a_word(security: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        outcome = send(settings(silent.getsockname()[1], security))
    assert (outcome.step, outcome.reason.partition(": ")[2]) == (FAILED, "it did not answer within 0.3 s")


def test_the_password_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", encoding="utf-8")
    assert settings(25, "tls", user="fallow", password_file=str(file)).password == PASSWORD


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"user": "fallow"},
            "mail.user is set and there is no password; set FALLOW_SMTP_PASSWORD or mail.password_file",
        ),
        ({"user": "fallow", "password": "ü"}, "has letters beyond ASCII"),
        ({"user": "fallow", "security": "none", "password": "x"}, "a password is only sent over TLS"),
        ({"user": "fallow", "password_file": "/nowhere"}, "cannot read mail.password_file /nowhere: No such file"),
        ({"from": "nobody"}, "mail.from: 'nobody' is not a mail address"),
        ({"server": "localhost:x"}, "mail.server 'localhost:x' is not a host and a port"),
        ({"ca_file": "/nowhere"}, "cannot read mail.ca_file /nowhere: No such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_settings_that_cannot_be_used(changes: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        settings(25, changes.pop("security", "tls"), **changes)


@pytest.mark.parametrize(
    ("server", "security", "place"),
    [
        ("mx", "starttls", ("mx", 587)),
        ("mx", "tls", ("mx", 465)),
        ("mx:26", "none", ("mx", 26)),
        ("[::1]:26", "none", ("::1", 26)),
        ("::1", "none", ("::1", 25)),
        ("[::1]", "tls", ("::1", 465)),
    ],
)
def test_hosts_and_ports(server: str, security: str, place: tuple[str, int]) -> None:
    mail = settings(1, security, server=server)
    assert (mail.host, mail.port) == place


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
            {"alternative": ["text/plain", {"related": ["text/html", "image/png"]}]},
            "text/html",
            "application/pdf",
        ]
    }


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
    """To see what changed, and to keep it: `python -m tests.delivery.test_mail` writes the file anew."""
    assert composed() == GOLDEN.read_bytes()


if __name__ == "__main__":
    GOLDEN.write_bytes(composed())
