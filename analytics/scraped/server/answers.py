"""A server's answers: the data in their JSON, or one sentence with a remedy where an answer is unexpected."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from analytics.scraped.server.address import PASSWORD_VARIABLE, TOKEN_VARIABLE, ServerAddress
from fallow.connection_faults import connection_fault
from fallow.errors import InputError
from fallow.outside_text import plain

_SIZE = re.compile(
    r"too (?:many|much|large|big)|exceed|limit|maximum|timed? ?out|deadline|out of memory", re.IGNORECASE
)
"""Phrases of Prometheus, Thanos, Mimir and VictoriaMetrics for errors that smaller requests avoid."""

_SYNTAX = re.compile(r"parse error|cannot parse")
_NO_PATH = "unsupported path requested"
"""VictoriaMetrics, with status 400."""

_OF_SIZE = frozenset({200, 400, 413, 422, 500, 503, 504})
"""Statuses that servers use for this, or proxies that make 200 of all of them; 413 is clear by itself."""

_LONGEST_ERROR = 100_000
"""Bytes of an answer that may be an error although its status is not."""

_PLACES = (
    "give the URL before /api/v1/query: Mimir and Cortex mostly add /prometheus, a VictoriaMetrics cluster "
    "/select/0/prometheus, and Grafana forwards https://GRAFANA/api/datasources/proxy/uid/UID"
)
_LOGIN = f"set {TOKEN_VARIABLE} or prometheus.token_file, or prometheus.user and {PASSWORD_VARIABLE}"
_BETWEEN = "try again; if the error stays, check the server's log and the proxies before it"
_SIGNED = (
    "AWS requires signed requests (SigV4), which fallow does not send: run aws-sigv4-proxy beside it and give that "
    "proxy's URL"
)


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_page(self) -> bool:
        """Return whether the answer is for a browser; data that Snappy packed may begin with any byte."""
        kind = self.headers.get("content-type", "")
        return "html" in kind or ("protobuf" not in kind and self.body[:200].lstrip()[:1] == b"<")

    @property
    def has_end(self) -> bool:
        """Return whether the server stated the end; without it, a broken answer looks like a whole one."""
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")

    @property
    def is_error(self) -> bool:
        """Return whether the status reports an error, or the content, as some proxies make every status 200."""
        if not 200 <= self.status < 300:
            return True
        if len(self.body) > _LONGEST_ERROR or self.body[:1] != b"{":
            return False
        try:
            return bool(orjson.loads(self.body).get("status") == "error")
        except orjson.JSONDecodeError:
            return False


class OversizedAnswerError(InputError):
    """The request exceeds what the server returns, or what is read, at once; a shorter interval helps."""


def refusal(answer: HttpAnswer, address: ServerAddress) -> InputError | None:
    """Return the error in an answer; None for a 2xx that is no page and does not call itself an error."""
    if not answer.is_error:
        return _page(answer, address) if answer.is_page else None
    if answer.status in {301, 302, 303, 307, 308}:
        to = plain(address.masked(answer.headers.get("location", "").partition("?")[0]), 200)
        if re.search(r"login|auth|oauth|sso", to, re.IGNORECASE):
            return InputError(f"{address.url} sends to a login page ({to})", _LOGIN)
        return InputError(
            f"{address.url} redirects elsewhere ({to})", "give the URL without the part that it adds, from /api/v1 on"
        )
    words = _server_words(answer, address)
    what = f"{address.url} answers {answer.status}{words}"
    if answer.status in {401, 403}:
        return InputError(what, _login_remedy(answer, address))
    if _SYNTAX.search(words):  # with the names of metrics, which have words such as limit
        return InputError(what, "write --match as in PromQL, in single quotes for the shell: --match 'cluster=\"a\"'")
    if answer.status == 413 or (answer.status in _OF_SIZE and _SIZE.search(words)):
        return OversizedAnswerError(what, "narrow the request with --match, or raise that limit of the server")
    return InputError(what, _remedy(answer, words))


def _remedy(answer: HttpAnswer, words: str) -> str:
    if answer.status in {404, 405, 410} or _NO_PATH in words:
        return f"no metrics server is there, or it does not accept POST: {_PLACES}"
    if answer.status < 300:
        return _BETWEEN
    if answer.status == 429 or answer.status >= 500:
        return "try again later, or with fewer requests (prometheus.rate, prometheus.concurrency)"
    return "check --match and the names of the series"


def no_metrics_server(address: ServerAddress) -> InputError:
    return InputError(f"the answer of {address.url} is not that of a metrics server", _PLACES)


def broken_answer(address: ServerAddress) -> InputError:
    return InputError(f"the connection to {address.url} broke before its answer was whole", _BETWEEN)


def endless_answer(address: ServerAddress) -> InputError:
    return InputError(
        f"{address.url} does not state where its answer ends, so a broken answer cannot be recognized",
        "a proxy that answers in HTTP/1.0 is before it: make that proxy use HTTP/1.1, or give the URL of the server"
        " itself",
    )


def unreadable_answer(address: ServerAddress) -> InputError:
    return InputError(f"the answer of {address.url} is truncated or garbled", _BETWEEN)


def silence(address: ServerAddress, what: str) -> InputError:
    """Return the error for an answer that did not arrive; `what` ends the sentence "the answer of X ..."."""
    return InputError(
        f"the answer of {address.url} {what}",
        "check whether the server is busy or still starting, and try again; --match requests less at once",
    )


def oversized_answer(address: ServerAddress, most: int) -> OversizedAnswerError:
    return OversizedAnswerError(
        f"an answer of {address.url} is longer than {most // 2**20} MiB", "narrow the request with --match"
    )


def no_connection(error: BaseException, address: ServerAddress) -> InputError:
    """Return the error for any error of urllib3; the innermost cause has the most detail."""
    causes = [error]
    while (deeper := causes[-1].__cause__ or causes[-1].__context__) and deeper not in causes:
        causes.append(deeper)
    fault = next((each for each in reversed(causes) if isinstance(each, OSError)), None)
    why = connection_fault(fault) if fault else "there is no route to it"
    hint = "check the host, the port and http against https"
    if "certificate" in why:
        hint = "give the authority that signed it as prometheus.ca_file, and the name that it was issued for in the URL"
    return InputError(f"cannot reach {address.url}: {why}", hint)


def _page(answer: HttpAnswer, address: ServerAddress) -> InputError:
    who = "Grafana" if b"grafana" in answer.body[:20_000].lower() else "a web page"
    return InputError(f"{who} answers at {address.url}, not a metrics server", _PLACES)


def _login_remedy(answer: HttpAnswer, address: ServerAddress) -> str:
    text = answer.body[:2000].lower()
    if b"org id" in text or b"x-scope-orgid" in text:
        return "name the tenant with prometheus.tenant (X-Scope-OrgID)"
    if b"authentication token" in text or ".amazonaws.com" in address.url:
        return _SIGNED
    if address.has_login:
        return "check the token, or user and password, and whether they may read metrics"
    return _LOGIN


def _server_words(answer: HttpAnswer, address: ServerAddress) -> str:
    """Return the server's own words after a colon, if it has any for people."""
    if answer.is_page:
        return ""
    text = answer.body[:4000].decode("utf-8", "replace")
    try:
        content = orjson.loads(answer.body)
        text = str(content["error"] if "error" in content else content["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        pass
    words = plain(address.masked(text), 240)
    return f": {words}" if words else ""


def api_data(body: bytes, address: ServerAddress, tell: Callable[[str], None]) -> Any:
    """Return an answer's content; warnings go to `tell`. Raises InputError if truncated, partial or unexpected."""
    try:
        content = json_content(body)
    except orjson.JSONDecodeError as error:
        raise (unreadable_answer if body.lstrip()[:1] == b"{" else no_metrics_server)(address) from error
    if not isinstance(content, dict) or content.get("status") != "success" or "data" not in content:
        raise no_metrics_server(address)
    if content.get("isPartial"):
        raise InputError(
            f"{address.url} answers with only a part of its data", "check which of its storage nodes is down"
        )
    for warning in content.get("warnings") or ():
        tell(f"{address.url} warns: {plain(address.masked(str(warning)), 240)}")
    return content["data"]


def json_content(body: bytes) -> Any:
    """Return the JSON content. Raises orjson.JSONDecodeError.

    VictoriaMetrics passes on labels that are not UTF-8: invalid bytes become U+FFFD, as in Prometheus.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return orjson.loads(body.decode(errors="replace"))
