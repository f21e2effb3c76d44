"""What each pool's need is hour by hour, what it costs, and how the command says so."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from analytics.money.energy import Grid
from analytics.money.offers import GpuOffer
from analytics.money.prices import HOURS_PER_YEAR, PriceBook
from analytics.plan.jobs import JOB_SCHEMA
from analytics.plan.purchase import (
    WEIGHTS,
    Market,
    NeedCurve,
    PoolPurchase,
    Power,
    internal_prices,
    measured_powers,
    need_curves,
    pool_purchases,
    with_spot_share,
)
from fallow.clock import HOUR_MS, WEEK_MS
from tests.answers import rows_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.in_process import run_in_process
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fallow.lake import Lake

MODEL = "NVIDIA H100 80GB HBM3"
GRID = Grid(1.5, 0.2, 0.4)


def row(gpu: str, begin: float, end: float, state: str, holder: str | None = None, **more: object) -> dict[str, object]:
    return {"pool": "train", "model": MODEL, "host": "h1", "gpu": gpu, "time": round(begin * HOUR_MS), "end": round(end * HOUR_MS), "state": state,
            "holder": holder, "account": None, "gpu_share": 1.0, "energy_mj": None, "energy_ms": None} | more  # fmt: skip


def curve_of(rows: Sequence[dict[str, object]], jobs: Sequence[dict[str, object]] = (), hours: int = 4) -> NeedCurve:
    text = dict.fromkeys(("holder", "account"), pl.String)
    ledger = pl.DataFrame(rows, schema_overrides=text | {"energy_mj": pl.Float64, "energy_ms": pl.Int64})
    window = (0, hours * HOUR_MS)
    [found] = need_curves(
        ledger, pl.DataFrame(list(jobs), schema=JOB_SCHEMA), window, lambda user, _: user == "patient"
    )
    return found


def test_need_is_use_and_waits_and_not_what_is_held() -> None:
    rows = [
        row("a", 0, 2, "active", "ann"), row("a", 2, 4, "held", "ann"),
        row("b", 0, 0.5, "free"), row("b", 0.5, 3, "low", "patient"), row("b", 3, 4, "reserved", "ann"),
        row("c", 0, 1, "free"), row("c", 1, 4, "free"),
    ]  # fmt: skip
    waits = {"scheduler": "slurm", "job": "1", "user": "bob", "gpus": 4, "submitted": HOUR_MS, "start": HOUR_MS * 3 // 2, "end": 3 * HOUR_MS, "hosts": ["h1"], "host_count": 1}  # fmt: skip
    found = curve_of(rows, [waits, waits | {"job": "2", "user": "patient"}])
    assert (found.pool, found.gpus, found.unseen) == ("train", 3, 0)
    hours = found.hours.select("need", "firm", "taken").rows()
    # two jobs of four GPUs waited for half an hour each in the second hour
    assert hours == [(2, 1, 2), (2 + 4, 1 + 2, 2 + 4), (1, 0, 2), (0, 0, 2)]
    assert with_spot_share(found, 0.25).hours["firm"].to_list() == [1.5, 4.5, 0.75, 0]


def test_an_hour_that_was_not_observed_is_left_out() -> None:
    found = curve_of([row("a", 0, 4, "active"), row("b", 0, 4, "active"), row("c", 0, 1.5, "active"), row("c", 1.5, 2.5, "unknown"), row("c", 2.5, 4, "active")])  # fmt: skip
    assert (found.hours["need"].to_list(), found.unseen) == ([3.0, 3.0], 2)


def need(levels: Sequence[float], firm_share: float = 1.0) -> NeedCurve:
    hours = pl.DataFrame(
        {"time": [place * HOUR_MS for place in range(len(levels))], "need": [float(each) for each in levels]}
    )
    firm = (pl.col("need") * firm_share).alias("firm")
    return NeedCurve("train", MODEL, 10.0, hours.with_columns(firm, taken=pl.col("need") + 1), 0)


def priced(
    curve: NeedCurve, *offers: GpuOffer, book: PriceBook | None = None, power: Power | None = None, grid: Grid = GRID
) -> PoolPurchase:
    market = Market(offers, book or PriceBook("USD"), grid, 1.0)
    [found] = pool_purchases(
        [curve], market, {} if power is None else {("train", MODEL): power}, curve.hours.height * HOUR_MS
    )
    return found


def offer(kind: Any, hourly: float, **more: Any) -> GpuOffer:
    return GpuOffer(kind, "cloud", "H100 SXM", Decimal(str(hourly)), None, "cloud", **more)


def test_a_bought_gpu_draws_idle_power_always_and_the_rest_while_it_is_used() -> None:
    rows = [
        row("a", 0, 3, "active", energy_mj=700 * 3e3 * 3600, energy_ms=3 * HOUR_MS),
        row("a", 3, 4, "free", energy_mj=100 * 1e3 * 3600, energy_ms=HOUR_MS),
    ]
    power = measured_powers(pl.DataFrame(rows, schema_overrides={"holder": pl.String, "account": pl.String}))[
        "train", MODEL
    ]
    assert power == Power(pytest.approx(700), pytest.approx(100), is_measured=True)
    [option] = [
        each for each in priced(need([1, 2]), offer("buy", 1.0), power=power).options if each.offer.kind == "buy"
    ]
    assert (option.fixed, option.used) == (pytest.approx(1 + 0.1 * 1.5 * 0.2), pytest.approx(0.6 * 1.5 * 0.2))
    # without a measurement, the card's power limit all the time; without a price, nothing
    [unmeasured] = [each for each in priced(need([1, 2]), offer("buy", 1.0)).options if each.offer.kind == "buy"]
    assert (unmeasured.fixed, unmeasured.used) == (pytest.approx(1 + 0.7 * 1.5 * 0.2), 0)
    free = priced(need([1, 2]), offer("buy", 1.0), grid=Grid(1.5, None, 0.4))
    assert (free.options[-1].fixed, free.power) == (1.0, None)


def test_break_even_and_what_each_offer_costs_alone() -> None:
    found = priced(
        need([1, 2, 2, 3]), offer("reserved", 1.4), offer("on_demand", 2.0), offer("spot", 0.5), book=PriceBook("EUR")
    )
    reserved, rented = found.options
    assert found.rented is rented  # the list's price is in dollars, which nobody exchanges here
    assert reserved.pays_from(rented.used) == pytest.approx(0.7)
    assert found.alone_yearly(reserved) == pytest.approx(3 * 1.4 * HOURS_PER_YEAR)
    assert found.alone_yearly(rented) == pytest.approx(8 / 4 * 2.0 * HOURS_PER_YEAR)
    assert found.mix is not None
    # the first two are used in at least three of four hours, the third in one
    assert [(part.option.offer.kind, part.gpus, part.gpu_hours) for part in found.mix.parts] == [
        ("reserved", 2, 7),
        ("on_demand", 1, 1),
    ]
    assert [each.provider for each in found.unrated] == ["cloud"]
    assert found.with_taken is not None
    assert found.with_taken.cost > found.mix.cost
    assert found.now_yearly is None


def test_the_range_is_that_of_whole_weeks() -> None:
    hours = WEEK_MS // HOUR_MS
    levels = [1.0] * hours + [3.0] * hours + [2.0] * hours
    found = priced(need([5.0, *levels]), offer("reserved", 1.0), offer("on_demand", 4.0))
    assert [each.committed_gpus for each in found.weeks] == [2, 3, 1]  # the newest first; the hour before them is none


def test_spot_alone_serves_no_firm_work() -> None:
    euro = PriceBook("EUR")
    assert priced(need([1, 2], 0.5), offer("spot", 1, interruptions_per_day=Decimal(1)), book=euro).mix is None
    assert priced(need([1, 2], 0.0), offer("spot", 1, interruptions_per_day=Decimal(1)), book=euro).mix is not None
    assert priced(need([]), offer("on_demand", 1), book=euro).mix is None


def test_internal_prices_are_dear_where_the_pool_is_full_and_take_the_same_in_all() -> None:
    levels = [9 if hour % 24 in range(8, 20) else 2 for hour in range(72)]
    curve = need(levels, firm_share=0.7)
    found = internal_prices(curve, 2.0, ZoneInfo("Asia/Tokyo"))
    assert found is not None
    normal = [each for each in found.factors["normal"] if each is not None]
    assert (found.load[17], found.load[4], found.load[5]) == (0.9, 0.9, 0.2)  # nine hours ahead
    assert normal[17] / normal[5] == pytest.approx((0.5 + 0.9) / (0.5 + 0.2))
    factors = {name: np.array(own, dtype=float) for name, own in found.factors.items()}
    local = (np.arange(72) + 9) % 24
    paid = sum(
        each * (0.7 * factors["normal"][hour] + 0.3 * factors["deferrable"][hour])
        for each, hour in zip(levels, local, strict=True)
    )
    assert paid == pytest.approx(sum(levels))
    assert factors["urgent"] == pytest.approx(factors["normal"] * WEIGHTS["urgent"])
    assert internal_prices(need([0, 0]), 2.0, ZoneInfo("UTC")) is None


PRICES = f"model,pool,hourly,currency,date,source\n{MODEL},,1.00,USD,2026-01-01,invoice\n"
OFFERS = "kind,provider,model,hourly,date\non_demand,cloud,H100 SXM,3.00,2026-01-01\n"
OWNERS = "kind,name,team,priority_class\nuser,bob,speech,best-effort\n"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ann's two GPUs work always, one more every other half day; Bob, who may be interrupted, has a fourth in the last day."""
    fleet = Fleet(15, interval_s=1800)
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:3], "ann", fleet.daily(0, 12), job="2")
    train(fleet, gpus[3:4], "bob", fleet.between(-1), job="3")
    return fleet.write(made_lake(tmp_path_factory.mktemp("prices") / "lake"))


