"""The agent's /metrics and /healthz: their answers, and the settings of their two addresses."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.collectors import UNKNOWN
from agent.snapshot import WATCHED, is_silent
from fallow.clock import format_ms
from fallow.errors import ConfigError
from fallow.http_server import HttpServer, MetricsPages, is_of_this_host, parse_listen

if TYPE_CHECKING:
    from agent.snapshot import PublishingStatus, SnapshotBoard
    from fallow.config import Config
    from fallow.exposition import ExposedSamples

log = logging.getLogger("fallow.agent")


@dataclass(frozen=True)
class MetricsSettings:
    host: str
    port: int
    """0 lets the system choose."""
    token_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    health_only: bool = False
    """Whether it answers only /healthz, without token and TLS, which a kubelet does not have."""

    @classmethod
    def from_config(cls, config: Config) -> MetricsSettings:
        """Return the settings; raises ConfigError for an invalid address and an incomplete TLS setting."""
        host, port = parse_listen(config.text("metrics.listen"), "metrics.listen")
        certificate, key = config.text("metrics.tls_certificate"), config.text("metrics.tls_key")
        if bool(certificate) != bool(key):
            missing = "metrics.tls_key" if certificate else "metrics.tls_certificate"
            raise ConfigError(f"{missing} is not set", "TLS needs both metrics.tls_certificate and metrics.tls_key")
        return cls(host, port, config.text("metrics.token_file"), certificate, key)

    @classmethod
    def for_health(cls, config: Config) -> MetricsSettings:
        """Return the settings of the address for only /healthz; raises ConfigError for an invalid address."""
        return cls(*parse_listen(config.text("metrics.health_listen"), "metrics.health_listen"), health_only=True)


def metrics_server(settings: MetricsSettings, board: SnapshotBoard) -> HttpServer:
    """Return one address's server, not started. Raises ConfigError where the token or the certificate is unusable."""
    token = certificate = None
    if settings.token_file or settings.tls_certificate:
        from fallow.http_access import Certificate, Token  # OpenSSL takes 4 MiB

        if settings.token_file:
            token = Token(settings.token_file, "metrics.token_file")
        if settings.tls_certificate:
            certificate = Certificate(settings.tls_certificate, settings.tls_key)
    place = f"{settings.host}:{settings.port}"
    if not (settings.health_only or is_of_this_host(settings.host)):
        if token is None:
            log.warning("every client that reaches %s can read /metrics; set metrics.token_file", place)
        elif certificate is None:
            log.warning("the token for %s travels unencrypted; set metrics.tls_certificate", place)
    setting = "metrics.health_listen" if settings.health_only else "metrics.listen"
    pages = MetricsPages(
        "fallow agent", partial(judge, board), None if settings.health_only else partial(_samples, board), token
    )
    return HttpServer(
        (settings.host, settings.port),
        pages.respond,
        "/healthz" if settings.health_only else "/metrics and /healthz",
        f"set {setting} to an address of this host with a free port",
        certificate=certificate,
    )


def _samples(board: SnapshotBoard) -> ExposedSamples:
    # imported here, so that a host that only answers health checks does not load it
    from agent.metrics.collector import collect

    return collect(board.latest_with_age())


def judge(board: SnapshotBoard) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the answer: 503 exactly where `fallow agent status` ends with 1, else 200.

    A restart mends neither a driver that is down nor a missing GPU or store, so these are reported with 200.
    """
    newest = board.latest_with_age()
    if newest is None:
        age_s = board.age_s()
        answer: dict[str, Any] = {"status": "starting", "reason": "no interval has been closed yet"}
        return (503, _silence_text(answer, age_s)) if is_silent(age_s, board.interval_ms) else (200, answer)
    snapshot, age_s = newest
    health = Counter(row["health"] for row in snapshot.gpus)
    answer = {"status": "ok", "mode": snapshot.mode, "age_seconds": round(age_s, 1), "gpus": dict(health)}
    if (publishing := _publishing(snapshot.publishing)) is not None:
        answer["publishing"] = publishing
    if is_silent(age_s, snapshot.interval_ms):
        return 503, _silence_text(answer, age_s)
    if snapshot.mode == "released":
        return 200, answer | {"status": "released"}
    if health["driver_down"]:
        return 200, answer | {"status": "driver_down", "reason": "the NVIDIA driver is unusable"}
    if not any(health[state] for state in (*WATCHED, "asleep", UNKNOWN)):
        return 200, answer | {"status": "gpus_gone", "reason": f"none of {len(snapshot.gpus)} GPUs can be watched"}
    return 200, answer


def _publishing(state: PublishingStatus) -> str | None:
    """Return the faults between the spool and the lake, without addresses and names, because any client may ask."""
    if state.failing_since_ms is not None:
        return (
            f"rows wait in the spool since {format_ms(state.failing_since_ms)}: `fallow agent status` gives the reason"
        )
    if state.name_conflict is not None:
        return "another agent has this host's name: `fallow agent status` names it"
    return None


def _silence_text(answer: dict[str, Any], age_s: float) -> dict[str, Any]:
    return answer | {"status": "stale", "reason": f"no interval was closed for {age_s:.0f} s"}
