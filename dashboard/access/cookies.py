"""What these pages leave in a browser: signed, so that only they can have written it, and with an end."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from itsdangerous import BadSignature, URLSafeTimedSerializer

from dashboard.access.hosts import is_loopback

if TYPE_CHECKING:
    from flask import Request
    from werkzeug.wrappers import Response


class Cookie:
    """One kind of cookie. `context` goes into the signature: a cookie of another provider's sign-in is none of ours."""

    def __init__(self, kind: str, key: bytes, context: str, lasts_s: int) -> None:
        self._kind = kind
        self._lasts_s = lasts_s
        self._seal = URLSafeTimedSerializer(
            key, salt=f"fallow {kind} {context}", signer_kwargs={"digest_method": hashlib.sha256}
        )

    def read(self, request: Request, part: str = "") -> Any:
        """What was put there; None where there is nothing, it is too old, or somebody else wrote it."""
        sealed = request.cookies.get(self._name(request, part), "")
        try:
            return self._seal.loads(sealed, max_age=self._lasts_s)
        except BadSignature:  # SignatureExpired is one
            return None

    def put(self, response: Response, request: Request, content: Any, part: str = "") -> None:
        """Puts it: no script can read it, and no other site's page sends it with more than a link."""
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
        """Takes it away."""
        response.delete_cookie(
            self._name(request, part),
            path="/",
            secure=not is_loopback(request.host),
            httponly=True,
            samesite="Lax",
        )

    def _name(self, request: Request, part: str) -> str:
        # browsers take `__Host-` over TLS only, and from this very host: no neighbour can plant one
        prefix = "" if is_loopback(request.host) else "__Host-"
        return f"{prefix}fallow-{self._kind}{part and '-'}{part}"
