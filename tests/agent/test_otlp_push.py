"""What the agent pushes to an OpenTelemetry collector: the conventions' names and units, and pushes that fail."""

from __future__ import annotations

import gzip
import json
import logging
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from agent.metrics.otlp import OtlpPush, OtlpSettings, otlp_message
from agent.snapshot import SnapshotBoard
from agent.supervise.surfaces import Surfaces
from analytics.mapping.mapping_file import load_exporters, metric_names
from analytics.scraped.otlp.messages import UNITS, points_of, sort_out
from fallow import config
from fallow.errors import ConfigError
from tests.agent.conftest import wait_until
from tests.agent.snapshots import BUSY, GIB, HELD, INTERVAL_MS, LOST, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

END_MS = 1_795_132_800_000
LOOK_S = 0.01


def settings(url: str, **values: str) -> config.Config:
    flags = {"metrics.otlp_endpoint": url} | {f"metrics.otlp_{name}": text for name, text in values.items()}
    return config.load(flags, environment={})


def message() -> ExportMetricsServiceRequest:
    """The request as protobuf's own reader of JSON has it, which knows every field and takes no other."""
    return json_format.ParseDict(json.loads(json.dumps(otlp_message(snapshot(END_MS)))), ExportMetricsServiceRequest())


def test_what_the_conventions_name_is_there_in_their_units() -> None:
    taken = sort_out(message(), metric_names(load_exporters()), END_MS, {})
    assert (taken.ignored, dict(taken.rejected)) == (0, {})
    found = {
        (
            each.labels["__name__"],
            each.labels.get("hw.sensor_location") or each.labels.get("error.type", ""),
        ): each.value
        for each in points_of(taken.request)
        if each.labels["uuid"] == BUSY and "hw.state" not in each.labels
    }
    assert found == {
        ("hw.gpu.utilization", ""): pytest.approx(0.734),
        ("hw.gpu.memory.usage", ""): 48 * GIB,
        ("hw.gpu.memory.limit", ""): 80 * GIB,
        ("hw.power", ""): 612.3,
        ("hw.energy", ""): pytest.approx(123_456_789.012),
        ("hw.temperature", "GPU_DIE"): 64,
        ("hw.errors", "corrected"): 3,
    }
    (resource,) = message().resource_metrics
    units = {metric.name: metric.unit for metric in resource.scope_metrics[0].metrics}
    assert all(unit == UNITS.get(name, (unit,))[0] for name, unit in units.items())
    points = [
        (metric.name, point)
        for metric in resource.scope_metrics[0].metrics
        for point in (metric.gauge if metric.HasField("gauge") else metric.sum).data_points
    ]
    assert {each.key for _, point in points for each in point.attributes} == {
        "hw.id", "hw.type", "hw.model", "hw.driver_version", "hw.parent", "hw.sensor_location", "hw.gpu.task",
        "hw.state", "error.type",
    }, "the registry of the conventions has no others (1.44)"  # fmt: skip
    whole = {name for name, point in points if point.HasField("as_int")}
    assert whole == {"hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.errors", "hw.status"}
    assert {each.key: each.value.string_value for each in resource.resource.attributes} == {
        "host.name": "gn001",
        "service.name": "fallow-agent",
        "service.version": "0.2.0",
        "service.instance.id": "gn001",
    }


def test_the_unknown_is_absent_and_zero_is_there() -> None:
    points = list(points_of(message()))
    of_held = {
        each.labels["__name__"]: each.value
        for each in points
        if each.labels["uuid"] == HELD and "hw.state" not in each.labels
    }
    assert of_held["hw.gpu.utilization"] == 0.0
    assert "hw.energy" not in of_held
    of_lost = [
        (each.labels["__name__"], each.labels.get("hw.state"), each.value)
        for each in points
        if each.labels["uuid"] == LOST
    ]
    assert of_lost == [("hw.status", "ok", 0.0), ("hw.status", "degraded", 0.0), ("hw.status", "failed", 1.0)]
    assert {each.time_ms for each in points} == {END_MS}


def test_counters_climb_and_say_that_they_do() -> None:
    metrics = {metric.name: metric for metric in message().resource_metrics[0].scope_metrics[0].metrics}
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {
        name: (m.sum.aggregation_temporality, m.sum.is_monotonic) for name, m in metrics.items() if m.HasField("sum")
    } == {
        "hw.gpu.memory.usage": (cumulative, False),
        "hw.gpu.memory.limit": (cumulative, False),
        "hw.energy": (cumulative, True),
        "hw.errors": (cumulative, True),
        "hw.status": (cumulative, False),
    }


