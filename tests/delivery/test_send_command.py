"""`fallow report send` from the command line to a real mail server, a real webhook and a folder, over a real lake."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from analytics.commands.report_send import add_send_arguments, run_send
from analytics.delivery.content import pack
from analytics.language.languages import language
from analytics.render.report.json_format import JsonFormat
from analytics.scope import Scope
from fallow.clock import WEEK_MS, parse_window
from fallow.errors import ConfigError, FallowError, UsageError
from tests.delivery.hands import Hands, forget_what_was_done, mail_settings, run_verb
from tests.lakes import made_lake
from tests.ledger.rows import load, snapshot
from tests.report.conftest import Outcome, everything
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from analytics.delivery.model import Message
    from analytics.report.report import Report
    from fallow.lake import Lake
    from tests.delivery.mail_server import Mailbox
    from tests.delivery.receiver import Receiver

MONDAY = "2026-10-05T06:00:00Z"
"""The lake of `everything` ends with 2026-W40, which closes then."""


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two weeks of two hosts."""
    made = everything(made_lake(tmp_path_factory.mktemp("reported") / "lake"))
    load(made)  # the ledger is kept beside it, so that no test builds it again
    return made


@dataclass
class Sender:
    lake: Lake
    clock: Hands
    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, **settings: str) -> Outcome:
        form = () if "--format" in arguments else ("--format", "json")
        flags = ["--lake", self.lake.root, "--as", "zoe", *form, *arguments]
        return run_verb((add_send_arguments, run_send), flags, settings, self.capture, self.clock, self.clock.sleep)


@pytest.fixture
def send(reported: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Sender]:
    now_ms = parse_window(MONDAY, None).since_ms
    assert now_ms is not None
    yield Sender(reported, Hands(now_ms), tmp_path / "reports", capsys)
    forget_what_was_done(reported)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_last_week_goes_everywhere_and_once(send: Sender, mailbox: Mailbox, receiver: Receiver) -> None:
    to = ["--to", "mailto:a@example.org,b@example.org", "--to", receiver.url(), "--to", str(send.folder)]
    done = send(*to, **mail_settings(mailbox))
    assert (done.code, done.err) == (0, "")
    assert [line.partition(" to ")[0] for line in done.out.splitlines()] == ["sent report 2026-W40 (all/en)"] * 4
    assert "secret-token" not in done.out
    assert [address for address, _ in mailbox.mails] == ["a@example.org", "b@example.org"]
    assert [body["week"] for body in receiver.posted] == ["2026-W40"]
    assert files(send.folder) == ["2026-W40/fallow-2026-W40-all-en.json"]
    message = mailbox.messages[0]
    assert message["Subject"] == "Free GPU time worth 51,694 USD a year: 2026-W40"
    assert [part.get_filename() for part in message.iter_attachments()] == ["fallow-2026-W40-all-en.json"]
    html = message.get_body(("html",))
    [picture] = [part for part in message.walk() if part.get_content_type() == "image/png"]
    assert html is not None
    assert f"cid:{picture['Content-ID'].strip('<>')}" in html.get_content()
    assert len(mailbox.mails[0][1]) < 200_000
    again = send(*to, **mail_settings(mailbox))
    assert (again.code, again.out.count("it was sent before")) == (0, 4)
    assert (len(mailbox.mails), len(receiver.bodies)) == (2, 1)


def test_a_dry_run_sends_and_records_nothing(send: Sender, mailbox: Mailbox, receiver: Receiver) -> None:
    send("--to", str(send.folder / "other"))
    before = snapshot(send.lake, "delivery")
    done = send(
        "--dry-run",
        "--to",
        "mailto:a@example.org",
        "--to",
        receiver.url(),
        "--to",
        str(send.folder),
        **mail_settings(mailbox),
    )
    assert (done.code, done.out.count("would send report 2026-W40 (all/en) to ")) == (0, 3)
    assert "fallow-2026-W40-all-en.json" in done.out
    assert snapshot(send.lake, "delivery") == before
    assert (mailbox.greetings, receiver.bodies, files(send.folder)) == (
        0,
        [],
        ["other/2026-W40/fallow-2026-W40-all-en.json"],
    )
    seen = send("--dry-run", "--to", str(send.folder / "other"))
    assert "would not send report 2026-W40 (all/en)" in seen.out
    assert "sent on 2026-10-05 06:00 UTC" in seen.out


