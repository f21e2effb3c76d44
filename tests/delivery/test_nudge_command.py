"""`fallow report nudge`: users are told of their own findings, once in a while, by day, unless they do not want to."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from analytics.commands.report_nudge import add_nudge_arguments, run_nudge
from analytics.decide.actions import load_actions, record
from analytics.decide.answers import DONE, KEEP, record_answer
from analytics.decide.review import review
from analytics.delivery.links import AnswerLinks
from analytics.window import Inputs, load_window_ledger
from fallow import config
from fallow.actors import Actor
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS, Window
from fallow.errors import EmptyLakeError, FallowError, UsageError
from tests.delivery.hands import Hands, forget_what_was_done, mail_settings, run_verb
from tests.delivery.mail_server import DROP
from tests.findings.scenarios.builder import H100, Fleet
from tests.lakes import made_lake
from tests.ledger.rows import fill, load, ms, processes, samples, snapshot
from tests.report.conftest import EVERY, HELD, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage
    from pathlib import Path

    from fallow.lake import Lake
    from tests.conftest import RunFallow
    from tests.delivery.mail_server import Mailbox

pytestmark = pytest.mark.usefixtures("low_is_listed")

NOON = ms(12 * 3600)
"""Friday, 20 November 2026, 12:00 UTC."""


def text_of(message: EmailMessage) -> str:
    """The plain text part."""
    body = message.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


@dataclass
class Nudger:
    lake: Lake
    folder: Path
    capture: pytest.CaptureFixture[str]
    mailbox: Mailbox
    clock: Hands = field(default_factory=lambda: Hands(NOON))
    contacts: str = "kind,name,email\nuser,ann,ann@example.org\nuser,bob,bob@example.org\n"
    opt_out: str = "kind,name\n"

    def __call__(self, *arguments: str, **settings: str) -> Outcome:
        contacts, opt_out = self._table("contacts", self.contacts), self._table("opt-out", self.opt_out)
        own = {"REPORT_CONTACTS": contacts, "REPORT_OPT_OUT": opt_out} | mail_settings(self.mailbox) | settings
        flags = ["--lake", self.lake.root, "--as", "zoe", *arguments]
        return run_verb((add_nudge_arguments, run_nudge), flags, own, self.capture, self.clock)

    def _table(self, name: str, text: str) -> str:
        path = self.folder / f"{name}.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def ids(self, user: str) -> set[str]:
        inputs = Inputs(self.lake, Window(NOON - WEEK_MS, NOON), config.load({}, None, {}))
        found = review(inputs, load_window_ledger(inputs), now_ms=NOON).shown
        return {each.finding_id for each in found if each.user == user and each.category == "reclaim"}

    def times(self, finding_id: str) -> int:
        """How many mails name the finding; later ones may be about others, that came up since."""
        return sum(finding_id in text_of(message) for message in self.mailbox.messages)

    def told(self) -> list[tuple[str, str | None]]:
        return [(each.kind, each.channel) for own in load_actions(self.lake).values() for each in own]


@pytest.fixture(scope="session")
def held(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ann, bob and cy each hold a GPU without a kernel, from two days before noon to eight days after."""
    lake = made_lake(tmp_path_factory.mktemp("held") / "lake")
    end_s, begin_s = 12 * 3600 + 8 * 86_400, 12 * 3600 - 2 * 86_400
    rows, lists = [], []
    for gpu, user in (("GPU-a", "ann"), ("GPU-b", "bob"), ("GPU-c", "cy")):
        rows += samples(gpu, begin_s, end_s, **HELD)
        lists += processes(gpu, *range(begin_s, end_s, 300), user=user, every_s=EVERY["every_s"])
    made = fill(lake, rows, lists)
    load(made)  # the ledger is kept beside it, so that no test builds it again
    return made


@pytest.fixture
def nudge(held: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], mailbox: Mailbox) -> Iterator[Nudger]:
    yield Nudger(held, tmp_path, capsys, mailbox)
    forget_what_was_done(held)


