"""Pages behind a proxy that names the user, and pages without a sign-in."""

from __future__ import annotations

import http.client
import logging
import re
from contextlib import closing
from urllib.parse import urlsplit

import pytest
import requests
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from dashboard.access import Access
from dashboard.access.choose import access_of
from dashboard.app import build_app
from dashboard.source import LakeSource
from fallow import config
from fallow.errors import ConfigError, UsageError
from fallow.lake import Lake
from tests.dashboard.servers import serving

EVERYWHERE = "0.0.0.0"  # noqa: S104  # nothing is bound
HEADER = "X-Forwarded-User"
PROXIED = {
    "dashboard.proxy_header": HEADER,
    "dashboard.proxies": "10.1.0.0/16, 127.0.0.9, fd00::/8",
    "dashboard.default_role": "viewer",
    "dashboard.hosts": "gpus.example.org",
}


def chosen(settings: dict[str, str], *, insecure: bool = False, local: bool = False) -> Access:
    return access_of(config.load(settings, None, {}), address=EVERYWHERE, local=local, insecure=insecure)


@pytest.fixture(scope="module")
def proxied(fleet_source: LakeSource, tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    people = tmp_path_factory.mktemp("people") / "people.csv"
    people.write_text("name,role\nann,admin\nzoë,planner\nmallory,none\n", encoding="utf-8")
    access = chosen(PROXIED | {"dashboard.people": str(people)})
    client: FlaskClient = build_app(fleet_source, access).server.test_client()
    return client


def ask(client: FlaskClient, peer: str, headers: dict[str, str], path: str = "/") -> TestResponse:
    return client.get(path, headers={"Host": "gpus.example.org"} | headers, environ_base={"REMOTE_ADDR": peer})


@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.9", "::ffff:10.1.2.3", "fd00::1"])
def test_a_proxy_is_believed(proxied: FlaskClient, peer: str) -> None:
    assert ask(proxied, peer, {HEADER: "ann"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/assets/style.css", "/export/findings.csv"])
@pytest.mark.parametrize("peer", ["10.2.2.3", "127.0.0.1", "::1", "", "::ffff:10.2.2.3"])
def test_all_other_clients_are_refused(proxied: FlaskClient, peer: str, path: str) -> None:
    for more in ({}, {"X-Forwarded-For": "10.1.2.3"}, {"X-Real-Ip": "10.1.2.3", "Forwarded": "for=10.1.2.3"}):
        answer = ask(proxied, peer, {HEADER: "ann"} | more, path)
        assert (answer.status_code, "reverse proxy only" in answer.text) == (403, True)


def test_the_refusal_of_a_program_without_a_token_asks_for_one(proxied: FlaskClient) -> None:
    answer = ask(proxied, "10.2.2.3", {}, "/api/v1/ledger")
    assert (answer.status_code, "token" in answer.get_json()["hint"]) == (403, True)


@pytest.mark.parametrize("headers", [{}, {HEADER: ""}, {HEADER: " "}, {HEADER: "eve, ann"}, {HEADER: "a" * 301},
                                     {HEADER: "\xff"}, *({HEADER: each.encode().decode("latin-1")} for each in (
                                         "\u0430nn", "\uff41nn", "an\u200dn", "\xa0ann", "ann\xa0", "a\xa0nn",
                                         "ann\u200b", "ann\u3164", "zoe\u0308", "a  b"))])  # fmt: skip
def test_a_proxy_that_names_no_user_gets_nothing(
    proxied: FlaskClient, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        answer = ask(proxied, "10.1.2.3", headers)
    assert (answer.status_code, "did not send a valid name" in answer.text) == (403, True)
    [line] = caplog.messages
    assert re.match(
        r"anonymous at 10\.1\.2\.3: was refused /: (the name .* in X-Forwarded-User |X-Forwarded-User is not UTF-8)",
        line,
    )


def test_names_beyond_ascii(proxied: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert ask(proxied, "10.1.2.3", {HEADER: "zoë".encode().decode("latin-1")}).status_code == 200
    assert "person zoë: came through the proxy as planner" in caplog.messages


def test_who_has_no_role_is_refused(proxied: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dashboard.access.audit"):
        assert ask(proxied, "10.1.2.3", {HEADER: "mallory"}).status_code == 403
        assert ask(proxied, "10.1.2.3", {HEADER: "somebody"}).status_code == 200  # dashboard.default_role
    assert "person mallory: was refused /: no role" in caplog.messages


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 403), ("gpus.example.org:443", 200), ("10.0.0.7:8050", 200)]
)
def test_a_foreign_name_is_refused(proxied: FlaskClient, host: str, status: int) -> None:
    assert ask(proxied, "10.1.2.3", {HEADER: "ann", "Host": host}).status_code == status


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dashboard.proxies": ""}, "dashboard.proxies is not"),
        ({"dashboard.proxy_header": ""}, "dashboard.proxy_header is not"),
        ({"dashboard.proxies": "10.1.0.0/99"}, "neither an address nor a network"),
        ({"dashboard.proxies": "proxy.example.org"}, "neither an address nor a network"),
        ({"dashboard.proxy_header": "X_User"}, "not a header name"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(PROXIED | changes)


def test_two_ways_at_once_are_none() -> None:
    with pytest.raises(UsageError, match="exclude one another"):
        chosen(PROXIED, insecure=True)
    with pytest.raises(UsageError, match="exclude one another"):
        chosen(PROXIED | {"dashboard.oidc_issuer": "https://x", "dashboard.oidc_client_id": "y"})


def test_without_any_way_only_this_machine_is_served() -> None:
    assert chosen({}, local=True).__class__.__name__ == "Local"
    assert chosen(PROXIED, local=True).__class__.__name__ == "WithTokens", "what is set counts on loopback too"
    with pytest.raises(UsageError, match="no sign-in identifies them"):
        chosen({})


def test_roles_without_a_sign_in_stop_the_start() -> None:
    with pytest.raises(ConfigError, match="no sign-in identifies readers"):
        chosen({"dashboard.people": "people.csv"}, local=True)


def test_insecure_shows_everybody_the_same_and_still_no_foreign_name(fleet_source: LakeSource) -> None:
    access = chosen({}, insecure=True)
    client = build_app(fleet_source, access).server.test_client()
    assert ask(client, "192.0.2.1", {"Host": "10.0.0.7:8050"}).status_code == 200
    assert ask(client, "192.0.2.1", {"Host": "evil.example"}).status_code == 403


@pytest.mark.long  # servers of their own
def test_a_real_connection_is_judged_by_its_own_address(fleet_lake: Lake) -> None:
    flags = ("dashboard", "--lake", fleet_lake.root, "--port", "0")
    headers = {HEADER: "ann", "X-Forwarded-For": "10.1.2.3", "X-Forwarded_User": "eve"}
    variables = {"FALLOW_DASHBOARD_PROXY_HEADER": HEADER, "FALLOW_DASHBOARD_DEFAULT_ROLE": "viewer"}
    with serving(*flags, **variables, FALLOW_DASHBOARD_PROXIES="10.1.0.0/16") as (server, address):
        assert requests.get(address, headers=headers, timeout=30).status_code == 403
        server.terminate()
        assert "audit: anonymous at 127.0.0.1: was refused /: not one of dashboard.proxies" in server.communicate()[1]
    with serving(*flags, **variables, FALLOW_DASHBOARD_PROXIES="127.0.0.0/8") as (server, address):
        assert requests.get(address, headers=headers, timeout=30).status_code == 200
        # a proxy that adds its header to the reader's own, in place of replacing it
        with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)) as connection:
            connection.putrequest("GET", "/")
            for name in ("boss", "ann"):
                connection.putheader(HEADER, name)
            connection.endheaders()
            assert connection.getresponse().status == 403
        server.terminate()
        assert "audit: person ann: came through the proxy as viewer" in server.communicate()[1]
