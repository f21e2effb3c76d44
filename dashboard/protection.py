"""What keeps the pages to themselves: who may ask, headers, and nothing fetched from elsewhere."""

from __future__ import annotations

import gzip
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flask import Response, g, request

if TYPE_CHECKING:
    from dashboard.access import Access

_LONG_BYTES = 1024


def content_security_policy(app: Any) -> str:
    """Only this server's own files; no eval. Plotly writes style attributes, hence the one `unsafe-inline`."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' {' '.join(app.csp_hashes())}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def protect(app: Any, access: Access) -> None:
    """Asks who it is before every request, those of callbacks and exports included, and puts the headers on every answer.

    Called when all callbacks are there.
    """
    headers = {
        "Content-Security-Policy": content_security_policy(app),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def ask_who() -> Response | None:
        found = access.admit(request)
        if isinstance(found, Response):
            return found
        g.person = found
        return None

    def finish(response: Response) -> Response:
        response.headers.update(headers)
        if "Cache-Control" not in response.headers:
            response.headers["Cache-Control"] = "no-store"
        return _compressed(response)

    app.server.before_request(ask_who)
    app.server.after_request(finish)


def _compressed(response: Response) -> Response:
    """The answer gzipped where the browser takes it: the pages are often read through a tunnel."""
    wanted = "gzip" in request.headers.get("Accept-Encoding", "")
    if not wanted or response.status_code != 200 or "Content-Encoding" in response.headers:
        return response
    response.direct_passthrough = False  # files of the assets folder come as streams
    content = response.get_data()
    if len(content) >= _LONG_BYTES:
        response.set_data(_gzip(content))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


@lru_cache(maxsize=64)
def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=9, mtime=0)
