"""Sign-in with OpenID Connect: authorization code flow with PKCE, state and nonce, and sessions."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from flask import Request, redirect
from werkzeug.wrappers import Response as AnyResponse

from dashboard.access import RETURN
from dashboard.access.audit import SIGN_IN, audit
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts, is_loopback
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.people import Reader
from dashboard.access.provider import Provider, ProviderError
from dashboard.access.refusal import Visitor, answer, refuse
from dashboard.access.session_store import Session, SessionStore, SessionStoreError
from dashboard.access.sessions import Cookie, Sessions
from fallow.actors import Actor, name_fault, shown_name
from fallow.clock import MINUTE_MS, Clock

_LOG = logging.getLogger(__name__)

OUT = "/sign-out"

_SIGN_IN_MS = 10 * MINUTE_MS
_MOST_GROUPS, _LONGEST_GROUP = 2000, 1000
_UNQUOTED = "!$%&'()*+,/:;=?@"
"""Characters of a query that stay unquoted, besides letters, digits and `_.-~`."""
_NO_PAGE_PATHS = ("/_dash", "/assets/", "/export/")


class SignIn:
    """Admits readers with a session. Without one, a page redirects to the provider and other paths answer 401."""

    way_out = OUT

    def __init__(
        self,
        provider: Provider,
        hosts: AllowedHosts,
        people: Directory,
        store: SessionStore,
        *,
        key: bytes,
        lasts_ms: int,
        idle_ms: int,
        claims: tuple[str, str],
        clock: Clock,
    ) -> None:
        """`key` signs the cookies; `claims` are the names of the claims with the user and with the groups.

        A session ends after `lasts_ms`, and earlier after `idle_ms` without a request.
        """
        context = f"{provider.issuer} {provider.client_id}"
        self._provider, self._hosts, self._people = provider, hosts, people
        self._user_claim, self._groups_claim = claims
        self._has_odd_groups = False
        self._sessions = Sessions(store, key, context, lasts_ms=lasts_ms, idle_ms=idle_ms, clock=clock)
        self._way_cookie = Cookie("sign-in", key, context, _SIGN_IN_MS, clock)

    def admit(self, request: Request) -> Reader | Visitor:
        """Return the person, or a visitor whose answer is a redirect to the provider, 401 or 403."""
        if not self._hosts.allow(request.host):
            return Visitor(partial(refuse, request, NOT_THIS_NAME))
        if request.path == RETURN:
            return Visitor(partial(_with_sessions, request, self._return_answer))
        try:
            session = self._sessions.held(request) if request.path == OUT else self._sessions.current(request)
        except SessionStoreError as error:
            return Visitor(partial(_store_refusal, request, error))
        if request.path == OUT:
            # counted under the user's own name: a flood of strangers does not prevent a sign-out
            out = partial(_with_sessions, request, self._sign_out_answer)
            return Visitor(out, None if session is None else Actor(session.user))
        if session is None:
            first = partial(answer, "fallow: sign in first\n", 401)
            return Visitor(partial(self._provider_redirect, request) if _is_page(request) else first)
        return self._person(request, session)

    def _person(self, request: Request, session: Session) -> Reader | Visitor:
        """Return the reader by the current file of people, so that a removed role ends at once; else a visitor."""
        user = session.user
        found = self._people.person(user, session.groups)
        return found or Visitor(
            partial(refuse, request, _no_role_sentence(user), who=Actor(user), why="no role"), Actor(user)
        )

    def _provider_redirect(self, request: Request) -> AnyResponse:
        """Return a redirect to the provider. A cookie keeps state, nonce and verifier until the browser returns."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            response = redirect(self._provider.address(_return_address(request), state, nonce, verifier), 302)
        except ProviderError as error:
            return refuse(request, "the sign-in service cannot be reached; try again", why=str(error), status=503)
        wanted = {"state": state, "nonce": nonce, "verifier": verifier, "back": _return_path(request)}
        self._way_cookie.put(response, request, wanted, state[:8])
        response.headers["Cache-Control"] = "no-store"
        return response

    def _return_answer(self, request: Request) -> AnyResponse:
        """Return the answer to a browser that comes back from the provider: a new session or a refusal."""
        state = request.args.get("state", "")
        way = self._way_cookie.read(request, state[:8])
        wanted = None if way is None else way.content
        if wanted is None or not secrets.compare_digest(wanted["state"].encode(), state.encode()):
            return refuse(
                request, "this sign-in is too old or began elsewhere; open the pages again", why="wrong state"
            )
        if request.args.get("iss", self._provider.issuer) != self._provider.issuer:
            return refuse(request, "another service answered this sign-in", why="wrong issuer")
        if "code" not in request.args:
            why = f"the provider answered {request.args.get('error', 'without a code or an error')}"
            return refuse(request, "you did not sign in; open the pages again to do so", why=why)
        try:
            claims = self._provider.claims(
                request.args["code"], _return_address(request), wanted["nonce"], wanted["verifier"]
            )
        except ProviderError as error:
            return refuse(request, "signing in failed; open the pages again", why=str(error))
        return self._begin(request, claims, wanted, state)

    def _begin(self, request: Request, claims: dict[str, Any], wanted: dict[str, str], state: str) -> AnyResponse:
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not user:
            return refuse(request, "the sign-in service did not send your name", why=f"no claim {self._user_claim}")
        if (fault := name_fault(user)) is not None:
            why = f"the name {shown_name(user)} in the claim {self._user_claim} {fault}"
            remedy = "ask for a name in ordinary letters of one script at the sign-in service"
            return refuse(request, f"{why}; {remedy}", why=why)
        # some providers send this as text; an unverified address may be anything that a user wrote into their profile
        if self._user_claim == "email" and str(claims.get("email_verified")).lower() != "true":
            return refuse(request, "your address is not verified", who=Actor(user), why="email_verified is not true")
        known = self._groups(claims.get(self._groups_claim))
        person = self._people.person(user, known)
        if person is None:
            return refuse(request, _no_role_sentence(user), who=Actor(user), why="no role")
        response = redirect(wanted["back"], 302)
        self._sessions.begin(request, response, user, known)
        audit(Actor(user), f"signed in as {person.described}", SIGN_IN)
        self._way_cookie.drop(response, request, state[:8])
        response.headers["Cache-Control"] = "no-store"
        return response

    def _groups(self, claim: object) -> tuple[str, ...]:
        """Return the groups of a claim: a text or a list of texts. Other values grant nothing and are logged once."""
        listed = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        texts = [each for each in listed if isinstance(each, str)]
        is_odd = len(texts) < len(listed) or not (claim is None or isinstance(claim, str | list))
        if is_odd and not self._has_odd_groups:
            self._has_odd_groups = True
            _LOG.warning(
                "the claim %s is not a list of texts: its other values grant nothing; "
                "let the sign-in service send the names of groups as a list",
                self._groups_claim,
            )
        return tuple(each for each in texts if len(each) <= _LONGEST_GROUP)[:_MOST_GROUPS]

    def _sign_out_answer(self, request: Request) -> AnyResponse:
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            return refuse(request, "another site may not sign you out")
        response = answer("You are signed out of these pages. The sign-in service may still know you.\n")
        self._sessions.end(request, response)
        return response