def test_without_send_nothing_is_sent_and_nothing_written(nudge: Nudger) -> None:
    done = nudge()
    assert (done.code, done.err) == (0, "")
    assert done.out.count("would send nudge 2026-11-20 (en) to mailto:") == 2
    assert "nothing was sent: add --send to send" in done.out
    assert re.search(
        r"held back F-\S+ reclaim of cy, 1 GPU, due 2026-11-23: no address, or opted out of nudges", done.out
    )
    assert (nudge.mailbox.mails, snapshot(nudge.lake, "delivery", "action")) == ([], {})


def test_everybody_is_told_of_their_own_alone(nudge: Nudger) -> None:
    done = nudge("--send")
    assert (done.code, done.err) == (0, "")
    texts = {address: data.decode() for address, data in nudge.mailbox.mails}
    assert set(texts) == {"ann@example.org", "bob@example.org"}
    anns, bobs = nudge.ids("ann"), nudge.ids("bob")
    assert anns and bobs  # noqa: PT018  # neither may be empty
    for own, others, text in ((anns, bobs, texts["ann@example.org"]), (bobs, anns, texts["bob@example.org"])):
        assert all(each in text for each in own)
        assert not any(each in text for each in others)
    [message] = [each for each in nudge.mailbox.messages if each["To"] == "ann@example.org"]
    assert message["Subject"] == "Release 1 GPU or give a reason, by 23 Nov 2026"
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert "To stop these mails, reply to this one." in " ".join(text_of(message).split())


def test_it_is_recorded_and_shows_with_the_findings(nudge: Nudger) -> None:
    nudge("--send")
    assert set(nudge.told()) == {
        ("notify", "mailto:ann@example.org"),
        ("notify", "mailto:bob@example.org"),
    }
    inputs = Inputs(nudge.lake, Window(NOON - WEEK_MS, NOON), config.load({}, None, {}))
    found = review(inputs, load_window_ledger(inputs), now_ms=NOON + HOUR_MS).findings
    assert {each.status for each in found if each.user in ("ann", "bob")} == {"notified"}
    assert {each.status for each in found if each.user == "cy"} <= {"new", "standing"}


@pytest.mark.parametrize(
    ("later_ms", "cool_down", "times"),
    [(WEEK_MS - 1, "7d", 1), (WEEK_MS, "7d", 2), (3 * DAY_MS, "2d", 2)],
    ids=["almost 7d", "7d", "another setting"],
)
def test_nobody_is_told_of_the_same_within_a_week(nudge: Nudger, later_ms: int, cool_down: str, times: int) -> None:
    nudge("--send")
    nudge.clock.at_ms += later_ms
    assert nudge("--send", REPORT_QUIET_DAYS="", REPORT_COOL_DOWN=cool_down).code == 0
    assert {nudge.times(each) for each in nudge.ids("ann") | nudge.ids("bob")} == {times}


@pytest.mark.parametrize(
    ("kind", "actor", "values"),
    [
        ("notify", "zoe", {"channel": "by telephone"}),
        ("ack", "ann", {"reason": "needed"}),
        ("snooze", "ann", {"reason": "needed"}),
    ],
)
def test_what_was_told_or_taken_on_by_others_is_left_alone(
    nudge: Nudger, kind: str, actor: str, values: dict[str, Any]
) -> None:
    record(nudge.lake, kind, nudge.ids("ann"), Actor(actor), now_ms=NOON - DAY_MS, **values)
    assert ("a recent nudge was about it" in nudge().out) is (kind == "notify")
    nudge("--send")
    text = "".join(data.decode() for _, data in nudge.mailbox.mails)
    assert not any(each in text for each in nudge.ids("ann"))
    assert any(each in text for each in nudge.ids("bob"))


def test_opted_out(nudge: Nudger) -> None:
    nudge.opt_out = "kind,name\nuser,ann\nemail,bob@example.org\n"
    assert nudge("--send").out.startswith("no nudge to send: ")
    assert nudge.mailbox.mails == []


@pytest.mark.parametrize(("zone", "at_hour", "mails"), [("UTC", 20, 0), ("America/Los_Angeles", 20, 2)])
def test_quiet_hours_are_those_of_the_site(nudge: Nudger, zone: str, at_hour: int, mails: int) -> None:
    nudge.clock.at_ms = ms(at_hour * 3600)
    done = nudge("--send", "--timezone", zone)
    assert (done.code, len(nudge.mailbox.mails)) == (0, mails)
    assert ("quiet hours" in done.out) is (mails == 0)


