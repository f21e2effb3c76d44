"""The routes under `/api/v1/`. They answer GET with what the reader may see, as the pages do."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Any

from flask import Response, request

from dashboard.access.people import person
from dashboard.access.tokens import MCP, METRICS, is_for_programs
from dashboard.api.endpoints import ENDPOINTS, ApiEndpoint
from dashboard.api.mcp import serve_mcp
from dashboard.api.openapi import openapi
from dashboard.api.parameters import parse_request
from dashboard.api.problems import PROBLEM, problem, problem_of_error
from dashboard.api.replies import begin_reply, readable_error, take
from dashboard.source import LakeSource
from fallow.errors import FallowError
from fallow.outside_text import json_text

OPENAPI = "/api/v1/openapi.json"


def serve_api(server: Any, source: LakeSource) -> None:
    for each in ENDPOINTS:
        server.add_url_rule(each.path, f"api_{each.name}", partial(_answer, source, each), methods=["GET"])
    server.add_url_rule(OPENAPI, "api_openapi", _document, methods=["GET"])
    server.add_url_rule("/api/", "api_root", _not_found, defaults={"path": ""})
    server.add_url_rule("/api/<path:path>", "api_unknown", _not_found)
    server.add_url_rule(f"{MCP}/", "mcp_root", _not_found, defaults={"path": ""})
    server.add_url_rule(f"{MCP}/<path:path>", "mcp_unknown", _not_found)
    # MCP clients look here for a sign-in service: they would take a page for an answer
    server.add_url_rule("/.well-known/<path:path>", "well_known", _not_found)
    serve_mcp(server, source)
    server.after_request(_as_problem)


def _document() -> Response:
    return Response(json.dumps(openapi()), content_type="application/json")


def _not_found(path: str) -> Response:  # noqa: ARG001  # the router passes it
    return problem(404, f"there is nothing at {request.path[:80]}", f"{OPENAPI} lists the paths")


def _answer(source: LakeSource, endpoint: ApiEndpoint) -> Response:
    reader = person()
    try:
        asked = parse_request(list(request.args.items(multi=True)), endpoint.parameters)
        reply = begin_reply(source, endpoint, asked, reader)
        if request.if_none_match.contains_weak(reply.tag):
            return _tagged(Response(status=304), reply.tag)
        content = take(reply, endpoint.path)
    except FallowError as error:
        return problem_of_error(readable_error(source, error, reader))
    return _tagged(Response(json_text(content, indent=None), content_type="application/json"), reply.tag)


def _tagged(response: Response, tag: str) -> Response:
    response.set_etag(tag, weak=True)  # a gzipped answer has the same tag
    return response


def _as_problem(response: Response) -> Response:
    """Return the response; a plain-text refusal of a path for programs becomes a problem document with its words."""
    if (
        response.status_code < 400
        or not is_for_programs(request.path)
        or request.path == METRICS
        or response.mimetype in (PROBLEM, "application/json")
    ):
        return response
    is_plain = response.mimetype == "text/plain"
    text = response.get_data(as_text=True).strip().removeprefix("fallow: ") if is_plain else ""
    sentence, _, hint = (text or HTTPStatus(response.status_code).phrase).partition("; ")
    answer = problem(response.status_code, sentence, hint)
    response.set_data(answer.get_data())
    response.content_type = PROBLEM
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
