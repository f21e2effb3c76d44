"""The tools of the API: the protocol in its revisions, the same answers and the same access as the routes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from dashboard.api.endpoints import ENDPOINTS
from dashboard.api.mcp import LIMIT, MOST_SENT_BYTES
from tests.dashboard.acting import PLAN, VIEW_ALPHA, Held, Pages

NEWEST = "2026-07-28"
META = "io.modelcontextprotocol/"
MODERN = {f"{META}protocolVersion": NEWEST, f"{META}clientCapabilities": {}}


def send(
    pages: Pages, method: str, params: Any = None, headers: dict[str, str] | None = None, **more: Any
) -> TestResponse:
    """The answer to a request as a client of 2025-11-25 sends it after the handshake."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method} | ({} if params is None else {"params": params}) | more
    return pages.client.post("/mcp", json=message, headers=headers or {})


def result(found: TestResponse) -> Any:
    assert (found.status_code, found.content_type) == (200, "application/json"), found.text
    content = found.get_json()
    assert content["jsonrpc"] == "2.0"
    assert content["id"] == 7
    return content["result"]


def called(pages: Pages, name: str, **arguments: Any) -> Any:
    return result(send(pages, "tools/call", {"name": name, "arguments": arguments}))


def newest(pages: Pages, method: str, params: dict[str, Any], **headers: str) -> TestResponse:
    """The same as a client of 2026-07-28 sends it; `headers` take the place of the right ones."""
    right = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": method} | (
        {"Mcp-Name": params["name"]} if "name" in params else {}
    )
    right |= {name.replace("_", "-"): value for name, value in headers.items()}
    return send(pages, method, {**params, "_meta": MODERN}, right)


@pytest.mark.parametrize(("asked", "agreed"), [
    ("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2024-11-05", "2025-11-25"), (NEWEST, "2025-11-25"),
    (7, "2025-11-25"),
])  # fmt: skip
def test_the_handshake_agrees_on_a_revision(reading: Pages, asked: Any, agreed: str) -> None:
    pages = reading
    about = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    content = result(send(pages, "initialize", {"protocolVersion": asked, **about}))
    assert content["protocolVersion"] == agreed
    assert content["capabilities"] == {"tools": {"listChanged": False}}
    assert content["serverInfo"]["name"] == "fallow"
    told = pages.client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (told.status_code, told.data) == (202, b"")
    assert result(send(pages, "ping", headers={"MCP-Protocol-Version": agreed})) == {}


def test_the_tools_are_the_endpoints(reading: Pages) -> None:
    tools = result(send(reading, "tools/list"))["tools"]
    assert [each["name"] for each in tools] == [each.name for each in ENDPOINTS]
    for tool, endpoint in zip(tools, ENDPOINTS, strict=True):
        Draft202012Validator.check_schema(tool["inputSchema"])
        Draft202012Validator.check_schema(tool["outputSchema"])
        content = called(reading, endpoint.name, span="all")["structuredContent"]
        assert list(Draft202012Validator(tool["outputSchema"]).iter_errors(content)) == []
        assert list(tool["inputSchema"]["properties"]) == [each.name for each in endpoint.parameters]
        assert tool["annotations"]["readOnlyHint"] is True


def test_a_call_answers_as_the_route_does(reading: Pages) -> None:
    pages = reading
    for each in ENDPOINTS:
        content = called(pages, each.name, span="all")
        assert content["isError"] is False
        limit = f"&limit={LIMIT}" if each.has_rows else ""
        assert content["structuredContent"] == pages.client.get(f"{each.path}?span=all{limit}").get_json()
        assert json.loads(content["content"][0]["text"]) == content["structuredContent"]
    first = called(pages, "gpus", span="all", limit=1.0)["structuredContent"]
    second = called(pages, "gpus", span="all", limit=3, cursor=first["next"], team=None)["structuredContent"]
    assert [each["gpu"] for each in (*first["data"], *second["data"])] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("arguments", "said"), [
    ({"limit": 0}, "give 1 to 1000"), ({"limit": True}, "neither a string nor a number"),
    ({"limit": 1.5}, "give 1 to 1000"), ({"span": ["all"]}, "neither a string nor a number"),
    ({"gpu": ["a"]}, "neither a string nor a number"), ({"host": {"name": "h"}}, "neither a string nor a number"),
    ({"teem": "alpha"}, "did you mean team?"), ({"team": "nobody"}, "nothing in this window"),
    ({"cursor": "x"}, "this is not a cursor"),
])  # fmt: skip
def test_wrong_arguments_are_reported_to_the_assistant(reading: Pages, arguments: dict[str, Any], said: str) -> None:
    content = called(reading, "gpus", **arguments)
    assert content["isError"] is True
    assert said in content["content"][0]["text"]


