"""What keeps the pages to themselves: headers, names, and no writing from other sites."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Response
from flask.testing import FlaskClient

from dashboard.access import LOCAL, Access
from dashboard.access.audit_trail import NO_TRAIL, Trail, trail_of
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts
from dashboard.access.proxy import Proxy
from dashboard.access.refusal import UNLIMITED, Rates
from dashboard.api.endpoints import BY_NAME
from dashboard.app import build_app
from dashboard.render.panel import GRAPH_CONFIG
from dashboard.source import LakeSource
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of


@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/_dash-dependencies", "/assets/style.css", "/nowhere"])
def test_every_answer_carries_the_headers(client: FlaskClient, path: str) -> None:
    with client.get(path) as answer:
        headers = answer.headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_inline_scripts_are_named_in_the_policy(client: FlaskClient) -> None:
    answer = client.get("/")
    inline = re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>", answer.text)
    assert len(inline) == answer.headers["Content-Security-Policy"].count("'sha256-")


def test_no_script_or_style_comes_from_elsewhere(client: FlaskClient) -> None:
    index = client.get("/").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', index)
    assert addresses
    assert all(address.startswith(("/assets/", "/_dash-component-suites/", "data:")) for address in addresses)


def test_nothing_can_be_sent_to_a_cloud() -> None:
    assert GRAPH_CONFIG["showSendToCloud"] is False
    assert GRAPH_CONFIG["plotlyServerURL"] == ""


@pytest.mark.parametrize("host", ["localhost", "localhost:8050", "127.0.0.1:1", "[::1]:8050", "127.0.0.2:8050"])
def test_this_machine_is_answered(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "localhost.evil.example:80", "10.0.0.1:8050",
                                  "127.0.0.1.evil.example", "127.0.0.1@evil.example", "[::1].evil.example",
                                  "evil.example:127.0.0.1"])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/assets/style.css"])
def test_a_foreign_name_is_refused(client: FlaskClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert "localhost only" in answer.text


def test_no_mcp_endpoint_but_our_own(client: FlaskClient) -> None:
    """Dash has one too, whose tools are the callbacks."""
    rules = client.application.url_map.iter_rules()
    assert {each.endpoint for each in rules if "mcp" in each.rule} == {"mcp", "mcp_root", "mcp_unknown"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert "jsonrpc" not in client.post("/_mcp", json=listing).text
    tools = client.post("/mcp", json=listing).get_json()["result"]["tools"]
    assert [each["name"] for each in tools] == list(BY_NAME)


def test_long_answers_are_compressed_for_those_who_take_it(client: FlaskClient) -> None:
    with client.get("/assets/style.css") as plain:
        assert "Content-Encoding" not in plain.headers
        with client.get("/assets/style.css", headers={"Accept-Encoding": "gzip"}) as packed:
            assert packed.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(packed.data) == plain.data


def test_pages_are_not_kept_by_caches(client: FlaskClient) -> None:
    assert client.get("/_dash-layout").headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/_dash-component-suites/dash/dcc/async-dropdown.js", "/assets/style.css"])
def test_scripts_are_asked_for_again_and_not_sent_again(client: FlaskClient, path: str) -> None:
    with client.get(path) as first:
        assert (first.status_code, first.headers["Cache-Control"]) == (200, "no-cache")
        tag = first.headers["ETag"]
    with client.get(path, headers={"If-None-Match": tag}) as again:
        assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "https://localhost"}, 200),  # TLS ends at a proxy
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://gpus.example.org"}, 200),  # a proxy has changed Host
        ({}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:81"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "http://localhost@evil.example"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Referer": "http://localhost/"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_these_pages_write(client: FlaskClient, method: str, headers: dict[str, str], status: int) -> None:
    answer = client.open("/_dash-update-component", method=method, json={}, headers=headers)
    refused = answer.status_code == 403 and "did not come from these pages" in answer.text
    assert refused == (status == 403)


@pytest.mark.parametrize("path", ["/_dash-update-component", "/", "/assets/style.css", "/nowhere"])
def test_every_address_refuses_what_other_sites_send(client: FlaskClient, path: str) -> None:
    assert client.post(path, json={}, headers={"Origin": "http://evil.example"}).status_code == 403


def test_health_is_answered_under_any_name_without_details(client: FlaskClient) -> None:
    answer = client.get("/healthz", headers={"Host": "10.1.2.3:8050"})
    assert (answer.status_code, answer.text, answer.mimetype) == (200, "ok\n", "text/plain")
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_document_keeps_its_own_policy_and_is_framed_here_only(fleet_lake: Lake) -> None:
    server = build_app(LakeSource(lambda: inputs_of(fleet_lake))).server
    own = "default-src 'none'; style-src 'unsafe-inline'"

    @server.route("/framed")  # type: ignore[untyped-decorator]
    def framed() -> Response:
        return Response("x", headers={"Content-Security-Policy": own})

    headers = server.test_client().get("/framed").headers
    assert headers.getlist("Content-Security-Policy") == [f"{own}; frame-ancestors 'self'"]
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    shown = server.test_client().get("/").headers
    assert "frame-src 'self'" in shown["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in shown["Content-Security-Policy"]


PROXY = Proxy("X-Forwarded-User", ["127.0.0.1"], AllowedHosts(), Directory("", "viewer"))


def limited(lake: Lake, rates: Rates, access: Access = LOCAL, trail: Trail = NO_TRAIL) -> FlaskClient:
    source = LakeSource(lambda: inputs_of(lake))
    return build_app(source, access, rates=rates, trail=trail).server.test_client()  # type: ignore[no-any-return]


def test_a_reader_with_too_many_requests_gets_a_retry_time(fleet_lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    client = limited(fleet_lake, replace(UNLIMITED, requests_per_minute=1))
    with caplog.at_level("INFO", logger="dashboard"):
        answers = [client.get("/_dash-layout") for _ in range(6)]  # a minute may end once between them
    told = [each for each in answers if each.status_code == 429]
    assert len(told) >= 4
    for each in told:
        seconds = each.headers["Retry-After"]
        assert each.text == f"fallow: too many requests; try again in {seconds} s\n"
        assert 1 <= int(seconds) <= 60
    assert 1 <= len([each for each in caplog.messages if "sends too many requests" in each]) <= 2
    assert client.get("/healthz").status_code == 200
    assert client.get("/_dash-layout", environ_base={"REMOTE_ADDR": "10.0.0.9"}).status_code == 200


def test_those_who_do_not_sign_in_are_stopped_and_those_who_have_are_not(fleet_lake: Lake) -> None:
    client = limited(fleet_lake, replace(UNLIMITED, sign_ins_per_minute=1), PROXY)
    assert 429 in [client.get("/").status_code for _ in range(4)]
    assert client.get("/", headers={"X-Forwarded-User": "ann"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "address"),
    [
        ("POST", "/_dash-update-component", "127.0.0.1"),  # from nowhere
        ("GET", "/answer/x", "127.0.0.1"),
        ("GET", "/", "10.0.0.9"),  # not by the proxy
    ],
)
def test_a_strangers_refusals_and_lines_of_the_log_are_limited(
    fleet_lake: Lake, caplog: pytest.LogCaptureFixture, method: str, path: str, address: str
) -> None:
    client = limited(fleet_lake, replace(UNLIMITED, sign_ins_per_minute=1), PROXY)
    with caplog.at_level("INFO", logger="dashboard"):
        asked = [client.open(path, method=method, environ_base={"REMOTE_ADDR": address}) for _ in range(9)]
    assert [each.status_code for each in asked].count(429) >= 7  # a minute may end once between them
    assert 2 <= len(caplog.messages) <= 4


def test_a_reader_who_must_wait_is_in_the_log_by_name(fleet_lake: Lake, tmp_path: Path) -> None:
    once = Rates(requests_per_minute=1, sign_ins_per_minute=1)
    client = limited(fleet_lake, once, PROXY, trail_of(str(tmp_path / "audit")))
    for _ in range(4):
        client.get("/_dash-layout", headers={"X-Forwarded-User": "ann"})
        client.get("/_dash-layout")
    lines = [json.loads(each) for each in (tmp_path / "audit").read_text(encoding="ascii").splitlines()]
    assert {each["who"] for each in lines if "sends too many requests" in each["did"]} == {"ann", None}
