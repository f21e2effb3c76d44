"""Each pool's demand by hour, its cost, and the command's answer; the mix is the linear program's optimum."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from analytics.ledger.summary import Totals
from analytics.money.energy import Grid
from analytics.money.offers import GpuOffer, OfferKind
from analytics.money.prices import HOURS_PER_YEAR, PriceBook
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
from analytics.plan.purchase_mix import Hours, Option, cheapest_mix
from analytics.solver import one_thread_solver
from analytics.tables.plan_purchase import mix_parts, mix_sentence, purchase_mix
from analytics.workloads.fleet_demand import fleet_demand
from fallow.clock import HOUR_MS, WEEK_MS
from fallow.schema import STATES
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake
from tests.plan.asked import answer, refusal, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fallow.lake import Lake

MODEL = "NVIDIA H100 80GB HBM3"
GRID = Grid(1.5, 0.2, None)


def row(gpu: str, begin: float, end: float, state: str, user: str | None = None, **more: object) -> dict[str, object]:
    place = {"pool": "train", "model": MODEL, "host": "h1", "gpu": gpu, "gpu_share": 1.0}
    span = {"time": round(begin * HOUR_MS), "end": round(end * HOUR_MS), "state": state, "user": user}
    return place | span | {"account": None, "energy_mj": None, "energy_ms": None} | more


OF_ROWS = {"user": pl.String, "account": pl.String, "energy_mj": pl.Float64, "energy_ms": pl.Int64}


def test_the_need_is_the_demand_and_its_firm_part_that_of_work_that_may_not_stop() -> None:
    """Ann works on two GPUs, patient on a third, eve holds a fourth; the others are free."""
    fleet = Fleet(days=15, interval_s=3600)
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2], "patient", job="1002")
    fleet.run(gpus[3], "eve", mem_gb=5)
    context = context_of(fleet.recording())
    window = (context.until_ms - WEEK_MS, context.until_ms)

    def curve(going: Sequence[str]) -> NeedCurve:
        found = need_curves(context, fleet_demand(context, going), window, lambda user, _: user == "patient")
        return found[0]

    held, may_go = curve([]), curve([gpus[3].uuid])
    assert (held.pool, held.gpus, held.unseen, held.hours.height) == ("train", 8, 0, 168)
    assert held.hours.select("need", "firm", "taken").unique().rows() == [(4, 3, 4)]
    assert may_go.hours.select("need", "firm", "taken").unique().rows() == [(3, 2, 4)]
    assert with_spot_share(held, 0.25).hours["firm"].unique().to_list() == [3]


def need(levels: Sequence[float], firm_share: float = 1.0) -> NeedCurve:
    hours = pl.DataFrame({"need": levels}, schema={"need": pl.Float64}).with_row_index("time")
    need, time = pl.col("need"), pl.col("time").cast(pl.Int64) * HOUR_MS
    return NeedCurve("train", MODEL, 10.0, hours.with_columns(time, firm=need * firm_share, taken=need + 1), 0)


def priced(
    curve: NeedCurve, *offers: GpuOffer, book: PriceBook | None = None, power: Power | None = None, grid: Grid = GRID
) -> PoolPurchase:
    market = Market(offers, book or PriceBook("USD"), grid, 1.0)
    powers = {} if power is None else {("train", MODEL): power}
    [found] = pool_purchases([curve], market, powers, curve.hours.height * HOUR_MS)
    return found


def offer(kind: Any, hourly: float, **more: Any) -> GpuOffer:
    return GpuOffer(kind, "cloud", "H100 SXM", Decimal(str(hourly)), None, "cloud", **more)


def test_a_bought_gpu_draws_idle_power_always_and_the_rest_while_it_is_used() -> None:
    rows = [
        row("a", 0, 3, "active", energy_mj=700 * 3e3 * 3600, energy_ms=3 * HOUR_MS),
        row("a", 3, 4, "free", energy_mj=100 * 1e3 * 3600, energy_ms=HOUR_MS),
    ]
    power = measured_powers(pl.DataFrame(rows, schema_overrides=OF_ROWS))["train", MODEL]
    assert power == Power(pytest.approx(700), pytest.approx(100), is_measured=True)

    def bought(power: Power | None) -> Option:
        options = priced(need([1, 2]), offer("buy", 1.0), power=power).options
        [found] = [each for each in options if each.offer.kind == "buy"]
        return found

    option, unmeasured = bought(power), bought(None)
    assert (option.fixed, option.used) == (pytest.approx(1 + 0.1 * 1.5 * 0.2), pytest.approx(0.6 * 1.5 * 0.2))
    # without a measurement, the card's power limit all the time; without a price, nothing
    assert (unmeasured.fixed, unmeasured.used) == (pytest.approx(1 + 0.7 * 1.5 * 0.2), 0)
    free = priced(need([1, 2]), offer("buy", 1.0), grid=Grid(1.5, None, None))
    assert (free.options[-1].fixed, free.power) == (1.0, None)


def test_break_even_and_what_each_offer_costs_alone() -> None:
    offers = (offer("reserved", 1.4), offer("on_demand", 2.0), offer("spot", 0.5))
    found = priced(need([1, 2, 2, 3] * 42), *offers, book=PriceBook("EUR"))
    reserved, rented = found.options
    assert found.rented is rented  # the list's price is in dollars, which nobody exchanges here
    assert reserved.pays_from(rented.used) == pytest.approx(0.7)
    assert found.alone_yearly(reserved) == pytest.approx(3 * 1.4 * HOURS_PER_YEAR)
    assert found.alone_yearly(rented) == pytest.approx(8 / 4 * 2.0 * HOURS_PER_YEAR)
    assert found.mix is not None
    # the first two are used in at least three of four hours, the third in one
    parts = [(part.option.offer.kind, part.gpus, part.gpu_hours) for part in found.mix.parts]
    assert parts == [("reserved", 2, 7 * 42), ("on_demand", 1, 42)]
    assert [each.provider for each in found.unrated] == ["cloud"]
    assert found.with_taken is not None
    assert found.with_taken.cost > found.mix.cost
    assert found.now_yearly is None


def test_the_highest_demand_is_that_of_the_whole_gpus_of_the_mix() -> None:
    offers = (offer("on_demand", 2.0), offer("spot", 0.5, interruptions_per_day=Decimal(1)))
    found = priced(need([1.0, 2.0, 2.0, 2.01] * 42, 0.5), *offers, book=PriceBook("EUR"))
    [cells] = purchase_mix([found], "EUR", Totals(0, dict.fromkeys(STATES, 0))).cells
    assert "1.8, at most 3" in map(str, cells)
    parts = mix_parts([found], "EUR")
    assert parts is not None
    assert found.mix is not None
    assert sum(part.gpus for part in found.mix.parts) == 5, "two are rented in both ways"
    assert "counts in both rows" in str(parts.notes)
    near = priced(need([1.0, float(np.nextafter(3, 4))] * 84), offer("on_demand", 2.0))
    [cells] = purchase_mix([near], "USD", Totals(0, dict.fromkeys(STATES, 0))).cells
    assert "2.0, at most 3" in map(str, cells)
    assert near.mix is not None
    assert [part.gpus for part in near.mix.parts] == [3]


def test_the_range_is_that_of_whole_weeks() -> None:
    hours = WEEK_MS // HOUR_MS
    levels = [1.0] * hours + [3.0] * hours + [2.0] * hours
    found = priced(need([5.0, *levels]), offer("reserved", 1.0), offer("on_demand", 4.0))
    assert [each.committed_gpus for each in found.weeks] == [2, 3, 1]  # the newest first; the hour before them is none


def test_spot_alone_serves_no_firm_work() -> None:
    euro, spot = PriceBook("EUR"), offer("spot", 1, interruptions_per_day=Decimal(1))
    week = [1.0, 2.0] * 84
    assert priced(need(week, 0.5), spot, book=euro).mix is None
    assert priced(need(week, 0.0), spot, book=euro).mix is not None


@pytest.mark.parametrize("hours", [0, 2, 150])
def test_less_than_a_whole_week_gives_no_yearly_cost(hours: int) -> None:
    found = priced(need([2.0] * hours), offer("reserved", 1.0), book=PriceBook("EUR"))
    assert (found.mix, found.with_taken, found.alone_yearly(found.options[0])) == (None, None, None)
    assert mix_sentence([found], "EUR").startswith("No yearly cost is known")
    unpriced = priced(need([2.0] * 168), book=PriceBook("EUR"))
    assert mix_sentence([found, unpriced], "EUR").startswith("No yearly cost is known"), "a price is known"
    assert mix_sentence([unpriced], "EUR").startswith("No price is known")


def test_internal_prices_are_dear_where_the_pool_is_full_and_take_the_same_in_all() -> None:
    levels = [9 if hour % 24 in range(8, 20) else 2 for hour in range(72)]
    curve = need(levels, firm_share=0.7)
    found = internal_prices(curve, 2.0, ZoneInfo("Asia/Tokyo"))
    assert found is not None
    normal = found.factors["normal"]
    assert (found.load[17], found.load[4], found.load[5]) == (0.9, 0.9, 0.2)  # nine hours ahead
    assert normal[17] / normal[5] == pytest.approx((0.5 + 0.9) / (0.5 + 0.2))
    factors = {name: np.array(own, dtype=float) for name, own in found.factors.items()}
    mean = 0.7 * factors["normal"] + 0.3 * factors["deferrable"]
    assert np.array(levels) @ mean[(np.arange(72) + 9) % 24] == pytest.approx(sum(levels))
    assert factors["urgent"] == pytest.approx(factors["normal"] * WEIGHTS["urgent"])
    assert internal_prices(need([0] * 24), 2.0, ZoneInfo("UTC")) is None
    assert internal_prices(need([1] * 23), 2.0, ZoneInfo("UTC")) is None  # the quietest hour is not known


PRICES = f"model,pool,hourly,currency,date,source\n{MODEL},,1.00,USD,2026-01-01,invoice\n"
OFFERS = "kind,provider,model,hourly,date\non_demand,cloud,H100 SXM,3.00,2026-01-01\n"
OWNERS = "kind,name,team,priority_class\nuser,bob,speech,best-effort\n"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ann uses two GPUs always and one every other half day; Bob, who may be interrupted, a fourth on the last day."""
    fleet = Fleet(15, interval_s=1800)
    gpus = fleet.host("h1", H100, 6)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:3], "ann", fleet.daily(0, 12), job="2")
    train(fleet, gpus[3:4], "bob", fleet.between(-1), job="3")
    return fleet.write(made_lake(tmp_path_factory.mktemp("prices") / "lake"))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the site's tables to these texts."""

    def write(**texts: str) -> None:
        for name, content in texts.items():
            (tmp_path / f"{name}.csv").write_text(content, encoding="utf-8")
            monkeypatch.setenv(f"FALLOW_MONEY_{name.upper()}", str(tmp_path / f"{name}.csv"))

    return write


