"""What one scraped series says of a GPU: readings at moments, each once, gaps that stay gaps, counter resets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.scraped.rows.model import Pace, RowSettings
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from tests.ledger.rows import T0
from tests.scraped.scraped_series import (
    ENERGY,
    ENGINE,
    EXPORTERS,
    MEMORY,
    POWER,
    UTIL,
    XID,
    columns,
    counts,
    dcgm,
    one_host,
    rows_of,
    samples_of,
    uuid,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RISING = [float(number) for number in range(240)]
AGAIN = ("a reading that the scrape before had shown", "")


def test_a_reading_is_a_row_from_its_moment_on_that_saw_a_sixth_of_a_second() -> None:
    """Nobody looked at processes, and health is for the publisher to say."""
    found = one_host(dcgm(UTIL, [0, 97, 31], start_s=7.5), dcgm(MEMORY, [1024, 2048, 3072], start_s=7.5))
    assert columns(found, "gpu_util_pct", "mem_used_bytes", "interval_ms", "offset_ms", "util_source", "health") == [
        (7.5, 0, 2**30, 30_000, 7_500, "scraped", None),
        (37.5, 97, 2**31, 30_000, 7_500, "scraped", None),
        (67.5, 31, 3 * 2**30, 30_000, 7_500, "scraped", None),
    ]
    assert "process_count" not in found.gpu.columns
    assert found.gpu["gpu_util_coverage_ratio"].to_list() == pytest.approx([1 / 180] * 3, rel=1e-3)


def shown_twice(values: list[float]) -> Iterator[float]:
    """As a page shows what an exporter reads every 30 s to a server that scrapes every 15 s."""
    for value in values:
        yield from (value, value)


def test_two_scrapes_of_one_reading_are_one_reading() -> None:
    """The power shows how often the exporter reads; utilization that stands still does not."""
    utilization, power = [0.0] * 120 + [50.0] * 120, list(shown_twice(RISING[:120]))
    found = one_host(dcgm(UTIL, utilization, every_s=15), dcgm(POWER, power, every_s=15))
    assert [at for at, _ in columns(found)] == [30 * number for number in range(120)]
    assert found.gpu["interval_ms"].unique().to_list() == [30_000]
    assert counts(found) == {AGAIN: 120}
    assert found.notes == (
        (
            "NVIDIA dcgm-exporter reads the driver every 30s and is scraped every 15s: a reading that is shown again"
            " counts once"
        ),
    )


def test_what_stands_still_is_taken_for_one_reading_in_the_exporters_usual_interval() -> None:
    found = one_host(dcgm(UTIL, [0] * 8, every_s=15))
    assert [at for at, _ in columns(found)] == [0, 30, 60, 90]
    assert "is taken to read the driver every 30s" in found.notes[0]


def test_hosts_that_a_site_gives_one_instance_have_readings_of_their_own() -> None:
    found = rows_of(
        *(
            dcgm(UTIL, [0] * 8, every_s=15, start_s=late, Hostname=host, instance="all", gpu=late)
            for late, host in enumerate(("a", "b"))
        )
    )
    assert [found[host].gpu.height for host in ("a", "b")] == [4, 4]


def test_values_that_stand_still_by_chance_do_not_make_an_exporter_slow() -> None:
    """Three scrapes in ten show what the one before did, here and there, and others show something new in a row."""
    noise = np.cumsum(np.random.default_rng(7).random(240) < 0.7).astype(float).tolist()
    (pace,) = find_source_paces(samples_of([dcgm(POWER, noise, every_s=15)]), EXPORTERS).values()
    assert pace == Pace(15_000, None, fresh=True)


def test_gpus_of_a_page_that_have_times_of_their_own_are_scraped_as_often_as_each_of_them() -> None:
    found = one_host(*(dcgm(POWER, RISING, every_s=15, start_s=gpu / 1000, gpu=gpu) for gpu in range(4)))
    assert found.gpu["interval_ms"].unique().to_list() == [15_000]
    assert found.gpu.height == 4 * 240


def test_scrapes_that_all_show_something_new_are_all_readings() -> None:
    found = one_host(dcgm(UTIL, [0] * 240, every_s=15), dcgm(POWER, RISING, every_s=15))
    assert found.gpu.height == 240
    assert not counts(found)


def test_an_exporter_that_reads_when_it_is_scraped_has_a_reading_in_every_scrape() -> None:
    labels = {"__name__": "nvidia_smi_utilization_gpu_ratio", "uuid": uuid(0), "instance": "gn01:9835", "job": "smi"}
    found = one_host((labels, [(T0 + number * 15_000, 0.5) for number in range(8)]))
    assert [util for _, util in columns(found)] == [50] * 8


@pytest.mark.parametrize(
    ("collect_s", "coverage"), [(None, None), (30, 1), (15, None)], ids=["nobody knows", "every 30 s", "every 15 s"]
)
def test_an_average_of_all_the_time_between_scrapes_covers_it_and_any_other_is_a_point_sample(
    collect_s: float | None, coverage: float | None
) -> None:
    """The import says where nobody knows the exporter's interval."""
    found = one_host(dcgm(ENGINE, [0.25] * 3), dcgm(UTIL, [99] * 3), collect_s=collect_s)
    assert columns(found, "gpu_util_pct")[0] == (0, 25)
    assert found.gpu["gpu_util_coverage_ratio"][0] == (None if coverage is None else pytest.approx(coverage))
    assert any("--collect-interval" in note for note in found.notes) == (collect_s is None)


