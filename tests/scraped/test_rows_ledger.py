"""From samples of a metrics server to states of the ledger: what scraped time may be called, and what it may not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from benchmarks.scraped_lakes import Scraping
from benchmarks.scraped_week import PAGE, as_json, page, weeks_seen
from fallow.clock import DAY_MS, SECOND_MS
from fallow.schema import ALLOCATION, GPU
from tests.ledger.rows import GB, T0, allocation, held_by, load, samples, states
from tests.ledger.rows import write as write_rows
from tests.scraped.scraped_series import (
    ENERGY,
    ENGINE,
    EXPORTERS,
    MEMORY,
    POWER,
    UTIL,
    Series,
    columns,
    dcgm,
    lake_with,
    one_host,
    samples_of,
    uuid,
    without,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

HALF_HOUR = 60
MIB_OF_GB = GB / 2**20


def told(util: float, memory_mib: float | None = None) -> list[Series]:
    """Half an hour of a GPU at rest or at work."""
    series = [dcgm(UTIL, [util] * HALF_HOUR)]
    return series if memory_mib is None else [*series, dcgm(MEMORY, [memory_mib] * HALF_HOUR)]


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (told(80), ("active", None)),
        (told(4, 2 * MIB_OF_GB), ("low", "memory")),
        (told(0, 2 * MIB_OF_GB), ("held", "memory")),
        (told(0, 0.5 * MIB_OF_GB), ("free", "unwatched")),
        (told(0, 3), ("free", None)),
        (told(0), ("free", "unwatched")),
    ],
    ids=["at work", "little work", "memory in use", "some memory", "no context", "utilization alone"],
)
def test_without_a_process_list_memory_says_whether_somebody_is_there(
    lake: Lake, series: list[Series], expected: tuple[str, str | None]
) -> None:
    """No process list: a GPU not at work, above 1 GB or below any context's memory is not known to be free."""
    ((state, start, end, _, source),) = held_by(lake_with(lake, one_host(*series)))
    assert (state, source) == expected
    assert (start, end) == (0, 1800)


def test_a_allocation_makes_time_without_work_reserved_and_says_whether_anybody_looked(lake: Lake) -> None:
    write_rows(lake, ALLOCATION, [allocation("GPU-00000000", 0, 1800)])
    assert held_by(lake_with(lake, one_host(*told(0)))) == [("reserved", 0, 1800, "bob", "allocation_unwatched")]


def evidence(lake: Lake) -> list[tuple[Any, ...]]:
    return load(lake).segments.select("state", "sampled_ms", "zero_ms", "energy_ms", "counter_ms").rows()


def test_readings_are_point_samples_and_averages_of_the_whole_time_are_not(lake: Lake) -> None:
    """The first half hour is known by a sixth of a second in each 30 s, the second as the mean of all of it."""
    averages = [dcgm(ENGINE, [0] * HALF_HOUR, start_s=1800), dcgm(MEMORY, [2 * MIB_OF_GB] * HALF_HOUR, start_s=1800)]
    found = one_host(*told(0, 2 * MIB_OF_GB), *averages, collect_s=30)
    ((state, sampled_ms, zero_ms, *_),) = evidence(lake_with(lake, found))
    assert (state, sampled_ms, zero_ms) == ("held", 1_800_000, 3_600_000)


def test_agents_rows_count_where_both_are_also_if_they_came_later(lake: Lake) -> None:
    """Scraped every 30 s for half an hour; from 10 s on an agent saw the GPU idle for ten minutes; its file is late."""
    lake_with(lake, one_host(*told(80)))
    write_rows(lake, GPU, samples(uuid(0), 10, 610, gpu_util_coverage_ratio=1.0), host="gn01")
    assert states(lake) == [("active", 0, 10), ("free", 10, 630), ("active", 630, 1800)]
    assert load(lake).segments["sampled_ms"].to_list() == [10_000, 0, 1_170_000]


def test_energy_between_scrapes_is_known_by_the_counter_but_not_over_a_reset(lake: Lake) -> None:
    """Of 60 scrapes 59 rises, less that in which the driver was loaded anew."""
    rising = [9e6 + 2e6 * number for number in range(30)] + [2e6 * number for number in range(30)]
    found = one_host(*told(80), dcgm(ENERGY, rising))
    assert evidence(lake_with(lake, found))[0][3:] == (58 * 30_000, 58 * 30_000)
    assert load(lake).segments["energy_mj"].to_list() == [pytest.approx(58 * 2e6)]


