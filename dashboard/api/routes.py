"""The routes under `/api/v1/`: they answer GET, with what whoever asks may see, as the pages do."""

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
from dashboard.api.replies import begin_reply, take, told_error
from dashboard.source import LakeSource
from fallow.errors import FallowError
from fallow.outside_text import json_text

OPENAPI = "/api/v1/openapi.json"


def serve_api(server: Any, source: LakeSource) -> None:
    """Adds the routes of the API and of its MCP face."""
    for each in ENDPOINTS:
        server.add_url_rule(each.path, f"api_{each.name}", partial(_answer, source, each), methods=["GET"])
    server.add_url_rule(OPENAPI, "api_openapi", _document, methods=["GET"])
    server.add_url_rule("/api/", "api_root", _nothing_here, defaults={"rest": ""})
    server.add_url_rule("/api/<path:rest>", "api_unknown", _nothing_here)
    server.add_url_rule(f"{MCP}/", "mcp_root", _nothing_here, defaults={"rest": ""})
    server.add_url_rule(f"{MCP}/<path:rest>", "mcp_unknown", _nothing_here)
    # clients of MCP look here for whom to sign in with: a page would be taken for an answer
    server.add_url_rule("/.well-known/<path:rest>", "well_known", _nothing_here)
    serve_mcp(server, source)
    server.after_request(_as_problem)


def _document() -> Response:
    return Response(json.dumps(openapi()), content_type="application/json")


def _nothing_here(rest: str) -> Response:  # noqa: ARG001  # the router passes it
    return problem(404, f"there is nothing at {request.path[:80]}", f"{OPENAPI} lists what there is")


def _answer(source: LakeSource, endpoint: ApiEndpoint) -> Response:
    reader = person()
    try:
        asked = parse_request(list(request.args.items(multi=True)), endpoint.parameters)
        reply = begin_reply(source, endpoint, asked, reader)
        if request.if_none_match.contains_weak(reply.tag):
            return _tagged(Response(status=304), reply.tag)
        content = take(reply, endpoint.path)
    except FallowError as error:
        return problem_of_error(told_error(source, error, reader))
    return _tagged(Response(json_text(content, indent=None), content_type="application/json"), reply.tag)


def _tagged(response: Response, tag: str) -> Response:
    response.set_etag(tag, weak=True)  # a gzipped one has the same
    return response


def _as_problem(response: Response) -> Response:
    """A refusal, which says in plain text what the pages say, as a problem document."""
    if (
        response.status_code < 400
        or not is_for_programs(request.path)
        or request.path == METRICS
        or response.mimetype in (PROBLEM, "application/json")
    ):
        return response
    is_told = response.mimetype == "text/plain"
    said = response.get_data(as_text=True).strip().removeprefix("fallow: ") if is_told else ""
    sentence, _, hint = (said or HTTPStatus(response.status_code).phrase).partition("; ")
    made = problem(response.status_code, sentence, hint)
    response.set_data(made.get_data())
    response.content_type = PROBLEM
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
