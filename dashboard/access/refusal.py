"""Plain-text answers to requests that are refused, with a line in the audit log."""

from __future__ import annotations

from flask import Request, Response

from dashboard.access.audit import audit, audit_stranger


def refuse(request: Request, sentence: str, *, who: str = "", why: str = "", status: int = 403) -> Response:
    """Plain text for whoever asks; the log names them, else the address they ask from, and says why."""
    did = f"was refused {request.path}: {why or sentence}"
    if who:
        audit(who, did)
    else:
        audit_stranger(request.remote_addr, did)
    return answer(f"fallow: {sentence}\n", status)


def answer(text: str, status: int = 200) -> Response:
    """Plain text that nobody keeps."""
    return Response(text, status=status, mimetype="text/plain", headers={"Cache-Control": "no-store"})
