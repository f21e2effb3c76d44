"""What answers at an address: its name, and whether it is a metrics server at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import orjson

from analytics.scraped.server.api_answers import api_data
from analytics.scraped.server.connection import FORM, ServerConnection
from analytics.scraped.server.refusals import HttpAnswer, no_metrics_server, refusal
from fallow.clock import Clock
from fallow.outside_text import plain

VICTORIA = "VictoriaMetrics"
ADDS_NO_LABELS = ("Grafana Mimir", "Cortex")
"""Names of those whose remote-read hands on what their API answers, without labels of their own."""


@dataclass(frozen=True)
class ServerIdentity:
    """`name` such as "Prometheus 2.42.0"; `clock_offset_ms` is how far its clock is ahead of ours, known to a second or so."""

    name: str
    clock_offset_ms: int | None


def identity(connection: ServerConnection, clock: Clock) -> ServerIdentity:
    """Asks for a number, which every server of this family knows, and for its build, which most tell.

    Raises InputError where no metrics server answers.
    """
    answer, clock_offset_ms = _told(connection, clock)
    return ServerIdentity(_name(connection, answer), clock_offset_ms)


def measured_offset_ms(connection: ServerConnection, clock: Clock) -> int | None:
    """How far its clock is ahead of ours now, known to a second or so; None where it does not tell. Raises InputError."""
    return _told(connection, clock)[1]


def _told(connection: ServerConnection, clock: Clock) -> tuple[HttpAnswer, int | None]:
    """What it answers to the smallest of questions, and how far its clock was ahead. Raises InputError."""
    before_ms = clock.now_ms()
    answer = connection.post("/api/v1/query", b"query=1", FORM)
    between_ms = (before_ms + clock.now_ms()) // 2
    if error := refusal(answer, connection.address):
        raise error
    data = api_data(answer.body, connection.address, lambda _: None)
    if not isinstance(data, dict) or data.get("resultType") not in {"scalar", "vector"}:
        raise no_metrics_server(connection.address)
    return answer, _offset_ms(answer, between_ms)


def _name(connection: ServerConnection, first: HttpAnswer) -> str:
    """VictoriaMetrics names a version of Prometheus as its build, so its header counts more."""
    if "x-server-hostname" in first.headers:
        return VICTORIA
    build = _build(connection)
    version = plain(str(build.get("version", "")), 40).partition("+")[0]
    if application := build.get("application"):
        return f"{plain(str(application), 40)} {version}".strip()
    if not version:
        return "a server with Prometheus' API"
    return f"Thanos {version}" if re.match(r"v?0\.", version) else f"Prometheus {version}"


def _build(connection: ServerConnection) -> dict[str, object]:
    answer = connection.get("/api/v1/status/buildinfo")
    try:
        data = orjson.loads(answer.body)["data"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return data if isinstance(data, dict) else {}


def _offset_ms(answer: HttpAnswer, our_ms: int) -> int | None:
    """The Date header is cut to whole seconds: half a second more is as often too much as too little."""
    try:
        server_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return round(server_s * 1000) + 500 - our_ms
