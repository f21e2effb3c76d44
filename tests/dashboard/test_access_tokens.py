"""Programs that read with a token: which tokens are accepted, at which paths, and the reader that they give."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from dashboard.access.choose import access_of
from dashboard.access.directory import Directory
from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from fallow import config
from fallow.actors import TOKEN as TOKEN_KIND
from fallow.errors import ConfigError
from tests.dashboard.acting import Held

TOKEN, OF_ALPHA = "t0k3n-of-the-fleet", "t0k3n-of-alpha"  # made here
HEADER = "X-Forwarded-User"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


ROWS = f"""kind,name,role,team,sha256
user,ann,viewer,alpha,
token,prometheus,viewer,,{digest(TOKEN)}
token,script,viewer,alpha,{digest(OF_ALPHA).upper()}
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def client(_held_site: Held, tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    people = tmp_path_factory.mktemp("people") / "people.csv"
    people.write_text(ROWS, encoding="utf-8")
    return _client(_held_site, people)


def _client(held: Held, people: Path) -> FlaskClient:
    settings = {"dashboard.proxy_header": HEADER, "dashboard.proxies": "10.1.0.0/16", "dashboard.people": str(people)}
    settings |= {"dashboard.hosts": "gpus.example.org"}
    access = access_of(config.load(settings, None, {}), address="10.0.0.1", local=False, insecure=False)
    found: FlaskClient = build_app(held.source, access).server.test_client()
    return found


def ask(client: FlaskClient, path: str, token: str = "", peer: str = "192.0.2.7", **headers: str) -> TestResponse:
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    given = {"Host": "gpus.example.org", **shown, **{name.replace("_", "-"): each for name, each in headers.items()}}
    return client.get(path, headers=given, environ_base={"REMOTE_ADDR": peer})


def test_a_token_opens_what_is_for_programs_and_nothing_else(client: FlaskClient) -> None:
    for path in ("/api/v1/ledger?span=all", "/api/v1/openapi.json", "/metrics?span=all"):
        assert ask(client, path, TOKEN).status_code == 200
        assert ask(client, path, TOKEN, Host="evil.example").status_code == 403
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    shown = {"Host": "gpus.example.org", "Authorization": f"bearer {TOKEN}"}
    assert client.post("/mcp", json=message, headers=shown).status_code == 200
    for path in ("/", "/findings", "/export/findings.csv", "/_dash-layout", "/report/preview", "/apix", "/metricsx"):
        assert ask(client, path, TOKEN).status_code == 403


def test_a_token_of_a_team_gets_that_team_only(client: FlaskClient) -> None:
    content = ask(client, "/api/v1/gpus?span=all&team=beta", OF_ALPHA).get_json()
    assert ([each["gpu"] for each in content["data"]], content["scope"]["team"]) == (["a"], "alpha")
    assert "fallow_ledger_gpus 1\n" in ask(client, "/metrics?span=all&team=beta", OF_ALPHA).text
    assert "fallow_ledger_gpus 4\n" in ask(client, "/metrics?span=all", TOKEN).text


@pytest.mark.parametrize("token", ["wrong", digest(TOKEN), TOKEN[:-1], f"{TOKEN}x", "\xff", "t\u00f6ken"])
def test_an_unknown_token_is_refused(client: FlaskClient, token: str) -> None:
    found = ask(client, "/api/v1/ledger", token)
    assert (found.status_code, found.content_type) == (401, "application/problem+json")
    assert "dashboard.people" in found.get_json()["hint"]
    assert found.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/api/v1/ledger?span=all", "/api/v1/openapi.json", "/mcp", "/metrics", "/", "/export/gpus.csv"]
)
@pytest.mark.parametrize("shown", ["Bearer wrong", "bearer  wrong", f"Bearer {TOKEN}, Bearer wrong",
                                   f"Bearer wrong, Bearer {TOKEN}", "Bearer", "Bearer\twrong"])  # fmt: skip
def test_a_wrong_token_is_401_whatever_the_proxy_sends(client: FlaskClient, path: str, shown: str) -> None:
    for peer in ("10.1.2.3", "192.0.2.7"):
        found = ask(client, path, peer=peer, X_Forwarded_User="ann", Authorization=shown)
        assert (found.status_code, found.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert ask(client, "/api/v1/ledger?span=all", TOKEN, "10.1.2.3", X_Forwarded_User="ann").status_code == 200
    assert ask(client, "/?span=all", TOKEN, "10.1.2.3", X_Forwarded_User="ann").status_code == 200


def test_what_a_program_takes_along_is_in_the_audit_log(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "dashboard.access.audit"):
        ask(client, "/api/v1/scopes?span=all", OF_ALPHA)
    assert "token script: takes /api/v1/scopes?span=all as viewer of team alpha" in caplog.messages
    assert OF_ALPHA not in caplog.text


def test_a_token_that_is_taken_away_is_gone_with_the_next_request(held: Held, people: Path) -> None:
    client = _client(held, people)
    assert ask(client, "/api/v1/scopes?span=all", OF_ALPHA).status_code == 200
    people.write_text(ROWS[: ROWS.index("token,script")], encoding="utf-8")
    assert ask(client, "/api/v1/scopes?span=all", OF_ALPHA).status_code == 401


def test_who_a_token_names_is_no_person(people: Path) -> None:
    directory = Directory(str(people), "none")
    assert directory.program(OF_ALPHA) == Reader("script", VIEWER, "alpha", kind=TOKEN_KIND)
    assert directory.person("script") is None
    assert directory.person("token script") is None
    assert directory.program("") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("token,x,viewer,,", "sha256 is not the SHA-256 of a token"),
        ("token,x,viewer,,secret", "sha256 is not the SHA-256 of a token"),
        (f"token,x,planner,,{digest('x')}", "a token only reads: give it the role viewer"),
        (f"token,x,none,,{digest('x')}", "a token only reads"),
        (f"token,,viewer,,{digest('x')}", "name is empty"),
        (f"token,x,viewer,,{digest(TOKEN)}", "another line has the same token"),
        (f"token,script,viewer,,{digest('x')}", "is already named in line 4"),
        (f"user,x,viewer,,{digest('x')}", "only a token has a sha256"),
        ("user,x,viewer,", "fewer cells"),
    ],
)
def test_a_line_that_is_wrong_is_named(people: Path, line: str, said: str) -> None:
    people.write_text(f"{ROWS}{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as raised:
        Directory(str(people), "none")
    assert ":5:" in str(raised.value) or "line 5" in str(raised.value)
