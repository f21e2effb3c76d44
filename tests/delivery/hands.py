"""A clock whose hands a test turns, parcels out of nothing, and a lake that forgets who was told."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.delivery.journal import Journal
from analytics.delivery.model import Brief, BriefLine, Delivery, Message, MessagePart
from fallow.actors import Actor
from fallow.clock import DAY_MS
from tests.lakes import made_lake
from tests.ledger.rows import T0
from tests.report.conftest import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fallow.lake import Lake
    from tests.delivery.mail_server import Mailbox

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
DELIVERY = Delivery("report", "2026-W46", "all/en", "mailto:lead@example.org")


class Hands:
    """Stands still until somebody sleeps."""

    def __init__(self, now_ms: int = T0) -> None:
        self.at_ms = now_ms
        self.slept_s: list[float] = []

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.at_ms += round(1000 * seconds)


def example_message(**changes: Any) -> Message:
    """A small edition of everything."""
    lines = (BriefLine("F-0000000001", "24.0 GPU-hours: 1 GPU on gn001 held without a kernel", "ann, since Monday"),)
    whole = Message(
        subject="GPU waste report 2026-W46: 24.0 of 336.0 GPU-hours went unused",
        language="en",
        text="GPU waste report\n.a line that begins with a period\nZoë · ünïcode\n" + "x" * 2000 + "\n",
        html='<table><tr><td>24.0</td></tr></table><img src="cid:week" alt="">',
        picture=PICTURE,
        attachments=(
            MessagePart("fallow-2026-W46-all-en.html", "text/html", b"<!doctype html><title>r</title>"),
            MessagePart("fallow-2026-W46-all-en.pdf", "application/pdf", b"%PDF-1.7 \x00\xff"),
        ),
        brief=Brief("GPU waste report 2026-W46", "9 Nov to 16 Nov", ("24.0 went unused.",), "Costliest", lines, ""),
        week="2026-W46",
        scope="",
        since_ms=T0 - 7 * DAY_MS,
        until_ms=T0,
        finding_ids=("F-0000000001",),
    )
    return replace(whole, **changes)


def journal(lake: Lake, clock: Hands, actor: str = "zoe") -> Journal:
    """A journal over all that the lake has of late, as another process would read it."""
    return Journal(made_lake(lake.root), clock, Actor(actor), clock.now_ms() - 70 * DAY_MS)


def forget_what_was_done(lake: Lake) -> None:
    """Takes actions and deliveries out of a lake that other tests use as well."""
    for table in ("action", "delivery"):
        shutil.rmtree(f"{lake.root}/{table}", ignore_errors=True)


def mail_settings(box: Mailbox) -> dict[str, str]:
    """The settings of a server without TLS, as variables give them."""
    server = {"MAIL_SERVER": f"localhost:{box.port}", "MAIL_SECURITY": "none"}
    return server | {"MAIL_FROM": "gpu@example.org", "MAIL_TIMEOUT": "2s"}


def run_verb(
    verb: tuple[Callable[[argparse.ArgumentParser], None], Callable[..., int]],
    flags: list[str],
    settings: Mapping[str, str],
    capture: pytest.CaptureFixture[str],
    *clock: object,
) -> Outcome:
    """Run a verb of `fallow report` below its own clock, with these flags, and settings as environment variables."""
    add_arguments, run = verb
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_arguments(parser)
    before = ("lake", "config", "week", "lang", "timezone", "pool", "model", "team", "user")
    args = argparse.Namespace(**dict.fromkeys(before) | vars(parser.parse_args(flags)))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"FALLOW_{name}", value)
        code = run(args, *clock)
    printed = capture.readouterr()
    return Outcome(code, printed.out, printed.err)
