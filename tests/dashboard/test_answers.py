"""Answers through a link: one answer, for any holder of the link, only after a click, and access to nothing else."""

from __future__ import annotations

import argparse
import logging
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from analytics.decide.actions import Action, load_actions, record
from analytics.decide.answers import DONE, KEEP, Answer
from analytics.delivery.links import PATH, AnswerLinks
from analytics.window import Inputs, open_inputs
from analytics.workloads.waste import RELEASE, TUNE
from dashboard.access.choose import access_of
from dashboard.app import build_app
from dashboard.source import LakeSource
from fallow import config
from fallow.clock import DAY_MS, SystemClock
from fallow.errors import ConfigError
from tests.dashboard.acting import USERS, Held

SITE = "https://gpus.example.org"
HOST = {"Host": "gpus.example.org"}
HERE = HOST | {"Sec-Fetch-Site": "same-origin"}
NOW_MS = SystemClock().now_ms()


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's clock stands at NOW_MS, because a run over midnight would move the days that the pages offer."""
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS)


PROXIED = {
    "dashboard.proxy_header": "X-Forwarded-User",
    "dashboard.proxies": "10.1.0.0/16",
    "dashboard.hosts": "gpus.example.org",
}


_IDS: dict[str, str] = {}


def finding_id(held: Held, gpu: str) -> str:
    """Worked out once: it is the same in every test."""
    if gpu not in _IDS:
        _IDS[gpu] = held.finding(gpu).finding_id
    return _IDS[gpu]


def day(days: int) -> str:
    return datetime.fromtimestamp((NOW_MS + days * DAY_MS) / 1000, UTC).date().isoformat()


@dataclass
class Site:
    """The held lake behind a proxy that asks for a sign-in, and its links."""

    held: Held
    settings: Path
    client: FlaskClient

    @property
    def links(self) -> AnswerLinks:
        found = AnswerLinks.of(config.load({}, str(self.settings), {}))
        assert found is not None
        return found

    def answer(self, **changes: Any) -> Answer:
        own = Answer(
            verb=KEEP, finding_ids=(finding_id(self.held, "a"),), addressee="ann@example.org", action=RELEASE,
            gpus=("a",), gpu_count=1, host="h1", simulated=False, language="en", expires_ms=NOW_MS + 14 * DAY_MS,
        )  # fmt: skip
        return replace(own, **changes)

    def path(self, **changes: Any) -> str:
        return PATH + self.links.sign(self.answer(**changes))

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.client.get(path, headers=HOST | headers)

    def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> TestResponse:
        return self.client.post(path, headers=HERE if headers is None else headers, data=form)

    def actions(self) -> list[Action]:
        return [each for own in load_actions(self.held.lake).values() for each in own]


@pytest.fixture
def site(held: Held, tmp_path: Path) -> Site:
    (tmp_path / "link.key").write_text("0123456789abcdef" * 4)
    settings = tmp_path / "fallow.toml"
    settings.write_text(
        held.config.read_text() + f'[dashboard]\naddress = "{SITE}"\nlink_key_file = "{tmp_path}/link.key"\n'
    )

    def inputs() -> Inputs:
        return open_inputs(argparse.Namespace(lake=held.lake.root, since=None, until=None, config=str(settings)))

    access = access_of(config.load(PROXIED, None, {}), address="0.0.0.0", local=False, insecure=False)  # noqa: S104
    return Site(held, settings, build_app(LakeSource(inputs), access).server.test_client())


def test_only_a_link_needs_no_session(site: Site) -> None:
    assert site.get(site.path()).status_code == 200
    token = site.path().removeprefix(PATH)
    others = ("/", "/answer", PATH, f"{PATH}{token}/", f"{PATH}{token}/x", f"{PATH}../findings", f"/x{PATH}{token}",
              "/_dash-layout", "/export/findings.csv")  # fmt: skip
    for path in others:
        assert site.get(path).status_code == 403, path
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH"):
        assert site.client.open(site.path(), method=method, headers=HERE).status_code == 403, method


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("verb", [KEEP, DONE])
def test_looking_changes_nothing(site: Site, verb: str, method: str) -> None:
    for _ in range(3):
        answer = site.client.open(f"{site.path(verb=verb)}?until={day(3)}", method=method, headers=HOST)
        assert (answer.status_code, bool(answer.data)) == (200, method == "GET")
    assert site.actions() == []


