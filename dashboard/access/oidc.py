"""Sign-in with OpenID Connect: authorization code flow with PKCE, state and nonce, and signed session cookies."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any
from urllib.parse import quote

from flask import Request, redirect
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.wrappers import Response
from werkzeug.wrappers import Response as AnyResponse

from dashboard.access import RETURN
from dashboard.access.audit import audit
from dashboard.access.directory import Directory
from dashboard.access.hosts import AllowedHosts, is_loopback
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.people import Reader
from dashboard.access.provider import Provider, ProviderError
from dashboard.access.refusal import answer, refuse


class Cookie:
    """One kind of signed cookie. `context` is part of the signature, so that another provider's cookie is invalid."""

    def __init__(self, kind: str, key: bytes, context: str, lasts_s: int) -> None:
        self._kind = kind
        self._lasts_s = lasts_s
        self._seal = URLSafeTimedSerializer(
            key, salt=f"fallow {kind} {context}", signer_kwargs={"digest_method": hashlib.sha256}
        )

    def read(self, request: Request, part: str = "") -> Any:
        """The content; None if there is none, it is too old, or its signature is wrong."""
        sealed = request.cookies.get(self._name(request, part), "")
        try:
            return self._seal.loads(sealed, max_age=self._lasts_s)
        except BadSignature:  # SignatureExpired is one
            return None

    def put(self, response: Response, request: Request, content: Any, part: str = "") -> None:
        """Sets it: no script can read it, and other sites' pages send it only by following a link."""
        response.set_cookie(
            self._name(request, part),
            str(self._seal.dumps(content)),
            max_age=self._lasts_s,
            path="/",
            secure=not is_loopback(request.host),
            httponly=True,
            samesite="Lax",
        )

    def drop(self, response: Response, request: Request, part: str = "") -> None:
        response.delete_cookie(
            self._name(request, part),
            path="/",
            secure=not is_loopback(request.host),
            httponly=True,
            samesite="Lax",
        )

    def _name(self, request: Request, part: str) -> str:
        # browsers accept `__Host-` only over TLS and from this very host: no other host can set it
        prefix = "" if is_loopback(request.host) else "__Host-"
        return f"{prefix}fallow-{self._kind}{part and '-'}{part}"


OUT = "/sign-out"

_ON_THE_WAY_S = 600
_LONGEST = 300
_AS_IT_IS = "!$%&'()*+,/:;=?@"
"""Characters of a query that stay unquoted, besides letters, digits and `_.-~`."""
_NO_PAGE = ("/_dash", "/assets/", "/export/")