def run(lake: Lake, folder: Path, *flags: str, **tables: str) -> Any:
    named = {}
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        named[f"FALLOW_MONEY_{name.upper()}"] = str(folder / f"{name}.csv")
    return run_in_process("plan", "purchase", "--lake", lake.root, *flags, **named)


def test_the_command_says_the_mix_its_parts_and_what_is_old(lake: Lake, tmp_path: Path) -> None:
    done = run(lake, tmp_path, prices=PRICES, offers=OFFERS, owners=OWNERS)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "with 3 GPUs as now, the rest rented by the hour." in text
    assert "older than 90 days" in text
    assert "Nobody says whose work may be interrupted" not in text
    told = rows_of(run(lake, tmp_path, "--json", prices=PRICES, offers=OFFERS, owners=OWNERS).stdout)
    parts = {part["kind"]: (part["gpus"], part["gpu_hours"]) for part in told["purchase-mix"]}
    assert parts["own"][0] == 3
    [pool] = told["purchase-needs"]
    assert sum(hours for _, hours in parts.values()) == pytest.approx(sum(_area(pool["curve"])))
    assert told["purchase"][0]["now_yearly_cost"] == pytest.approx(6 * HOURS_PER_YEAR)
    is_old = {each["source"]: each["is_old"] for each in told["purchase-offers"]}
    assert is_old.items() >= {"invoice": False, "cloud": True}.items()
    [internal] = told["internal-price-factors"]
    assert (internal["flat"], len(internal["load"])) == (1.0, 24)