def test_the_energy_after_a_reset_is_the_same_however_windows_were_cut(lake: Lake) -> None:
    """The second window begins five minutes after the reset, and no longer reads it."""
    rising = [9e6 + 2e6 * number for number in range(20)] + [2e6 * number for number in range(40)]
    series = [*told(80), dcgm(ENERGY, rising)]
    for since, until in ((0, 900), (900, 1800)):
        read = samples_of([without(each, 0, since - 300) for each in series])
        lake_with(lake, *host_rows(read, EXPORTERS, RowSettings(T0 + since * 1000, T0 + until * 1000)))
    assert load(lake).segments["energy_mj"].to_list() == [pytest.approx(58 * 2e6)]


def test_time_in_which_nobody_scraped_is_unknown_beyond_three_intervals(lake: Lake) -> None:
    found = one_host(*(without(each, 300, 1200) for each in told(80)))
    assert states(lake_with(lake, found)) == [("active", 0, 360), ("unknown", 360, 1200), ("active", 1200, 1800)]


def test_time_after_a_series_has_ended_is_unknown_from_its_marker_on(lake: Lake) -> None:
    """Also where the marker comes before three intervals are over, and where it lies in the next day."""
    midnight = 86_400
    first = dcgm(UTIL, [80] * 9 + [None], start_s=midnight - 255)
    found = one_host(first, dcgm(UTIL, [80] * 10, start_s=midnight + 75), hours=48)
    assert states(lake_with(lake, found)) == [
        ("active", midnight - 255, midnight),
        ("active", midnight, midnight + 15),
        ("unknown", midnight + 15, midnight + 75),
        ("active", midnight + 75, midnight + 375),
    ]


LARGE, SMALL = (
    {"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb", "pod": "serve", "namespace": "nlp"},
    {"GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb"},
)


def instance(number: int) -> str:
    return f"MIG-{uuid(0)}/{number}"


def split_card(scrapes: int) -> list[Series]:
    return [
        dcgm(ENGINE, [0.5] * scrapes, **LARGE),
        dcgm(ENGINE, [0] * scrapes, **SMALL),
        dcgm(MEMORY, [20_000] * scrapes, **LARGE),
        dcgm(MEMORY, [10] * scrapes, **SMALL),
        dcgm(POWER, [300] * scrapes, **LARGE),
        dcgm(POWER, [300] * scrapes, **SMALL),
    ]


def test_an_instance_is_named_by_its_gpu_and_its_number_and_power_stays_with_the_gpu() -> None:
    found = one_host(*split_card(2))
    assert columns(found, "gpu_util_pct", "mem_used_bytes", "power_w", gpu=instance(1)) == [
        (0, 50, 20_000 * 2**20, None),
        (30, 50, 20_000 * 2**20, None),
    ]
    assert columns(found, "gpu_util_pct", "mem_used_bytes", "power_w") == [(0, None, None, 300), (30, None, None, 300)]
    assert found.device.select(
        "gpu", "parent_gpu", "mig_profile", "mig_gpu_slices", "gpu_instance_id", "mig_enabled", "gpu_index"
    ).rows() == [
        (uuid(0), None, None, None, None, True, 0),
        (instance(1), uuid(0), "3g.40gb", 3, 1, None, None),
        (instance(9), uuid(0), "1g.10gb", 1, 9, None, None),
    ]
    assert found.given.select("gpu", "pod").rows() == [(instance(1), "serve")]


@pytest.mark.parametrize("parent_told", [True, False], ids=["with power", "without a series of the GPU"])
def test_the_ledger_has_each_instance_by_its_share_and_the_rest_as_free(lake: Lake, *, parent_told: bool) -> None:
    found = one_host(*split_card(20)[: 6 if parent_told else 4])
    segments = load(lake_with(lake, found)).segments.sort("gpu")
    assert [
        (row["gpu"], row["state"], round(row["gpu_share"] * 7), (row["end"] - row["time"]) / 1000, row["user_source"])
        for row in segments.iter_rows(named=True)
    ] == [
        (uuid(0), "free", 3, 600, None),
        (instance(1), "active", 3, 600, "memory"),
        (instance(9), "free", 1, 600, None),
    ]


def test_the_docs_have_the_stored_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


@pytest.mark.long
def test_the_truth_of_a_day_lies_inside_what_is_said_of_it(tmp_path: Path) -> None:
    """In GPU-hours: the range of sampled time holds the truth; findings that the agent lacks have low confidence."""
    truth, agent, scraped = weeks_seen(tmp_path, DAY_MS, [Scraping(30 * SECOND_MS)])
    for seen in (agent, scraped):
        low, high = seen.held_between
        assert low <= truth.held <= high
        assert seen.unoccupied == pytest.approx(truth.unoccupied, abs=0.2)
    assert (agent.at_moments, scraped.at_moments) == (0, pytest.approx(1, abs=0.01))
    held = as_json(scraped, agent)["findings"]["held"]
    assert (held["lost"], held["more"]) == (0, held["more_low"])
    assert held["same"] > 0
