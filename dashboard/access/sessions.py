"""Signed cookies, which these pages alone can make, and a browser's session: a cookie that is good for minutes and renewed while it is used, and a row on the server that decides."""

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
"""How long the cookie before the newest is good: a page asks many things at once, and some were under way."""

_RENEWALS = 3
"""A cookie is renewed after one third of its time: a page that asks every minute keeps its session."""


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


class Sessions:
    """Cookies carry an id and a number. No number is handed out twice: of two who have the same cookie one is left behind.

    A renewed cookie has a higher number. It counts from the moment in which the browser sends it; the one before is good for
    GRACE_MS from then on, and one that comes later ends the session, since two people have it. Where the answer with it was
    lost, another is handed out after as much time.
    """

    def __init__(
        self, store: SessionStore, key: bytes, context: str, *, lasts_ms: int, idle_ms: int, clock: Clock
    ) -> None:
        self._store, self._clock = store, clock
        self._lasts_ms, idle_ms = lasts_ms, min(idle_ms, lasts_ms)
        self._renewed_after_ms = idle_ms // _RENEWALS
        self._cookie = Cookie("session", key, context, idle_ms, clock)

    def begin(self, request: Request, response: Response, user: str, groups: tuple[str, ...]) -> None:
        """A new session under a new id; what the browser had before is over. Raises SessionStoreError."""
        now_ms = self._clock.now_ms()
        if (held := self._cookie.read(request, however_old=True)) is not None:
            self._store.end(digest_of(_identity(held)[0]))
        identity = self._store.begin(
            user, groups, request.remote_addr or "", now_ms=now_ms, ends_ms=now_ms + self._lasts_ms
        )
        self._cookie.put(response, request, [identity, 0])

    def current(self, request: Request) -> Session | None:
        """The session of whoever asks, None without one; its cookie is renewed with the answer. Raises SessionStoreError."""
        held = self._cookie.read(request)
        if held is None:
            return None
        (identity, serial), now_ms = _identity(held), self._clock.now_ms()
        found = self._store.find(identity, now_ms)
        if found is None:
            return None
        if serial > found.serial:
            found = self._confirmed(found, serial, now_ms)
        elif serial < found.serial and not self._was_under_way(found, serial, now_ms):
            self._store.end(found.digest)
            what = f"a cookie of the session {found.label} came again after it was replaced: ended"
            audit(Actor(found.user), what, REVOCATION)
            return None
        if serial >= found.serial and held.age_ms >= self._renewed_after_ms:
            self._renew(request, identity, found, serial, now_ms)
        return found

    def _was_under_way(self, session: Session, serial: int, now_ms: int) -> bool:
        return serial >= session.before and now_ms - session.seen_ms <= GRACE_MS

    def _confirmed(self, session: Session, serial: int, now_ms: int) -> Session:
        """The session in which it is known that the cookie of this number has come back."""
        try:
            self._store.confirm(session.digest, serial, now_ms)
        except SessionStoreError as error:  # a full disk keeps nobody from reading, and the next request tries again
            _LOG.error("%s", error)
            return session
        offered = max(session.offered, serial)
        return replace(session, serial=serial, seen_ms=now_ms, before=session.serial, offered=offered)

    def _renew(self, request: Request, identity: str, session: Session, serial: int, now_ms: int) -> None:
        """Hands the next number out, unless another request has it already."""
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
            response.headers["Cache-Control"] = "no-store"  # a cache in between would hand it on
            return response

        after_this_request(put)

    def held(self, request: Request) -> Session | None:
        """The session that the cookie is of, also a cookie that has become too old. Raises SessionStoreError."""
        held = self._cookie.read(request, however_old=True)
        return None if held is None else self._store.find(_identity(held)[0], self._clock.now_ms())

    def end(self, request: Request, response: Response) -> None:
        """Signs out, also with a cookie that has become too old. Raises SessionStoreError."""
        if (found := self.held(request)) is not None:
            self._store.end(found.digest)
            audit(Actor(found.user), "signed out", SIGN_OUT)
        self.forget(request, response)

    def forget(self, request: Request, response: Response) -> None:
        """Has the browser drop the cookie."""
        self._cookie.drop(response, request)


def _identity(held: CookieContent) -> tuple[str, int]:
    """Id and number; these pages have signed them."""
    identity, serial = held.content
    return str(identity), int(serial)
