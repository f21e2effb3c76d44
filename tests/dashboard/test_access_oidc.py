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
FROM_HERE = {"Sec-Fetch-Site": "same-origin"}


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
    oidc = {"issuer": idp.issuer, "client_id": "fallow", "client_secret_file": str(folder / "secret")}
    others = {"dashboard.people": str(folder / "people.csv"), "dashboard.hosts": "gpus.example.org"}
    return {f"dashboard.oidc_{name}": value for name, value in oidc.items()} | others


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
        access = access_of(loaded, address="0.0.0.0", local=False, insecure=False, clock=clock)  # noqa: S104  # unbound
        trail = trail_of(loaded.text("dashboard.audit"))
        app = build_app(LakeSource(lambda: inputs_of(lake)), access, rates=rates, trail=trail)
        client: FlaskClient = app.server.test_client()
        return client

    return make


def sign_in(client: FlaskClient, headers: dict[str, str] = LOCAL, path: str = "/findings?span=7d") -> TestResponse:
    """Goes where the pages send to, and comes back from there; what the pages answer to that."""
    return client.get(provider_answer(client.get(path, headers=headers)), headers=headers)


def provider_answer(sent: TestResponse) -> str:
    """Path and query with which the provider sends the browser back."""
    assert sent.status_code == 302
    answer = requests.get(sent.headers["Location"], allow_redirects=False, timeout=10)
    back = urlsplit(answer.headers["Location"])
    assert back.path == RETURN
    return f"{back.path}?{back.query}"


def client_again(client: FlaskClient) -> FlaskClient:
    """Another browser at the same pages."""
    other: FlaskClient = client.application.test_client()
    return other


def status(client: FlaskClient, path: str = "/", **headers: str) -> int:
    return client.get(
        path, headers=LOCAL | {name.replace("_", "-"): each for name, each in headers.items()}
    ).status_code


def told(answer: TestResponse, said: str) -> tuple[int, bool]:
    return answer.status_code, said in answer.text


def test_a_page_sends_to_the_provider_and_back_to_itself(client: FlaskClient) -> None:
    done = sign_in(client)
    assert (done.status_code, done.headers["Location"]) == (302, "/findings?span=7d")
    # without a name for the whole request there is no way in: callbacks, exports and files as well
    assert [status(client, path) for path in ("/findings?span=7d", "/_dash-layout")] == [200, 200]


@pytest.mark.parametrize(
    "path", ["/_dash-layout", "/_dash-dependencies", "/assets/style.css", "/export/findings.csv", "/nowhere"]
)
def test_what_is_no_page_is_401(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers={"Host": "localhost", "Accept": "*/*"})
    assert (answer.status_code, answer.text) == (401, "fallow: sign in first\n")
    post = client.post("/_dash-update-component", json={}, headers={"Host": "localhost", "Origin": "http://localhost"})
    assert (post.status_code, status(client, "/report/preview", Sec_Fetch_Dest="iframe")) == (401, 401)


def test_health_needs_no_sign_in_and_a_foreign_name_is_refused(client: FlaskClient) -> None:
    answer = client.get("/healthz", headers={"Host": "10.2.3.4:8050"})
    assert (answer.status_code, answer.text) == (200, "ok\n")
    foreign = client.get("/", headers=NAMED | {"Host": "evil.example"})
    assert (foreign.status_code, "Location" in foreign.headers) == (403, False)


def test_the_request_has_pkce_state_and_nonce(client: FlaskClient) -> None:
    asked, again = (parse_qs(urlsplit(client.get("/", headers=NAMED).headers["Location"]).query) for _ in range(2))
    assert asked["redirect_uri"] == [f"https://gpus.example.org{RETURN}"]
    assert (asked["response_type"], asked["code_challenge_method"]) == (["code"], ["S256"])
    assert asked["scope"] == ["openid profile email"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name][0]) >= 43
        assert asked[name] != again[name]