def _with_sessions(request: Request, make: Callable[[Request], AnyResponse]) -> AnyResponse:
    """Return the answer that `make` makes, or 503 where the sessions cannot be read or written."""
    try:
        return make(request)
    except SessionStoreError as error:
        return _store_refusal(request, error)


def _store_refusal(request: Request, error: SessionStoreError) -> AnyResponse:
    _LOG.error("%s", error)
    lacking = "you are still signed in" if request.path == OUT else "the sessions cannot be read"
    return answer(f"fallow: {lacking}; try again, or ask the operator of these pages\n", 503)


def _no_role_sentence(user: str) -> str:
    return f"you are signed in as {user}, who has no role here; ask the operator of these pages"


def _return_address(request: Request) -> str:
    """Return the address to return to: https except on loopback, since a proxy may end TLS. The host was checked."""
    return f"{'http' if is_loopback(request.host) else 'https'}://{request.host}{RETURN}"


def _return_path(request: Request) -> str:
    """Return the page to return to, with exactly one leading slash: two would name another host."""
    # quoted: browsers drop tabs and line ends from addresses, which turns `/<tab>/host` into `//host`
    path = "/" + quote(request.path.lstrip("/\\"))
    query = quote(request.query_string.decode("ascii", errors="ignore"), safe=_UNQUOTED)
    return f"{path}?{query}" if query else path


def _is_page(request: Request) -> bool:
    """Return whether a browser asks for a page to show in its own right."""
    as_page = request.headers.get("Sec-Fetch-Dest", "document") == "document"
    wanted = "text/html" in request.headers.get("Accept", "")
    return request.method == "GET" and as_page and wanted and not request.path.startswith(_NO_PAGE_PATHS)
