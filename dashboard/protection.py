"""Protection of the pages: a reader for every request, security headers, and nothing fetched from other sites."""

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
"""Answers every client, so that a cluster can check that the pages run. Its answer holds nothing of the lake."""

BY_LINK = "answer_by_link"
"""The only other endpoint without a session: a link's token authorizes one answer."""

CALLBACK = "/_dash-update-component"
_SCRIPTS = ("/_dash-component-suites/", "/assets/")
_LONG_BYTES = 1024
MOST_SENT_BYTES = 1024 * 1024
"""The longest request: a selection of all rows of a table of 10,000 findings is shorter. Parsed, a request takes up to
twenty times as much."""
TOO_LONG = "fallow: the request is too large; choose fewer rows or write less\n"
_READING = ("GET", "HEAD", "OPTIONS")
_OWN_FRAME = "frame-ancestors 'self'"


def content_security_policy(app: Any) -> str:
    """Return a policy that allows only this server's files, no eval; Plotly's style attributes need `unsafe-inline`."""
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
    """Identify the reader of every request, including callbacks and exports, and add the headers to every answer.

    Call this after all callbacks are registered.
    """
    policy = content_security_policy(app)
    gate = Gate(rates)

    def identify() -> AnyResponse | None:
        if request.path == HEALTH:
            return answer("ok\n")
        if is_foreign(request):
            sentence = "the request did not come from these pages; open them again"
            return gate.stop_stranger(request) or refuse(request, sentence, why="another site's page sent the request")
        if request.endpoint == BY_LINK:
            return gate.stop_stranger(request)
        found = _admitted(access, gate)
        if not isinstance(found, Reader):
            return found
        g.person = found
        return None

    def check_callback() -> AnyResponse | None:
        if request.path != CALLBACK or request.method != "POST" or not is_malformed(request, app.callback_map):
            return None
        sentence = "the request is not a callback of these pages; open them again"
        return refuse(request, sentence, who=g.person.actor, status=400)

    def finish(response: Response) -> Response:
        _put_headers(response, policy)
        return _compressed(response)

    app.server.config["MAX_CONTENT_LENGTH"] = MOST_SENT_BYTES
    # dash reports an unknown script as its own fault; it is the client's
    no_script = "fallow: there is no such script\n"
    app.server.register_error_handler(DependencyException, lambda _: answer(no_script, 404))
    app.server.register_error_handler(RequestEntityTooLarge, lambda _: answer(TOO_LONG, 413))
    app.server.before_request(identify)
    app.server.before_request(check_callback)
    app.server.after_request(finish)


def _admitted(access: Access, gate: Gate) -> Reader | AnyResponse:
    """Return the reader, or the answer instead: 429 after too many requests, else a refusal or a sign-in."""
    found = access.admit(request)
    who = found.actor if isinstance(found, Reader) else found.who
    stopped = gate.stop_stranger(request) if who is None else gate.stop_reader(who, request)
    return stopped or (found if isinstance(found, Reader) else found.answer())


def is_foreign(asked: Request) -> bool:
    """Return whether another site's page may have sent the request: one that writes must prove that it is from here.

    The browser sends the proof, since no page can set `Sec-Fetch-Site` or `Origin`. The former stays correct behind a
    proxy that changes `Host`, but browsers send it only over TLS and on loopback. Programs send neither and may use the
    paths for programs, where nothing is written.
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
    """Add the headers to an answer. An answer with its own policy is a document that these pages show in a frame."""
    own = response.headers.get("Content-Security-Policy")
    if own and "frame-ancestors" not in own:
        own = f"{own.rstrip('; ')}; {_OWN_FRAME}"
    response.headers.update(
        {
            "Content-Security-Policy": own or policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "SAMEORIGIN" if own and "frame-ancestors 'self'" in own else "DENY",
            # the answer page needs the referrer: without it a browser sends a form with the origin `null`
            "Referrer-Policy": response.headers.get("Referrer-Policy", "no-referrer"),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
    )
    if "Cache-Control" not in response.headers:
        # scripts and styles are revalidated by their tag; data of the lake are stored nowhere
        is_script = request.path.startswith(_SCRIPTS) and response.get_etag()[0] is not None
        response.headers["Cache-Control"] = "no-cache" if is_script else "no-store"


def _compressed(response: Response) -> Response:
    """Return the answer, gzipped where the browser accepts that: the pages are often read through a tunnel."""
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
"""Cached for scripts and styles only: few, and the same for all readers. The lake's data are kept with their window."""


_MOST_PARTS = 10_000
"""Objects and lists in one request: a few bytes become some hundred in memory. The pages send a few per element."""


def is_malformed(asked: Request, callbacks: Mapping[str, Any]) -> bool:
    """Return whether a callback request differs from those that the pages send: other elements, or another order.

    dash does not check requests: a missing part becomes an error with a long traceback. `callbacks` are dash's
    callbacks by their output. Raises RequestEntityTooLarge.
    """
    content = asked.get_data()
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        return True
    try:
        body = asked.get_json()
    except (HTTPException, RecursionError):  # not JSON, or thousands of brackets
        return True
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return True
    known = callbacks.get(body["output"], {})
    return not (
        "callback" in known  # callbacks that run in the browser have none
        and _are_elements(body.get("inputs", []), known["inputs"])
        and _are_elements(body.get("state", []), known["state"])
        and (known.get("no_output", False) or _are_elements(_as_list(body.get("outputs")), _outputs(body["output"])))
        and _are_changes(body.get("changedPropIds", []))
    )


def _are_elements(sent: object, known: list[dict[str, str]]) -> bool:
    """Return whether a list has an element, or several of one kind, for every element of the callback."""
    return (
        isinstance(sent, list)
        and len(sent) == len(known)
        and all(_is_element(each, wanted) for each, wanted in zip(sent, known, strict=True))
    )


def _is_element(sent: object, wanted: dict[str, str]) -> bool:
    if wanted["id"].startswith("{"):  # all elements whose id has these keys
        keys = json.loads(wanted["id"]).keys()
        return isinstance(sent, list) and all(
            isinstance(each, dict)
            and isinstance(each.get("id"), dict)
            and each["id"].keys() == keys
            and each.get("property") == wanted["property"]
            for each in sent
        )
    return isinstance(sent, dict) and (sent.get("id"), sent.get("property")) == (wanted["id"], wanted["property"])


def _as_list(outputs: object) -> object:
    return [outputs] if isinstance(outputs, dict) else outputs


def _outputs(output: str) -> list[dict[str, str]]:
    """Return the elements that a callback fills, from dash's name for them: `..a.children...b.data..`, `a.children`."""
    found = output[2:-2].split("...") if output.startswith("..") else [output]
    return [{"id": name, "property": kind} for name, _, kind in (each.rpartition(".") for each in found)]


def _are_changes(sent: object) -> bool:
    """Return whether a list names elements and their properties: `a.value`, or an id of several keys as JSON."""
    if not isinstance(sent, list) or not all(isinstance(each, str) for each in sent):
        return False
    try:
        ids = [json.loads(each.rpartition(".")[0]) for each in sent if each.startswith("{")]
    except ValueError:
        return False
    return all(isinstance(each, dict) for each in ids)