def _area(curve: list[dict[str, float]]) -> list[float]:
    """GPU-hours between each level and the next lower one."""
    lower = [each["gpus"] for each in curve[1:]] + [0.0]
    return [each["hours"] * (each["gpus"] - below) for each, below in zip(curve, lower, strict=True)]


def test_more_that_may_be_interrupted_goes_to_spot(lake: Lake, tmp_path: Path) -> None:
    spot = (
        OFFERS.replace("date", "date,interruptions_per_day").replace("2026-01-01", "2026-01-01,")
        + "spot,cloud,H100 SXM,0.5,2026-01-01,2\n"
    )
    told = rows_of(run(lake, tmp_path, "--json", "--spot-share", "0.5", offers=spot).stdout)
    gpu_hours = {part["kind"]: part["gpu_hours"] for part in told["purchase-mix"]}
    assert gpu_hours["spot"] == pytest.approx(gpu_hours["on_demand"])


def test_where_all_is_rented_nothing_is_called_worth_having(lake: Lake) -> None:
    text = " ".join(run_in_process("plan", "purchase", "--lake", lake.root).stdout.split())
    assert "all of it rented by the hour" in text
    assert "No GPU is worth having for good at these prices, or none is offered so." in text


def test_without_any_price_the_need_is_said(lake: Lake) -> None:
    """In euros, for which no rate is known, even the public list has none."""
    done = run_in_process("plan", "purchase", "--lake", lake.root, FALLOW_MONEY_CURRENCY="EUR")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "No price is known for any of these GPUs: only the need is shown." in text
    assert "at most 4" in text
    assert "Times the flat price" in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--spot-share", "1.5"), "--spot-share 1.5 is no share; give a number from 0 to 1"),
        (("--user", "ann"), "GPUs are bought and rented for pools; leave out --user"),
    ],
)
def test_wrong_use_is_one_sentence(lake: Lake, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    done = run(lake, tmp_path, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_an_offers_table_that_cannot_be_used_is_named(lake: Lake, tmp_path: Path) -> None:
    done = run(lake, tmp_path, offers=OFFERS.replace("on_demand", "rent"))
    assert done.returncode == 2
    assert "kind 'rent' is none of buy, reserved, spot, on_demand" in done.stderr
