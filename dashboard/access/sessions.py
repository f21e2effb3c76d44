"""Signed cookies and browser sessions. A session is a row on the server, which decides, and a cookie.

Only these pages can make the cookie. It is valid for minutes and renewed while the browser uses it.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import Any

from flask import Request, after_this_request
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.wrappers import Response

from dashboard.access.audit import REVOCATION, SIGN_OUT, audit
from dashboard.access.hosts import is_loopback
from dashboard.access.session_store import Session, SessionStore, SessionStoreError, digest_of
from fallow.actors import Actor
from fallow.clock import MINUTE_MS, SECOND_MS, Clock

_LOG = logging.getLogger(__name__)

GRACE_MS = MINUTE_MS
"""How long the previous cookie stays valid: a page sends several requests at once, some before it has the new one."""

_RENEWALS = 3
"""A cookie is renewed after this fraction (1/3) of its time: a page with a request every minute keeps its session."""


@dataclass(frozen=True)
class CookieContent:
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
        """Return the cookie of a request; None without a cookie, for one that is too old, and for a wrong signature."""
        sealed = request.cookies.get(self._name(request, part), "")
        try:
            sealed_ms, content = self._seal.loads(sealed)
            found = CookieContent(content, self._clock.now_ms() - int(sealed_ms))
        except (BadData, TypeError, ValueError):
            return None
        # the age is negative where the clock was set back
        return found if however_old or abs(found.age_ms) < self._lasts_ms else None

    def put(self, response: Response, request: Request, content: Any, part: str = "") -> None:
        """Set the cookie. No script can read it, and other sites' pages send it only when a user follows a link."""
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
    """Return the attributes that a browser compares before it replaces a cookie; setting and dropping need the same."""
    return {"path": "/", "secure": not is_loopback(request.host), "httponly": True, "samesite": "Lax"}


class Sessions:
    """Sessions whose cookies carry an id and a number. No number is issued twice, so that a stolen cookie is noticed.

    A renewed cookie has a higher number and counts from the first request with it. The previous cookie stays valid for
    GRACE_MS from then on. A still older cookie ends the session, since two clients use it. Where a browser does not
    send a renewed cookie, the answer with it may be lost: the next number is issued after a third of the cookie's time.
    """

    def __init__(
        self, store: SessionStore, key: bytes, context: str, *, lasts_ms: int, idle_ms: int, clock: Clock
    ) -> None:
        self._store, self._clock = store, clock
        self._lasts_ms, idle_ms = lasts_ms, min(idle_ms, lasts_ms)
        self._renewed_after_ms = idle_ms // _RENEWALS
        self._cookie = Cookie("session", key, context, idle_ms, clock)

    def begin(self, request: Request, response: Response, user: str, groups: tuple[str, ...]) -> None:
        """Begin a session under a new id, and end the browser's former session. Raises SessionStoreError."""
        now_ms = self._clock.now_ms()
        if (held := self._cookie.read(request, however_old=True)) is not None:
            self._store.end(digest_of(_identity(held)[0]))
        identity = self._store.begin(
            user, groups, request.remote_addr or "", now_ms=now_ms, ends_ms=now_ms + self._lasts_ms
        )
        self._cookie.put(response, request, [identity, 0])

    def current(self, request: Request) -> Session | None:
        """Return a request's session, None without one; the answer may renew its cookie. Raises SessionStoreError."""
        held = self._cookie.read(request)
        if held is None:
            return None
        (identity, serial), now_ms = _identity(held), self._clock.now_ms()
        found = self._store.find(identity, now_ms)
        if found is None:
            return None
        if serial > found.serial:
            found = self._confirmed_session(found, serial, now_ms)
        elif serial < found.serial and not self._is_in_grace(found, serial, now_ms):
            self._store.end(found.digest)
            what = f"session {found.label} ended: a replaced cookie of it was used again"
            audit(Actor(found.user), what, REVOCATION)
            return None
        if serial >= found.serial and held.age_ms >= self._renewed_after_ms:
            self._renew(request, identity, found, serial, now_ms)
        return found

    def _is_in_grace(self, session: Session, serial: int, now_ms: int) -> bool:
        return serial >= session.before and now_ms - session.seen_ms <= GRACE_MS

    def _confirmed_session(self, session: Session, serial: int, now_ms: int) -> Session:
        """Record that the browser has sent the cookie of this number; return the session with the number."""
        try:
            self._store.confirm(session.digest, serial, now_ms)
        except SessionStoreError as error:  # readers can read on with a full disk; the next request tries again
            _LOG.error("%s", error)
            return session
        offered = max(session.offered, serial)
        return replace(session, serial=serial, seen_ms=now_ms, before=session.serial, offered=offered)

    def _renew(self, request: Request, identity: str, session: Session, serial: int, now_ms: int) -> None:
        """Set a cookie with the next number, unless another request has issued it."""
        number = max(session.offered, serial) + 1
        try:
            if not self._store.offer(
                session.digest, session.serial, number, now_ms, again_after_ms=self._renewed_after_ms
            ):
                return
        except SessionStoreError as error:  # as above
            _LOG.error("%s", error)

        def put(response: Response) -> Response:
            self._cookie.put(response, request, [identity, number])
            response.headers["Cache-Control"] = "no-store"  # a cache would send the cookie to other readers
            return response

        after_this_request(put)

    def held(self, request: Request) -> Session | None:
        """Return the session of the request's cookie, even where the cookie is too old. Raises SessionStoreError."""
        held = self._cookie.read(request, however_old=True)
        return None if held is None else self._store.find(_identity(held)[0], self._clock.now_ms())

    def end(self, request: Request, response: Response) -> None:
        """Sign the browser out, even with a cookie that is too old. Raises SessionStoreError."""
        if (found := self.held(request)) is not None:
            self._store.end(found.digest)
            audit(Actor(found.user), "signed out", SIGN_OUT)
        self.forget(request, response)

    def forget(self, request: Request, response: Response) -> None:
        self._cookie.drop(response, request)


def _identity(held: CookieContent) -> tuple[str, int]:
    """Return id and number, which these pages have signed."""
    identity, serial = held.content
    return str(identity), int(serial)
