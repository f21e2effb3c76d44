"""The route `/metrics`: open to whoever may see the pages, and to programs with a token."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from dashboard.access.people import person
from dashboard.access.tokens import METRICS
from dashboard.api.parameters import WINDOW_AND_SCOPE, parse_request
from dashboard.error_panels import in_a_line, language_of
from dashboard.metrics.collector import collect
from dashboard.source import LakeSource
from dashboard.view import Problem
from fallow.clock import SystemClock
from fallow.errors import FallowError
from fallow.exposition import negotiate


def serve_metrics(server: Any, source: LakeSource) -> None:
    """Adds the route; window and scope are those of the pages' addresses, as `/metrics?span=24h&pool=train`."""

    def answer() -> Response:
        search, reader = request.query_string.decode(errors="replace"), person()
        try:
            asked = parse_request(list(request.args.items(multi=True)), WINDOW_AND_SCOPE)
            look = source.look(asked.query, reader)
            if isinstance(look, Problem):
                return _refusal(source, search, look)
            content_type = negotiate(request.headers.get("Accept", ""))
            samples = collect(look, SystemClock().now_ms(), is_stale=source.stale_because is not None)
            return Response(samples.render(content_type), content_type=content_type)
        except FallowError as error:
            return _refusal(source, search, source.problem(error, reader))

    server.add_url_rule(METRICS, "metrics", answer, methods=["GET"])


def _refusal(source: LakeSource, search: str, told: Problem) -> Response:
    said = in_a_line(language_of(source, search), told.message, told.hint)
    return Response(f"fallow: {said}\n", status=503 if told.is_passing else 409, mimetype="text/plain")