class SignIn:
    """Admits whoever has a session. Without one, a page redirects to the provider and everything else is 401."""

    way_out = OUT

    def __init__(
        self,
        provider: Provider,
        hosts: AllowedHosts,
        people: Directory,
        *,
        key: bytes,
        lasts_s: int,
        claims: tuple[str, str],
    ) -> None:
        """`key` signs the cookies; `claims` names the claims that hold the user and the groups."""
        context = f"{provider.issuer} {provider.client_id}"
        self._provider, self._hosts, self._people = provider, hosts, people
        self._user_claim, self._groups_claim = claims
        self._session = Cookie("session", key, context, lasts_s)
        self._way = Cookie("sign-in", key, context, _ON_THE_WAY_S)

    def admit(self, request: Request) -> Reader | AnyResponse:
        """The person, a redirect to the provider, 401 or 403."""
        if not self._hosts.allow(request.host):
            return refuse(request, NOT_THIS_NAME)
        if request.path == RETURN:
            return self._returned(request)
        if request.path == OUT:
            return self._out(request)
        session = self._session.read(request)
        if session is None:
            return self._send(request) if _is_page(request) else answer("fallow: sign in first\n", 401)
        found = self._people.person(session["user"], session["groups"])
        if found is None:
            return refuse(request, _no_role(session["user"]), who=session["user"], why="no role")
        return found

    def _send(self, request: Request) -> AnyResponse:
        """Redirects to the provider; state, nonce and verifier stay in a cookie until the return."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            response = redirect(self._provider.address(_return_address(request), state, nonce, verifier), 302)
        except ProviderError as error:
            return refuse(request, "the sign-in service cannot be reached; try again", why=str(error), status=503)
        wanted = {"state": state, "nonce": nonce, "verifier": verifier, "back": _back(request)}
        self._way.put(response, request, wanted, state[:8])
        response.headers["Cache-Control"] = "no-store"
        return response

    def _returned(self, request: Request) -> AnyResponse:
        """Handles the return from the provider: starts a session or refuses."""
        state = request.args.get("state", "")
        wanted = self._way.read(request, state[:8])
        if wanted is None or not secrets.compare_digest(wanted["state"].encode(), state.encode()):
            return refuse(
                request, "this sign-in is too old or began elsewhere; open the pages again", why="wrong state"
            )
        if request.args.get("iss", self._provider.issuer) != self._provider.issuer:
            return refuse(request, "another service has answered this sign-in", why="wrong issuer")
        if "code" not in request.args:
            why = f"the provider said {request.args.get('error', 'nothing')}"
            return refuse(request, "you did not sign in; open the pages again to do so", why=why)
        try:
            claims = self._provider.claims(
                request.args["code"], _return_address(request), wanted["nonce"], wanted["verifier"]
            )
        except ProviderError as error:
            return refuse(request, "signing in did not work; open the pages again", why=str(error))
        return self._begin(request, claims, wanted, state)

    def _begin(self, request: Request, claims: dict[str, Any], wanted: dict[str, str], state: str) -> AnyResponse:
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not user.strip() or len(user) > _LONGEST:
            return refuse(request, "the sign-in service did not say who you are", why=f"no claim {self._user_claim}")
        # some providers send it as text; without it, anybody could write any address into their profile
        if self._user_claim == "email" and str(claims.get("email_verified")).lower() != "true":
            return refuse(request, "your address is not verified", who=user, why="email_verified is not true")
        groups = claims.get(self._groups_claim) or []
        groups = [groups] if isinstance(groups, str) else groups
        # only those that matter: browsers keep no cookie above 4 kB
        known = self._people.known([each for each in groups if isinstance(each, str)])
        person = self._people.person(user, known)
        if person is None:
            return refuse(request, _no_role(user), who=user, why="no role")
        audit(user, f"signed in as {person.described}")
        response = redirect(wanted["back"], 302)
        self._session.put(response, request, {"user": user, "groups": known})
        self._way.drop(response, request, state[:8])
        response.headers["Cache-Control"] = "no-store"
        return response

    def _out(self, request: Request) -> AnyResponse:
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            return refuse(request, "another site may not sign you out")
        if (session := self._session.read(request)) is not None:
            audit(session["user"], "signed out")
        response = answer("You are signed out of these pages. The sign-in service may still know you.\n")
        self._session.drop(response, request)
        return response


def _no_role(user: str) -> str:
    return f"you are signed in as {user}, who has no role here; ask who runs these pages"


def _return_address(request: Request) -> str:
    """Always https except on loopback: a proxy may have ended TLS. The host has been checked."""
    return f"{'http' if is_loopback(request.host) else 'https'}://{request.host}{RETURN}"


def _back(request: Request) -> str:
    """The page to return to, with exactly one leading slash: two would name another host."""
    # quoted: browsers drop tabs and line ends from addresses, which turns `/<tab>/host` into `//host`
    path = "/" + quote(request.path.lstrip("/\\"))
    query = quote(request.query_string.decode("ascii", errors="ignore"), safe=_AS_IT_IS)
    return f"{path}?{query}" if query else path


def _is_page(request: Request) -> bool:
    """Whether a browser wants to show this as a page of its own."""
    as_page = request.headers.get("Sec-Fetch-Dest", "document") == "document"
    wanted = "text/html" in request.headers.get("Accept", "")
    return request.method == "GET" and as_page and wanted and not request.path.startswith(_NO_PAGE)
