"""Pushes intervals to an OpenTelemetry collector over OTLP/HTTP, in its own thread, which cannot affect sampling.

Values that the collector does not accept are dropped and counted; the lake has them. A snapshot is an OTLP metrics
request in JSON, by OpenTelemetry's semantic conventions for hardware: opentelemetry.io/docs/specs/semconv/hardware/gpu
and /hardware/common, in development, read in November 2026. Fractions are 0 to 1. Unknown values are absent, never 0.
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
from typing import TYPE_CHECKING, Any

from agent.http_client import URL, ReceivedAnswer, UnreachableError, UnusableError
from agent.snapshot import WATCHED
from fallow.clock import seconds_left
from fallow.errors import ConfigError
from fallow.given_file import SECRET_BYTES, authorities, given_text
from fallow.schema import UNAVAILABLE_HEALTH

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from agent.snapshot import Row, Snapshot, SnapshotBoard
    from fallow.config import Config

_NS_PER_MS = 1_000_000
_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE

_STATES = ("ok", "degraded", "failed")


@dataclass(frozen=True)
class OtlpFamily:
    """One metric of the conventions, read from a column of `gpu` or `device`, or an error counter."""

    name: str
    unit: str
    column: str
    factor: float = 1
    """A float turns whole numbers into floats: some databases keep the type of the first number, and refuse another."""

    kind: str = "gauge"
    """gauge, sum (it may fall) or counter."""
    about: tuple[tuple[str, str], ...] = ()
    sensor: str = ""
    """The measured part of the GPU: a separate component, whose parent is the GPU."""


FAMILIES = (
    OtlpFamily("hw.gpu.utilization", "1", "gpu_util_pct", 0.01, about=(("hw.gpu.task", "general"),)),
    OtlpFamily("hw.gpu.memory.usage", "By", "mem_used_bytes", kind="sum"),
    OtlpFamily("hw.gpu.memory.limit", "By", "mem_total_bytes", kind="sum"),
    OtlpFamily("hw.power", "W", "power_w"),
    OtlpFamily("hw.energy", "J", "energy_mj", 0.001, "counter"),
    OtlpFamily("hw.temperature", "Cel", "temperature_c", 1.0, sensor="GPU_DIE"),
    OtlpFamily("hw.temperature", "Cel", "mem_temperature_c", 1.0, sensor="GPU_MEMORY"),
    OtlpFamily("hw.errors", "{error}", "ecc_corrected_count", kind="counter", about=(("error.type", "corrected"),)),
    OtlpFamily("hw.errors", "{error}", "ecc_uncorrected_count", kind="counter", about=(("error.type", "uncorrected"),)),
)


def otlp_message(snapshot: Snapshot) -> dict[str, Any]:
    """Return an ExportMetricsServiceRequest; times are the ends of the rows' intervals."""
    metrics: dict[str, dict[str, Any]] = {}
    errors = {row["gpu"]: row for row in snapshot.errors}
    for row in snapshot.gpus:
        device = snapshot.devices.get(row["gpu"], {})
        _add_status(metrics, row, device)
        if row["health"] in WATCHED:
            values = {**device, **errors.get(row["gpu"], {}), **row}
            for family in FAMILIES:
                if values.get(family.column) is not None:
                    _add(metrics, family, values, device, snapshot.started_ms)
    about = {
        "host.name": snapshot.host,
        "service.name": "fallow-agent",
        "service.version": snapshot.version,
        "service.instance.id": snapshot.host,
    }
    scope = {"scope": {"name": "fallow", "version": snapshot.version}, "metrics": list(metrics.values())}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(about)}, "scopeMetrics": [scope]}]}


def _add(metrics: dict[str, dict[str, Any]], family: OtlpFamily, values: Row, device: Row, started_ms: int) -> None:
    about = _component(values["gpu"], device) | dict(family.about)
    if family.sensor:
        about |= {
            "hw.id": f"{values['gpu']}/{family.sensor}",
            "hw.type": "temperature",
            "hw.parent": values["gpu"],
            "hw.sensor_location": family.sensor,
        }
    point = _point(values, about, values[family.column] * family.factor)
    if family.kind == "sum":
        point["startTimeUnixNano"] = str(started_ms * _NS_PER_MS)
    elif family.kind == "counter" and family.column == "energy_mj" and values.get("counters_since") is not None:
        point["startTimeUnixNano"] = str(values["counters_since"] * _NS_PER_MS)
    _points(metrics, family.name, family.unit, family.kind).append(point)


def _add_status(metrics: dict[str, dict[str, Any]], row: Row, device: Row) -> None:
    """Add the status of a GPU, unless no worker watches it."""
    state = "failed" if row["health"] in UNAVAILABLE_HEALTH else row["health"]
    if state not in _STATES:
        return
    for each in _STATES:
        about = _component(row["gpu"], device) | {"hw.state": each}
        _points(metrics, "hw.status", "1", "sum").append(_point(row, about, int(state == each)))


def _points(metrics: dict[str, dict[str, Any]], name: str, unit: str, kind: str) -> list[dict[str, Any]]:
    """Return the data points of a metric, after adding the metric where it is new."""
    if name not in metrics:
        data: dict[str, Any] = {"dataPoints": []}
        if kind != "gauge":
            data |= {"aggregationTemporality": _CUMULATIVE, "isMonotonic": kind == "counter"}
        metrics[name] = {"name": name, "unit": unit, "gauge" if kind == "gauge" else "sum": data}
    found: list[dict[str, Any]] = (metrics[name].get("gauge") or metrics[name]["sum"])["dataPoints"]
    return found


