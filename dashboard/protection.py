"""What keeps the pages to themselves: who may ask, headers, and nothing fetched from elsewhere."""

from __future__ import annotations

import gzip
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from dash.exceptions import DependencyException
from flask import Request, Response, g, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wrappers import Response as AnyResponse

from dashboard.access import Access
from dashboard.access.people import Reader
from dashboard.access.rates import Gate, Rates
from dashboard.access.refusal import answer, refuse
from dashboard.access.tokens import is_for_programs
from dashboard.callback_requests import CALLBACK, is_malformed

HEALTH = "/healthz"
"""Answers whoever asks, so that a cluster can tell that the pages are there, and says nothing of the lake."""

BY_LINK = "answer_by_link"
"""The one endpoint beside it that takes no session: a link's token entitles to one answer there."""

_SCRIPTS = ("/_dash-component-suites/", "/assets/")
_LONG_BYTES = 1024
MOST_SENT_BYTES = 1024 * 1024
"""Of one request: all rows of a table of 10,000 findings, chosen at once, stay below it. What is read of it takes up to twenty times as much."""
TOO_LONG = "fallow: too much was sent at once; choose fewer rows or write less\n"
_READING = ("GET", "HEAD", "OPTIONS")
_OWN_FRAME = "frame-ancestors 'self'"


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
            "frame-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def protect(app: Any, access: Access, rates: Rates) -> None:
    """Asks who it is before every request, those of callbacks and exports included, and puts the headers on every answer.

    Called when all callbacks are there.
    """
    policy = content_security_policy(app)
    gate = Gate(rates)

    def ask_who() -> AnyResponse | None:
        if request.path == HEALTH:
            return answer("ok\n")
        if is_foreign(request):
            said = "this did not come from these pages; open them again"
            return gate.stop_stranger(request) or refuse(request, said, why="another site's page sent it")
        if request.endpoint == BY_LINK:
            return gate.stop_stranger(request)
        found = _admitted(access, gate)
        if not isinstance(found, Reader):
            return found
        g.person = found
        return None

    def look_at_callback() -> AnyResponse | None:
        if request.path != CALLBACK or request.method != "POST" or not is_malformed(request, app.callback_map):
            return None
        return refuse(request, "this is no callback of these pages; open them again", who=g.person.actor, status=400)

    def finish(response: Response) -> Response:
        _put_headers(response, policy)
        return _compressed(response)

    app.server.config["MAX_CONTENT_LENGTH"] = MOST_SENT_BYTES
    app.server.register_error_handler(DependencyException, _no_such_script)
    app.server.register_error_handler(RequestEntityTooLarge, _too_long)
    app.server.before_request(ask_who)
    app.server.before_request(look_at_callback)
    app.server.after_request(finish)


def _admitted(access: Access, gate: Gate) -> Reader | AnyResponse:
    """Who asks, or the answer that they get instead, which is to wait where there were too many requests."""
    found = access.admit(request)
    who = found.actor if isinstance(found, Reader) else found.who
    stopped = gate.stop_stranger(request) if who is None else gate.stop_reader(who, request)
    return stopped or (found if isinstance(found, Reader) else found.answer())


def _no_such_script(_: DependencyException) -> Response:
    """For dash a script that it does not have is a fault of its own; here it is one of whoever asks."""
    return answer("fallow: there is no such script\n", 404)


def _too_long(_: RequestEntityTooLarge) -> Response:
    return answer(TOO_LONG, 413)


def is_foreign(asked: Request) -> bool:
    """Whether another site's page may have had the browser send this: all that writes has to say that it is from here.

    The browser says so itself: no page can set `Sec-Fetch-Site` or `Origin`. The former stays true behind a proxy that
    changes `Host`; it is sent over TLS and on loopback only. Programs say nothing: they may ask where nothing is written.
    """
    if asked.method in _READING:
        return False
    if (site := asked.headers.get("Sec-Fetch-Site")) is not None:
        return site != "same-origin"
    try:
        origin = urlsplit(asked.headers.get("Origin", "")).netloc
    except ValueError:
        return True
    if not asked.headers.get("Origin") and is_for_programs(asked.path):
        return False
    return not origin or origin.lower() != asked.host.lower()


def _put_headers(response: Response, policy: str) -> None:
    """The headers of every answer. One that brings a policy of its own is a document that these pages show in a frame."""
    own = response.headers.get("Content-Security-Policy")
    if own and "frame-ancestors" not in own:
        own = f"{own.rstrip('; ')}; {_OWN_FRAME}"
    response.headers.update(
        {
            "Content-Security-Policy": own or policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "SAMEORIGIN" if own and "frame-ancestors 'self'" in own else "DENY",
            # without the page's own address a browser says of a form that it came from nowhere
            "Referrer-Policy": response.headers.get("Referrer-Policy", "no-referrer"),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    if "Cache-Control" not in response.headers:
        # scripts and styles have a tag to ask by; whatever is of the lake stays nowhere
        is_script = request.path.startswith(_SCRIPTS) and response.get_etag()[0] is not None
        response.headers["Cache-Control"] = "no-cache" if is_script else "no-store"


def _compressed(response: Response) -> Response:
    """The answer gzipped where the browser takes it: the pages are often read through a tunnel."""
    wanted = "gzip" in request.headers.get("Accept-Encoding", "")
    if not wanted or response.status_code != 200 or "Content-Encoding" in response.headers:
        return response
    response.direct_passthrough = False  # files of the assets folder come as streams
    content = response.get_data()
    if len(content) >= _LONG_BYTES:
        response.set_data((_gzip_once if request.path.startswith(_SCRIPTS) else _gzip)(content))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0)


_gzip_once = lru_cache(maxsize=64)(_gzip)
"""Of scripts and styles, which are few and the same for all. What is of the lake is kept with its window alone."""
