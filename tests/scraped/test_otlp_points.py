"""OTLP data points as samples: which count, of which GPU, in which unit, and what sums and times become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.mapping.mapping_file import load_exporters, metric_names
from analytics.scraped.otlp.delivery import DeltaSum, SeriesKey, climbed, window_samples
from analytics.scraped.otlp.messages import Point, points_of, sort_out
from tests.scraped.otlp_requests import NOW_MS, climbing, gauge, point, request

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    (found,) = points_of(
        request(gauge("hw.gpu.utilization", "1", point(0.5, **attributes)), host__name="gn001", service__name="c")
    )
    assert labels.items() <= found.labels.items()
    assert (found.labels["__name__"], found.labels["instance"], found.labels["job"]) == (
        "hw.gpu.utilization",
        "gn001",
        "c",
    )
    assert (found.value, found.time_ms, found.start_ms) == (0.5, NOW_MS, 0)


def test_only_hardware_that_is_a_gpu_counts() -> None:
    asked = request(
        gauge("hw.power", "W", point(300.0, **GPU), point(90.0, hw__id="psu0", hw__type="power_supply")),
        gauge(
            "hw.temperature",
            "Cel",
            point(61.0, hw__id="t0", hw__parent="GPU-1"),
            point(20.0, hw__id="inlet", hw__parent="board"),
        ),
        gauge("system.cpu.utilization", "1", point(0.1)),
    )
    found = sort_out(asked, WANTED, NOW_MS)
    assert (found.points, found.ignored, found.rejected.total()) == (2, 3, 0)
    assert [(each.labels["__name__"], each.labels["uuid"], each.value) for each in points_of(found.request)] == [
        ("hw.power", "GPU-1", 300.0), ("hw.temperature", "GPU-1", 61.0)
    ]  # fmt: skip


def test_what_would_be_read_wrongly_is_rejected_and_the_rest_is_taken() -> None:
    asked = request(
        gauge("hw.gpu.utilization", "%", point(50.0, **GPU)),
        gauge(
            "hw.power",
            "W",
            point(300.0, NOW_MS + 2 * 86_400_000, **GPU),
            point(301.0, 0, **GPU),
            point(302.0, **GPU),
            point(1.0, 86_400_000, **GPU),
        ),
        {"name": "hw.energy", "histogram": {"dataPoints": [{"timeUnixNano": "1"}]}},
    )
    found = sort_out(asked, WANTED, NOW_MS)
    assert found.points == 1
    assert sorted(found.rejected.items()) == [
        ("a point of hw.power has no time", 1),
        ("a point of hw.power is more than a day in the future", 1),
        ("a point of hw.power is more than a month old", 1),
        ("hw.energy comes as histogram, not as gauge or sum", 1),
        ("hw.gpu.utilization is in %, not in 1", 1),
    ]


def test_a_host_has_to_be_named_and_the_sending_pod_is_nobody() -> None:
    power = gauge("hw.power", "W", point(1.0, **GPU))
    for resource in ({"service__instance__id": "5f0c"}, {"service__instance__id": "5f0c", "host__name": ""}):
        nameless = sort_out(request(power, **resource), WANTED, NOW_MS)
        assert dict(nameless.rejected) == {"hw.power names no host: the resource needs host.name": 1}
    (found,) = points_of(
        request(gauge("hw.power", "W", point(1.0, **GPU)), k8s__node__name="n1", k8s__pod__name="collector")
    )
    assert found.labels["k8s.node.name"] == "n1"
    assert "k8s.pod.name" not in found.labels


def test_deltas_add_up_and_go_on_in_the_next_window() -> None:
    sums: dict[SeriesKey, DeltaSum] = {}
    assert values(climbed([pt(7.0, 20, 10, delta=True), pt(5.0, 10, 0.001, delta=True)], sums)) == [
        (10.0, 5.0),
        (20.0, 12.0),
    ]
    late, next_one = pt(9.0, 15, 10, delta=True), pt(1.0, 30, 20, delta=True)
    found = window_samples(climbed([next_one, late], sums))
    assert found.samples.frame["value"].to_list() == [13.0]
    assert found.starts["start_ms"].to_list() == [NOW_MS + 1], "the sum is that of all windows"


def test_points_come_in_any_order_and_twice() -> None:
    assert values([pt(30.0, 20), pt(10.0, 0), pt(20.0, 10), pt(10.0, 0)]) == [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]


def test_a_series_ends_where_it_says_so() -> None:
    assert values([pt(10.0, 0), pt(None, 10)]) == [(0.0, 10.0), (10.0, None)]


def test_a_sum_says_since_when_it_counts() -> None:
    about = {"uuid": "GPU-1", "host.name": "gn001"}
    points = [
        Point({**each.labels, **about}, each.time_ms, each.value, each.start_ms)
        for each in (pt(10.0, 10, 1), pt(20.0, 20, 15))
    ]
    found = window_samples(points).counters_since(load_exporters())
    assert found.sort("true_ms").rows() == [
        ("gn001", "GPU-1", NOW_MS + 10_000, NOW_MS + 1000), ("gn001", "GPU-1", NOW_MS + 20_000, NOW_MS + 15_000)
    ]  # fmt: skip


def test_the_instruments_of_one_push_get_one_time() -> None:
    both = [pt(1.0, 0, name="hw.power"), pt(2.0, 0.012), pt(3.0, 10.4, name="hw.power"), pt(4.0, 10.41)]
    assert values(both) == [(0.0, 1.0), (10.4, 3.0), (0.0, 2.0), (10.4, 4.0)]


def test_a_sum_that_never_resets_is_as_it_was_sent() -> None:
    energy = climbing("hw.energy", "J", point(1e6, start_ms=NOW_MS - 1000, **GPU))
    (found,) = points_of(request(energy))
    assert (found.value, found.start_ms, found.is_delta) == (1e6, NOW_MS - 1000, False)