def test_still_needed_until_a_day(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    page = site.get(site.path()).text
    assert f'name="until" required min="{day(0)}" max="{day(28)}" value="{day(7)}"' in page
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        done = site.post(site.path(), until=day(3), reason="  a paper\r\nis due ")
    assert (done.status_code, "Recorded: needed until the end of" in done.text) == (200, True)
    [action] = site.actions()
    assert (action.kind, action.actor.log_words, action.reason) == (
        "snooze",
        "link ann@example.org",
        "a paper is due",
    )
    assert action.expires_ms == (NOW_MS // DAY_MS + 4) * DAY_MS
    assert action.channel == site.answer().channel
    asked, line = caplog.messages
    assert asked == f"link ann@example.org: asks to keep by a link: {', '.join(site.answer().finding_ids)}"
    assert line == f"link ann@example.org: snooze by a link: {action.finding_id} ({action.action_id})"


def test_released(site: Site) -> None:
    done = site.post(site.path(verb=DONE))
    assert (done.status_code, "Recorded: released." in done.text) == (200, True)
    [action] = site.actions()
    assert (action.kind, action.reason, action.expires_ms) == ("ack", "released", None)
    shown = site.held.pages().view().report.review.findings
    assert next(each.status for each in shown if each.finding_id == action.finding_id) == "acknowledged"


def test_a_change_of_the_work_is_no_allocation_that_a_report_checks(site: Site) -> None:
    site.post(site.path(verb=DONE, action=TUNE))
    assert [each.reason for each in site.actions()] == ["changed"]


def test_a_second_visit_shows_the_recorded_answer(site: Site) -> None:
    site.post(site.path(), until=day(3))
    for again in (
        site.get(site.path()),
        site.post(site.path(), until=day(9)),
        site.post(site.path(), until="nonsense"),
    ):
        assert again.status_code == 200
        assert "ann@example.org answered with this link on" in " ".join(
            again.text.replace("<bdi>", "").replace("</bdi>", "").split()
        )
        assert "<form" not in again.text
    assert len(site.actions()) == 1
    # the other link of the same recommendation is another answer, and so is a link of another user
    site.post(site.path(verb=DONE))
    site.post(site.path(addressee="bob@example.org"), until=day(1))
    assert [each.actor.name for each in sorted(site.actions())] == ["ann@example.org"] * 2 + ["bob@example.org"]


def test_a_click_that_another_worker_took_at_the_same_moment_is_the_same_row(site: Site) -> None:
    site.post(site.path(), until=day(3))
    answer = site.answer()
    record(
        site.held.lake, "snooze", answer.finding_ids, answer.actor, now_ms=NOW_MS, channel=answer.channel,
        once=answer.channel
    )  # fmt: skip
    assert len(site.actions()) == 1


def test_an_ask_of_several_findings_is_answered_whole(site: Site) -> None:
    ids = tuple(finding_id(site.held, gpu) for gpu in "ab")
    site.post(site.path(finding_ids=ids), until=day(3))
    assert {each.finding_id for each in site.actions()} == set(ids)
    assert "Recorded" in site.get(site.path(finding_ids=ids)).text


@pytest.mark.parametrize("days", [-1, 29, 4000])
def test_no_longer_than_four_weeks_and_not_the_past(site: Site, days: int) -> None:
    answer = site.post(site.path(), until=day(days))
    assert (answer.status_code, "Choose a day from" in answer.text) == (400, True)
    for form in ({}, {"until": ""}, {"until": "tomorrow"}, {"until": "9" * 3000}):
        assert site.post(site.path(), **form).status_code == 400
    assert site.actions() == []


def other_key(site: Site) -> str:
    return AnswerLinks(SITE, b"x" * 64).sign(site.answer())


def without_signature(site: Site) -> str:
    return site.links.sign(site.answer()).rpartition(".")[0]


def other_verb(site: Site) -> str:
    """The content of one link under the signature of another."""
    own, other = site.links.sign(site.answer()), site.links.sign(site.answer(verb=DONE))
    return f"{other.rpartition('.')[0]}.{own.rpartition('.')[2]}"


def other_addressee(site: Site) -> str:
    own, other = site.links.sign(site.answer()), site.links.sign(site.answer(addressee="eve@example.org"))
    return f"{other.rpartition('.')[0]}.{own.rpartition('.')[2]}"


BAD = {
    "forged": other_key,
    "unsigned": without_signature,
    "other verb": other_verb,
    "other addressee": other_addressee,
    "expired": lambda site: site.links.sign(site.answer(expires_ms=NOW_MS - 1)),
    "unknown verb": lambda site: site.links.sign(site.answer(verb="delete")),
    "too long": lambda site: site.links.sign(site.answer(gpus=tuple(map(str, range(9999))))),
    "cut": lambda site: site.links.sign(site.answer())[:-1],
    "none of ours": lambda _: "x",
}


def test_every_bad_link_gets_the_same_answer(site: Site) -> None:
    said = set()
    for name, make in BAD.items():
        for answer in (site.get(PATH + make(site)), site.post(PATH + make(site), until=day(3))):
            said.add((answer.status_code, answer.text, tuple(sorted(answer.headers))))
            assert answer.status_code == 404, name
    site.settings.write_text(site.settings.read_text().partition("[dashboard]")[0])
    without_links = site.client.get(site_path := PATH + "anything", headers=HOST)
    said.add((without_links.status_code, without_links.text, tuple(sorted(without_links.headers))))
    assert (len(said), site.actions(), site_path) == (1, [], PATH + "anything")


def test_the_page_names_only_its_own_recommendation(site: Site) -> None:
    page = site.get(site.path()).text
    for name in (
        *USERS.values(),
        *(finding_id(site.held, gpu) for gpu in "abcd"),
        site.held.lake.root,
        "alpha",
        "GPU-b",
    ):
        assert not re.search(rf"\b{re.escape(name)}\b", page)
    assert "<script" not in page
    assert "1 GPU" in page


def test_simulated_gpus_are_called_so(site: Site) -> None:
    assert ["SIMULATED" in site.get(site.path(simulated=each)).text for each in (True, False)] == [True, False]


def test_what_a_link_names_is_text(site: Site) -> None:
    page = site.get(site.path(gpus=("<img src=x>",), gpu_count=3, host="<b>h</b>")).text
    assert ("&lt;img" in page, "<img" in page, "<b>h" in page, "and 2 more" in page) == (True, False, False, True)


@pytest.mark.parametrize("headers", [
    {}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
])  # fmt: skip
def test_another_sites_page_cannot_press_the_button(
    site: Site, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = site.path()
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert site.post(path, HOST | headers, until=day(3)).status_code == 403
    assert site.actions() == []
    assert path not in caplog.text  # the log is read by others


def test_the_page_may_send_its_own_form_and_nothing_else(site: Site) -> None:
    headers = site.get(site.path()).headers
    assert "form-action 'self'" in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")
    assert headers["Referrer-Policy"] == "same-origin"  # with no-referrer its own POST would have the origin `null`
    assert site.post(site.path(), HOST | {"Origin": SITE}, until=day(3)).status_code == 200


def test_it_answers_to_its_own_name_only(site: Site) -> None:
    assert site.client.get(site.path(), headers={"Host": "evil.example"}).status_code == 403


def test_a_link_that_is_opened_all_the_time_is_slowed_down_alone(site: Site) -> None:
    codes = {site.get(site.path(verb=DONE)).status_code for _ in range(45)}
    assert codes == {200, 429}
    assert site.get(site.path()).status_code == 200


def test_bad_links_do_not_fill_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        for _ in range(100):
            site.get(PATH + "x")
    assert 1 <= len(caplog.messages) <= 40  # a minute may end during the test
    assert set(caplog.messages) == {"anonymous at 127.0.0.1: opened a link that is not valid"}


def test_a_body_that_is_too_long_is_not_read(site: Site) -> None:
    assert site.post(site.path(), until=day(3), reason="x" * 5000).status_code == 413
    assert site.actions() == []


def test_it_speaks_the_language_of_its_mail(site: Site) -> None:
    page = site.get(site.path(language="fr")).text
    assert ('<html lang="fr">' in page, "Encore nécessaire jusqu&#39;à quand" in page) == (True, True)
    assert "Choisissez un jour du" in site.post(site.path(language="fr"), until=day(99)).text


def test_an_unreachable_lake_is_reported_and_no_answer_is_confirmed(site: Site) -> None:
    path, away = site.path(), Path(site.held.lake.root)
    hidden = away.with_name("hidden")
    away.rename(hidden)
    try:
        answer = site.post(path, until=day(3))
    finally:
        hidden.rename(away)
    assert (answer.status_code, "could not be recorded" in answer.text) == (503, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dashboard.link_key_file": "/k"}, "dashboard.address is not"),
        ({"dashboard.address": "http://gpus.example.org", "dashboard.link_key_file": "/k"}, "links need TLS"),
        ({"dashboard.address": "https://u:p@x", "dashboard.link_key_file": "/k"}, "cannot be linked to"),
        ({"dashboard.address": "https://x/?a=b", "dashboard.link_key_file": "/k"}, "cannot be linked to"),
        ({"dashboard.address": SITE, "dashboard.link_key_file": "/nowhere/k"}, "cannot read dashboard.link_key_file"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AnswerLinks.of(config.load(settings, None, {}))


def test_a_short_key_is_refused_and_without_one_there_are_no_links(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("short")
    with pytest.raises(ConfigError, match="shorter than 32 bytes"):
        AnswerLinks.of(
            config.load({"dashboard.address": SITE, "dashboard.link_key_file": str(tmp_path / "k")}, None, {})
        )
    assert AnswerLinks.of(config.load({"dashboard.address": SITE}, None, {})) is None