def _point(row: Row, about: dict[str, object], value: float) -> dict[str, Any]:
    end_ms = row["time"] + row["interval_ms"]
    number = {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}
    return {"timeUnixNano": str(end_ms * _NS_PER_MS), "attributes": _attributes(about), **number}


def _component(gpu: str, device: Row) -> dict[str, object]:
    """Return the conventions' attributes of a hardware component."""
    return {
        "hw.id": gpu,
        "hw.type": "gpu",
        "hw.parent": device.get("parent_gpu"),
        "hw.model": device.get("model"),
        "hw.serial_number": device.get("serial"),
        "hw.driver_version": device.get("driver_version"),
    }


def _attributes(values: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": str(each)}} for key, each in values.items() if each is not None]


PATH = "/v1/metrics"
PATIENCE_S = 10.0
_LOOK_S = 1.0
_MOST_PAUSE_S = 600
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]*)")
_GZIP = 16 + zlib.MAX_WBITS

log = logging.getLogger("fallow.agent")


@dataclass(frozen=True)
class OtlpSettings:
    scheme: str
    host: str
    """The host, without the brackets of an IPv6 address."""
    port: int
    target: str
    headers_file: str = ""
    ca_file: str = ""

    @classmethod
    def from_config(cls, config: Config) -> OtlpSettings:
        """Return the settings; raises ConfigError for an invalid address and an unusable file."""
        url = config.text("metrics.otlp_endpoint")
        match = URL.fullmatch(url)
        if match is None or int(match[3] or 1) > 65535:
            raise ConfigError(
                "metrics.otlp_endpoint is not a valid address",
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
        """Return a TLS context for the configured authority, None without TLS. Raises ConfigError for a bad file."""
        if self.scheme == "http":
            return None
        return authorities("metrics.otlp_ca_file", self.ca_file)

    def headers(self) -> tuple[str, ...]:
        """Return the headers of the headers file; raises ConfigError where it is unreadable or has an invalid line."""
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
    """The outcome of one request: why it was dropped, or the number of dropped data points and why."""

    failure: str = ""
    refused: int = 0
    why: str = ""


class OtlpPush:
    """The pushing thread. `pushed` and `dropped` count intervals, `refused` the collector's refused data points."""

    def __init__(self, settings: OtlpSettings, board: SnapshotBoard, look_s: float = _LOOK_S) -> None:
        self._settings, self._board, self._look_s = settings, board, look_s
        self._thread = threading.Thread(target=self._push_all, name="otlp", daemon=True)
        self._stop = threading.Event()
        self._newest_ms = 0
        self._reported = _Outcome()
        self._paused_until_s = 0.0
        self.pushed = 0
        self.dropped = 0
        self.refused = 0

    def start(self) -> None:
        self._thread.start()
        log.info("metrics go to %s", self._where)

    def close(self) -> None:
        """End the thread. A push that hangs is abandoned, and ends by itself."""
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
            if self._newest_ms:  # during a push, more than one interval may have ended
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
            outcome = _Outcome(f"no complete answer within {PATIENCE_S:g} s")
        except UnicodeError:
            outcome = _Outcome("its name cannot be resolved")  # it is not a valid DNS name
        except OSError as error:
            outcome = _Outcome(str(error.strerror or error))
        self.dropped += bool(outcome.failure)
        self.pushed += not outcome.failure
        self.refused += outcome.refused
        self._tell(outcome)

    def _sent(self, body: bytes) -> _Outcome:
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
            body = b"".join(answer.body(headers))
        if status in (429, 502, 503, 504) and headers.get("retry-after", "").isdecimal():
            self._paused_until_s = time.monotonic() + min(int(headers["retry-after"]), _MOST_PAUSE_S)
        return _outcome(status, body)

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
        """Log a change: a new reason for failed pushes or refused values, or a recovery."""
        before, self._reported = self._reported, outcome
        if (before.failure, before.why) == (outcome.failure, outcome.why):
            return
        if outcome.failure:
            log.warning("metrics do not reach %s: %s; these values are only in the lake", self._where, outcome.failure)
        elif outcome.why:
            log.warning(
                "%s refuses %d values of an interval: %s; the lake has them", self._where, outcome.refused, outcome.why
            )
        else:
            log.info(
                "%s accepts all metrics again; %d intervals were dropped, and %d values refused",
                self._where,
                self.dropped,
                self.refused,
            )


def _outcome(status: int, answer: bytes) -> _Outcome:
    try:
        message = json.loads(answer or b"{}")
        partial = message.get("partialSuccess") or {}
        refused, why = (
            int(partial.get("rejectedDataPoints") or 0),
            partial.get("errorMessage") or message.get("message") or "",
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        refused, why = 0, ""
    shown = "".join(each for each in str(why) if each.isprintable())[:200]
    if not 200 <= status < 300:  # the protocol allows only 200, but all SDKs accept these codes as success
        return _Outcome(f"it answers with HTTP status {status} {shown}".rstrip())
    return _Outcome(refused=refused, why=shown or "it gives no reason") if refused > 0 else _Outcome()
