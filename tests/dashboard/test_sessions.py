"""Sessions: a saved cookie is invalid after a sign-out, after a revocation, and after its renewal."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from dashboard.access.choose import access_of
from dashboard.access.oidc import OUT
from dashboard.access.session_store import FILE, SessionStore
from dashboard.access.sessions import GRACE_MS
from fallow import config
from fallow.cli import main
from fallow.clock import MINUTE_MS
from fallow.errors import ConfigError
from fallow.os_user import os_user
from tests.dashboard.servers import Provider
from tests.dashboard.test_access_oidc import LOCAL, Clients, client_again, client_of, idp, settings, sign_in
from tests.delivery.hands import Hands

__all__ = ["client_of", "idp", "settings"]

COOKIE = "fallow-session"
IDLE_MS = 15 * MINUTE_MS
REFUSED = {"page": 302, "callback": 401, "export": 401}
ADMITTED = {"page": 200, "callback": 200, "export": 200}


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def browser(client_of: Clients, clock: Hands, tmp_path: Path) -> FlaskClient:
    """Signed in as ann, with the state in a folder that a command finds."""
    client = client_of(clock=clock, state=str(tmp_path / "state"), audit=str(tmp_path / "audit.jsonl"))
    sign_in(client)
    return client


def cookie(client: FlaskClient) -> str:
    found = client.get_cookie(COOKIE)
    assert found is not None
    return found.value


def with_cookie(client: FlaskClient, value: str) -> FlaskClient:
    """Another browser at the same pages, which has been given this cookie."""
    other = client_again(client)
    other.set_cookie(COOKIE, value)
    return other


def answers(client: FlaskClient) -> dict[str, int]:
    """What a page, a callback and a table as a file answer, each to a browser with the cookies as they are now."""
    kept = client.get_cookie(COOKIE)
    asked = {
        "page": lambda each: each.get("/", headers=LOCAL),
        "callback": lambda each: each.post("/_dash-update-component", json=_NEWS, headers=_FROM_THE_PAGE),
        "export": lambda each: each.get("/export/findings.csv", headers={"Host": "localhost"}),
    }
    return {
        name: ask(with_cookie(client, kept.value) if kept else client_again(client)).status_code
        for name, ask in asked.items()
    }


_FROM_THE_PAGE = {"Host": "localhost", "Origin": "http://localhost"}
_NEWS = {
    "output": "again.hidden",
    "outputs": {"id": "again", "property": "hidden"},
    "inputs": [
        {"id": "news", "property": "n_intervals", "value": 1},
        {"id": "version", "property": "data", "value": "x"},
    ],
    "changedPropIds": ["news.n_intervals"],
}


def test_a_cookie_that_was_saved_is_worth_nothing_after_signing_out(browser: FlaskClient) -> None:
    saved = cookie(browser)
    assert answers(browser) == ADMITTED
    assert browser.get(OUT, headers=LOCAL | {"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert answers(with_cookie(browser, saved)) == REFUSED
    sign_in(browser)  # a session of its own: it brings nothing back
    assert answers(browser) == ADMITTED
    assert answers(with_cookie(browser, saved)) == REFUSED


def test_signing_out_ends_the_session_also_with_a_cookie_that_is_too_old(
    browser: FlaskClient, clock: Hands, tmp_path: Path
) -> None:
    clock.sleep(IDLE_MS / 1000)
    assert answers(browser) == REFUSED
    browser.get(OUT, headers=LOCAL | {"Sec-Fetch-Site": "same-origin"})
    assert SessionStore(tmp_path / "state").sessions(clock.now_ms()) == ()


def test_an_admin_ends_all_sessions_of_one_person(
    browser: FlaskClient, idp: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second, bob = client_again(browser), client_again(browser)
    sign_in(second)
    idp.user |= {"preferred_username": "bob", "groups": ["gpu-admins"]}
    sign_in(bob)
    file = tmp_path / "fallow.toml"
    file.write_text(f'[dashboard]\nstate = "{tmp_path}/state"\naudit = "{tmp_path}/audit.jsonl"\n')
    # the test's clock stands in the past, where the command sees no session that lasts
    with closing(sqlite3.connect(tmp_path / "state" / FILE, isolation_level=None)) as database:
        database.execute("update sign_in set ends_ms = 99999999999999")
    assert main(["dashboard", "sessions", "--json", "--config", str(file)]) == 0
    listed = json.loads(capsys.readouterr().out)["sessions"]
    assert [(each["user"], each["address"]) for each in listed] == [("ann", "127.0.0.1")] * 2 + [("bob", "127.0.0.1")]
    assert main(["dashboard", "sessions", "--revoke", "ann", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "ended 2 sign-ins of ann\n"
    assert answers(browser) == answers(second) == REFUSED
    assert answers(bob) == ADMITTED
    assert main(["dashboard", "sessions", "--revoke", "ann", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "ann was not signed in\n"
    assert main(["dashboard", "sessions", "--config", str(file)]) == 0
    assert " bob from 127.0.0.1, since 2026-" in capsys.readouterr().out
    said = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    ended = [(each["who"], each["did"]) for each in said if each["event"] == "revocation"]
    # who tried and came too late is in the record as well
    assert ended == [(os_user(), f"ended {number} sign-ins of ann by command") for number in (2, 0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "dashboard.state is not set"),
        ('state = "{folder}/nowhere"', "no sign-ins are kept in"),
    ],
)
def test_a_command_that_cannot_reach_the_sessions_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "fallow.toml"
    file.write_text(f"[dashboard]\n{text.format(folder=tmp_path)}\n")
    assert main(["dashboard", "sessions", "--revoke", "ann", "--config", str(file)]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def used(browser: FlaskClient, clock: Hands, minutes: int, every: int = 1) -> None:
    """An open page, which asks every few minutes."""
    for _ in range(0, minutes, every):
        clock.sleep(60 * every)
        assert browser.get("/", headers=LOCAL).status_code == 200


def test_a_cookie_is_good_for_minutes_and_a_session_that_is_used_for_its_whole_time(
    browser: FlaskClient, clock: Hands
) -> None:
    saved = cookie(browser)
    used(browser, clock, 12 * 60 - 4, every=4)
    assert cookie(browser) != saved
    assert answers(browser) == ADMITTED
    clock.sleep(4 * 60)
    assert answers(browser) == REFUSED


def test_an_unused_cookie_ends_after_a_quarter_of_an_hour(browser: FlaskClient, clock: Hands) -> None:
    clock.sleep(IDLE_MS / 1000 - 1)
    assert answers(browser) == ADMITTED
    clock.sleep(1)
    assert answers(browser) == REFUSED


def test_renewing_does_not_break_what_a_page_asks_at_once(browser: FlaskClient, clock: Hands) -> None:
    before = cookie(browser)
    clock.sleep(IDLE_MS / 1000 / 2)
    renewed = [with_cookie(browser, before).get("/", headers=LOCAL).headers.get("Set-Cookie") for _ in range(3)]
    [one] = [each for each in renewed if each]  # a second cookie would be for a client with a copy
    after = one.partition("=")[2].partition(";")[0]
    browser.set_cookie(COOKIE, after)
    assert browser.get("/", headers=LOCAL).status_code == 200
    assert after != before
    assert answers(with_cookie(browser, after)) == ADMITTED
    clock.sleep(GRACE_MS / 1000)
    assert answers(with_cookie(browser, before)) == ADMITTED  # under way when the new one came back
    assert answers(with_cookie(browser, after)) == ADMITTED


def test_old_and_new_cookies_at_the_same_moment_are_one_session(browser: FlaskClient, clock: Hands) -> None:
    before = cookie(browser)
    clock.sleep(IDLE_MS / 1000 / 2)
    browser.get("/", headers=LOCAL)
    clients = [with_cookie(browser, each) for each in [before, cookie(browser)] * 8]
    with ThreadPoolExecutor(16) as at_once:
        codes = list(at_once.map(lambda each: each.get("/", headers=LOCAL).status_code, clients))
    assert codes == [200] * 16


def test_an_answer_that_never_arrived_ends_no_session(browser: FlaskClient, clock: Hands) -> None:
    before = cookie(browser)
    clock.sleep(IDLE_MS / 1000 / 2)
    with_cookie(browser, before).get("/", headers=LOCAL)  # its new cookie is lost on the way
    clock.sleep(2 * GRACE_MS / 1000)
    assert answers(with_cookie(browser, before)) == ADMITTED
    used(browser, clock, 30)  # there is another, in time
    assert cookie(browser) != before


def test_a_new_cookie_that_comes_late_ends_no_session(browser: FlaskClient, clock: Hands) -> None:
    """It was slower than the one after it, and takes its place in the browser."""
    before = cookie(browser)
    clock.sleep(IDLE_MS / 1000 / 3)
    late = with_cookie(browser, before)
    late.get("/", headers=LOCAL)
    clock.sleep(IDLE_MS / 1000 / 3)
    used(browser, clock, 1)
    assert cookie(browser) not in (before, cookie(late))
    assert answers(late) == ADMITTED


def test_a_copy_that_comes_back_after_its_renewal_ends_the_session(
    browser: FlaskClient, clock: Hands, tmp_path: Path
) -> None:
    stolen = cookie(browser)
    used(browser, clock, 10)
    assert answers(with_cookie(browser, stolen)) == REFUSED
    assert answers(browser) == REFUSED  # it is unknown which of the two clients is ann
    said = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [each["who"] for each in said if each["event"] == "revocation"] == ["ann"]


@pytest.mark.parametrize("is_keeping", [True, False])
def test_a_copy_that_goes_on_asking_ends_the_session(browser: FlaskClient, clock: Hands, *, is_keeping: bool) -> None:
    """The client may keep the cookies that it receives, as a browser does, or send the same cookie again and again."""
    stolen = cookie(browser)
    copy = with_cookie(browser, stolen)
    for _ in range(IDLE_MS // MINUTE_MS):
        clock.sleep(30)
        browser.get("/", headers=LOCAL)
        clock.sleep(30)
        copy.get("/", headers=LOCAL)
        if not is_keeping:
            copy.set_cookie(COOKIE, stolen)
    assert answers(browser) == answers(copy) == REFUSED


def test_a_renewed_cookie_is_as_well_kept_as_the_first(browser: FlaskClient, clock: Hands) -> None:
    clock.sleep(IDLE_MS / 1000 / 2)
    with browser.get("/assets/style.css", headers={"Host": "localhost"}) as answer:
        assert answer.headers["Cache-Control"] == "no-store"  # a cache would hand it to others
    [renewed] = answer.headers.getlist("Set-Cookie")
    assert {"HttpOnly", "Path=/", "SameSite=Lax", f"Max-Age={IDLE_MS // 1000}"} <= set(renewed.split("; "))


def test_signing_in_makes_a_new_session_and_ends_the_one_before(
    browser: FlaskClient, clock: Hands, tmp_path: Path
) -> None:
    planted = cookie(browser)
    sign_in(client_again(browser))
    other = with_cookie(browser, planted)
    other.set_cookie("fallow-session", planted)
    clock.sleep(IDLE_MS / 1000)  # so that the page leads to the provider
    sign_in(other)
    assert cookie(other) != planted
    assert answers(other) == ADMITTED
    assert (
        len(SessionStore(tmp_path / "state").sessions(clock.now_ms())) == 2
    )  # that of the third browser, and this one


def test_a_group_that_gets_a_role_later_counts_for_sessions_that_run(
    client_of: Clients, idp: Provider, settings: dict[str, str]
) -> None:
    client = client_of()
    idp.user["groups"] = ["night-shift"]
    sign_in(client)
    people = settings["dashboard.people"]
    for role, status in (("none", 403), ("viewer", 200)):
        with open(people, "w", encoding="utf-8") as file:  # noqa: PTH123  # a path as text
            file.write(f"kind,name,role\ngroup,night-shift,{role}\n")
        assert client.get("/", headers=LOCAL).status_code == status


def test_sessions_outlive_a_restart_and_so_does_their_end(client_of: Clients, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 32)
    kept = {"state": str(tmp_path / "state"), "session_key_file": str(tmp_path / "key")}
    first = client_of(**kept)
    sign_in(first)
    second = client_of(**kept)  # another process, or the same later
    second.set_cookie(COOKIE, cookie(first))
    assert answers(second) == ADMITTED
    second.get(OUT, headers=LOCAL)
    assert answers(first) == REFUSED
    assert answers(with_cookie(client_of(**kept), cookie(first))) == REFUSED


def test_a_lost_store_ends_every_session(browser: FlaskClient, tmp_path: Path) -> None:
    (tmp_path / "state" / FILE).unlink()
    assert answers(browser) == REFUSED


def test_a_broken_store_admits_no_reader_and_is_reported(browser: FlaskClient, tmp_path: Path) -> None:
    (tmp_path / "state" / FILE).write_bytes(b"no database at all, " * 100)
    assert answers(browser) == {"page": 503, "callback": 503, "export": 503}
    assert "the sessions cannot be read" in browser.get("/", headers=LOCAL).text
    assert "you are still signed in" in browser.get(OUT, headers=LOCAL).text


@pytest.fixture
def no_room() -> Iterator[Callable[[int], None]]:
    """Limit the size of every file that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_readers_can_read_with_a_full_disk(browser: FlaskClient, clock: Hands, no_room: Callable[[int], None]) -> None:
    no_room(1)
    for _ in range(3):
        clock.sleep(IDLE_MS / 1000 / 2)
        assert browser.get("/", headers=LOCAL).status_code == 200


def test_the_store_is_private_and_holds_no_key_to_a_session(browser: FlaskClient, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (state, *state.iterdir())} == {
        "state": 0o700,
        FILE: 0o600,
    }
    [session] = SessionStore(state).sessions(0)
    kept = (state / FILE).read_bytes()
    assert session.digest.encode() in kept
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600
    assert not any(each.encode() in kept for each in cookie(browser).split(".") if len(each) > 20)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", "cannot be used: File exists"),
        ("gone/state", "cannot be used: No such file"),
        ("open", "every user may write"),
    ],
)
def test_a_folder_that_cannot_keep_sessions_is_refused_at_the_start(
    settings: dict[str, str], tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)  # noqa: PTH101,S103  # as it must not be
    wrong: dict[str, Any] = {"dashboard.state": str(tmp_path / name)}
    with pytest.raises(ConfigError, match=words):
        access_of(config.load(settings | wrong, None, {}), address="::", local=False, insecure=False)
