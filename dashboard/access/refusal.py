"""Plain-text answers to requests that are refused, with a line in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flask import Request, Response
from werkzeug.wrappers import Response as AnyResponse

from analytics.delivery.links import PATH
from dashboard.access.audit import REFUSED, audit, audit_stranger
from fallow.actors import Actor


@dataclass(frozen=True)
class Visitor:
    """A reader who does not get the pages, or not yet; `who` is None where only the address is known.

    `answer` makes what they get, a refusal or the way to sign in. It takes time and lines of the log, so that it waits for its turn.
    """

    answer: Callable[[], AnyResponse]
    who: Actor | None = None


def refuse(request: Request, sentence: str, *, who: Actor | None = None, why: str = "", status: int = 403) -> Response:
    """A plain-text answer; the log names the user, or else their address, and the reason."""
    did = f"was refused {_shown(request.path)}: {why or sentence}"
    if who is not None:
        audit(who, did, REFUSED)
    else:
        audit_stranger(request.remote_addr, did)
    return answer(f"fallow: {sentence}\n", status)


def _shown(path: str) -> str:
    """The path without a link's token: who reads the log may not answer for others."""
    return f"{PATH}..." if path.startswith(PATH) else path


def answer(text: str, status: int = 200) -> Response:
    """A plain-text answer that is never cached."""
    return Response(text, status=status, mimetype="text/plain", headers={"Cache-Control": "no-store"})