def test_the_command_says_the_mix_its_parts_and_what_is_old(lake: Lake, tables: Callable[..., None]) -> None:
    tables(prices=PRICES, offers=OFFERS, owners=OWNERS)
    said = text(lake, "purchase")
    assert "3 current GPUs, the others rented by the hour." in said
    assert "older than 90 days" in said
    assert "no work is marked as interruptible" not in said
    told = answer(lake, "purchase")
    parts = {part["kind"]: (part["gpus"], part["gpu_hours"]) for part in told["purchase_mix"]}
    assert parts["own"][0] == 3
    [pool] = told["purchase_needs"]
    levels = pairwise([*pool["curve"], {"gpus": 0.0}])
    area = sum(each["hours"] * (each["gpus"] - below["gpus"]) for each, below in levels)
    assert sum(hours for _, hours in parts.values()) == pytest.approx(area)
    assert told["purchase"][0]["now_yearly_cost"] == pytest.approx(6 * HOURS_PER_YEAR)
    is_old = {each["source"]: each["is_old"] for each in told["purchase_offers"]}
    assert is_old.items() >= {"invoice": False, "cloud": True}.items()
    [internal] = told["internal_price_factors"]
    assert (internal["flat"], len(internal["load"])) == (1.0, 24)


def test_more_that_may_be_interrupted_goes_to_spot(lake: Lake, tables: Callable[..., None]) -> None:
    head, rented = OFFERS.splitlines()
    spot = "spot,cloud,H100 SXM,0.5,2026-01-01,2"
    tables(offers=f"{head},interruptions_per_day\n{rented},\n{spot}\n")
    told = answer(lake, "purchase", "--spot-share", "0.5")
    gpu_hours = {part["kind"]: part["gpu_hours"] for part in told["purchase_mix"]}
    assert gpu_hours["spot"] == pytest.approx(gpu_hours["on_demand"])