def test_one_that_fails_is_told_by_the_next_run(nudge: Nudger) -> None:
    nudge.mailbox.to_recipient["ann@example.org"] = "450 greylisted"
    done = nudge("--send")
    assert (done.code, done.err.count("could not send nudge 2026-11-20 (en) to mailto:ann@example.org")) == (1, 1)
    assert nudge.told() == [("notify", "mailto:bob@example.org")] * len(nudge.ids("bob"))
    nudge.mailbox.to_recipient.clear()
    assert nudge("--send").code == 0
    assert [address for address, _ in nudge.mailbox.mails] == ["bob@example.org", "ann@example.org"]


def test_a_notification_that_could_not_be_put_beside_its_findings_is_added_later(nudge: Nudger) -> None:
    nudge("--send")
    recorded = nudge.told()
    shutil.rmtree(nudge.lake.root + "/action")
    nudge("--send")
    assert sorted(nudge.told(), key=str) == sorted(recorded, key=str)
    assert len(nudge.mailbox.mails) == 2


@pytest.mark.parametrize("flags", [(), ("--send",)])
@pytest.mark.parametrize("later_ms", [9 * DAY_MS + HOUR_MS, 60 * DAY_MS])
def test_nobody_is_told_of_what_may_be_over(nudge: Nudger, later_ms: int, flags: tuple[str, ...]) -> None:
    nudge.clock.at_ms += later_ms
    done = nudge(*flags, REPORT_QUIET_DAYS="")
    assert (done.code, done.err, nudge.mailbox.mails) == (0, "", [])
    old = "the lake's newest rows are from 2026-11-28 12:00 UTC and may be outdated"
    assert done.out == f"no nudge is sent: {old}\n"


def test_only_one_user(nudge: Nudger) -> None:
    nudge("--send", "--user", "bob")
    assert [address for address, _ in nudge.mailbox.mails] == ["bob@example.org"]
    with pytest.raises(EmptyLakeError, match="the lake has no data of user nobody; `fallow ledger --by user` lists"):
        nudge("--user", "nobody")


@pytest.mark.parametrize("flag", ["--user", "--pool", "--model", "--team"])
def test_a_name_that_is_empty_is_refused(held: Lake, run_fallow: RunFallow, flag: str) -> None:
    for command in (("report",), ("report", "send"), *([("report", "nudge")] if flag == "--user" else [])):
        done = run_fallow(*command, "--lake", held.root, flag, "")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"argument {flag}: the name is empty: leave the option out to select everything" in done.stderr


def test_without_contacts_it_is_said(nudge: Nudger) -> None:
    with pytest.raises(UsageError, match=r"report\.contacts is missing; name a CSV file with kind,name,email"):
        nudge(REPORT_CONTACTS="")


def test_what_may_have_arrived_goes_again_only_when_asked(nudge: Nudger) -> None:
    nudge.contacts = "kind,name,email\nuser,ann,ann@example.org\n"
    nudge.mailbox.to_message = [DROP]
    assert nudge("--send").code == 1
    for flags, mails in (((), 1), (("--again",), 2), (("--again",), 2)):
        assert nudge("--send", *flags).code == 0
        assert len(nudge.mailbox.mails) == mails
    nudge.clock.at_ms += 3 * DAY_MS
    assert nudge("--send", REPORT_QUIET_DAYS="").code == 0
    assert {nudge.times(each) for each in nudge.ids("ann")} == {2}


@pytest.mark.parametrize(
    ("flags", "verb"),
    [
        (("--team", "vision"), "nudge"),
        (("--week", "2026-W46"), "nudge"),
        (("--since", "7d"), "send"),
        (("--format", "md"), "send"),
    ],
)
def test_flags_that_say_nothing_to_a_verb_are_refused(
    held: Lake, run_fallow: RunFallow, flags: tuple[str, str], verb: str
) -> None:
    done = run_fallow("report", "--lake", held.root, *flags, verb)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"does not take {flags[0]} before the verb" in done.stderr


