"""The audit log as JSON: a line per act, and no act without its line."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analytics.decide.actions import load_actions
from analytics.decide.annotations import load_annotations
from dashboard.access.allowances import RefusalRation
from dashboard.access.audit import ACTION, REFUSED, audit, audit_line, audit_stranger
from dashboard.access.audit_trail import AuditError, FileTrail, trail_of
from dashboard.access.people import ADMIN, Reader
from dashboard.actions import annotate
from dashboard.pages.report import send_tried
from fallow.actors import ANONYMOUS, LINK, TOKEN, Actor
from fallow.errors import ConfigError
from tests.conftest import run_python
from tests.dashboard.acting import PLAN, VIEW_ALPHA, Held, Pages, held_lake
from tests.dashboard.conftest import page, words
from tests.delivery.hands import Hands
from tests.lakes import made_lake

LARGE = 64 * 1024 * 1024
"""More than any other file that the tests write at the same time."""


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in file.read_text(encoding="ascii").split("\n")[:-1]]


def test_a_line_has_actor_act_time_and_address(held: Held, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    trail = trail_of(str(file))
    finding_id = held.finding("a").finding_id
    held.pages(PLAN, trail).press("ack", finding_id)
    held.pages(VIEW_ALPHA, trail).press("ack", finding_id)
    planner = held.pages(PLAN, trail).client
    planner.get("/export/gpus.csv?span=all", headers={"X-Forwarded-For": "10.9.8.7"})
    page(planner, "/settings", "?span=all")
    [action] = load_actions(held.lake)[finding_id]
    assert [(each["event"], each["who"], each["did"]) for each in lines(file)] == [
        ("action", "pia", f"asks to ack as planner: {finding_id}"),
        ("action", "pia", f"ack as planner: {finding_id} ({action.action_id})"),
        ("refused", "vic", f"refused ack as viewer of team alpha: {finding_id}"),
        ("export", "pia", "takes /export/gpus.csv?span=all as planner"),
        ("refused", "pia", "refused the page /settings as planner: it takes the role admin"),
    ]
    assert {(each["kind"], each["address"]) for each in lines(file)} == {("person", "127.0.0.1")}
    assert [each["forwarded_for"] for each in lines(file)] == [None, None, None, "10.9.8.7", None]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_action_on_many_findings_is_all_in_the_log_before_it_is_done(held: Held, tmp_path: Path) -> None:
    ids = [held.finding(gpu).finding_id for gpu in "abcd"]
    held.pages(PLAN, trail_of(str(tmp_path / "audit"))).press("ack", *ids)
    assert [each for each in ids if each not in lines(tmp_path / "audit")[0]["did"]] == []


def test_no_name_makes_two_lines_of_one(held: Held, tmp_path: Path) -> None:
    eve = Reader('eve"}\n{"event": "sign-in", "who": "boss\u2028\u202e\x1b[2K', ADMIN)
    held.pages(eve, trail_of(str(tmp_path / "audit"))).client.get("/export/gpus.csv?span=all")
    [said] = lines(tmp_path / "audit")
    assert said["who"] == eve.name
    text = (tmp_path / "audit").read_text(encoding="ascii")
    assert text.count("\n") == 1
    assert text[:-1].isprintable()


@pytest.fixture
def full(held: Held, tmp_path: Path) -> Iterator[Pages]:
    """The pages where nothing can be added to the audit log, and everything else can be written."""
    file = tmp_path / "audit.jsonl"
    trail = trail_of(str(file))
    os.truncate(file, LARGE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE + 10, before[1]))
    yield held.pages(PLAN, trail)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.stat().st_size == LARGE  # no half line either


def test_where_no_line_can_be_written_nothing_is_done_and_pages_are_read(held: Held, full: Pages) -> None:
    finding_id = held.finding("a").finding_id
    said = full.press("snooze", finding_id, text="warm standby")["acts-status"]["children"]
    assert said.startswith("nothing was changed: the audit log cannot be written")
    with pytest.raises(AuditError), full.app.server.test_request_context("/"):
        annotate(full.view(), "driver 580", "2026-11-20 09:00", ("all", None), 1)
    assert finding_id not in load_actions(held.lake)
    assert load_annotations(held.lake) == ()
    taken = [full.client.get(path) for path in ("/export/gpus.csv?span=all", "/report/download/json?start=2025-W46")]
    assert all("the audit log cannot be written" in each.text for each in taken)
    assert [each.status_code for each in taken] == [503, 503]
    assert finding_id in json.dumps(page(full.client, "/findings", "?span=all"))
    # a refusal stays one
    assert "no access to this page" in words(page(full.client, "/settings", "?span=all"))


WRITES = """
import resource, sys
from pathlib import Path
from dashboard.access.audit_trail import FileTrail
resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))
trail = FileTrail(Path(sys.argv[1]))
for number in range(10):
    try:
        trail.write("x" * 99)
    except OSError as error:
        print(number, error.strerror)
