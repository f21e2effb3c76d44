"""Signing in with OpenID Connect, against a real provider on loopback."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import requests
from flask.testing import FlaskClient
from joserfc.jwk import RSAKey
from werkzeug.test import TestResponse

from dashboard.access.audit_trail import trail_of
from dashboard.access.choose import access_of
from dashboard.access.oidc import OUT, RETURN
from dashboard.access.refusal import UNLIMITED, Rates
from dashboard.app import build_app
from dashboard.source import LakeSource
from fallow import config
from fallow.clock import Clock
from fallow.errors import ConfigError
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of
from tests.dashboard.servers import SECRET, Provider, provider, serving

Clients = Callable[..., FlaskClient]
NAMED = {"Host": "gpus.example.org", "Accept": "text/html"}
LOCAL = {"Host": "localhost", "Accept": "text/html"}


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider() as found:
        yield found


@pytest.fixture
def settings(idp: Provider, tmp_path: Path) -> dict[str, str]:
    return settings_for(idp, tmp_path)


def settings_for(idp: Provider, folder: Path) -> dict[str, str]:
    """Of pages whose people sign in at this provider."""
    (folder / "secret").write_text(f"{SECRET}\n")
    (folder / "people.csv").write_text("kind,name,role,team\nuser,ann,planner,\ngroup,gpu-admins,admin,\n")
    return {
        "dashboard.oidc_issuer": idp.issuer,
        "dashboard.oidc_client_id": "fallow",
        "dashboard.oidc_client_secret_file": str(folder / "secret"),
        "dashboard.people": str(folder / "people.csv"),
        "dashboard.hosts": "gpus.example.org",
    }


@pytest.fixture
def client_of(settings: dict[str, str], fleet_lake: Lake) -> Clients:
    return clients_of(settings, fleet_lake)


@pytest.fixture
def client(client_of: Clients) -> FlaskClient:
    return client_of()


def clients_of(settings: dict[str, str], lake: Lake) -> Clients:
    """Makes the pages over a lake behind a sign-in; flags are further settings."""

    def make(clock: Clock | None = None, rates: Rates = UNLIMITED, **changes: str) -> FlaskClient:
        loaded = config.load(settings | {f"dashboard.{name}": value for name, value in changes.items()}, None, {})
        access = access_of(loaded, address="0.0.0.0", local=False, insecure=False, clock=clock)  # noqa: S104  # not bound
        app = build_app(
            LakeSource(lambda: inputs_of(lake)), access, rates=rates, trail=trail_of(loaded.text("dashboard.audit"))
        )
        client: FlaskClient = app.server.test_client()
        return client

    return make


def sign_in(client: FlaskClient, headers: dict[str, str] = LOCAL, path: str = "/findings?span=7d") -> TestResponse:
    """Goes where the pages send to, and comes back from there; what the pages answer to that."""
    back = provider_answer(client.get(path, headers=headers))
    return client.get(back, headers=headers)


def provider_answer(sent: TestResponse) -> str:
    """Path and query with which the provider sends the browser back."""
    assert sent.status_code == 302
    answer = requests.get(sent.headers["Location"], allow_redirects=False, timeout=10)
    back = urlsplit(answer.headers["Location"])
    assert back.path == RETURN
    return f"{back.path}?{back.query}"


def test_a_page_sends_to_the_provider_and_back_to_itself(client: FlaskClient) -> None:
    done = sign_in(client)
    assert (done.status_code, done.headers["Location"]) == (302, "/findings?span=7d")
    assert client.get("/findings?span=7d", headers=LOCAL).status_code == 200
    # without a name for the whole request there is no way in: callbacks, exports and files as well
    assert client.get("/_dash-layout", headers=LOCAL).status_code == 200


@pytest.mark.parametrize(
    "path", ["/_dash-layout", "/_dash-dependencies", "/assets/style.css", "/export/findings.csv", "/nowhere"]
)
def test_what_is_no_page_is_401(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers={"Host": "localhost", "Accept": "*/*"})
    assert (answer.status_code, answer.text) == (401, "fallow: sign in first\n")
    post = client.post("/_dash-update-component", json={}, headers={"Host": "localhost", "Origin": "http://localhost"})
    framed = client.get("/report/preview", headers=LOCAL | {"Sec-Fetch-Dest": "iframe"})
    assert (post.status_code, framed.status_code) == (401, 401)


def test_health_needs_no_sign_in_and_says_nothing(client_of: Clients) -> None:
    answer = client_of().get("/healthz", headers={"Host": "10.2.3.4:8050"})
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_the_request_has_pkce_state_and_nonce(client_of: Clients) -> None:
    first, second = (client_of().get("/", headers=NAMED).headers["Location"] for _ in range(2))
    asked, again = (parse_qs(urlsplit(each).query) for each in (first, second))
    assert asked["redirect_uri"] == [f"https://gpus.example.org{RETURN}"]
    assert (asked["response_type"], asked["code_challenge_method"]) == (["code"], ["S256"])
    assert asked["scope"] == ["openid profile email"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name][0]) >= 43
        assert asked[name] != again[name]


def test_the_cookies_are_for_this_host_and_no_script(client_of: Clients) -> None:
    client = client_of()
    sent = client.get("/", headers=NAMED)
    # the test's browser keeps no secure cookies of a foreign host: they are looked at as they are sent
    [way] = sent.headers.getlist("Set-Cookie")
    assert way.startswith("__Host-fallow-sign-in-")
    done = sign_in(client_of())
    session = next(each for each in done.headers.getlist("Set-Cookie") if each.startswith("fallow-session="))
    for cookie in (way, session):
        assert {"HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
        assert "Max-Age=" in cookie
        assert "Domain" not in cookie
    assert "Secure" in way.split("; ")
    assert "Secure" not in session.split("; ")  # loopback without TLS


def test_a_forged_or_foreign_session_is_none(client_of: Clients, idp: Provider) -> None:
    client, other = client_of(), client_of(oidc_client_id="other")
    sign_in(client)
    kept = client.get_cookie("fallow-session")
    assert kept is not None
    for value in (f"{kept.value}x", "e30.aaaa.bbbb", ""):
        client.set_cookie("fallow-session", value)
        assert client.get("/", headers=LOCAL).status_code == 302
    other.set_cookie("fallow-session", kept.value)  # same key, another client of the provider
    assert other.get("/", headers=LOCAL).status_code == 302
    assert idp.asked.count("/token") == 1


def test_one_browsers_way_is_no_others(client_of: Clients) -> None:
    mine, theirs = client_of(), client_of()
    back = provider_answer(theirs.get("/", headers=LOCAL))
    answer = mine.get(back, headers=LOCAL)  # a link that somebody sends to have others signed in as them
    assert answer.status_code == 403
    assert mine.get("/", headers=LOCAL).status_code == 302


def test_a_return_is_good_for_once(client: FlaskClient) -> None:
    back = provider_answer(client.get("/", headers=LOCAL))
    assert client.get(back, headers=LOCAL).status_code == 302
    assert client.get(back, headers=LOCAL).status_code == 403


def test_two_tabs_sign_in_side_by_side(client: FlaskClient) -> None:
    ways = [provider_answer(client.get(path, headers=LOCAL)) for path in ("/film", "/gpu")]
    ends = [client.get(way, headers=LOCAL).headers["Location"] for way in ways]
    assert ends == ["/film", "/gpu"]


@pytest.mark.parametrize("path", ["//evil.example/x", "///evil.example", "/\\evil.example", "/%09/evil.example", "/%0a/evil.example",
                                  "/%0d%0aSet-Cookie:%20x=y", "/%5c%09%5cevil.example", "/%09%09//evil.example"])  # fmt: skip
def test_nobody_is_sent_elsewhere_afterwards(client_of: Clients, path: str) -> None:
    done = sign_in(client_of(), path=f"http://localhost{path}")
    assert done.status_code == 302
    # browsers pass over tabs and ends of lines in an address, and take \\ for /
    seen = re.sub(r"[\t\r\n]", "", done.headers["Location"]).replace("\\", "/")
    assert urlsplit(urljoin("https://gpus.example.org/sign-in/return", seen)).netloc == "gpus.example.org"
    assert not done.headers["Location"].startswith(("//", "/\\", "http"))
    assert next(each.partition("=")[0] for each in done.headers.getlist("Set-Cookie")) == "fallow-session"


def test_the_way_back_keeps_what_was_asked_for(client_of: Clients) -> None:
    asked = "/film?pool=a%20b%2Bc&zone=Europe/Paris&gpu=MIG-1%2F2&team=%C3%A9quipe"
    assert sign_in(client_of(), path=asked).headers["Location"] == asked


@pytest.mark.parametrize(("verified", "status"), [
    (True, 302), ("true", 302), (False, 403), ("false", 403), (None, 403), (1, 403), ("", 403),
])  # fmt: skip
def test_an_address_counts_only_if_the_provider_has_verified_it(
    client_of: Clients, idp: Provider, settings: dict[str, str], verified: object, status: int
) -> None:
    with open(settings["dashboard.people"], "a", encoding="utf-8") as file:  # noqa: PTH123  # a path as text
        file.write("user,ann@example.org,planner,\n")
    idp.user["email"] = "ann@example.org"
    if verified is not None:
        idp.user["email_verified"] = verified
    assert sign_in(client_of(oidc_user_claim="email")).status_code == status


class OfAnyShape(dict[str, Any]):
    """What the provider puts to its own answer, and which takes its place."""

    def __init__(self, content: object) -> None:
        super().__init__()
        self.content = content

    def __ror__(self, other: object) -> Any:
        return self.content


@pytest.mark.parametrize("userinfo", [["sub", "1"], "sub", 7])
def test_an_answer_of_another_shape_is_no_sign_in(client_of: Clients, idp: Provider, userinfo: object) -> None:
    idp.userinfo = OfAnyShape(userinfo)
    answer = sign_in(client_of())
    assert (answer.status_code, "signing in did not work" in answer.text) == (403, True)


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "others"},
    "a foreign party": {"aud": ["fallow", "others"], "azp": "others"},
    "too old": {"exp": 1_700_000_000},
    "another nonce": {"nonce": "x"},
    "no name": {"preferred_username": ""},
    "a name that is none": {"preferred_username": ["ann"]},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_token_signs_nobody_in(client: FlaskClient, idp: Provider, claims: dict[str, Any]) -> None:
    idp.claims = claims
    assert sign_in(client).status_code == 403
    assert client.get("/", headers=LOCAL).status_code == 302


@pytest.mark.parametrize(("name", "why"), [
    ("ann\u00a0", "the name ann in the claim preferred_username holds U+00A0 (NO-BREAK SPACE), which readers cannot see"),
    ("ann\n", "the name ann in the claim preferred_username holds U+000A, which readers cannot see"),
    ("ann ", "the name ann in the claim preferred_username has a blank at its start or end, or two in a row"),
    (" ann", "has a blank at its start or end"),
    ("an\u200dn", "holds U+200D (ZERO WIDTH JOINER), which readers cannot see"),
    ("\u202eann", "holds U+202E (RIGHT-TO-LEFT OVERRIDE), which readers cannot see"),
    ("\u0430nn", "mixes letters of different scripts: U+0430 (CYRILLIC SMALL LETTER A) and U+006E (LATIN SMALL LETTER N)"),
    ("\uff41nn", "is not in Unicode's normal form NFKC, which is ann"),
    ("a" * 301, "is longer than 300 characters"),
])  # fmt: skip
def test_a_name_that_could_pass_for_anothers_is_refused_and_not_repaired(
    client_of: Clients, idp: Provider, name: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user["preferred_username"] = name
    client = client_of(default_role="planner")
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        answer = sign_in(client)
    assert (answer.status_code, why in answer.text) == (403, True)
    assert "have it changed at the sign-in service" in answer.text
    assert client.get("/", headers=LOCAL).status_code == 302
    [line] = caplog.messages
    assert line.startswith("anonymous at 127.0.0.1: was refused /sign-in/return: the name ")


@pytest.mark.parametrize("name", ["Müller", "jean-luc", "DOMAIN\\ann", "ann@example.org", "O'Brien", "山田 たろう"])
def test_a_real_name_signs_in(client_of: Clients, idp: Provider, name: str, caplog: pytest.LogCaptureFixture) -> None:
    idp.user["preferred_username"] = name
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert sign_in(client_of(default_role="planner")).status_code == 302
    assert caplog.messages == [f"person {name}: signed in as planner"]


def test_a_wrong_token_is_401_beside_a_session(client: FlaskClient) -> None:
    sign_in(client)
    for path in ("/api/v1/openapi.json", "/metrics", "/", "/export/findings.csv"):
        assert client.get(path, headers=LOCAL | {"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/v1/openapi.json", headers=LOCAL).status_code == 200


def test_a_token_that_others_signed_signs_nobody_in(client_of: Clients, idp: Provider) -> None:
    idp.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
    assert sign_in(client_of()).status_code == 403


def test_new_keys_of_the_provider_are_looked_up(
    client: FlaskClient, idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign_in(client).status_code == 302
    monkeypatch.setattr("dashboard.access.provider._KEYS_AGAIN_S", 0.0)
    idp.key = idp.published = RSAKey.generate_key(2048, {"kid": "second", "use": "sig"})
    assert sign_in(client_again(client)).status_code == 302
    assert idp.asked.count("/keys") == 2


def client_again(client: FlaskClient) -> FlaskClient:
    """Another browser at the same pages."""
    other: FlaskClient = client.application.test_client()
    return other


def test_who_is_in_no_line_of_the_file_is_refused_by_name(
    client_of: Clients, idp: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user["preferred_username"] = "eve"
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        answer = sign_in(client_of())
    assert answer.status_code == 403
    assert "you are signed in as eve, who has no role here" in answer.text
    assert f"person eve: was refused {RETURN}: no role" in caplog.messages


@pytest.mark.parametrize("claim", [
    {"gpu-admins": False}, {"gpu-admins": True}, 5, True, ["others", ["gpu-admins"]], [{"gpu-admins": True}],
    [{"name": "gpu-admins"}, 3, None],
])  # fmt: skip
def test_groups_that_are_no_texts_grant_nothing_and_are_logged_once(
    client: FlaskClient, idp: Provider, claim: object, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user |= {"preferred_username": "bob", "groups": claim}
    for _ in range(2):
        assert sign_in(client_again(client)).status_code == 403
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("the claim groups is no list of texts")


@pytest.mark.parametrize("claim", ["gpu-admins", ["gpu-admins"], ["others", 3, "gpu-admins"]])
def test_one_text_or_a_list_of_texts_names_groups(client_of: Clients, idp: Provider, claim: object) -> None:
    idp.user |= {"preferred_username": "bob", "groups": claim}
    assert sign_in(client_of()).status_code == 302


def test_names_and_groups_of_userinfo_count_where_the_token_has_none(client_of: Clients, idp: Provider) -> None:
    idp.user, idp.userinfo = {"sub": "1"}, {"preferred_username": "bob", "groups": ["gpu-admins"]}
    assert sign_in(client_of()).status_code == 302
    idp.userinfo["sub"] = "2"  # about somebody else
    assert sign_in(client_of()).status_code == 403


def test_who_loses_the_role_is_out_at_once(client: FlaskClient, settings: dict[str, str]) -> None:
    sign_in(client)
    with open(settings["dashboard.people"], "w", encoding="utf-8") as file:  # noqa: PTH123  # a path as text
        file.write("name,role\nbob,viewer\n")
    answer = client.get("/", headers=LOCAL)
    assert (answer.status_code, "no role" in answer.text) == (403, True)


def test_signing_out(client: FlaskClient) -> None:
    sign_in(client)
    assert client.get(OUT, headers=LOCAL | {"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/", headers=LOCAL).status_code == 200
    assert client.get(OUT, headers=LOCAL | {"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client.get("/", headers=LOCAL).status_code == 302


def test_strangers_keep_nobody_from_signing_out(client_of: Clients) -> None:
    client = client_of(rates=replace(UNLIMITED, sign_ins_per_minute=2))
    sign_in(client)
    stranger = client_again(client)
    assert 429 in [stranger.get("/", headers=LOCAL).status_code for _ in range(6)]
    assert stranger.get(OUT, headers=LOCAL).status_code in (200, 429)
    done = client.get(OUT, headers=LOCAL)
    assert (done.status_code, "You are signed out" in done.text) == (200, True)
    assert client.get_cookie("fallow-session") is None


def test_a_foreign_name_is_refused(client_of: Clients) -> None:
    answer = client_of().get("/", headers=NAMED | {"Host": "evil.example"})
    assert answer.status_code == 403
    assert "Location" not in answer.headers


def test_a_provider_that_is_away_is_said(client: FlaskClient, idp: Provider) -> None:
    idp.server_close()
    for _ in range(2):  # the second does not wait for it
        answer = client.get("/", headers=LOCAL)
        assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)


def test_nobody_waits_for_a_provider_that_hangs_but_the_one_who_asks_it(client_of: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs, ThreadPoolExecutor(1) as other:
        client = client_of(oidc_issuer=f"http://127.0.0.1:{hangs.getsockname()[1]}")
        first = other.submit(client.get, "/", headers=LOCAL)
        connection, _ = hangs.accept()
        with connection:
            second = client_again(client).get("/", headers=LOCAL)
            assert not first.done()
        assert (second.status_code, first.result().status_code) == (503, 503)


def test_a_stranger_who_has_to_wait_does_not_reach_the_provider(client_of: Clients, idp: Provider) -> None:
    client = client_of(rates=replace(UNLIMITED, sign_ins_per_minute=0))
    assert client.get("/", headers=LOCAL).status_code == 429
    assert idp.asked == []


def test_no_more_than_so_many_threads_wait_for_the_provider(
    client_of: Clients, idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.access.provider._AT_ONCE", 0)
    answer = sign_in(client_of())
    assert (answer.status_code, "signing in did not work" in answer.text) == (403, True)
    assert "/token" not in idp.asked


def test_authorities_that_are_gone_are_a_provider_that_is_away(client_of: Clients, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    shutil.copy(requests.certs.where(), authorities)
    client = client_of(oidc_issuer="https://127.0.0.1:9", oidc_ca_file=str(authorities))
    authorities.unlink()
    answer = client.get("/", headers=NAMED)
    assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)


def test_cancelling_is_no_sign_in(client: FlaskClient) -> None:
    state = parse_qs(urlsplit(client.get("/", headers=LOCAL).headers["Location"]).query)["state"][0]
    answer = client.get(f"{RETURN}?error=access_denied&state={state}", headers=LOCAL)
    assert answer.status_code == 403
    assert "did not sign in" in answer.text


@pytest.mark.parametrize(("name", "value", "words"), [
    ("oidc_issuer", "http://idp.example.org", "https://"),
    ("oidc_client_id", "", "oidc_client_id is not"),
    ("hosts", "", "dashboard.hosts"),
    ("oidc_client_secret_file", "/nowhere/secret", "oidc_client_secret_file"),
    ("oidc_ca_file", "/nowhere/ca.pem", "oidc_ca_file"),
    ("oidc_ca_file", __file__, "no certificate"),
    ("people", "/nowhere/people.csv", "/nowhere/people.csv"),
])  # fmt: skip
def test_wrong_settings_are_said(client_of: Clients, name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client_of(**{name: value})


def test_a_short_key_is_refused(client_of: Clients, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    with pytest.raises(ConfigError, match="32 bytes"):
        client_of(session_key_file=str(tmp_path / "key"))


@pytest.mark.long  # servers of their own
def test_a_session_and_its_end_are_known_in_every_process_and_after_a_restart(
    settings: dict[str, str], fleet_lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(secrets.token_hex(32))
    variables = {f"FALLOW_{name.replace('.', '_').upper()}": value for name, value in settings.items()}
    variables["FALLOW_DASHBOARD_SESSION_KEY_FILE"] = str(tmp_path / "key")
    variables["FALLOW_DASHBOARD_STATE"] = str(tmp_path / "state")
    flags = ("dashboard", "--lake", fleet_lake.root, "--port", "0", "--workers", "2")
    with requests.Session() as browser:
        with serving(*flags, **variables) as (_, address):
            assert requests.get(f"{address}_dash-layout", timeout=30).status_code == 401
            shown = browser.get(f"{address}?span=24h", headers={"Accept": "text/html"}, timeout=30)
            assert (shown.status_code, shown.url) == (200, f"{address}?span=24h")
            assert [each.status_code for each in shown.history] == [302, 302, 302]
            # a connection each, so that both processes get some
            cookies = browser.cookies.get_dict()
            answers = {requests.get(address, cookies=cookies, timeout=30).status_code for _ in range(20)}
            assert answers == {200}
            assert requests.get(f"{address}sign-out", cookies=cookies, timeout=30).status_code == 200
            asked = [
                requests.get(f"{address}{path}", cookies=cookies, timeout=30, allow_redirects=False).status_code
                for path in ("", "_dash-layout", "export/findings.csv")
                for _ in range(10)
            ]
            assert set(asked) == {401}
            browser.cookies.clear()
            browser.get(address, headers={"Accept": "text/html"}, timeout=30)
        with serving(*flags, **variables) as (_, address):
            ended, cookies = cookies, browser.cookies.get_dict()
            assert requests.get(address, cookies=cookies, timeout=30).status_code == 200
            assert requests.get(address, cookies=ended, timeout=30).status_code == 401
