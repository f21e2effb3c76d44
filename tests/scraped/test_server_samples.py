"""Every sample of a window, once: whatever the server counts to a range, however much it refuses at once."""

from __future__ import annotations

import json
import math
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import cramjam
import pytest

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.answers import HttpAnswer, api_data
from analytics.scraped.server.connection import ServerConnection, ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.server.ways import ExportLines, ReadRequest, ReadResponse, RemoteRead
from fallow.errors import InputError
from tests.scraped.gateway import Answered, Evaluator, Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from analytics.scraped.samples import Samples
    from tests.scraped.gateway import Asked

    Fault = Callable[[Asked, Callable[[], Answered]], Answered]

QUICK = ServerLimits(rate=1e6, attempts=1, piece_samples=100)
ADDRESS = ServerAddress("http://127.0.0.1:8428")
START_MS = 1_790_000_000_000


def a_series(count: int, offset_ms: int = 0) -> list[tuple[int, str]]:
    return [(START_MS + offset_ms + 15_000 * number, str(number % 101)) for number in range(count)]


@contextmanager
def reached(evaluator: Fault, limits: ServerLimits = QUICK) -> Iterator[tuple[MetricsServer, Gateway]]:
    with Gateway(evaluator) as gateway, MetricsServer.connect(ServerAddress(gateway.url), limits) as server:
        yield server, gateway


def triples(*pieces: Samples) -> list[tuple[str, int, float | None]]:
    rows = ((piece.labels[series]["gpu"], *row) for piece in pieces for series, *row in piece.frame.iter_rows())
    return [*rows]  # type: ignore[list-item]


@pytest.mark.parametrize("left_open", [True, False])
@pytest.mark.parametrize("most_samples", [10**9, 37])
def test_every_sample_comes_once_over_windows_of_any_size(*, left_open: bool, most_samples: int) -> None:
    series = {"0": a_series(900), "1": a_series(400, 7), "2": a_series(1)}
    evaluator = Evaluator(series, left_open, most_samples)
    until_ms = START_MS + 15_000 * 850
    with reached(evaluator) as (server, _):
        assert server.way == "range vectors"
        got = triples(*server.samples("util", START_MS, until_ms))
    truth = [(gpu, at, float(value)) for gpu, all_ in series.items() for at, value in all_ if at < until_ms]
    assert sorted(got) == sorted(truth)
    assert max(evaluator.asked_ms) < 15_000 * 850, "in pieces"


def test_a_second_that_is_too_much_is_refused_with_the_servers_words() -> None:
    crowd = Evaluator({str(gpu): a_series(1) for gpu in range(50)}, most_samples=20)
    refused = pytest.raises(InputError, match=r"would load too many samples .*; narrow the request with --match")
    with reached(crowd) as (server, _), refused:
        list(server.samples("util", START_MS, START_MS + 60_000))


def test_pieces_stay_small_where_samples_become_dense_and_grow_where_there_are_none() -> None:
    late_ms = START_MS + 86_400_000
    evaluator = Evaluator({"0": [(late_ms + 10 * number, "1") for number in range(5000)]})
    with reached(evaluator) as (server, _):
        pieces = list(server.samples("util", START_MS, late_ms + 3_600_000))
    assert sum(piece.frame.height for piece in pieces) == 5000
    assert len(evaluator.asked_ms) < 100


def test_what_the_exporter_said_and_the_end_of_a_series_are_told_apart() -> None:
    values = {"0": [(START_MS, "NaN"), (START_MS + 1, "+Inf"), (START_MS + 2, "0")]}
    with reached(Evaluator(values)) as (server, _):
        [piece] = server.samples("util", START_MS, START_MS + 10)
    said = piece.frame["value"].to_list()
    assert math.isnan(said[0])
    assert said[1:] == [math.inf, 0.0]