class Collector:
    """A collector whose answers are set by the test."""

    def __init__(self, authority: trustme.CA | None = None) -> None:
        self.status, self.headers, self.answer = 200, dict[str, str](), b"{}"
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                collector.seen.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(collector.status)
                for name, value in {"Content-Length": str(len(collector.answer)), **collector.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{self._server.server_port}"
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1").configure_cert(context)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@pytest.fixture
def push() -> Iterator[Callable[..., tuple[OtlpPush, SnapshotBoard]]]:
    running: list[OtlpPush] = []

    def begin(url: str, **values: str) -> tuple[OtlpPush, SnapshotBoard]:
        board = SnapshotBoard()
        running.append(OtlpPush(OtlpSettings.from_config(settings(url, **values)), board, LOOK_S))
        running[-1].start()
        return running[-1], board

    yield begin
    for each in running:
        each.close()


def test_every_interval_is_pushed_once(
    collector: Collector, push: Callable[..., tuple[OtlpPush, SnapshotBoard]], tmp_path: Path
) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer secret\n", encoding="ascii")
    pushing, board = push(collector.url, headers_file=str(headers))
    for number in range(3):
        board.publish(snapshot(END_MS + number * INTERVAL_MS))
        wait_until(lambda number=number: pushing.pushed == number + 1)
    assert pushing.dropped == 0
    path, seen, body = collector.seen[0]
    assert (path, seen["Authorization"], seen["Content-Type"]) == ("/v1/metrics", "Bearer secret", "application/json")
    assert body == json.loads(json.dumps(otlp_message(snapshot(END_MS))))


def test_what_a_collector_does_not_take_is_dropped_counted_and_said_once(
    collector: Collector, push: Callable[..., tuple[OtlpPush, SnapshotBoard]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fallow.agent")
    pushing, board = push(collector.url)
    collector.status, collector.answer = 500, b'{"message": "no room"}'
    for number in range(2):
        board.publish(snapshot(END_MS + number * INTERVAL_MS))
        wait_until(lambda number=number: pushing.dropped == number + 1)
    collector.status, collector.answer = 202, b"accepted"
    board.publish(snapshot(END_MS + 4 * INTERVAL_MS))
    wait_until(lambda: pushing.pushed == 1)
    assert pushing.dropped == 4, "two that were refused, and two that nobody pushed"
    told = [record.getMessage() for record in caplog.records[1:]]
    assert [each.split(": ", 1)[-1].split("; ")[0] for each in told[:1]] == ["it answers with HTTP status 500 no room"]
    assert told[1].endswith("again; 4 intervals were dropped, and 0 values refused")


def test_values_that_a_collector_refuses_are_counted_and_the_rest_of_the_interval_is_there(
    collector: Collector, push: Callable[..., tuple[OtlpPush, SnapshotBoard]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fallow.agent")
    pushing, board = push(collector.url)
    collector.answer = b'{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "too old"}}'
    for number in range(2):
        board.publish(snapshot(END_MS + number * INTERVAL_MS))
        wait_until(lambda number=number: pushing.pushed == number + 1)
    collector.answer = b"{}"
    board.publish(snapshot(END_MS + 2 * INTERVAL_MS))
    wait_until(lambda: pushing.pushed == 3)
    pushing.close()
    assert (pushing.dropped, pushing.refused) == (0, 6)
    refused, again = (record.getMessage() for record in caplog.records[1:])
    assert refused.endswith("refuses 3 values of an interval: too old; the lake has them")
    assert again.endswith("again; 0 intervals were dropped, and 6 values refused")


def test_a_collector_that_is_away_and_one_that_asks_for_a_pause(
    collector: Collector, push: Callable[..., tuple[OtlpPush, SnapshotBoard]], caplog: pytest.LogCaptureFixture
) -> None:
    for nowhere in ("http://127.0.0.1:1", "http://.example"):
        away, board = push(nowhere)
        board.publish(snapshot(END_MS))
        wait_until(lambda away=away: away.dropped == 1)
    assert not any(each.exc_info for each in caplog.records)
    collector.status, collector.headers = 503, {"Retry-After": "600"}
    pushing, board = push(collector.url)
    for number in range(3):
        board.publish(snapshot(END_MS + number * INTERVAL_MS))
        wait_until(lambda number=number: pushing.dropped == number + 1)
    assert len(collector.seen) == 1


def test_over_tls_only_a_certificate_of_the_authority_is_taken(
    push: Callable[..., tuple[OtlpPush, SnapshotBoard]], tmp_path: Path
) -> None:
    authority, collectors = trustme.CA(), []
    for name, signs in (("own", authority), ("other", trustme.CA())):
        collectors.append(Collector(signs))
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        pushing, board = push(collectors[-1].url, ca_file=str(tmp_path / "ca.pem"))
        board.publish(snapshot(END_MS))
        wait_until(lambda pushing=pushing: pushing.pushed + pushing.dropped == 1)
        assert (name, pushing.pushed, len(collectors[-1].seen)) == (name, int(name == "own"), int(name == "own"))
    for each in collectors:
        each.close()


def test_settings_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    wrong = tmp_path / "headers"
    wrong.write_text("no header\n", encoding="ascii")
    for url, values, told in (
        ("ftp://h", {}, "is not a valid address"),
        ("http://user:secret@h:4318", {}, "is not a valid address"),
        ("http://h", {"headers_file": str(tmp_path / "none")}, "cannot read metrics.otlp_headers_file"),
        ("http://h", {"headers_file": str(wrong)}, "line 1 is no header"),
        ("https://h", {"ca_file": str(tmp_path / "none")}, "cannot read metrics.otlp_ca_file .*: No such file"),
        ("https://h", {"ca_file": str(wrong)}, "metrics.otlp_ca_file .* has no certificate that can be read"),
    ):
        with pytest.raises(ConfigError, match=told) as error:
            OtlpSettings.from_config(settings(url, **values))
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", ("http", "h", 4318, "/v1/metrics")),
        ("https://[::1]:443/", ("https", "::1", 443, "/v1/metrics")),
        ("http://h:80/otlp/v1/metrics", ("http", "h", 80, "/otlp/v1/metrics")),
    ],
)
def test_the_address_may_leave_out_what_is_usual(url: str, expected: tuple[str, str, int, str]) -> None:
    found = OtlpSettings.from_config(settings(url))
    assert (found.scheme, found.host, found.port, found.target) == expected


def test_a_reload_begins_and_ends_it(collector: Collector) -> None:
    board = SnapshotBoard()
    board.publish(snapshot(END_MS))
    surfaces = Surfaces(settings(""), board)
    surfaces.start()
    surfaces.reload(settings(collector.url))
    wait_until(lambda: len(collector.seen) == 1)
    with pytest.raises(ConfigError):
        surfaces.reload(settings("nonsense"))
    surfaces.reload(settings(""))
    surfaces.close()
