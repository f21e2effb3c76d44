"""Signed cookies: their content can be read by whoever has them, and made by these pages alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from flask import Request
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.wrappers import Response

from dashboard.access.hosts import is_loopback
from fallow.clock import SECOND_MS, Clock


@dataclass(frozen=True)
class CookieContent:
    """What a cookie holds, and how long ago these pages made it."""

    content: Any
    age_ms: int


class Cookie:
    """One kind of signed cookie. `context` is part of the signature, so that another provider's cookie is invalid."""

    def __init__(self, kind: str, key: bytes, context: str, lasts_ms: int, clock: Clock) -> None:
        self._kind, self._lasts_ms, self._clock = kind, lasts_ms, clock
        self._seal = URLSafeSerializer(
            key, salt=f"fallow {kind} {context}", signer_kwargs={"digest_method": hashlib.sha256}
        )

    def read(self, request: Request, part: str = "", *, however_old: bool = False) -> CookieContent | None:
        """None if there is none, it is too old, or its signature is wrong."""
        sealed = request.cookies.get(self._name(request, part), "")
        try:
            made_ms, content = self._seal.loads(sealed)
            found = CookieContent(content, self._clock.now_ms() - int(made_ms))
        except (BadData, TypeError, ValueError):
            return None
        # an age below 0 is a clock that was set back
        return found if however_old or abs(found.age_ms) < self._lasts_ms else None

    def put(self, response: Response, request: Request, content: Any, part: str = "") -> None:
        """Sets it: no script can read it, and other sites' pages send it only by following a link."""
        response.set_cookie(
            self._name(request, part),
            str(self._seal.dumps([self._clock.now_ms(), content])),
            max_age=max(self._lasts_ms // SECOND_MS, 1),
            **_attributes(request),
        )

    def drop(self, response: Response, request: Request, part: str = "") -> None:
        response.delete_cookie(self._name(request, part), **_attributes(request))

    def _name(self, request: Request, part: str) -> str:
        # browsers accept `__Host-` only over TLS and from this very host: no other host can set it
        prefix = "" if is_loopback(request.host) else "__Host-"
        return f"{prefix}fallow-{self._kind}{part and '-'}{part}"


def _attributes(request: Request) -> dict[str, Any]:
    """What a browser compares before it replaces a cookie: the same when it is set and when it is dropped."""
    return {"path": "/", "secure": not is_loopback(request.host), "httponly": True, "samesite": "Lax"}