def test_raw_samples_are_asked_for_and_never_steps_and_warnings_are_kept_once() -> None:
    with reached(Evaluator({"0": a_series(5)}, warnings=("store a is slow\x1b[2J",))) as (server, gateway):
        list(server.samples("util", START_MS, START_MS + 10))
        body = gateway.asked[-1].body
        server.series("util", START_MS, START_MS + 10)
        [warning] = server.warnings
    assert ("store a is slow" in warning, "\x1b" in warning) == (True, False)
    assert all(each in body for each in (b"max_source_resolution=0s", b"partial_response=false", b"dedup=true"))
    assert {asked.path for asked in gateway.asked}.isdisjoint({"/api/v1/query_range"})


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (ServerLimits(rate=1e6, most_series=20), "more than 20 series match util; narrow them with --match"),
        (ServerLimits(rate=1e6, most_labels=1), r"a series of util has 2 labels.*; leave the series out with --match"),
    ],
)
def test_more_series_or_labels_than_fallow_reads(limits: ServerLimits, says: str) -> None:
    crowd = Evaluator({str(gpu): () for gpu in range(30)})
    with reached(crowd, limits) as (server, _), pytest.raises(InputError, match=says):
        server.series("util", 0, 1)


@contextmanager
def reading(body: bytes) -> Iterator[tuple[ServerConnection, Gateway]]:
    """A connection that is always answered so."""
    with Gateway(lambda *_: Answered(200, body)) as gateway, ServerConnection(ServerAddress(gateway.url), QUICK) as to:
        yield to, gateway


def test_old_and_new_infinities_of_victoriametrics_and_its_ends_of_series() -> None:
    lines = (
        b'{"metric":{"__name__":"util","gpu":"1"},"values":[1,null],"timestamps":[10,20]}\n'
        b'{"metric":{"__name__":"util","gpu":"0"},"values":[+Inf,-Inf,"Infinity",0],"timestamps":[5,6,7,8]}\n'
        b'{"metric":{"gpu":"1","__name__":"util"},"values":[3],"timestamps":[5]}\n'
        b'{"metric":{"__name__":"util","gpu":"2"},"values":[NaN,2,null],"timestamps":[5,6,7]}\n'
    )
    with reading(lines) as (connection, _):
        export = ExportLines(connection)
        got = triples(export.parse(export.fetch("util", 0, 100), 0, 100))
    one, none = [(5, 3.0), (10, 1.0), (20, None)], [(5, math.inf), (6, -math.inf), (7, math.inf), (8, 0.0)]
    two = [(5, None), (6, 2.0), (7, None)]
    assert got == [(gpu, *each) for gpu, samples in (("1", one), ("0", none), ("2", two)) for each in samples]


@pytest.mark.parametrize(
    "tail", [b'{"metric":{"gpu":"1"},"values":[1', b"remoteAddr: 10.0.0.1; cannot read a part", b"[]"]
)
def test_an_export_that_ends_in_an_error_is_no_answer(tail: bytes) -> None:
    line = b'{"metric":{"gpu":"0"},"values":[1],"timestamps":[1]}\n'
    with ServerConnection(ADDRESS, QUICK) as connection, pytest.raises(InputError, match="is truncated or garbled"):
        ExportLines(connection).parse(line + tail, 0, 10)


def test_an_export_whose_end_nobody_can_see_is_not_read() -> None:
    """As of a proxy that speaks HTTP/1.0: what breaks off between two lines would be taken for all."""
    connection = ServerConnection(ADDRESS, QUICK)
    line = b'{"metric":{"gpu":"0"},"values":[1],"timestamps":[1]}\n'
    with connection, patch.object(connection, "_send", lambda _: HttpAnswer(200, {}, line)):
        assert not ExportLines(connection).is_offered()
        with pytest.raises(InputError, match=r"where its answer ends.*; a proxy that answers in HTTP/1.0"):
            ExportLines(connection).fetch("util", 0, 10)


def remote_answer(series: dict[str, list[tuple[int, bytes]]], **more: str) -> bytes:
    response = ReadResponse()
    result = response.results.add()
    for gpu, samples in series.items():
        of_series = result.timeseries.add()
        for name, value in {"__name__": "util", "gpu": gpu, **more}.items():
            of_series.labels.add(name=name.encode(), value=value.encode("latin-1"))
        for time_ms, bits in samples:
            of_series.samples.add(timestamp=time_ms, value=struct.unpack("<d", bits)[0])
    return bytes(cramjam.snappy.compress_raw(response.SerializeToString()))


