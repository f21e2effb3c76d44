"""What keeps the pages to themselves: who may ask, headers, and nothing fetched from elsewhere."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from dash.exceptions import DependencyException
from flask import Request, Response, g, request
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.wrappers import Response as AnyResponse

from dashboard.access import Access
from dashboard.access.people import Reader
from dashboard.access.refusal import Gate, Rates, answer, refuse
from dashboard.access.tokens import is_for_programs

HEALTH = "/healthz"
"""Answers whoever asks, so that a cluster can tell that the pages are there, and says nothing of the lake."""

BY_LINK = "answer_by_link"
"""The one endpoint beside it that takes no session: a link's token entitles to one answer there."""

CALLBACK = "/_dash-update-component"
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
    # for dash a script that it does not have is a fault of its own; here it is one of whoever asks
    no_script = "fallow: there is no such script\n"
    app.server.register_error_handler(DependencyException, lambda _: answer(no_script, 404))
    app.server.register_error_handler(RequestEntityTooLarge, lambda _: answer(TOO_LONG, 413))
    app.server.before_request(ask_who)
    app.server.before_request(look_at_callback)
    app.server.after_request(finish)


def _admitted(access: Access, gate: Gate) -> Reader | AnyResponse:
    """Who asks, or the answer that they get instead, which is to wait where there were too many requests."""
    found = access.admit(request)
    who = found.actor if isinstance(found, Reader) else found.who
    stopped = gate.stop_stranger(request) if who is None else gate.stop_reader(who, request)
    return stopped or (found if isinstance(found, Reader) else found.answer())


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


_MOST_PARTS = 10_000
"""Objects and lists in one request: of a few bytes each becomes some hundred. What the pages send has a few for each element."""


def is_malformed(asked: Request, callbacks: Mapping[str, Any]) -> bool:
    """Whether a request to a callback is none that the pages send: the same elements, in the same order.

    dash reads it on trust, and what is missing becomes an error of its own with a long traceback. `callbacks` are dash's own,
    by what they fill. Raises RequestEntityTooLarge.
    """
    content = asked.get_data()
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        return True
    try:
        body = asked.get_json()
    except (HTTPException, RecursionError):  # no JSON, or thousands of brackets
        return True
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return True
    known = callbacks.get(body["output"], {})
    return not (
        "callback" in known  # those of the browser have none
        and _fit(body.get("inputs", []), known["inputs"])
        and _fit(body.get("state", []), known["state"])
        and (known.get("no_output", False) or _fit(_listed(body.get("outputs")), _filled(body["output"])))
        and _are_changes(body.get("changedPropIds", []))
    )


def _fit(sent: object, known: list[dict[str, str]]) -> bool:
    """Whether a list holds an element, or several of one kind, for each of those that the callback names."""
    return (
        isinstance(sent, list)
        and len(sent) == len(known)
        and all(_is_element(each, wanted) for each, wanted in zip(sent, known, strict=True))
    )


def _is_element(sent: object, wanted: dict[str, str]) -> bool:
    if wanted["id"].startswith("{"):  # all whose id has these keys
        keys = json.loads(wanted["id"]).keys()
        return isinstance(sent, list) and all(
            isinstance(each, dict)
            and isinstance(each.get("id"), dict)
            and each["id"].keys() == keys
            and each.get("property") == wanted["property"]
            for each in sent
        )
    return isinstance(sent, dict) and (sent.get("id"), sent.get("property")) == (wanted["id"], wanted["property"])


def _listed(outputs: object) -> object:
    return [outputs] if isinstance(outputs, dict) else outputs


def _filled(output: str) -> list[dict[str, str]]:
    """What a callback fills, from dash's name for it: `..a.children...b.data..` or `a.children`."""
    found = output[2:-2].split("...") if output.startswith("..") else [output]
    return [{"id": name, "property": kind} for name, _, kind in (each.rpartition(".") for each in found)]


def _are_changes(sent: object) -> bool:
    """Whether it names elements and their properties: `a.value`, or an id of several keys as JSON."""
    if not isinstance(sent, list) or not all(isinstance(each, str) for each in sent):
        return False
    try:
        ids = [json.loads(each.rpartition(".")[0]) for each in sent if each.startswith("{")]
    except ValueError:
        return False
    return all(isinstance(each, dict) for each in ids)
