"""The endpoints as tools of the Model Context Protocol, at `/mcp`: JSON-RPC 2.0 over stateless HTTP without streams.

Revisions: 2026-07-28, in which every request names its revision; 2025-11-25 and 2025-06-18 begin with `initialize`.
Specification: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from flask import Request, Response, request

from analytics.render.json_schema import object_schema
from dashboard.access.people import person
from dashboard.access.tokens import MCP
from dashboard.api.endpoints import BY_NAME, ENDPOINTS, ApiEndpoint, Json
from dashboard.api.openapi import answer_schema
from dashboard.api.parameters import PAGING, parse_request
from dashboard.api.replies import begin_reply, readable_error, take
from dashboard.source import LakeSource
from fallow import __version__
from fallow.errors import FallowError, UsageError
from fallow.outside_text import json_text

MODERN = "2026-07-28"
VERSIONS = (MODERN, "2025-11-25", "2025-06-18")
"""The supported revisions, the newest first."""

MOST_SENT_BYTES = 64 * 1024
LIMIT = 20
"""Rows of an answer unless a call asks for more: an assistant pays for every word that it reads."""

_PARSE, _REQUEST, _METHOD, _PARAMS = -32700, -32600, -32601, -32602
_HEADERS, _VERSION = -32020, -32022
_META = "io.modelcontextprotocol/"
_SERVER = {"name": "fallow", "title": "fallow: GPUs that are paid for and not used", "version": __version__}
_CAPABILITIES: Json = {"tools": {"listChanged": False}}
_KEPT_MS = 3_600_000
_INSTRUCTIONS = (
    "Reads what fallow knows of a GPU fleet: the ledger of GPU time, findings and recommendations. Null is unknown, 0"
    " is measured. Every answer has its window, the end of the data (as_of) and the observed share (coverage): report"
    " these with every figure. Begin with `ledger` and `recommendations_totals`; `scopes` lists the names to filter by."
    " Commands in the answers are for people to run."
)


class RpcError(Exception):
    """A JSON-RPC error: a request that cannot be answered. `status` is the HTTP status."""

    def __init__(self, code: int, message: str, *, status: int = 400, data: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.data = code, message, status, data


def serve_mcp(server: Any, source: LakeSource) -> None:
    """Add the route. Messages come by POST; there is no stream to GET and no session to DELETE."""

    def answer() -> Response:
        if request.method != "POST":
            return Response(status=405, headers={"Allow": "POST"}, mimetype="text/plain")
        request.max_content_length = MOST_SENT_BYTES
        return _answer(source, request)

    server.add_url_rule(MCP, "mcp", answer, methods=["POST", "GET", "DELETE"])


def _answer(source: LakeSource, asked: Request) -> Response:
    message_id: object = None
    try:
        message = _message(asked)
        if "id" not in message:  # a notification
            return Response(status=202)
        message_id = _id(message)
        method, params = message["method"], _object(message.get("params"), "params")
        is_modern = _check_version(asked, method, params)
        result = _result(source, method, params, is_modern=is_modern)
    except RpcError as error:
        fault: Json = {"code": error.code, "message": error.message} | ({"data": error.data} if error.data else {})
        return _response({"error": fault}, message_id, error.status)
    if is_modern:
        result = {"resultType": "complete", **result, "_meta": {f"{_META}serverInfo": _SERVER}}
    return _response({"result": result}, message_id, 200)


def _response(content: Json, message_id: object, status: int) -> Response:
    about: Json = {"jsonrpc": "2.0"} | ({} if message_id is None else {"id": message_id})
    return Response(json_text(about | content, indent=None), status=status, content_type="application/json")


def _message(asked: Request) -> dict[str, Any]:
    try:
        message = json.loads(asked.get_data())
        json.dumps(message, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise RpcError(_PARSE, "the body is not JSON") from error
    if not isinstance(message, dict):
        raise RpcError(_REQUEST, "the body is not one message object")
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise RpcError(_REQUEST, 'a message has "jsonrpc": "2.0" and a method')
    return message


def _object(value: object, name: str) -> dict[str, Any]:
    """Return the value if it is an object, and an empty object for None; raises RpcError for other values."""
    if value is not None and not isinstance(value, dict):
        raise RpcError(_PARAMS, f"{name} is not an object")
    return value or {}


def _id(message: Mapping[str, Any]) -> str | int:
    found = message["id"]
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise RpcError(_REQUEST, "an id is a string or an integer")
    return found


def _check_version(asked: Request, method: str, params: Mapping[str, Any]) -> bool:
    """Return whether the request is of revision MODERN, in which every request names its revision.

    Raises RpcError for an unsupported revision, and for a request whose headers and body disagree.
    """
    meta = params.get("_meta")
    own = meta if isinstance(meta, dict) else {}
    named, header = own.get(f"{_META}protocolVersion"), asked.headers.get("MCP-Protocol-Version")
    for version in (named, header):
        if version is not None and version not in VERSIONS and method != "initialize":
            revisions: Json = {"supported": list(VERSIONS), "requested": str(version)[:80]}
            raise RpcError(_VERSION, "this revision of the protocol is not supported", data=revisions)
    if MODERN not in (named, header):
        return False
    wanted = {"MCP-Protocol-Version": named, "Mcp-Method": method}
    if method == "tools/call":
        wanted["Mcp-Name"] = params.get("name")
    for name, value in wanted.items():
        if _decoded(asked.headers.get(name)) != value:
            raise RpcError(_HEADERS, f"the header {name} does not match the body")
    if not isinstance(own.get(f"{_META}clientCapabilities"), dict):
        raise RpcError(_PARAMS, f"_meta has no {_META}clientCapabilities")
    return True


def _decoded(header: str | None) -> str | None:
    """Return a header's value, decoded from Base64, which values beyond plain ASCII need; None for invalid Base64."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[len("=?base64?") : -len("?=")], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _result(source: LakeSource, method: str, params: Mapping[str, Any], *, is_modern: bool) -> Json:
    caching: Json = {"ttlMs": _KEPT_MS, "cacheScope": "public"} if is_modern else {}
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in VERSIONS[1:] else VERSIONS[1]  # the newest has no handshake
        return {
            "protocolVersion": version,
            "capabilities": _CAPABILITIES,
            "serverInfo": _SERVER,
            "instructions": _INSTRUCTIONS,
        }
    if method == "server/discover":
        about: Json = {"supportedVersions": list(VERSIONS), "capabilities": _CAPABILITIES}
        return about | {"instructions": _INSTRUCTIONS} | caching
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [tool(each) for each in ENDPOINTS]} | caching
    if method == "tools/call":
        return _call(source, params)
    raise RpcError(_METHOD, f"there is no method {method[:80]}", status=404 if is_modern else 200)


