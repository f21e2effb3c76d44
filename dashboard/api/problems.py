"""Errors as problem documents (RFC 9457): one sentence, and a hint what to do next."""

from __future__ import annotations

import json
from http import HTTPStatus

from flask import Response

from dashboard.access.audit_trail import AuditError
from dashboard.api.replies import NotNowError
from fallow.errors import ConfigError, FallowError, UsageError

PROBLEM = "application/problem+json"
_AGAIN_S = 5

STATUS_MEANINGS = {
    400: "a parameter, a cursor or the body is invalid",
    401: "no valid sign-in or token",
    403: "this reader has no access",
    404: "no such path",
    405: "use GET for this path, POST for /mcp",
    409: "the lake cannot answer this, or has changed since the previous page",
    413: "the request is too large",
    429: "too many requests; Retry-After has the time to wait",
    500: "a fault in fallow; its log has the details",
    503: "the answer is still being computed, or cannot be written to the audit log; Retry-After has the time to wait",
}
"""The meaning of each error status."""


def status_of(error: FallowError) -> int:
    if isinstance(error, UsageError) and not isinstance(error, ConfigError):
        return 400
    return 503 if isinstance(error, NotNowError | AuditError) else 409


def problem_of_error(error: FallowError) -> Response:
    return problem(status_of(error), error.message, error.hint)


def problem(status: int, sentence: str, hint: str = "") -> Response:
    """Return a problem document; with status 503 it has a Retry-After header."""
    detail = f"{sentence[:1].upper()}{sentence[1:].removesuffix('.')}."
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "hint": hint or None,
    }
    response = Response(json.dumps(content) + "\n", status=status, content_type=PROBLEM)
    response.headers["Cache-Control"] = "no-store"
    if status == 503:
        response.headers["Retry-After"] = str(_AGAIN_S)
    return response