def test_a_viewer_of_a_team_gets_that_team_only(held: Held) -> None:
    pages = held.pages(VIEW_ALPHA)
    for each in ENDPOINTS:
        content = called(pages, each.name, span="all", team="beta")
        assert content["structuredContent"]["scope"]["team"] == "alpha"
        text = json.dumps(content)
        assert "bob" not in text
        assert "beta" not in text
        assert "HYPERLINK" not in text


def test_the_newest_revision_needs_no_handshake(reading: Pages) -> None:
    pages = reading
    about = result(newest(pages, "server/discover", {}))
    assert about["supportedVersions"][0] == NEWEST
    assert about["resultType"] == "complete"
    assert about["cacheScope"] == result(newest(pages, "tools/list", {}))["cacheScope"] == "public"
    params = {"name": "scopes", "arguments": {"span": "all"}}
    content = result(newest(pages, "tools/call", params))
    assert content["structuredContent"]["data"]["teams"] == ["alpha", "beta"]
    assert content["_meta"][f"{META}serverInfo"]["name"] == "fallow"
    assert result(newest(pages, "tools/call", params, Mcp_Name="=?base64?c2NvcGVz?="))["isError"] is False


@pytest.mark.parametrize("headers", [
    {"MCP_Protocol_Version": "2025-11-25"}, {"Mcp_Method": "tools/list"}, {"Mcp_Name": "ledger"},
    {"Mcp_Name": "=?base64?!?="}, {"Mcp_Name": "=?base64?bGVkZ2Vy?="}, {"Mcp_Method": ""},
])  # fmt: skip
def test_headers_that_contradict_the_body_are_refused(reading: Pages, headers: dict[str, str]) -> None:
    found = newest(reading, "tools/call", {"name": "scopes"}, **headers)
    assert (found.status_code, found.get_json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize(("headers", "meta", "code"), [
    ({"MCP-Protocol-Version": "1900-01-01"}, {}, -32022),
    ({"MCP-Protocol-Version": NEWEST, "Mcp-Method": "ping"}, MODERN | {f"{META}protocolVersion": "1900-01-01"}, -32022),
    ({"MCP-Protocol-Version": NEWEST, "Mcp-Method": "ping"}, {}, -32020),
    ({"MCP-Protocol-Version": NEWEST, "Mcp-Method": "ping"}, {f"{META}protocolVersion": NEWEST}, -32602),
    ({"MCP-Protocol-Version": NEWEST, "Mcp-Method": "ping"}, [], -32020),
])  # fmt: skip
def test_a_revision_that_cannot_be_is_refused(reading: Pages, headers: dict[str, str], meta: Any, code: int) -> None:
    found = send(reading, "ping", {"_meta": meta}, headers)
    assert (found.status_code, found.get_json()["error"]["code"]) == (400, code)
    if code == -32022:
        assert found.get_json()["error"]["data"] == {
            "supported": [NEWEST, "2025-11-25", "2025-06-18"],
            "requested": "1900-01-01",
        }


@pytest.mark.parametrize(("body", "code"), [
    ("{", -32700), ("\xff", -32700), ('{"pool": "\\ud800"}', -32700), ("[" * 60_000, -32700), ("[]", -32600),
    ("7", -32600), ("{}", -32600), ('{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
    ('{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600), ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
    ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600), ('{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
    ('[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
    ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "gpus", "arguments": "x"}}', -32602),
])  # fmt: skip
def test_what_is_no_request_is_refused(reading: Pages, body: str, code: int) -> None:
    found = reading.client.post("/mcp", data=body.encode("latin-1"), content_type="application/json")
    assert (found.status_code, found.get_json()["error"]["code"]) == (400, code)


def test_methods_and_tools_that_there_are_not(reading: Pages) -> None:
    pages = reading
    for name, params, code in (
        ("prompts/list", None, -32601),
        ("tools/call", {"name": "rm"}, -32602),
        ("tools/call", {}, -32602),
    ):
        found = send(pages, name, params)
        assert (found.status_code, found.get_json()["error"]["code"]) == (200, code)
    unknown = newest(pages, "prompts/list", {})
    assert (unknown.status_code, unknown.get_json()["error"]["code"]) == (404, -32601)


def test_there_is_no_stream_and_no_other_site_may_ask(reading: Pages) -> None:
    client = reading.client
    for method in ("GET", "DELETE"):
        found = client.open("/mcp", method=method, headers={"Origin": "http://localhost"})
        assert (found.status_code, found.headers["Allow"]) == (405, "POST")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for headers in ({"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/mcp", json=ping, headers=headers).status_code == 403
    assert client.post("/mcp", json=ping, headers={"Origin": "http://localhost"}).status_code == 200
    long = client.post("/mcp", data=b" " * (MOST_SENT_BYTES + 1), content_type="application/json")
    assert (long.status_code, long.content_type) == (413, "application/problem+json")


def test_what_an_assistant_takes_along_is_in_the_audit_log(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "dashboard.access.audit"):
        called(held.pages(PLAN), "findings", span="all", team="beta")
    assert "person pia: takes /mcp/findings?span=all&team=beta as planner" in caplog.messages
