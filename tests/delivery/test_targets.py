"""Targets as people write them, and secrets that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from analytics.delivery.settings import Target, mail_address, parse_targets
from fallow.errors import UsageError

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
        "mailto:Lead@example.org", "mailto:b@example.org", "mailto:c@xn--bcher-kva.example",
    ]  # fmt: skip


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
        ("lead", "a target is neither"), ("", "a target is neither"), ("file:", "a target is neither"),
        (f"htps://hooks.slack.com/{TOKEN}", "a target is neither"),
        (f"http://chat.example.org/{TOKEN}", "the webhook at chat.example.org has an address without TLS"),
        ("https://ann:hush@chat.example.org/x", "the address of the webhook at"),
        (f"https://chat.example.org/ü{TOKEN}", "or characters that no address may have"),
        (f"https:///{TOKEN}", "a webhook's address has no host"),
        (f"irc+https://chat.example.org/{TOKEN}", "there is no webhook of the kind 'irc'"),
        (f"https://chat.example.org/{TOKEN} x", "a webhook's address has no host"),
    ],
)  # fmt: skip
def test_what_is_no_target_is_said_without_the_secret(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse_targets([text])
    assert "hush" not in str(error.value)