def test_where_all_is_rented_nothing_is_called_worth_having(lake: Lake) -> None:
    said = text(lake, "purchase")
    assert "all rented by the hour" in said
    assert "No GPU is worth having for good at these prices, or none is offered so." in said


def test_without_any_price_the_need_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """In euros, for which no rate is known, even the public list has none."""
    monkeypatch.setenv("FALLOW_MONEY_CURRENCY", "EUR")
    said = text(lake, "purchase")
    assert "No price is known for any of these GPUs, so only the demand is shown." in said
    assert "at most 4" in said
    assert "The year is assumed" not in said, "no yearly figure is shown"
    assert "No range is shown" not in said, "the weeks are there, the price is not"
    assert "Multiples of the flat price" in said


def test_an_offers_table_that_cannot_be_used_is_named(lake: Lake, tables: Callable[..., None]) -> None:
    tables(offers=OFFERS.replace("on_demand", "rent"))
    assert "kind 'rent' is none of buy, reserved, spot, on_demand" in refusal(lake, "purchase")


HOURS = 24


def least_cost(need: Hours, firm: Hours, options: list[Option]) -> float:
    """The linear program: GPUs of each committed option, and per hour which option does which firm and other work."""
    solver = one_thread_solver()
    capacity = {
        at: solver.addVariable(lb=0, obj=each.fixed * len(need)) for at, each in enumerate(options) if each.is_committed
    }
    for needed, kept in zip(need, firm, strict=True):
        does = {
            kind: {
                at: solver.addVariable(lb=0, obj=each.used)
                for at, each in enumerate(options)
                if kind == "other" or each.offer.kind != "spot"
            }
            for kind in ("firm", "other")
        }
        solver.addConstr(sum(does["firm"].values()) == float(kept))
        solver.addConstr(sum(does["other"].values()) == float(needed - kept))
        for at, most in capacity.items():
            solver.addConstr(does["firm"][at] + does["other"][at] <= most)
    solver.run()
    return float(solver.getObjectiveValue())


