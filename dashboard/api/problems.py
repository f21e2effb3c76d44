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
    400: "a parameter, a cursor or the body cannot be meant",
    401: "nobody knows who asks: sign in, or send a token",
    403: "whoever asks may not",
    404: "there is nothing at this path",
    405: "this path is read with GET, /mcp with POST",
    409: "the lake has no answer to this, or has changed since the page before",
    413: "too much was sent",
    429: "too many requests; Retry-After says how long to wait",
    500: "a fault of fallow itself; its log says more",
    503: "the answer is still being made, or cannot be written down; Retry-After says when to ask again",
}
"""What each status of an answer that is none means."""


def status_of(error: FallowError) -> int:
    """The status that tells a program what kind of error it is."""
    if isinstance(error, UsageError) and not isinstance(error, ConfigError):
        return 400
    return 503 if isinstance(error, NotNowError | AuditError) else 409


def problem_of_error(error: FallowError) -> Response:
    return problem(status_of(error), error.message, error.hint)


def problem(status: int, sentence: str, hint: str = "") -> Response:
    """A problem document; one that passes says when to ask again."""
    said = f"{sentence[:1].upper()}{sentence[1:].removesuffix('.')}."
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": said,
        "hint": hint or None,
    }
    response = Response(json.dumps(content) + "\n", status=status, content_type=PROBLEM)
    response.headers["Cache-Control"] = "no-store"
    if status == 503:
        response.headers["Retry-After"] = str(_AGAIN_S)
    return response