def test_the_cookies_are_for_this_host_and_no_script(client_of: Clients) -> None:
    # the test's browser keeps no secure cookies of a foreign host: they are looked at as they are sent
    [way] = client_of().get("/", headers=NAMED).headers.getlist("Set-Cookie")
    assert way.startswith("__Host-fallow-sign-in-")
    done = sign_in(client_of())
    session = next(each for each in done.headers.getlist("Set-Cookie") if each.startswith("fallow-session="))
    for cookie in (way, session):
        assert {"HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
        assert "Max-Age=" in cookie
        assert "Domain" not in cookie
    assert ["Secure" in each.split("; ") for each in (way, session)] == [True, False]  # loopback without TLS


def test_a_forged_or_foreign_session_is_none(client_of: Clients, idp: Provider) -> None:
    client, other = client_of(), client_of(oidc_client_id="other")
    sign_in(client)
    kept = client.get_cookie("fallow-session")
    assert kept is not None
    for value in (f"{kept.value}x", "e30.aaaa.bbbb", ""):
        client.set_cookie("fallow-session", value)
        assert status(client) == 302
    other.set_cookie("fallow-session", kept.value)  # same key, another client of the provider
    assert status(other) == 302
    assert idp.asked.count("/token") == 1


def test_one_browsers_way_is_no_others_and_a_return_is_good_for_once(client_of: Clients) -> None:
    mine, theirs = client_of(), client_of()
    back = provider_answer(theirs.get("/", headers=LOCAL))
    assert status(mine, back) == 403  # a link that an attacker sends to sign others in as the attacker
    assert status(mine) == 302
    assert [status(theirs, back) for _ in range(2)] == [302, 403]


def test_an_answer_of_another_provider_is_refused(client: FlaskClient) -> None:
    """RFC 9207: a provider that the browser visited in between may not send a code of its own."""
    back = provider_answer(client.get("/", headers=LOCAL))
    answer = client.get(f"{back}&iss=https://evil.example", headers=LOCAL)
    assert told(answer, "another service answered this sign-in") == (403, True)


def test_two_tabs_sign_in_side_by_side(client: FlaskClient) -> None:
    ways = [provider_answer(client.get(path, headers=LOCAL)) for path in ("/timeline", "/gpu")]
    assert [client.get(way, headers=LOCAL).headers["Location"] for way in ways] == ["/timeline", "/gpu"]


@pytest.mark.parametrize("path", ["//evil.example/x", "///evil.example", "/\\evil.example", "/%09/evil.example",
                                  "/%0a/evil.example", "/%0d%0aSet-Cookie:%20x=y", "/%5c%09%5cevil.example",
                                  "/%09%09//evil.example"])  # fmt: skip
def test_a_sign_in_never_redirects_to_another_site(client: FlaskClient, path: str) -> None:
    done = sign_in(client, path=f"http://localhost{path}")
    assert done.status_code == 302
    # browsers pass over tabs and ends of lines in an address, and take \\ for /
    seen = re.sub(r"[\t\r\n]", "", done.headers["Location"]).replace("\\", "/")
    assert urlsplit(urljoin("https://gpus.example.org/sign-in/return", seen)).netloc == "gpus.example.org"
    assert not done.headers["Location"].startswith(("//", "/\\", "http"))
    assert next(each.partition("=")[0] for each in done.headers.getlist("Set-Cookie")) == "fallow-session"


def test_the_way_back_keeps_what_was_asked_for(client: FlaskClient) -> None:
    asked = "/timeline?pool=a%20b%2Bc&zone=Europe/Paris&gpu=MIG-1%2F2&team=%C3%A9quipe"
    assert sign_in(client, path=asked).headers["Location"] == asked


@pytest.mark.parametrize(("verified", "code"), [
    (True, 302), ("true", 302), (False, 403), ("false", 403), (None, 403), (1, 403), ("", 403),
])  # fmt: skip
def test_an_address_counts_only_if_the_provider_has_verified_it(
    client_of: Clients, idp: Provider, settings: dict[str, str], verified: object, code: int
) -> None:
    people = Path(settings["dashboard.people"])
    people.write_text(f"{people.read_text()}user,ann@example.org,planner,\n")
    idp.user |= {"email": "ann@example.org"} | ({} if verified is None else {"email_verified": verified})
    assert sign_in(client_of(oidc_user_claim="email")).status_code == code


class OfAnyShape(dict[str, Any]):
    """What the provider puts to its own answer, and which takes its place."""

    def __init__(self, content: object) -> None:
        super().__init__()
        self.content = content

    def __ror__(self, other: object) -> Any:
        return self.content


@pytest.mark.parametrize("userinfo", [["sub", "1"], "sub", 7])
def test_an_answer_of_another_shape_is_no_sign_in(client: FlaskClient, idp: Provider, userinfo: object) -> None:
    idp.userinfo = OfAnyShape(userinfo)
    assert told(sign_in(client), "signing in failed") == (403, True)


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "others"},
    "a foreign party": {"aud": ["fallow", "others"], "azp": "others"},
    "too old": {"exp": 1_700_000_000},
    "another nonce": {"nonce": "x"},
    "no name": {"preferred_username": ""},
    "a name that is none": {"preferred_username": ["ann"]},
    "a key of others": {},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_token_signs_no_user_in(client: FlaskClient, idp: Provider, wrong: str) -> None:
    idp.claims = WRONG[wrong]
    if wrong == "a key of others":
        idp.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
    assert sign_in(client).status_code == 403
    assert status(client) == 302