@pytest.mark.parametrize("seed", range(40))
def test_it_costs_what_the_linear_program_says(seed: int) -> None:
    """Random needs and prices, also ones that no market has: spot cheaper than the electricity of a bought GPU."""
    random = np.random.default_rng(seed)

    def option(kind: OfferKind, fixed: float, used: float) -> Option:
        return Option(GpuOffer(kind, "somebody", "H100 SXM", Decimal(0), None, "test"), fixed, used)

    need = random.integers(0, 12, HOURS).astype(float)
    firm = np.floor(need * random.random(HOURS))
    options = [option("on_demand", 0.0, random.uniform(2, 5)), option("spot", 0.0, random.uniform(0.1, 4))]
    options.append(option("reserved", random.uniform(0.5, 4), 0.0))
    options += [option("buy", random.uniform(0.3, 3), random.uniform(0, 1)) for _ in range(2)]
    mix = cheapest_mix(need, firm, options)
    assert mix is not None
    assert mix.cost == pytest.approx(least_cost(need, firm, options), rel=1e-9)
    assert sum(part.gpu_hours for part in mix.parts) == pytest.approx(need.sum())
    assert mix.cost == pytest.approx(
        sum(part.option.fixed * part.gpus * HOURS + part.option.used * part.gpu_hours for part in mix.parts)
    )
