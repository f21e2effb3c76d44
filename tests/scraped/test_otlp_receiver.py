"""The OTLP/HTTP server over a socket: what it takes, how it answers, and that a request is safe before the answer."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from analytics.mapping.mapping_file import load_exporters, metric_names
from analytics.scraped.otlp.delivery import DeltaSum, SeriesKey, climbed, window_samples
from analytics.scraped.otlp.messages import JSON, PROTOBUF, Point, points_of, sort_out
from analytics.scraped.otlp.receiver import BOUNDS, PATH, Intake, otlp_receiver, read_body
from analytics.scraped.otlp.spool import RequestSpool, frames
from fallow.clock import SystemClock
from fallow.errors import FallowError, SpoolError
from fallow.http_access import Token
from fallow.http_server import RequestError
from tests.scraped.otlp_requests import NOW_MS, as_json, climbing, gauge, point, request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fallow.http_server import HttpServer

POWER = gauge("hw.power", "W", point(300.0, hw__id="GPU-1", hw__type="gpu"))
MOST = 4096


@pytest.fixture
def intake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Intake]:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS)
    spool = RequestSpool(tmp_path / "spool", 3000)
    yield Intake(spool, metric_names(load_exporters()), MOST, SystemClock())
    spool.close()


@contextmanager
def receiving(intake: Intake) -> Iterator[HttpServer]:
    receiver = otlp_receiver(("127.0.0.1", 0), intake)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.close()


@pytest.fixture
def url(intake: Intake) -> Iterator[str]:
    with receiving(intake) as receiver:
        yield f"{receiver.url}{PATH}"


def connected(url: str) -> HTTPConnection:
    return HTTPConnection(url.split("/")[2], timeout=20)


def post(url: str, body: bytes, kind: str = PROTOBUF, **headers: str) -> tuple[int, bytes, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(url, body, {"Content-Type": kind, **named})  # noqa: S310  # loopback
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def kept(intake: Intake) -> list[ExportMetricsServiceRequest]:
    return [ExportMetricsServiceRequest.FromString(each) for path in intake.spool.rotate() for each in frames(path)]


def test_protobuf_json_and_gzip_say_the_same_and_are_kept(url: str, intake: Intake) -> None:
    body, text = request(POWER).SerializeToString(), json.dumps(as_json([POWER])).encode()
    assert post(url, body)[:2] == (200, b"")
    assert post(url, gzip.compress(body), Content_Encoding="gzip")[:2] == (200, b"")
    status, answer, headers = post(url, text, f"{JSON}; charset=utf-8")
    assert (status, json.loads(answer), headers["Content-Type"]) == (200, {}, JSON)
    assert kept(intake) == [request(POWER)] * 3


def test_a_part_is_taken_and_the_answer_and_the_log_say_what_was_not(
    url: str, intake: Intake, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, reason = (
        gauge("hw.gpu.utilization", "%", point(50.0, hw__id="GPU-1")),
        "hw.gpu.utilization is in %, not in 1",
    )
    post(url, request(wrong).SerializeToString())
    status, answer, _ = post(url, request(POWER, wrong).SerializeToString())
    told = ExportMetricsServiceResponse.FromString(answer).partial_success
    assert (status, told.rejected_data_points, told.error_message) == (200, 1, reason)
    assert kept(intake) == [request(POWER)]
    assert (intake.tally.points, intake.tally.rejected) == (1, 2)
    assert capsys.readouterr().err.splitlines() == [f"fallow: rejects points: {reason}"], "once"


def test_metrics_of_others_take_no_room(url: str, intake: Intake) -> None:
    assert post(url, request(gauge("http.server.active_requests", "1", point(4.0))).SerializeToString())[0] == 200
    assert kept(intake) == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", {}, 400),
        (b"{", {"kind": JSON}, 400),
        (b"{}", {"kind": "text/plain"}, 415),
        (b"x", {"Content_Encoding": "zstd"}, 415),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400),
        (b"{}", {"kind": JSON, "Origin": "http://localhost:4318"}, 403),
        (gzip.compress(bytes(100_000), mtime=0), {"Content_Encoding": "gzip"}, 413),
        (bytes(MOST + 1), {}, 413),
    ],
)
def test_what_cannot_be_taken_is_answered_with_the_reason(
    url: str, intake: Intake, body: bytes, headers: dict[str, str], status: int
) -> None:
    found, answer, told = post(url, body, **headers)
    assert found == status
    assert b" " in answer
    assert told["Retry-After"] is None
    assert kept(intake) == []


def test_other_paths_and_methods_are_refused(url: str) -> None:
    assert post(url.replace("metrics", "traces"), b"")[0] == 404
    with contextlib.closing(connected(url)) as connection:
        connection.request("GET", "/v1/metrics")
        assert connection.getresponse().status == HTTPStatus.METHOD_NOT_ALLOWED


def test_a_full_spool_sends_the_sender_away_for_a_while(url: str, intake: Intake) -> None:
    body = request(POWER).SerializeToString()
    answers = [post(url, body) for _ in range(3000 // len(body) + 1)]
    status, answer, headers = answers[-1]
    assert (status, headers["Retry-After"]) == (503, "30")
    assert b"there is no room" in answer
    assert len(kept(intake)) == sum(status == 200 for status, _, _ in answers)
    intake.spool.forget(intake.spool.rotate())
    assert post(url, body)[0] == 200


def test_a_token_is_asked_for(intake: Intake, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n", encoding="ascii")
    (tmp_path / "token").chmod(0o600)
    token, body = Token(str(tmp_path / "token"), "otlp.token_file"), request(POWER).SerializeToString()
    with receiving(Intake(intake.spool, intake.wanted, MOST, intake.clock, token)) as receiver:
        given = ("", "Bearer wrong", "Bearer secret")
        found = [post(f"{receiver.url}{PATH}", body, Authorization=each)[0] for each in given]
    assert found == [401, 401, 200]


def test_a_body_may_come_in_chunks(url: str, intake: Intake) -> None:
    body, kind = request(POWER).SerializeToString(), {"Content-Type": PROTOBUF}
    with contextlib.closing(connected(url)) as connection:
        connection.request("POST", "/v1/metrics", iter([body[:20], body[20:]]), kind, encode_chunked=True)
        assert connection.getresponse().status == 200
    assert kept(intake) == [request(POWER)]


@pytest.mark.parametrize("length", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_sender_that_trickles_is_cut_off(intake: Intake, monkeypatch: pytest.MonkeyPatch, length: str) -> None:
    monkeypatch.setattr("analytics.scraped.otlp.receiver.BOUNDS", replace(BOUNDS, body_s=0.3))
    answer = b""
    with receiving(intake) as receiver, socket.create_connection(("127.0.0.1", receiver.port), 20) as sender:
        sender.sendall(f"POST {PATH} HTTP/1.1\r\nContent-Type: {JSON}\r\n{length}\r\n\r\n".encode())
        sender.settimeout(0.05)
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                if answer := sender.recv(4096):
                    break
            sender.sendall(b"0")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_sender_that_waits_for_leave_to_send_gets_it(intake: Intake, url: str) -> None:
    body = request(POWER).SerializeToString()
    host, _, port = url.split("/")[2].partition(":")
    head = f"POST {PATH} HTTP/1.1\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\nExpect: 100-continue"
    with socket.create_connection((host, int(port)), 20) as sender:
        sender.sendall(f"{head}\r\n\r\n".encode())
        assert sender.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sender.sendall(body)
        assert sender.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert kept(intake) == [request(POWER)]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-length": "9" * 5000}, b"", 413),
        ({"content-length": "\u0663"}, b"", 411),
        ({"transfer-encoding": "chunked"}, b"-5\r\nabcde\r\n0\r\n\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"0x5\r\nabcde\r\n0\r\n\r\n", 400),
        ({"transfer-encoding": "chunked"}, b"5" * 2000, 400),
        ({"transfer-encoding": "chunked"}, f"1\r\n5\r\n{MOST:x}\r\n".encode(), 413),
        ({"transfer-encoding": "chunked", "content-length": "5"}, b"0\r\n\r\n", 400),
        ({"transfer-encoding": "gzip, chunked"}, b"0\r\n\r\n", 400),
        ({"transfer-encoding": "identity", "content-length": "5"}, b"hello", 400),
        ({"content-length": "6"}, b"hello", 400),
        ({"content-length": "20", "content-encoding": "gzip"}, gzip.compress(bytes(100), mtime=0)[:20], 400),
    ],
)
def test_a_length_that_is_none_is_refused(headers: dict[str, str], body: bytes, status: int) -> None:
    with pytest.raises(RequestError) as refusal:
        read_body(io.BytesIO(body), headers, MOST)
    assert refusal.value.status == status


def test_connections_that_say_nothing_keep_nobody_out(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analytics.scraped.otlp.receiver.BOUNDS", replace(BOUNDS, connections=3))
    with receiving(intake) as receiver, ExitStack() as opened:
        there = ("127.0.0.1", receiver.port)
        silent = [opened.enter_context(socket.create_connection(there, 20)) for _ in range(3)]
        silent[0].sendall(b"POST /v1/metrics HTTP/1.1\r\nContent-")
        for _ in range(2):
            assert post(f"{receiver.url}{PATH}", request(POWER).SerializeToString())[0] == 200
        assert silent[0].recv(1) == b"", "it has waited longest"
    assert len(kept(intake)) == 2


def test_one_address_leaves_room_for_others(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BOUNDS.per_address < BOUNDS.connections
    monkeypatch.setattr("analytics.scraped.otlp.receiver.BOUNDS", replace(BOUNDS, connections=3, per_address=2))
    body = request(POWER).SerializeToString()
    head = f"POST {PATH} HTTP/1.1\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n"
    with receiving(intake) as receiver, ExitStack() as opened:
        there = ("127.0.0.1", receiver.port)
        for _ in range(BOUNDS.connections):
            greedy = opened.enter_context(socket.create_connection(there, 20))
            with contextlib.suppress(ConnectionError):  # of those beyond its share
                greedy.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
                greedy.recv(4096)  # it is served, and sends no body
        other = opened.enter_context(socket.create_connection(there, 20, ("127.0.0.2", 0)))
        other.sendall(f"{head}\r\n".encode() + body)
        assert other.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert kept(intake) == [request(POWER)]


def test_whoever_still_sends_gets_the_reason_too(url: str) -> None:
    status, answer, headers = post(url, bytes(30_000_000))
    assert (status, headers["Connection"]) == (413, "close")
    assert b"otlp.max_body" in answer


def test_a_disk_that_takes_no_new_file_stops_nothing_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = RequestSpool(tmp_path / "spool", 10**9)
    with monkeypatch.context() as patched:
        patched.setattr(RequestSpool, "_open", no_room)
        patched.setattr("analytics.scraped.otlp.spool._SEGMENT_BYTES", 10)
        spool.append(b"first of a file")
        spool.append(b"second")
        with pytest.raises(SpoolError, match="No space left"):
            spool.rotate()
    (segment,) = spool.rotate()
    assert list(frames(segment)) == [b"first of a file", b"second"]
    spool.close()


def test_a_spool_writes_by_no_link_and_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept", encoding="ascii")
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(SpoolError, match="cannot use the spool"):
        RequestSpool(folder, 1000)
    assert (tmp_path / "precious").read_text(encoding="ascii") == "kept"
    (folder / "lock").unlink()
    RequestSpool(folder, 1000).close()
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o600}


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_was_answered_is_there_after_a_crash_and_what_was_cut_off_is_not(tmp_path: Path) -> None:
    spool = RequestSpool(tmp_path, 10_000)
    spool.append(b"first")
    spool.append(b"second")
    (segment,) = spool.rotate()
    spool.close()
    whole = segment.read_bytes()
    for size in range(len(whole)):
        segment.write_bytes(whole[:size])
        assert list(frames(segment)) == ([b"first"] if size >= 13 else [])
    segment.write_bytes(whole)
    again = RequestSpool(tmp_path, 10_000)
    assert [list(frames(each)) for each in again.rotate() if each.stat().st_size] == [[b"first", b"second"]]
    with pytest.raises(SpoolError, match="another process has the spool"):
        RequestSpool(tmp_path, 10_000)
    again.close()


def test_an_address_that_is_taken_is_one_sentence(intake: Intake) -> None:
    with receiving(intake) as receiver, pytest.raises(FallowError, match="cannot listen on"):
        otlp_receiver(("127.0.0.1", receiver.port), intake).start()


GPU: dict[str, Any] = {"hw__id": "GPU-1", "hw__type": "gpu"}
WANTED = metric_names(load_exporters())


def pt(
    value: float | None, at_s: float = 0, start_s: float = 0, name: str = "hw.energy", *, delta: bool = False
) -> Point:
    start_ms = round(NOW_MS + start_s * 1000) if start_s else 0
    return Point({"__name__": name, "instance": "gn001"}, round(NOW_MS + at_s * 1000), value, start_ms, delta)


def values(points: Iterable[Point]) -> list[tuple[float, float | None]]:
    frame = window_samples(points).samples.frame
    return [((time_ms - NOW_MS) / 1000, value) for time_ms, value in frame.select("time_ms", "value").iter_rows()]


@pytest.mark.parametrize(
    ("attributes", "labels"),
    [
        ({"hw__id": "GPU-1"}, {"uuid": "GPU-1"}),
        ({"hw__id": "MIG-1", "hw__parent": "GPU-1"}, {"mig_uuid": "MIG-1", "uuid": "GPU-1"}),
        ({"hw__id": "3"}, {"index": "3"}),
    ],
)
def test_the_id_says_which_gpu(attributes: dict[str, Any], labels: dict[str, str]) -> None:
    sent = gauge("hw.gpu.utilization", "1", point(0.5, **attributes))
    (found,) = points_of(request(sent, host__name="gn001", service__name="c"))
    target = {"__name__": "hw.gpu.utilization", "instance": "gn001", "job": "c"}
    assert (labels | target).items() <= found.labels.items()
    assert (found.value, found.time_ms, found.start_ms) == (0.5, NOW_MS, 0)


def test_only_hardware_that_is_a_gpu_counts() -> None:
    die, inlet = point(61.0, hw__id="t0", hw__parent="GPU-1"), point(20.0, hw__id="inlet", hw__parent="board")
    asked = request(
        gauge("hw.power", "W", point(300.0, **GPU), point(90.0, hw__id="psu0", hw__type="power_supply")),
        gauge("hw.temperature", "Cel", die, inlet),
        gauge("system.cpu.utilization", "1", point(0.1)),
    )
    found = sort_out(asked, WANTED, NOW_MS, {})
    assert (found.points, found.ignored, found.rejected.total()) == (2, 3, 0)
    kept = [(each.labels["__name__"], each.labels["uuid"], each.value) for each in points_of(found.request)]
    assert kept == [("hw.power", "GPU-1", 300.0), ("hw.temperature", "GPU-1", 61.0)]


def test_what_would_be_read_wrongly_is_rejected_and_the_rest_is_taken() -> None:
    times = (NOW_MS + 2 * 86_400_000, 0, NOW_MS, 86_400_000)
    asked = request(
        gauge("hw.gpu.utilization", "%", point(50.0, **GPU)),
        gauge("hw.power", "W", *(point(300.0, at_ms, **GPU) for at_ms in times)),
        {"name": "hw.energy", "histogram": {"dataPoints": [{"timeUnixNano": "1"}]}},
    )
    found = sort_out(asked, WANTED, NOW_MS, {})
    assert found.points == 1
    of_time = ("has no time", "is more than a day in the future", "is more than a month old")
    wrong = ("hw.energy comes as histogram, not as gauge or sum", "hw.gpu.utilization is in %, not in 1")
    assert found.rejected == dict.fromkeys([f"a point of hw.power {each}" for each in of_time] + [*wrong], 1)


def test_what_names_no_gpu_is_rejected_for_its_reason() -> None:
    asked = request(gauge("max_gpu_util", "", point(50.0), point(60.0)), gauge("gpu_util", "", point(50.0)))
    found = sort_out(asked, WANTED - {"max_gpu_util"}, NOW_MS, {"max_gpu_util": "gcm names no GPU"})
    assert (found.points, dict(found.rejected)) == (0, {"gcm names no GPU": 2})


def test_a_host_has_to_be_named_and_the_sending_pod_is_nobody() -> None:
    power = gauge("hw.power", "W", point(1.0, **GPU))
    for resource in ({"service__instance__id": "5f0c"}, {"service__instance__id": "5f0c", "host__name": ""}):
        nameless = sort_out(request(power, **resource), WANTED, NOW_MS, {})
        assert dict(nameless.rejected) == {"hw.power names no host: the resource needs host.name": 1}
    (found,) = points_of(request(power, k8s__node__name="n1", k8s__pod__name="collector"))
    assert (found.labels["k8s.node.name"], found.labels.get("k8s.pod.name")) == ("n1", None)


def test_deltas_add_up_and_go_on_in_the_next_window() -> None:
    sums: dict[SeriesKey, DeltaSum] = {}
    first = climbed([pt(7.0, 20, 10, delta=True), pt(5.0, 10, 0.001, delta=True)], sums)
    assert values(first) == [(10.0, 5.0), (20.0, 12.0)]
    late, next_one = pt(9.0, 15, 10, delta=True), pt(1.0, 30, 20, delta=True)
    found = window_samples(climbed([next_one, late], sums))
    assert found.samples.frame["value"].to_list() == [13.0]
    assert found.starts["start_ms"].to_list() == [NOW_MS + 1], "the sum is that of all windows"


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([pt(30.0, 20), pt(10.0, 0), pt(20.0, 10), pt(10.0, 0)], [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]),
        ([pt(10.0, 0), pt(None, 10)], [(0.0, 10.0), (10.0, None)]),
        (
            [pt(1.0, 0, name="hw.power"), pt(2.0, 0.012), pt(3.0, 10.4, name="hw.power"), pt(4.0, 10.41)],
            [(0.0, 1.0), (10.4, 3.0), (0.0, 2.0), (10.4, 4.0)],
        ),
    ],
    ids=["in any order and twice", "a series ends where it says so", "the instruments of one push get one time"],
)
def test_points_become_samples(points: list[Point], expected: list[tuple[float, float | None]]) -> None:
    assert values(points) == expected


def test_a_sum_says_since_when_it_counts_and_is_as_it_was_sent() -> None:
    about = {"uuid": "GPU-1", "host.name": "gn001"}
    sums = (pt(10.0, 10, 1), pt(20.0, 20, 15))
    points = [Point({**each.labels, **about}, each.time_ms, each.value, each.start_ms) for each in sums]
    found = window_samples(points).counters_since(load_exporters())
    times = [(NOW_MS + 10_000, NOW_MS + 1000), (NOW_MS + 20_000, NOW_MS + 15_000)]
    assert found.sort("true_ms").rows() == [("gn001", "GPU-1", *each) for each in times]
    (sent,) = points_of(request(climbing("hw.energy", "J", point(1e6, start_ms=NOW_MS - 1000, **GPU))))
    assert (sent.value, sent.start_ms, sent.is_delta) == (1e6, NOW_MS - 1000, False)
