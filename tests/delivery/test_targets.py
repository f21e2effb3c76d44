"""Targets as people write them, and secrets that are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.delivery.channels import FolderChannel, safe
from analytics.delivery.model import FAILED, SENT, DeliveryOutcome, MessagePart
from analytics.delivery.settings import Target, mail_address, parse_targets
from fallow.errors import UsageError
from fallow.stores import objects
from tests.delivery.hands import DELIVERY, example_message
from tests.ledger.rows import T0
from tests.publishing.conftest import object_store, s3  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from tests.publishing.conftest import S3

TOKEN = "T0/B0/hush-hush"  # noqa: S105  # what must not be seen


def one(text: str, kind: str = "auto") -> Target:
    [target] = parse_targets([text], kind)
    return target


@pytest.mark.parametrize(
    ("text", "kind", "chosen"),
    [
        (f"https://hooks.slack.com/services/{TOKEN}", "auto", "slack"),
        (f"https://x.webhook.office.com/{TOKEN}", "auto", "teams"),
        (f"https://prod-1.westeurope.logic.azure.com:443/workflows/{TOKEN}?sig=x", "auto", "teams"),
        (f"https://evil-hooks.slack.com.example.org/{TOKEN}", "auto", "generic"),
        (f"https://chat.example.org/hooks/{TOKEN}", "auto", "generic"),
        (f"https://chat.example.org/hooks/{TOKEN}", "mattermost", "mattermost"),
        (f"mattermost+https://chat.example.org/hooks/{TOKEN}", "slack", "mattermost"),
        (f"generic+http://127.0.0.1:8080/{TOKEN}", "auto", "generic"),
    ],
)
def test_webhooks(text: str, kind: str, chosen: str) -> None:
    target = one(text, kind)
    assert target.kind == chosen
    assert target.address == text.removeprefix(f"{chosen}+")
    assert "hush" not in target.shown + repr(target)
    assert target.shown.startswith(f"{chosen}+http")


def test_two_webhooks_of_one_host_are_two_places() -> None:
    texts = [f"https://hooks.slack.com/{name}" for name in ("a", "b", "a")]
    assert len({target.shown for target in parse_targets(texts)}) == len(parse_targets(texts)) == 2


def test_mail_addresses() -> None:
    targets = parse_targets(["mailto:Lead@Example.ORG, b@example.org", "c@bücher.example"])
    assert [target.shown for target in targets] == [
        "mailto:Lead@example.org",
        "mailto:b@example.org",
        "mailto:c@xn--bcher-kva.example",
    ]


@pytest.mark.parametrize(
    "text",
    ["a", "a@", "@b", "a b@c", "a@b\nRCPT TO:<x@y>", "<a@b.org>", "a@b.org,x", "ä@b.org", "a@b..org", "a@-b.org", ""],
)
def test_what_is_no_mail_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not a mail address"):
        mail_address(text)


def test_folders() -> None:
    assert {one(text).shown for text in ("/srv/reports", "file:/srv/reports", "file:///srv/reports")} == {
        "file:/srv/reports"
    }
    assert one("./reports").shown == f"file:{Path.cwd()}/reports"
    assert one("s3://bucket/reports/").shown == "s3://bucket/reports"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://x/y", "a target is neither a mail address, nor a webhook, nor a folder"),
        ("lead", "a target is neither"),
        ("", "a target is neither"),
        ("file:", "a target is neither"),
        (f"htps://hooks.slack.com/{TOKEN}", "a target is neither"),
        (f"http://chat.example.org/{TOKEN}", "the webhook at chat.example.org has an address without TLS"),
        ("https://ann:hush@chat.example.org/x", "the address of the webhook at"),
        (f"https://chat.example.org/ü{TOKEN}", "or characters that no address may have"),
        (f"https:///{TOKEN}", "a webhook's address has no host"),
        (f"irc+https://chat.example.org/{TOKEN}", "there is no webhook of the kind 'irc'"),
        (f"https://chat.example.org/{TOKEN} x", "a webhook's address has no host"),
    ],
)
def test_what_is_no_target_is_said_without_the_secret(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse_targets([text])
    assert "hush" not in str(error.value)


def channel(folder: Path) -> FolderChannel:
    [target] = parse_targets([f"file:{folder}"])
    return FolderChannel(target)


def test_every_document_lies_below_its_week(tmp_path: Path) -> None:
    own = channel(tmp_path / "reports")
    assert own.send(example_message(), DELIVERY, T0) == DeliveryOutcome(SENT, "2 files")
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {f"reports/2026-W46/{part.name}": part.data for part in example_message().attachments}
    assert own.send(example_message(), DELIVERY, T0).step == SENT
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file", encoding="utf-8")
    outcome = channel(tmp_path / "reports").send(example_message(), DELIVERY, T0)
    assert outcome.step == FAILED
    assert f"cannot create the folder {tmp_path}/reports: File exists" in outcome.reason


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a\0b", "..", "", "x" * 300, "größe", ".hidden", "a b"])
def test_a_name_stays_in_its_folder_and_is_one_of_its_own(tmp_path: Path, name: str) -> None:
    changed = example_message(attachments=(MessagePart(name, "text/html", b"1"), MessagePart("a-b", "text/html", b"2")))
    assert channel(tmp_path / "reports").send(changed, DELIVERY, T0).step == SENT
    files = list((tmp_path / "reports" / "2026-W46").iterdir())
    assert {path.read_bytes() for path in files} == {b"1", b"2"}
    assert all(path.name.isascii() and len(path.name) <= 120 for path in files)
    assert sorted(path.parent.name for path in tmp_path.rglob("*") if path.is_file()) == ["2026-W46"] * 2


def test_a_plain_name_stays_as_it_is() -> None:
    assert safe("fallow-2026-W46-team=nlp-fr.html") == "fallow-2026-W46-team=nlp-fr.html"


def test_a_long_name_keeps_its_language_and_its_suffix(tmp_path: Path) -> None:
    names = [f"fallow-2026-W46-team={'x' * 200}-{code}.{suffix}" for code in ("en", "fr") for suffix in ("html", "pdf")]
    changed = example_message(attachments=tuple(MessagePart(name, "text/html", name.encode()) for name in names))
    assert channel(tmp_path / "reports").send(changed, DELIVERY, T0).step == SENT
    files = list((tmp_path / "reports" / "2026-W46").iterdir())
    assert {path.read_text()[-7:] for path in files if path.name.endswith("-en.html")} == {"en.html"}
    assert sorted(path.name[-7:].lstrip("-") for path in files) == ["en.html", "en.pdf", "fr.html", "fr.pdf"]
    assert all(len(path.name) <= 120 for path in files)


@pytest.mark.long
def test_an_object_store(s3: S3) -> None:  # noqa: F811  # the fixture
    [target] = parse_targets([s3.location])
    assert FolderChannel(target).send(example_message(), DELIVERY, T0) == DeliveryOutcome(SENT, "2 files")
    for part in example_message().attachments:
        assert objects.read(f"{s3.location}/2026-W46/{part.name}") == part.data


@pytest.mark.long
def test_an_object_store_that_is_away(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811  # the fixture
    s3.apply(monkeypatch, AWS_SECRET_ACCESS_KEY="hush-hush")  # noqa: S106  # a wrong one
    [target] = parse_targets([s3.location])
    outcome = FolderChannel(target).send(example_message(), DELIVERY, T0)
    assert outcome.step == FAILED
    assert "hush" not in outcome.reason