def test_remote_read_tells_a_staleness_marker_from_an_exporters_nan_and_drops_what_the_server_adds() -> None:
    stale, nan = struct.pack("<Q", 0x7FF0000000000002), struct.pack("<d", math.nan)
    body = remote_answer({"0": [(5, struct.pack("<d", 0.0)), (6, nan), (7, stale), (8, stale)]}, cluster="x")
    with reading(body) as (connection, gateway):
        read = RemoteRead(connection, frozenset({"cluster"}))
        piece = read.parse(read.fetch('util{cluster="x",pod="",job="a"}', 5, 8), 5, 8)
        [query] = ReadRequest.FromString(bytes(cramjam.snappy.decompress_raw(gateway.asked[0].body))).queries
    assert piece.labels == ({"__name__": "util", "gpu": "0"},)
    zero, said, ended = piece.frame["value"].to_list()
    assert (zero, math.isnan(said), ended) == (0.0, True, None)
    assert (query.start_timestamp_ms, query.end_timestamp_ms) == (5, 7)
    asked = [(each.name, each.type, each.value) for each in query.matchers]
    assert asked == [("__name__", 0, "util"), ("cluster", 2, "x"), ("pod", 2, ""), ("job", 0, "a")]


def test_a_label_that_is_no_utf8_is_one_label_and_not_the_end_of_reading() -> None:
    """Neither server looks at what is pushed to it."""
    ones = struct.pack("<d", 1.0)
    body = remote_answer({"0": [(5, ones)], "1": [(6, ones)]}, user="Ren\xe9")
    lines = (
        b'{"metric":{"gpu":"0","user":"Ren\xe9"},"values":[1],"timestamps":[5]}\n'
        b'{"metric":{"gpu":"1","user":"Ren\xe9"},"values":[NaN,1],"timestamps":[5,6]}\n'
    )
    with ServerConnection(ADDRESS, QUICK) as connection:
        read, exported = RemoteRead(connection).parse(body, 5, 7), ExportLines(connection).parse(lines, 5, 7)
    assert triples(read) == [("0", 5, 1.0), ("1", 6, 1.0)]
    assert triples(exported) == [("0", 5, 1.0), ("1", 5, None), ("1", 6, 1.0)]
    assert {each["user"] for each in (*read.labels, *exported.labels)} == {"Ren\ufffd"}
    listed = b'{"status":"success","data":[{"user":"Ren\xe9"}]}'
    assert api_data(listed, ADDRESS, lambda _: None) == [{"user": "Ren\ufffd"}]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xff\xff\xff\xff\x0f\x00", "longer than 32 MiB; narrow"),  # Snappy that says it unpacks to 4 GiB
        (cramjam.snappy.compress_raw(b"\x0a\xff\xff"), "is truncated or garbled"),
        (b"404", "is truncated or garbled"),
    ],
)
def test_remote_read_that_unpacks_to_nothing_of_use(body: bytes, says: str) -> None:
    with ServerConnection(ADDRESS, QUICK) as connection, pytest.raises(InputError, match=says):
        RemoteRead(connection).parse(bytes(body), 0, 10)


@pytest.mark.parametrize(
    ("build", "config", "way"),
    [
        ('{"application":"Grafana Mimir","version":"2.10"}', None, "remote-read"),
        ('{"version":"3.5.0"}', "global:\n  scrape_interval: 1m\n", "remote-read"),
        ('{"version":"3.5.0"}', 'global:\n  external_labels:\n    "a.b": c\n', "range vectors"),
        ('{"version":"3.5.0"}', "global:\n  external_labels:\n    cluster: c\n", "range vectors"),  # series have it too
        ('{"version":"3.5.0"}', None, "range vectors"),
    ],
)
def test_remote_read_is_taken_where_its_labels_are_those_of_the_api(build: str, config: str | None, way: str) -> None:
    evaluator = Evaluator({})
    gets = {
        "/api/v1/status/buildinfo": f'{{"status":"success","data":{build}}}',
        "/api/v1/status/config": json.dumps({"status": "success", "data": {"yaml": config}}) if config else "",
        "/api/v1/label/cluster/values": '{"status":"success","data":["here"]}',
    }

    def server(asked: Asked, passed: Callable[[], Answered]) -> Answered:
        if asked.path == "/api/v1/read":
            return Answered(200, bytes(cramjam.snappy.compress_raw(b"")), {"Content-Type": "application/x-protobuf"})
        return Answered(200, gets[asked.path].encode()) if gets.get(asked.path) else evaluator(asked, passed)

    with reached(server) as (connected, _):
        assert connected.way == way
