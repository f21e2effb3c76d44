"""A pool's days out of a real lake, and `fallow plan forecast` over it.

Six GPUs over 30 days: one always at work, one on working days only, four allocated and never used. One day has no data.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from analytics.capacity.forecast import demand_series
from analytics.decide.review import findings_and_demand
from fallow.clock import from_ms
from tests.findings.conftest import BUSY, FREE, context_of
from tests.lakes import made_lake
from tests.ledger.rows import allocation, device, fill, ms, samples
from tests.plan.asked import answer, text
from tests.shared_results import share_results

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from analytics.workloads.pool_demand import PoolDemand
    from fallow.lake import Lake

DAY, DAYS, DARK = 86_400, 30, 10
SINCE_S = -DAYS * DAY
FIRST = from_ms(ms(SINCE_S)).date()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    def of(gpu: str, days: Iterable[int], **values: Any) -> list[dict[str, Any]]:
        spans = [(SINCE_S + day * DAY, SINCE_S + (day + 1) * DAY) for day in days]
        return [row for span in spans for row in samples(gpu, *span, every_s=1800, **values)]

    seen = [day for day in range(DAYS) if day != DARK]
    week = [day for day in seen if (FIRST + timedelta(day)).weekday() < 5]
    rows = of("G0", seen, **BUSY) + of("G1", week, **BUSY) + of("G1", sorted({*seen} - {*week}), **FREE)
    given = [f"G{number}" for number in range(2, 6)]
    rows += [row for gpu in given for row in of(gpu, seen, **FREE)]
    allocations = [allocation(gpu, SINCE_S, None, "bob", f"j{gpu}") for gpu in given]
    models = [device(f"G{number}", time=ms(SINCE_S)) for number in range(6)]
    return fill(made_lake(tmp_path_factory.mktemp("demand") / "lake"), rows, (), allocations, devices=models)


@pytest.fixture(autouse=True)
def _one_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch)


def pool_in(lake: Lake, until: str | None = None) -> PoolDemand:
    """The one pool of the lake, after what findings say may go."""
    [found] = findings_and_demand(context_of(lake, until=until))[1].pools
    return found


@pytest.fixture(scope="module")
def pool(lake: Lake) -> PoolDemand:
    return pool_in(lake)


def test_a_day_is_its_demand_and_unknown_where_nobody_looked(pool: PoolDemand) -> None:
    """Bob's four GPUs are no demand: a finding says that they may go."""
    series = pool.outlook.series
    wanted = [None if day == DARK else 1.0 + ((FIRST + timedelta(day)).weekday() < 5) for day in range(DAYS)]
    assert pool.reclaimable == {"bob": ("G2", "G3", "G4", "G5")}
    assert list(series.gpus) == wanted
    assert (series.pool, series.model, series.first_day) == ("train", "NVIDIA H100 80GB HBM3", FIRST)
    assert (series.capacity, series.known_days, series.full_days, series.latest) == (6.0, 29, 0, (2.0, 6.0))


def test_a_day_is_measured_by_the_gpus_of_that_day(tmp_path: Path) -> None:
    """Three GPUs, two of them at work; after ten days one that works is left."""
    gone_s = SINCE_S + 10 * DAY
    rows = [
        row
        for gpu, until_s, values in (("G0", 0, BUSY), ("G1", gone_s, BUSY), ("G2", gone_s, FREE))
        for row in samples(gpu, SINCE_S, until_s, every_s=1800, **values)
    ]
    lake = fill(
        made_lake(tmp_path / "shrinks"), rows, devices=[device(f"G{each}", time=ms(SINCE_S)) for each in range(3)]
    )
    found = answer(lake, "forecast")
    days = [(each["observed"], each["gpus"]) for each in found["forecast_days"] if each["observed"] is not None]
    assert days[:9] + days[11:] == [(2, 3)] * 9 + [(1, 1)] * (DAYS - 11)
    assert found["forecast"][0]["full_days"] == DAYS - 10


def test_days_are_those_of_the_site(lake: Lake, pool: PoolDemand) -> None:
    context = context_of(lake)
    east = demand_series(("train", "H100"), pool.hours, 6.0, context.until_ms, ZoneInfo("Asia/Tokyo"))
    assert east.first_day == FIRST + timedelta(1)  # its own first day began nine hours before anything was seen
    assert east.gpus[DARK - 2 : DARK + 1] == (east.gpus[DARK - 2], None, None)  # the dark day lies in two of them
    assert east.next_day == FIRST + timedelta(DAYS)


def test_what_is_known_at_the_end_of_the_window_alone_counts(lake: Lake) -> None:
    last = FIRST + timedelta(DAYS - 8)
    assert pool_in(lake, str(last)).outlook.series.next_day == last + timedelta(1)


def test_it_says_reclaim_before_order(lake: Lake) -> None:
    said = text(lake, "forecast")
    assert "reclaim 3 from bob first" in said
    assert "order" not in said.partition("WHEN TO ORDER NEW GPUS")[2].partition("Demand:")[0]
    assert "Full: less than half a GPU is left." in said


def test_json_has_every_day_with_its_bands_and_the_lead_time_of_the_pool(lake: Lake) -> None:
    found = answer(lake, "forecast", "--horizon", "2w", "--lead-time", "4w", "--lead-time", "train=3d")
    [pool], days = found["forecast"], found["forecast_days"]
    assert (pool["horizon_days"], pool["lead_days"], pool["gpus"], pool["known_days"]) == (14, 3, 6.0, 29)
    assert (pool["verdict"], pool["verdict_gpus"], pool["order_by"]) == ("reclaim", 3, None)
    assert pool["test_weeks"] > 0
    assert [day["day"] for day in days] == [str(FIRST + timedelta(day)) for day in range(DAYS + 14)]
    assert days[DARK]["observed"] is None
    ahead = [days[-1][name] for name in ("low_95", "low_80", "forecast", "high_80", "high_95")]
    assert ahead == sorted(ahead)