@pytest.mark.parametrize(("name", "why"), [
    ("ann\u00a0",
     "the name ann in the claim preferred_username contains U+00A0 (NO-BREAK SPACE), which readers cannot see"),
    ("ann\n", "the name ann in the claim preferred_username contains U+000A, which readers cannot see"),
    ("ann ", "the name ann in the claim preferred_username has a blank at its start or end, or two blanks in a row"),
    (" ann", "has a blank at its start or end"),
    ("an\u200dn", "contains U+200D (ZERO WIDTH JOINER), which readers cannot see"),
    ("\u202eann", "contains U+202E (RIGHT-TO-LEFT OVERRIDE), which readers cannot see"),
    ("\u0430nn",
     "mixes letters of different scripts: U+0430 (CYRILLIC SMALL LETTER A) and U+006E (LATIN SMALL LETTER N)"),
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
    assert told(answer, why) == told(answer, "ask for a name in ordinary letters") == (403, True)
    assert status(client) == 302
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
        assert status(client, path, Authorization="Bearer wrong") == 401
    assert status(client, "/api/v1/openapi.json") == 200


def test_new_keys_of_the_provider_are_looked_up(
    client: FlaskClient, idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign_in(client).status_code == 302
    monkeypatch.setattr("dashboard.access.provider._KEYS_AGAIN_S", 0.0)
    idp.key = idp.published = RSAKey.generate_key(2048, {"kid": "second", "use": "sig"})
    assert sign_in(client_again(client)).status_code == 302
    assert idp.asked.count("/keys") == 2


def test_who_is_in_no_line_of_the_file_is_refused_by_name(
    client: FlaskClient, idp: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user["preferred_username"] = "eve"
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert told(sign_in(client), "you are signed in as eve, who has no role here") == (403, True)
    assert f"person eve: was refused {RETURN}: no role" in caplog.messages


@pytest.mark.parametrize("claim", ["gpu-admins", ["gpu-admins"], ["others", 3, "gpu-admins"]])
def test_one_text_or_a_list_of_texts_names_groups(
    client: FlaskClient, idp: Provider, claim: object, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user |= {"preferred_username": "bob", "groups": claim}
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert sign_in(client).status_code == 302
    assert "person bob: signed in as admin" in caplog.messages


@pytest.mark.parametrize("claim", [
    {"gpu-admins": False}, {"gpu-admins": True}, 5, True, ["others", ["gpu-admins"]], [{"gpu-admins": True}],
    [{"name": "gpu-admins"}, 3, None],
])  # fmt: skip
def test_groups_that_are_no_texts_grant_nothing_and_are_logged_once(
    client: FlaskClient, idp: Provider, claim: object, caplog: pytest.LogCaptureFixture
) -> None:
    idp.user |= {"preferred_username": "bob", "groups": claim}
    assert [sign_in(client_again(client)).status_code for _ in range(2)] == [403, 403]
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("the claim groups is not a list of texts")


def test_names_and_groups_of_userinfo_count_where_the_token_has_none(client_of: Clients, idp: Provider) -> None:
    idp.user, idp.userinfo = {"sub": "1"}, {"preferred_username": "bob", "groups": ["gpu-admins"]}
    assert sign_in(client_of()).status_code == 302
    idp.userinfo["sub"] = "2"  # about another user
    assert sign_in(client_of()).status_code == 403


def test_who_loses_the_role_is_out_at_once(client: FlaskClient, settings: dict[str, str]) -> None:
    sign_in(client)
    Path(settings["dashboard.people"]).write_text("name,role\nbob,viewer\n")
    assert told(client.get("/", headers=LOCAL), "no role") == (403, True)


def test_signing_out(client: FlaskClient) -> None:
    sign_in(client)
    asked = [(OUT, "cross-site"), ("/", "none"), (OUT, "same-origin"), ("/", "none")]
    assert [status(client, path, Sec_Fetch_Site=site) for path, site in asked] == [403, 200, 200, 302]


def test_strangers_cannot_prevent_a_sign_out(client_of: Clients) -> None:
    client = client_of(rates=replace(UNLIMITED, sign_ins_per_minute=2))
    sign_in(client)
    stranger = client_again(client)
    assert 429 in [status(stranger) for _ in range(6)]
    assert status(stranger, OUT) in (200, 429)
    assert told(client.get(OUT, headers=LOCAL), "You are signed out") == (200, True)
    assert client.get_cookie("fallow-session") is None


def test_an_unreachable_provider_is_reported(client: FlaskClient, idp: Provider) -> None:
    idp.server_close()
    for _ in range(2):  # the second does not wait for it
        assert told(client.get("/", headers=LOCAL), "cannot be reached") == (503, True)


def test_only_one_request_waits_for_a_provider_that_hangs(client_of: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs, ThreadPoolExecutor(1) as other:
        client = client_of(oidc_issuer=f"http://127.0.0.1:{hangs.getsockname()[1]}")
        first = other.submit(status, client)
        connection, _ = hangs.accept()
        with connection:
            assert status(client_again(client)) == 503
            assert not first.done()
        assert first.result() == 503


def test_a_stranger_who_has_to_wait_does_not_reach_the_provider(client_of: Clients, idp: Provider) -> None:
    assert status(client_of(rates=replace(UNLIMITED, sign_ins_per_minute=0))) == 429
    assert idp.asked == []


def test_few_threads_wait_for_the_provider(client_of: Clients, idp: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.access.provider._AT_ONCE", 0)
    assert told(sign_in(client_of()), "signing in failed") == (403, True)
    assert "/token" not in idp.asked


def test_authorities_that_are_gone_are_a_provider_that_is_away(client_of: Clients, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    shutil.copy(requests.certs.where(), authorities)
    client = client_of(oidc_issuer="https://127.0.0.1:9", oidc_ca_file=str(authorities))
    authorities.unlink()
    assert told(client.get("/", headers=NAMED), "cannot be reached") == (503, True)


def test_cancelling_is_no_sign_in(client: FlaskClient) -> None:
    state = parse_qs(urlsplit(client.get("/", headers=LOCAL).headers["Location"]).query)["state"][0]
    answer = client.get(f"{RETURN}?error=access_denied&state={state}", headers=LOCAL)
    assert told(answer, "did not sign in") == (403, True)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("oidc_issuer", "http://idp.example.org", "https://"),
        ("oidc_client_id", "", "oidc_client_id is not"),
        ("hosts", "", "dashboard.hosts"),
        ("oidc_client_secret_file", "/nowhere/secret", "oidc_client_secret_file"),
        ("oidc_ca_file", "/nowhere/ca.pem", "oidc_ca_file"),
        ("oidc_ca_file", __file__, "no certificate"),
        ("people", "/nowhere/people.csv", "/nowhere/people.csv"),
        ("session_key_file", "{short}", "32 bytes"),
    ],
)
def test_wrong_settings_are_refused(client_of: Clients, tmp_path: Path, name: str, value: str, words: str) -> None:
    (tmp_path / "key").write_text("short")
    with pytest.raises(ConfigError, match=words):
        client_of(**{name: value.format(short=tmp_path / "key")})


@pytest.mark.long  # servers of their own
def test_a_session_and_its_end_are_known_in_every_process_and_after_a_restart(
    settings: dict[str, str], fleet_lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(secrets.token_hex(32))
    kept = {"dashboard.session_key_file": str(tmp_path / "key"), "dashboard.state": str(tmp_path / "state")}
    variables = {f"FALLOW_{name.replace('.', '_').upper()}": value for name, value in (settings | kept).items()}
    flags = ("dashboard", "--lake", fleet_lake.root, "--port", "0", "--workers", "2")

    def codes(address: str, *paths: str, times: int = 1) -> set[int]:
        """Of connections of their own, so that both processes get some."""
        asked = [f"{address}{path}" for path in paths for _ in range(times)]
        return {requests.get(each, cookies=cookies, timeout=30, allow_redirects=False).status_code for each in asked}

    with requests.Session() as browser:
        with serving(*flags, **variables) as (_, address):
            assert requests.get(f"{address}_dash-layout", timeout=30).status_code == 401
            shown = browser.get(f"{address}?span=24h", headers={"Accept": "text/html"}, timeout=30)
            assert (shown.status_code, shown.url) == (200, f"{address}?span=24h")
            assert [each.status_code for each in shown.history] == [302, 302, 302]
            cookies = browser.cookies.get_dict()
            assert codes(address, "", times=20) == {200}
            assert codes(address, "sign-out") == {200}
            assert codes(address, "", "_dash-layout", "export/findings.csv", times=10) == {401}
            browser.cookies.clear()
            browser.get(address, headers={"Accept": "text/html"}, timeout=30)
        with serving(*flags, **variables) as (_, address):
            assert codes(address, "") == {401}
            cookies = browser.cookies.get_dict()
            assert codes(address, "") == {200}