"""


def test_a_line_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path) -> None:
    said = run_python("-c", WRITES, str(tmp_path / "audit")).stdout.splitlines()
    assert said[0] == "2 No space left on device"
    assert len(said) == 8
    assert (tmp_path / "audit").read_text() == ("x" * 99 + "\n") * 2


def test_a_file_that_is_moved_away_is_created_again(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    trail = trail_of(str(file))
    trail.write("one")
    file.rename(tmp_path / "audit.1")
    trail.write("two", sync=True)
    assert (file.read_text(), (tmp_path / "audit.1").read_text()) == ("two\n", "one\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_syslog_gets_the_lines_and_one_that_is_away_refuses(tmp_path: Path) -> None:
    address = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(address)
        trail = trail_of(f"syslog:{address}")
        trail.write(audit_line("action", Actor("ann"), "ack"))
        kind, _, said = syslog.recv(10_000).decode().partition(": ")
        assert kind == "<85>fallow"  # authpriv.notice
        assert (json.loads(said)["kind"], json.loads(said)["who"]) == ("person", "ann")
    with pytest.raises(ConnectionRefusedError):
        trail.write("nobody listens")


def test_refusals_without_end_do_not_fill_the_disk() -> None:
    clock = Hands()
    ration = RefusalRation(3, clock)
    assert [ration.take() for _ in range(5)] == [0, 0, 0, None, None]
    clock.sleep(60)
    assert [ration.take() for _ in range(2)] == [2, 0]


def test_what_was_left_out_is_counted_in_the_log(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hands()
    monkeypatch.setattr("dashboard.access.audit._NAMED_RATION", RefusalRation(1, clock))
    pages = held.pages(PLAN, trail_of(str(tmp_path / "audit")))
    for _ in range(3):
        page(pages.client, "/settings", "?span=all")
    clock.sleep(60)
    page(pages.client, "/settings", "?span=all")
    assert [(each["who"], each["did"][:16]) for each in lines(tmp_path / "audit")] == [
        ("pia", "refused the page"),
        (None, "2 more were refu"),
        ("pia", "refused the page"),
    ]


def test_strangers_take_no_line_from_people_and_standard_error_has_an_end_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dashboard.access.audit._STRANGERS_RATION", RefusalRation(1, Hands()))
    with caplog.at_level("INFO", logger="dashboard"):
        for number in range(3):
            audit_stranger(f"10.0.0.{number}", "was refused /")
        audit(Actor("pia"), "refused ack as viewer", REFUSED)
    assert caplog.messages == ["anonymous at 10.0.0.0: was refused /", "person pia: refused ack as viewer"]


@pytest.mark.parametrize(("name", "words"), [
    ("gone/audit", "No such file"), ("link", "Too many levels"), ("pipe", "No such device"),
    ("folder", "Is a directory"), ("syslog:gone", "cannot be written: No such file"),
])  # fmt: skip
def test_what_is_no_place_for_it_is_refused_at_the_start(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    kind, _, rest = name.rpartition(":")
    with pytest.raises(ConfigError, match=words):
        trail_of(f"{kind}:{tmp_path / rest}" if kind else str(tmp_path / name))
    assert not (tmp_path / "elsewhere").exists()


def test_a_device_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file"):
        trail_of("/dev/null")
    with pytest.raises(ConfigError, match="begin the path with /"):
        trail_of("audit.jsonl")
    assert isinstance(trail_of(str(tmp_path / "audit")), FileTrail)


SAYS = """
import logging
from dashboard.access.audit import audit, show_log
from fallow.actors import Actor
from tests.lakes import made_lake
show_log(); show_log()
audit(Actor("ann\\n2026-01-01T00:00:00Z audit: eve"), "did\\x1b[31m this\\u202e", "action")
logging.getLogger("dashboard.pages").warning("odd")
logging.getLogger("dashboard.pages").info("not shown")
logging.getLogger("others").info("not shown")
forged = "2026-01-01T00:00:00Z audit: boss: signed in as admin"
try:
    raise LookupError(f"no such thing: \\n{forged}\\u2028{forged}\\x85{forged}\\x1b[2K")