def test_one_that_fails_is_one_sentence_and_the_others_arrive(send: Sender, mailbox: Mailbox) -> None:
    mailbox.to_recipient["gone@example.org"] = "550 no such user"
    to = ["--to", "mailto:a@example.org,gone@example.org,b@example.org"]
    done = send(*to, **mail_settings(mailbox))
    assert done.code == 1
    assert (
        done.err
        == "fallow: could not send report 2026-W40 (all/en) to mailto:gone@example.org: the mail server refused the"
        " recipient: 550 no such user; the next run tries again\n"
    )
    assert [address for address, _ in mailbox.mails] == ["a@example.org", "b@example.org"]
    mailbox.to_recipient.clear()
    assert (
        send("--retry", *to, **mail_settings(mailbox)).out
        == "sent report 2026-W40 (all/en) to mailto:gone@example.org\n"
    )
    assert [address for address, _ in mailbox.mails][2:] == ["gone@example.org"]
    assert send("--retry", *to, **mail_settings(mailbox)).out == "nothing to send again\n"
    assert len(mailbox.mails) == 3


def test_what_is_unknown_fails_once_and_is_named_after(send: Sender, mailbox: Mailbox) -> None:
    mailbox.to_message = ["drop"]
    to = ["--to", "mailto:a@example.org", "--catch-up"]
    first, second = send(*to, **mail_settings(mailbox)), send(*to, **mail_settings(mailbox))
    assert (first.code, second.code) == (1, 0)
    for each in (first, second):
        assert "it is not known whether report 2026-W40 (all/en) to mailto:a@example.org arrived" in each.err
    assert len(mailbox.mails) == 1
    assert send("--to", "mailto:a@example.org", "--again", **mail_settings(mailbox)).code == 0
    assert mailbox.messages[0]["Message-ID"] == mailbox.messages[1]["Message-ID"]


def test_a_week_that_failed_is_sent_with_the_next_one(send: Sender) -> None:
    to = ["--to", str(send.folder)]
    send.clock.at_ms -= WEEK_MS
    send.folder.write_text("in the way", encoding="utf-8")
    assert send("--catch-up", *to).code == 1
    send.folder.unlink()
    send.clock.at_ms += WEEK_MS
    done = send("--catch-up", *to)
    assert [line[:20] for line in done.out.splitlines()] == ["sent report 2026-W39", "sent report 2026-W40"]
    assert files(send.folder) == [f"2026-W{week}/fallow-2026-W{week}-all-en.json" for week in (39, 40)]


def test_a_week_without_data_is_told_too(send: Sender) -> None:
    """That nothing was seen is news: the agents may be down. What is to come is no news."""
    done = send("--week", "2026-W20", "--to", str(send.folder), "--format", "text")
    assert (done.code, done.err) == (0, "")
    (path,) = files(send.folder)
    text = (send.folder / path).read_text(encoding="utf-8")
    assert "Nothing was observed in this window. The lake has rows from " in " ".join(text.split())


def test_editions_are_told_apart(send: Sender) -> None:
    for flags in ([], ["--user", "svc"], ["--lang", "fr"], ["--pool", "serving"]):
        done = send("--to", str(send.folder), *flags)
        assert (done.code, done.out[:4], done.err) == (0, "sent", "")
    assert files(send.folder) == [
        f"2026-W40/fallow-2026-W40-{name}.json" for name in ("all-en", "all-fr", "pool=serving-en", "user=svc-en")
    ]


def test_targets_come_from_the_settings_too(send: Sender) -> None:
    done = send(REPORT_TO=f"file:{send.folder}/a, file:{send.folder}/b")
    assert (done.code, len(files(send.folder))) == (0, 2)