def links_of(message: EmailMessage) -> list[str]:
    """The addresses in the text; the HTML part has the same ones, in the same order."""
    found = re.findall(r"https://gpus\.example\.org/answer/\S+", text_of(message))
    body = message.get_body(("html",))
    assert body is not None
    assert re.findall(r'href="([^"]+)"', str(body.get_content())) == found
    return found


def test_a_link_of_a_mail_is_answered_and_nobody_is_asked_again(nudge: Nudger, tmp_path: Path) -> None:
    """From the mail server to the form and back: the addressee says it, all findings of the ask are settled."""
    (tmp_path / "link.key").write_text("k" * 64)
    settings = {
        "DASHBOARD_ADDRESS": "https://gpus.example.org/",
        "DASHBOARD_LINK_KEY_FILE": str(tmp_path / "link.key"),
    }
    assert nudge("--send", **settings).code == 0
    links = AnswerLinks("https://gpus.example.org", b"k" * 64)
    by_address = {str(each["To"]): links_of(each) for each in nudge.mailbox.messages}
    assert [len(each) for each in by_address.values()] == [2, 2]
    keep, done = (links.read(each.rpartition("/")[2], NOON) for each in by_address["ann@example.org"])
    assert keep is not None
    assert done is not None
    assert (keep.verb, done.verb) == (KEEP, DONE)
    assert (keep.addressee, keep.gpus, set(keep.finding_ids)) == ("ann@example.org", ("GPU-a",), nudge.ids("ann"))
    assert keep.expires_ms == ms(4 * 86_400) + 14 * DAY_MS
    record_answer(nudge.lake, keep, now_ms=NOON + HOUR_MS, until_ms=NOON + 9 * DAY_MS)
    nudge.clock.at_ms += WEEK_MS
    asked = nudge(REPORT_QUIET_DAYS="").out
    assert "ann@example.org" not in asked
    assert "held_idle of ann: snoozed" in asked
    assert "would send nudge 2026-11-27 (en) to mailto:bob@example.org" in asked


def test_the_messages_can_be_looked_at_before_anything_is_sent(nudge: Nudger, tmp_path: Path) -> None:
    done = nudge("--out", str(tmp_path / "look"))
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "look").iterdir()} == {0o600}
    assert (done.code, nudge.mailbox.mails) == (0, [])
    assert done.out.startswith(f"wrote 2 messages to {tmp_path}/look\n")
    suffixes = sorted(path.suffix for path in (tmp_path / "look").iterdir())
    assert suffixes == [".html", ".html", ".txt", ".txt"]
    text = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "look").glob("*.txt"))
    assert all(each in text for each in nudge.ids("ann") | nudge.ids("bob"))
    (tmp_path / "file").write_text("")
    with pytest.raises(FallowError, match="cannot write to"):
        nudge("--out", str(tmp_path / "file"))


@pytest.fixture
def hot(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], mailbox: Mailbox) -> Nudger:
    """Ann's GPU has been slowed down by heat for half of the last day; another one of hers works as it should."""
    fleet = Fleet(1)
    first, second = fleet.host("h1", H100, 2)
    fleet.run([first, second], "ann", util=95.0, slurm_job_id="7")
    first.throttle(fleet.always, sw_thermal=0.5)
    fleet.write(lake)
    load(lake)
    return Nudger(lake, tmp_path, capsys, mailbox, Hands(int(fleet.times_ms[-1]) + 12 * HOUR_MS))


def test_a_fault_is_told_to_the_operators_once_and_never_to_the_user(hot: Nudger) -> None:
    settings = {"REPORT_OPERATORS": "mailto:ops@example.org"}
    assert hot("--send", "--user", "ann", **settings).code == 0
    assert hot.mailbox.mails == []
    assert hot("--send", **settings).code == 0
    [message] = hot.mailbox.messages
    assert (message["To"], message["Subject"]) == ("ops@example.org", "1 GPU fault to check")
    assert "throttled while busy" in " ".join(text_of(message).split())
    assert "release" not in text_of(message).lower()
    hot.clock.at_ms += HOUR_MS
    assert "a recent nudge was about it" in hot(**settings).out
    assert "for operators, and report.operators is empty" in hot().out
