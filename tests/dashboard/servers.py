"""`fallow dashboard` in a process of its own, and an OpenID Connect provider on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.conftest import REPOSITORY, clean_environment

# of gunicorn's: it leaves sockets to the collector, and it forks
NOT_OURS = ("-W", "ignore::ResourceWarning", "-W", "ignore:This process:DeprecationWarning")


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running server and its address; it is ended with the block, whatever happens in it."""
    command = [sys.executable, "-W", "error", *NOT_OURS, "-m", "fallow", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=clean_environment(environment),
    ) as server:
        try:
            assert server.stdout is not None
            found = next((match for line in server.stdout if (match := re.search(r"http://\S+/", line))), None)
            assert found, server.communicate()[1]
            yield server, found[0]
        finally:
            server.terminate()  # gunicorn's other processes go with it
            try:
                server.communicate(timeout=120)
            finally:
                server.kill()


SECRET = "a secret, with / and : in it"  # noqa: S105  # of a provider that lives for one test


@cache
def first_key() -> RSAKey:
    """Of all providers: making one takes a while."""
    return RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})


class Provider(ThreadingHTTPServer):
    """Signs everybody in as `user`; `claims` are put into the ID token over what is right, `key` signs it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.user: dict[str, Any] = {"sub": "1", "preferred_username": "ann"}
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.published = self.key = first_key()
        self.header: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []

    def token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "fallow", "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        header = {"alg": "RS256", "kid": self.key.kid} | self.header
        return jwt.encode(header, claims | self.user | self.claims, self.key)


@contextmanager
def provider() -> Iterator[Provider]:
    with Provider() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join(10)


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.server.asked.append(address.path)
        issuer = self.server.issuer
        if address.path == "/.well-known/openid-configuration":
            endpoints = {name: f"{issuer}/{path}" for name, path in (
                ("authorization_endpoint", "authorize"), ("token_endpoint", "token"), ("jwks_uri", "keys"),
                ("userinfo_endpoint", "userinfo"))}  # fmt: skip
            self._json({"issuer": issuer, **endpoints})
        elif address.path == "/keys":
            self._json({"keys": [self.server.published.as_dict(private=False), {"kty": "unheard of"}]})
        elif address.path == "/userinfo":
            self._json({"sub": "1"} | self.server.userinfo)
        else:
            asked = dict(parse_qsl(address.query))
            assert asked["code_challenge_method"] == "S256"
            code = secrets.token_urlsafe(8)
            self.server.codes[code] = asked
            self.send_response(302)
            self.send_header(
                "Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
            )
            self.end_headers()

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        content = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(content).items()}
        asked = self.server.codes.pop(form["code"], None)  # a code is good for once
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        right = (
            asked is not None
            and asked["code_challenge"] == challenge
            and asked["redirect_uri"] == form["redirect_uri"]
            and given == f"fallow:{SECRET}"
        )
        if not right or asked is None:
            self._json({"error": "invalid_grant"}, 400)
        else:
            self._json({"access_token": "x", "token_type": "Bearer", "id_token": self.server.token(asked)})

    def _json(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on the terminal of the tests."""


def answer(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as response:  # noqa: S310  # our own server's address
        return str(response.read().decode())


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def threads(pid: int) -> set[str]:
    """Their names."""
    return {(each / "comm").read_text().strip() for each in Path(f"/proc/{pid}/task").iterdir()}
