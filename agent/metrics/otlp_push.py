"""Pushes each interval to an OpenTelemetry collector over OTLP/HTTP, in a thread of its own: nothing that happens there reaches the sampling.

What the collector does not take is dropped and counted: the lake has it all the same.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.http_exchange import ReceivedAnswer, UnreachableError, UnusableError, seconds_left
from agent.metrics.otlp_message import otlp_message
from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, authorities, given_text

if TYPE_CHECKING:
    import ssl

    from agent.snapshot import Snapshot, SnapshotBoard
    from fallow.config import Config

PATH = "/v1/metrics"
PATIENCE_S = 10.0
_LOOK_S = 1.0
_MOST_PAUSE_S = 600
_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\s/:?#@\[\]]+)(?::(\d{1,5}))?(/[^\s#?]*)?", re.ASCII)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]*)")
_GZIP = 16 + zlib.MAX_WBITS

log = logging.getLogger("fallow.agent")


@dataclass(frozen=True)
class OtlpSettings:
    scheme: str
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    target: str
    headers_file: str = ""
    ca_file: str = ""

    @classmethod
    def from_config(cls, config: Config) -> OtlpSettings:
        """The settings; raises ConfigError for an address that is none, and where a file cannot be used."""
        url = config.text("metrics.otlp_endpoint")
        match = _URL.fullmatch(url)
        if match is None or int(match[3] or 1) > 65535:
            raise ConfigError(
                "metrics.otlp_endpoint is no address that can be pushed to",
                "write it like http://127.0.0.1:4318; user and password go into metrics.otlp_headers_file",
            )
        scheme, host, port, path = match.groups()
        target = path if path and path.rstrip("/") else PATH
        found = cls(
            scheme,
            host.strip("[]"),
            int(port or 4318),
            target,
            config.text("metrics.otlp_headers_file"),
            config.text("metrics.otlp_ca_file"),
        )
        found.headers()
        found.tls()
        return found

    def tls(self) -> ssl.SSLContext | None:
        """Trusts whoever signed the collector's certificate; None without TLS. Raises ConfigError where the file is none."""
        if self.scheme == "http":
            return None
        return authorities("metrics.otlp_ca_file", self.ca_file)

    def headers(self) -> tuple[str, ...]:
        """The lines of the headers file; raises ConfigError where it cannot be read or has another line."""
        if not self.headers_file:
            return ()
        text = given_text("metrics.otlp_headers_file", self.headers_file, SECRET_BYTES, encoding="ascii")
        lines = [line.strip() for line in text.splitlines()]
        for number, line in enumerate(lines, 1):
            if line and not _HEADER.fullmatch(line):
                raise ConfigError(
                    f"metrics.otlp_headers_file {self.headers_file}: line {number} is no header",
                    "write lines like `Authorization: Bearer ...`",
                )
        return tuple(line for line in lines if line)


@dataclass(frozen=True)
class _Outcome:
    """Of one request: why all of it is dropped, or how many of its data points are, and why."""

    failure: str = ""
    refused: int = 0
    why: str = ""


