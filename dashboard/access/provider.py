"""The OpenID Connect provider: its endpoints, its keys, and the claims of a user who signs in."""

from __future__ import annotations

import hmac
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]
from authlib.integrations.requests_client import OAuth2Session  # type: ignore[import-untyped]
from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped]
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from dashboard.access.hosts import is_loopback
from fallow.errors import ConfigError, FallowError

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures with the provider's own key. Unsigned tokens and tokens signed with a shared secret are refused."""

_UNUSABLE = (OSError, AuthlibBaseError, JoseError, ValueError, TypeError, KeyError, AttributeError)
"""Errors that an answer of an unexpected shape causes. Network errors and a missing CA file are OSErrors."""

_TIMEOUT_S = 10
_CACHE_S = 3600
_KEYS_AGAIN_S = 30
"""A token with an unknown key reloads the keys, but at most this often: any client can make up such a token."""
_FAILURE_S = 5
"""After a failure the provider is not asked again for this long. Otherwise every visitor would wait for the timeout."""
_AT_ONCE = 4
"""The number of threads that may wait for the provider to complete sign-ins: half of those that answer requests."""
_LEEWAY_S = 60


class ProviderError(FallowError):
    """The provider cannot be reached, or its answer cannot be trusted."""


class Provider:
    """One provider, as its discovery document describes it. Safe to use from many threads."""

    def __init__(self, issuer: str, client_id: str, secret: str | None, scopes: str, ca_file: str = "") -> None:
        """Contacts no server yet. Raises ConfigError for an address that is not protected by TLS."""
        self.issuer, self.client_id = issuer, client_id
        self._secret, self._scopes, self._verify = secret, scopes, ca_file or True
        _protected_address(
            issuer, ConfigError("dashboard.oidc_issuer must begin with https://", "only loopback may use http://")
        )
        self._asking = threading.Lock()
        self._signing_in = threading.BoundedSemaphore(_AT_ONCE)
        self._cache: dict[str, tuple[float, dict[str, Any]]] = {}
        self._failure: tuple[float, ProviderError] | None = None

    def address(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which a user signs in and is sent back to `redirect`. Raises ProviderError."""
        with self._session(redirect) as session:
            address, _ = session.create_authorization_url(
                self._endpoint("authorization_endpoint"), state=state, nonce=nonce, code_verifier=verifier
            )
        return str(address)

    def claims(self, code: str, redirect: str, nonce: str, verifier: str) -> dict[str, Any]:
        """Return the claims of the ID token and, where the provider has it, of userinfo. Raises ProviderError."""
        if not self._signing_in.acquire(blocking=False):
            raise ProviderError(f"{_AT_ONCE} sign-ins already wait for the provider's answer")
        try:
            return self._claims(code, redirect, nonce, verifier)
        finally:
            self._signing_in.release()

    def _claims(self, code: str, redirect: str, nonce: str, verifier: str) -> dict[str, Any]:
        with self._session(redirect) as session:
            try:
                token = session.fetch_token(
                    self._endpoint("token_endpoint"), code=code, code_verifier=verifier, timeout=_TIMEOUT_S
                )
                return self._with_userinfo(session, token, self._id_claims(token, nonce))
            except _UNUSABLE as error:
                raise ProviderError(f"the provider's answer cannot be used: {error}") from error

    def _session(self, redirect: str) -> OAuth2Session:
        methods = self._discovery().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        session = OAuth2Session(
            self.client_id,
            self._secret,
            token_endpoint_auth_method=method if self._secret else "none",
            scope=self._scopes,
            redirect_uri=redirect,
            code_challenge_method="S256",
        )
        session.max_redirects = 0  # a code or a secret goes to the configured host only
        session.verify = self._verify
        return session

    def _id_claims(self, token: dict[str, Any], nonce: str) -> dict[str, Any]:
        """Return the claims of the ID token after a check of signature, issuer, audience, times and nonce."""
        decoded = self._decoded(str(token["id_token"]))
        about = {"nonce": nonce, "client_id": self.client_id, "access_token": token.get("access_token")}
        wanted = {"iss": {"essential": True, "value": self.issuer}, "aud": {"essential": True, "value": self.client_id}}
        CodeIDToken(decoded.claims, decoded.header, wanted, about).validate(leeway=_LEEWAY_S)
        return dict(decoded.claims)

    def _decoded(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._keys(), algorithms=_ALGORITHMS)
        except (JoseError, ValueError):  # the provider may have replaced its keys
            read_s, _ = self._cache.get("jwks_uri", (0.0, {}))
            if time.monotonic() - read_s < _KEYS_AGAIN_S:
                raise
            self._cache.pop("jwks_uri", None)
            return jwt.decode(token, self._keys(), algorithms=_ALGORITHMS)

    def _keys(self) -> KeySet:
        found = self._read("jwks_uri", self._endpoint("jwks_uri"))
        fit = [key for key in found["keys"] if key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"]
        return KeySet.import_key_set({"keys": fit})

    def _with_userinfo(self, session: OAuth2Session, token: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
        """Return the claims with those of userinfo, which may have name and groups; the ID token takes precedence."""
        if "userinfo_endpoint" not in self._discovery() or "access_token" not in token:
            return claims
        answer = session.get(self._endpoint("userinfo_endpoint"), timeout=_TIMEOUT_S)
        found = answer.json() if answer.ok and "json" in answer.headers.get("Content-Type", "") else {}
        same = hmac.compare_digest(str(found.get("sub", "")).encode(), str(claims["sub"]).encode())
        return {**found, **claims} if same else claims

    def _endpoint(self, name: str) -> str:
        try:
            endpoint = str(self._discovery()[name])
        except KeyError:
            raise ProviderError(f"the provider's discovery document has no {name}") from None
        return _protected_address(endpoint, ProviderError(f"the provider's {name} is not protected by TLS"))

    def _discovery(self) -> dict[str, Any]:
        found = self._read("discovery", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            raise ProviderError(f"the provider calls itself {found.get('issuer')}, not {self.issuer}")
        return found

    def _read(self, name: str, address: str) -> dict[str, Any]:
        """Return a document of the provider, from the cache for up to _CACHE_S. Raises ProviderError.

        Only one thread fetches the document. The other threads do not wait: they use the previous document, or raise if
        there is none yet.
        """
        read_s, content = self._cache.get(name, (0.0, {}))
        if content and time.monotonic() - read_s < _CACHE_S:
            return content
        if self._failure and time.monotonic() - self._failure[0] < _FAILURE_S:
            raise self._failure[1]
        if not self._asking.acquire(blocking=False):
            if content:
                return content
            raise ProviderError("another request already waits for the provider's answer")
        try:
            content = self._fetched_document(address)
            self._cache[name] = (time.monotonic(), content)
        except ProviderError as error:
            self._failure = (time.monotonic(), error)
            raise
        finally:
            self._asking.release()
        return content

    def _fetched_document(self, address: str) -> dict[str, Any]:
        try:
            answer = requests.get(address, timeout=_TIMEOUT_S, allow_redirects=False, verify=self._verify)
            answer.raise_for_status()
            content = answer.json()
        except (OSError, ValueError) as error:
            raise ProviderError(f"the provider cannot be reached at {address}: {error}") from error
        if not isinstance(content, dict) or not content:
            raise ProviderError(f"the provider's document at {address} cannot be used")
        return content


def _protected_address(address: str, error: FallowError) -> str:
    """Return the address if it uses TLS or stays on this machine; else raise the error."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        raise error from None
    if host and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        return address
    raise error