def tool(endpoint: ApiEndpoint) -> Json:
    """Return the endpoint as a tool: its parameters are the tool's arguments."""
    return {
        "name": endpoint.name,
        "title": endpoint.name.replace("_", " ").capitalize(),
        "description": f"{endpoint.summary[:1].upper()}{endpoint.summary[1:]}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                each.name: each.schema
                | ({"default": LIMIT} if each is PAGING[0] else {})
                | {"description": each.meaning}
                for each in endpoint.parameters
            },
            "additionalProperties": False,
        },
        "outputSchema": answer_schema(endpoint, object_schema(endpoint.columns)),
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _call(source: LakeSource, params: Mapping[str, Any]) -> Json:
    endpoint = BY_NAME.get(str(params.get("name")))
    if endpoint is None:
        raise RpcError(_PARAMS, f"there is no tool {str(params.get('name'))[:80]}", status=200)
    arguments = _object(params.get("arguments"), "arguments")
    try:
        content = _endpoint_answer(source, endpoint, arguments)
    except FallowError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = json_text(content, indent=None)
    return {"content": [{"type": "text", "text": text}], "structuredContent": content, "isError": False}


def _endpoint_answer(source: LakeSource, endpoint: ApiEndpoint, arguments: Mapping[str, Any]) -> Json:
    """Return the endpoint's answer to these arguments; raises FallowErrors whose words the reader may see."""
    reader = person()
    given = [(str(name), _value(name, value)) for name, value in arguments.items() if value is not None]
    if endpoint.has_rows and "limit" not in arguments:
        given.append(("limit", str(LIMIT)))
    try:
        return take(
            begin_reply(source, endpoint, parse_request(given, endpoint.parameters), reader), f"{MCP}/{endpoint.name}"
        )
    except FallowError as error:
        raise readable_error(source, error, reader) from error


def _value(name: str, value: object) -> str:
    """Return the value as the text of an address's parameter; 2.0 is the integer 2, as in JSON Schema.

    Raises UsageError for a value that is neither text nor number: as a text it would match nothing, and the answer
    would have no rows.
    """
    if isinstance(value, bool | list | dict):
        raise UsageError(f"{name[:80]} is neither a string nor a number", "give one value, as in the tool's schema")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