class OtlpPush:
    """The thread; `pushed` and `dropped` count intervals, `refused` the data points that a collector did not take of those pushed."""

    def __init__(self, settings: OtlpSettings, board: SnapshotBoard, look_s: float = _LOOK_S) -> None:
        self._settings, self._board, self._look_s = settings, board, look_s
        self._thread = threading.Thread(target=self._push_all, name="otlp", daemon=True)
        self._stop = threading.Event()
        self._newest_ms = 0
        self._told = _Outcome()
        self._paused_until_s = 0.0
        self.pushed = 0
        self.dropped = 0
        self.refused = 0

    def start(self) -> None:
        self._thread.start()
        log.info("metrics go to %s", self._where)

    def close(self) -> None:
        """Ends the thread; a push that hangs is left behind, and ends by itself."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._look_s)

    @property
    def _where(self) -> str:
        return f"{self._settings.scheme}://{self._settings.host}:{self._settings.port}{self._settings.target}"

    def _push_all(self) -> None:
        while not self._stop.wait(self._look_s):
            snapshot = self._board.latest()
            if snapshot is None or snapshot.time_ms <= self._newest_ms:
                continue
            if self._newest_ms:  # while a push lasted, others may have come and gone
                self.dropped += max(0, (snapshot.time_ms - self._newest_ms) // snapshot.interval_ms - 1)
            self._newest_ms = snapshot.time_ms
            try:
                self._push(snapshot)
            except Exception:
                self.dropped += 1
                log.exception("a push to metrics.otlp_endpoint failed")

    def _push(self, snapshot: Snapshot) -> None:
        if time.monotonic() < self._paused_until_s:
            self.dropped += 1
            return
        try:
            outcome = self._sent(json.dumps(otlp_message(snapshot), allow_nan=False).encode())
        except (UnreachableError, UnusableError, ConfigError) as error:
            outcome = _Outcome(str(error))
        except TimeoutError:
            outcome = _Outcome(f"no whole answer within {PATIENCE_S:g} s")
        except UnicodeError:
            outcome = _Outcome("its name cannot be resolved")  # it cannot be written as DNS has names
        except OSError as error:
            outcome = _Outcome(str(error.strerror or error))
        self.dropped += bool(outcome.failure)
        self.pushed += not outcome.failure
        self.refused += outcome.refused
        self._tell(outcome)

    def _sent(self, body: bytes) -> _Outcome:
        """Sends one request."""
        deadline_s = time.monotonic() + PATIENCE_S
        packer = zlib.compressobj(wbits=_GZIP)
        packed = packer.compress(body) + packer.flush()
        lines = (
            f"POST {self._settings.target} HTTP/1.1",
            f"Host: {self._settings.host}:{self._settings.port}",
            "User-Agent: fallow-agent",
            "Content-Type: application/json",
            "Content-Encoding: gzip",
            f"Content-Length: {len(packed)}",
            "Connection: close",
            *self._settings.headers(),
        )
        with self._connected(deadline_s) as connection:
            connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode() + packed)
            answer = ReceivedAnswer(connection, deadline_s)
            status, headers = answer.head()
            told = b"".join(answer.body(headers))
        if status in (429, 502, 503, 504) and headers.get("retry-after", "").isdecimal():
            self._paused_until_s = time.monotonic() + min(int(headers["retry-after"]), _MOST_PAUSE_S)
        return _outcome(status, told)

    def _connected(self, deadline_s: float) -> socket.socket:
        settings, context = self._settings, self._settings.tls()
        connection = socket.create_connection((settings.host, settings.port), seconds_left(deadline_s))
        if context is None:
            return connection
        try:
            return context.wrap_socket(connection, server_hostname=settings.host)
        except OSError:
            connection.close()
            raise

    def _tell(self, outcome: _Outcome) -> None:
        """Says what is new: that pushing fails or some values are refused, for another reason, or all is taken again."""
        before, self._told = self._told, outcome
        if (before.failure, before.why) == (outcome.failure, outcome.why):
            return
        if outcome.failure:
            log.warning(
                "metrics do not reach %s: %s; they are dropped there, not in the lake", self._where, outcome.failure
            )
        elif outcome.why:
            log.warning(
                "%s refuses %d values of an interval: %s; the lake has them", self._where, outcome.refused, outcome.why
            )
        else:
            log.info(
                "%s takes all metrics again; %d intervals were dropped, and %d values refused",
                self._where,
                self.dropped,
                self.refused,
            )


def _outcome(status: int, answer: bytes) -> _Outcome:
    """What a collector's answer means."""
    try:
        told = json.loads(answer or b"{}")
        partial = told.get("partialSuccess") or {}
        refused, why = (
            int(partial.get("rejectedDataPoints") or 0),
            partial.get("errorMessage") or told.get("message") or "",
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        refused, why = 0, ""
    shown = "".join(each for each in str(why) if each.isprintable())[:200]
    if not 200 <= status < 300:  # the protocol knows 200 alone, but all SDKs take these for success
        return _Outcome(f"it answers with HTTP status {status} {shown}".rstrip())
    return _Outcome(refused=refused, why=shown or "it does not say why") if refused > 0 else _Outcome()