except LookupError:
    logging.getLogger("dashboard.app").exception("a callback failed")
"""


def test_a_line_each_and_no_name_makes_two_of_one() -> None:
    audit, warning, error, *traceback = run_python("-c", SAYS).stderr.splitlines()
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf'{moment} audit: person "ann 2026-01-01T00:00:00Z audit: eve": did\?\[31m this\?', audit)
    assert re.fullmatch(rf"{moment} warning: odd", warning)
    assert re.fullmatch(rf"{moment} error: a callback failed", error)
    assert traceback[0].startswith("    Traceback")
    # what an error repeats does not pass for a line of the log
    assert sum("boss: signed in as admin" in each for each in traceback) == 3
    assert all(each.startswith("    ") and each.isprintable() for each in traceback)


@pytest.mark.parametrize(
    ("who", "said"),
    [
        (Actor("ann"), "person ann: did it"),
        (Actor("ann@example.org"), "person ann@example.org: did it"),
        (Actor("EXAMPLE\\ann"), "person EXAMPLE\\ann: did it"),
        (Actor("boss: signed in as admin"), 'person "boss: signed in as admin": did it'),
        (Actor("anonymous at 10.0.0.1"), "person anonymous at 10.0.0.1: did it"),
        (Actor("token prometheus"), "person token prometheus: did it"),
        (Actor("prometheus", TOKEN), "token prometheus: did it"),
        (Actor("everybody"), "person everybody: did it"),
        (Actor("everybody", ANONYMOUS), "anonymous everybody: did it"),
        (Actor("ann@example.org", LINK), "link ann@example.org: did it"),
        (Actor('"boss": signed in'), 'person "\\"boss\\": signed in": did it'),
        (Actor(""), 'person "": did it'),
    ],
)
def test_a_name_does_not_pass_for_what_an_actor_did(who: Actor, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        audit(who, "did it", ACTION)
        audit_stranger("10.0.0.1", "did it")
    assert caplog.messages == [said, "anonymous at 10.0.0.1: did it"]


@pytest.mark.parametrize(("who", "target", "lines"), [
    (VIEW_ALPHA, "{folder}", ["person vic: refused sending as viewer of team alpha: a report"]),
    (PLAN, "/etc", ["person pia: asks to send as planner: the report of 2025-W46 to /etc",
                    "person pia: did not send as planner: the report of 2025-W46: report.to does not name /etc"]),
    (PLAN, "{folder}", ["person pia: asks to send as planner: the report of 2025-W46 to {folder}",
                        "person pia: sending as planner: the report of 2025-W46 to {folder}: sent"]),
])  # fmt: skip
def test_a_line_has_the_sender_of_a_report_and_the_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, who: Reader, target: str, lines: list[str]
) -> None:
    held = held_lake(made_lake(tmp_path / "lake"), tmp_path)
    out = tmp_path / "out"
    held.config.write_text(f'{held.config.read_text(encoding="utf-8")}[report]\nto = ["{out}"]\n', encoding="utf-8")
    pages = held.pages(who)
    with caplog.at_level(logging.INFO, "dashboard.access.audit"), pages.app.server.test_request_context("/"):
        pages.app.server.preprocess_request()
        week = "?start=2025-W46"
        send_tried(pages.source, week, {"search": week, "targets": [target.format(folder=f"file:{out}")]})
    said = [each.getMessage() for each in caplog.records if each.name == "dashboard.access.audit"]
    assert said == [each.format(folder=f"file:{out}") for each in lines]