def test_a_gap_is_no_interval_where_few_scrapes_show_one() -> None:
    """A target that was scraped twice, and again half an hour later."""
    found = one_host(without(dcgm(UTIL, [float(number) for number in range(71)]), 60, 2100))
    assert found.gpu["interval_ms"].unique().to_list() == [30_000]


def test_an_interval_that_the_values_refute_is_not_believed() -> None:
    found = one_host(dcgm(ENGINE, [number / 240 for number in range(240)], every_s=15), collect_s=30)
    assert found.gpu["gpu_util_coverage_ratio"].null_count() == found.gpu.height == 240
    assert "more often than --collect-interval states" in found.notes[0]


def test_averages_that_the_values_show_to_be_of_thirty_seconds_cover_all_of_their_rows() -> None:
    means = list(shown_twice([number / 240 for number in range(120)]))
    found = one_host(dcgm(ENGINE, means, every_s=15))
    assert found.gpu.height == 120
    assert found.gpu["gpu_util_coverage_ratio"].unique().to_list() == [1]


def test_a_mean_of_nothing_yields_to_a_reading_of_work_and_a_missing_one_to_any() -> None:
    found = one_host(dcgm(ENGINE, [0, 0, float("nan")]), dcgm(UTIL, [0, 3, 7]), collect_s=30)
    assert columns(found) == [(0, 0), (30, 3), (60, 7)]
    assert found.gpu["gpu_util_coverage_ratio"].to_list() == pytest.approx([1, 1 / 180, 1 / 180], rel=1e-3)
    assert counts(found) == {("NaN", "gpu_util_pct"): 1}


def test_a_gap_stays_a_gap_and_a_staleness_marker_is_where_the_series_ended() -> None:
    found = one_host(without(dcgm(UTIL, [5, 5, 5, None, 0, 0, 5, 5]), 120, 180))
    assert columns(found, "gpu_util_pct", "health") == [
        (0, 5, None),
        (30, 5, None),
        (60, 5, None),
        (90, None, "released"),
        (180, 5, None),
        (210, 5, None),
    ]


def test_one_series_that_ends_is_no_end_while_others_of_the_gpu_go_on() -> None:
    found = one_host(dcgm(UTIL, [5, None]), dcgm(POWER, [70, 71]))
    assert columns(found, "gpu_util_pct", "power_w", "health") == [(0, 5, 70, None), (30, None, 71, None)]


def test_what_no_gpu_can_say_is_unknown_and_counted() -> None:
    blank = 9.223372036854776e18
    found = one_host(dcgm(UTIL, [float("nan"), 300, 50, 51]), dcgm(POWER, [70, -1, 140737488355328.0, blank]))
    assert columns(found, "gpu_util_pct", "power_w") == [
        (0, None, 70),
        (30, None, None),
        (60, 50, None),
        (90, 51, None),
    ]
    assert counts(found) == {
        ("NaN", "gpu_util_pct"): 1,
        ("outside 0..100: value dropped", "gpu_util_pct"): 1,
        ("negative: value dropped", "power_w"): 1,
        ("the exporter's value for unknown", "power_w"): 2,
    }


def test_a_counter_that_falls_or_leaps_begins_a_new_epoch() -> None:
    """2 kJ in 30 s is 67 W; 600 kJ would be 20 kW."""
    found = one_host(dcgm(ENERGY, [10e6, 12e6, 1e6, 3e6, 603e6]))
    assert [(at, since and (since - datetime.fromtimestamp(T0 / 1000, UTC)).total_seconds())
            for at, since in columns(found, "counters_since")] == [
        (0, None), (30, None), (60, 60), (90, 60), (120, 120),
    ]  # fmt: skip


def test_an_xid_is_an_event_where_it_becomes_another() -> None:
    """The one that was there in the first scrape came nobody knows when."""
    found = one_host(dcgm(XID, [31, 31, 79, 79, 0, 79]))
    assert [
        (each["time"].timestamp() - T0 / 1000, each["gpu"], each["kind"], each["code"])
        for each in found.events.rows(named=True)
    ] == [
        (60, uuid(0), "xid", 79),
        (150, uuid(0), "xid", 79),
    ]
    assert one_host(dcgm(XID, [31, 1e19, -1e19])).events.is_empty()


def test_samples_outside_the_window_say_what_came_before_and_make_no_rows() -> None:
    """As a service reads it: a few samples do not show how far apart scrapes are, which was found before."""
    before = samples_of([dcgm(UTIL, [0] * 90, every_s=20), dcgm(POWER, RISING[:90], every_s=20)])
    paces = find_source_paces(before, EXPORTERS)
    assert list(paces.values()) == [Pace(20_000, None, fresh=True)]
    now = samples_of([dcgm(UTIL, [0, 0, 7], every_s=20), dcgm(ENERGY, [9e6, 5e6, 6e6], every_s=20)])
    (found,) = host_rows(now, EXPORTERS, RowSettings(T0 + 40_000, T0 + 60_000, paces=paces))
    assert columns(found, "gpu_util_pct", "interval_ms") == [(40, 7, 20_000)]
    assert found.gpu["counters_since"].dt.epoch("ms").to_list() == [T0 + 20_000]
