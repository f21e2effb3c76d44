"""A pool's days out of a real lake, and `fallow plan forecast` over it.

Six GPUs over 30 days: one always at work, one on working days only, four allocated and never used. On one day nobody looked.
"""

from __future__ import annotations

from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from analytics.plan.forecast import DemandSeries, demand_series
from fallow.clock import from_ms
from tests.findings.conftest import BUSY, FREE, context_of
from tests.lakes import made_lake
from tests.ledger.rows import claim, device, fill, ms, samples
from tests.plan.asked import answer, text
from tests.shared_results import share_results

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    claims = [claim(gpu, SINCE_S, None, "bob", f"j{gpu}") for gpu in given]
    models = [device(f"G{number}", time=ms(SINCE_S)) for number in range(6)]
    return fill(made_lake(tmp_path_factory.mktemp("demand") / "lake"), rows, (), claims, devices=models)


@pytest.fixture(autouse=True)
def _one_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch)


@pytest.fixture
def pool(lake: Lake) -> DemandSeries:
    [found] = demand_series(context_of(lake), UTC)
    return found


def test_a_day_is_what_was_allocated_or_in_use_and_unknown_where_nobody_looked(pool: DemandSeries) -> None:
    wanted = [None if day == DARK else 5.0 + ((FIRST + timedelta(day)).weekday() < 5) for day in range(DAYS)]
    assert list(pool.gpus) == wanted
    assert (pool.pool, pool.model, pool.first_day, pool.capacity) == ("train", "NVIDIA H100 80GB HBM3", FIRST, 6.0)
    assert (pool.known_days, pool.full_days, pool.latest) == (29, sum(each == 6 for each in wanted), 6.0)


def test_idle_ones_that_somebody_has_and_that_are_safe_to_give_back(pool: DemandSeries) -> None:
    assert pool.idle_given == 3  # two at work at once, and the reserve: three of six stay


def test_days_are_those_of_the_site(lake: Lake) -> None:
    [east] = demand_series(context_of(lake), ZoneInfo("Asia/Tokyo"))
    assert east.first_day == FIRST + timedelta(1)  # its own first day began nine hours before anything was seen
    assert east.gpus[DARK - 2 : DARK + 1] == (east.gpus[DARK - 2], None, None)  # the dark day lies in two of them
    assert east.next_day == FIRST + timedelta(DAYS)


def test_what_is_known_at_the_end_of_the_window_alone_counts(lake: Lake) -> None:
    last = FIRST + timedelta(DAYS - 8)
    [before] = demand_series(context_of(lake, until=str(last)), UTC)
    assert before.next_day == last + timedelta(1)


def test_it_says_waste_before_shortage_and_until_when_to_order(lake: Lake) -> None:
    said = text(lake, "forecast")
    assert "Waste before shortage: 3 GPUs of train that somebody has stand idle and are safe to give back." in said
    assert "Full: less than half a GPU is left." in said
    french = text(lake, "forecast", "--lang", "fr")
    assert "Le gaspillage avant la pénurie : 3 GPU attribués de train sont inactifs" in french


def test_json_has_every_day_with_its_bands_and_the_lead_time_of_the_pool(lake: Lake) -> None:
    found = answer(lake, "forecast", "--horizon", "2w", "--lead-time", "4w", "--lead-time", "train=3d")
    [pool], days = found["forecast"], found["forecast_days"]
    assert (pool["horizon_days"], pool["lead_days"], pool["gpus"], pool["known_days"]) == (14, 3, 6.0, 29)
    assert pool["reclaimable_gpus"] == 3
    assert pool["order_by"] == str(date.fromisoformat(pool["full_likely"]) - timedelta(3))
    assert {pool[f"full_after_reclaim_{edge}"] for edge in ("earliest", "likely", "latest")} == {None}
    assert pool["test_weeks"] > 0
    assert [day["day"] for day in days] == [str(FIRST + timedelta(day)) for day in range(DAYS + 14)]
    assert days[DARK]["observed"] is None
    ahead = [days[-1][name] for name in ("low_95", "low_80", "forecast", "high_80", "high_95")]
    assert ahead == sorted(ahead)