WRONG: list[tuple[list[str], dict[str, str], type[FallowError], str]] = [
    ([], {}, UsageError, "--to is missing; give --to, or set report.to"),
    (["--to", "mailto:a@b.org"], {}, UsageError, "mail.server is missing"),
    (["--to", "mailto:a@b.org"], {"MAIL_SERVER": "mx"}, UsageError, "mail.from is missing"),
    (
        ["--to", "mailto:a@b.org"],
        {"MAIL_SERVER": "mx", "MAIL_FROM": "x"},
        ConfigError,
        "mail.from: 'x' is not a mail address",
    ),
    (["--to", "./x", "--format", "docx"], {}, UsageError, "--format: 'docx' is not one of"),
    (["--to", "./x", "--week", "tomorrow"], {}, UsageError, "'tomorrow' is not a week"),
    (["--to", "./x"], {"REPORT_TIMEZONE": "Mars/Base"}, UsageError, "'Mars/Base' is not a time zone"),
    (["--to", "./x", "--as", " "], {}, UsageError, "has a blank at its start"),
]


@pytest.mark.parametrize(("flags", "settings", "kind", "said"), WRONG, ids=[each[3][:30] for each in WRONG])
def test_wrong_use_is_found_before_anything_is_sent(
    send: Sender, flags: list[str], settings: dict[str, str], kind: type[FallowError], said: str
) -> None:
    with pytest.raises(kind) as error:
        send(*flags, **settings)
    assert said in str(error.value)
    assert snapshot(send.lake, "delivery") == {}


def test_every_format_that_is_named_is_written(send: Sender) -> None:
    done = send("--to", str(send.folder), "--format", "text", "--format", "csv,md")
    assert (done.code, done.err) == (0, "")
    assert [name.rpartition(".")[2] for name in files(send.folder)] == ["csv", "md", "txt"]


WEEK = "2026-W40"


@pytest.fixture(scope="module")
def week(reported: Lake) -> Report:
    return report_of(reported, WEEK)


def packed(report: Report, code: str = "en") -> Message:
    assert report.asked.week is not None
    return pack(report, report.asked.week, language(code), [JsonFormat()], None)


def test_a_chat_has_the_observed_share_beside_the_window(week: Report) -> None:
    share = f"{100 * (week.ledger.seen.share or 0):.1f}"
    outside = "no sum includes 285.0 GPU-hours before a host's first row or after its last"
    for code, said in (
        (
            "en",
            (
                f"; observed: {share} % of the time; 0.5 % of that time only sampled, once every 5 min; {outside};"
                " silent hosts: import since"
            ),
        ),
        ("fr", " ; observé : "),
    ):
        shown = packed(week, code).brief.window.replace("\N{NO-BREAK SPACE}", " ")
        assert said in shown
        assert (share if code == "en" else share.replace(".", ",")) + " %" in shown


def test_a_chat_has_what_each_decision_saves(week: Report) -> None:
    ranked = week.recommendations.ranked
    lines = packed(week).brief.lines
    assert [each.finding_id for each in lines] == [each.recommendation_id for each in ranked[:5]]
    value = ranked[0].value
    assert value is not None
    assert value.freed is not None
    assert f": GPU time per year {round(value.freed.point):,} USD" in lines[0].text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_subject_asks_in_fewer_than_70_characters(reported: Lake, week: Report) -> None:
    value = week.recommendations.value
    assert week.recommendations.value_of_return is None
    assert value is not None
    assert value.freed is not None
    assert f"GPU time worth {round(value.freed.point):,} USD a year: {WEEK}" in packed(week).subject.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    simulated = changed(week, heading=replace(week.heading, simulated_gpus=1))
    long_name = changed(simulated, asked=replace(week.asked, scope=Scope(pool="p" * 80)))
    for report in (week, simulated, long_name, report_of(reported, "2026-W41")):
        for code in ("en", "fr"):
            said = packed(report, code).subject
            assert len(said) < 70
            assert ("SIMUL" in said) == bool(report.heading.simulated)


def test_the_part_of_the_fleet_is_named_in_the_readers_language(reported: Lake) -> None:
    part = report_of(reported, WEEK, scope=Scope(pool="train", user="ann"))
    assert packed(part).scope == "pool train, user ann"
    assert packed(part, "fr").scope == "pool train, utilisateur ann"
    assert packed(report_of(reported, WEEK)).scope == ""


def test_a_week_in_which_nothing_was_seen_has_no_share(reported: Lake) -> None:
    window = parse_window("2026-W41", "2026-W41")
    empty = report_of(reported, "2026-W41")
    assert (empty.ledger.is_empty, empty.ledger.summary.since_ms) == (True, window.since_ms)
    assert "observed" not in packed(empty).brief.window
