"""Energy and CO2: planted watts and intensities, with sums by hand; and what holding, and other hours, come to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from analytics.ledger.rollups import Rollups
from analytics.money.carbon import hourly_energy
from analytics.money.energy import Grid, GridIntensity
from analytics.money.owners import Owner, Owners
from analytics.money.window_money import Money
from analytics.plan.carbon import AskedCarbon, Carbon, CarbonBasis, find_carbon
from analytics.plan.deferral import GridHours, find_deferral, least_rates, moved_work, with_deferrable
from analytics.solver import one_thread_solver
from analytics.tables.plan_carbon import carbon_tables
from fallow import schema
from fallow.clock import HOUR_MS
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, device, fill, processes, samples
from tests.money.fleet import accounts, owners, segment
from tests.plan.asked import Answer, answer, text

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

INTENSITY = ("100", "200", "300", "", "500", "600", "50", "50")
GRID = "time,intensity\n" + "".join(f"2026-11-20T0{hour}:00Z,{g}\n" for hour, g in enumerate(INTENSITY))
HOUR_S = 3600.0
W = {"active": 400.0, "held": 126.0, "free": 80.0}


def spent(gpu: str, *spans: tuple[float, str]) -> list[dict[str, Any]]:
    """Rows of one GPU: what it was up to each hour."""
    found, at = [], 0.0
    for until, state in spans:
        values = {"gpu_util_pct": 90.0 if state == "active" else 0.0, "process_count": int(state != "free")}
        found += samples(gpu, at * HOUR_S, until * HOUR_S, every_s=60, power_w=W[state], **values)
        at = until
    return found


def listed(gpu: str, since: float, until: float, **values: object) -> list[dict[str, Any]]:
    times = np.arange(since * HOUR_S, until * HOUR_S, 600.0)
    return processes(gpu, *times, every_s=600, **values)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Eight hours: ann works for two and holds for two; bob, in no table, works from 5 to 6; a third GPU is free."""
    gpu = spent("a", (2, "active"), (4, "held"), (8, "free")) + spent("b", (5, "free"), (6, "active"), (8, "free"))
    process = listed("a", 0, 4) + listed("b", 5, 6, slurm_job_id="7", user="bob")
    lake = made_lake(tmp_path / "lake")
    return fill(lake, gpu + spent("c", (8, "free")), process, devices=[device(name) for name in "abc"])


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The grid's file; ann is of vision, PUE is 1.5."""
    (tmp_path / "owners.csv").write_text("kind,name,team\nuser,ann,vision\n", encoding="utf-8")
    (tmp_path / "grid.csv").write_text(GRID, encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(tmp_path / "owners.csv"))
    monkeypatch.setenv("FALLOW_MONEY_PUE", "1.5")
    return tmp_path / "grid.csv"


def rated(lake: Lake, grid: Path | str, *flags: str) -> Answer:
    return answer(lake, "carbon", "--intensity", str(grid), *flags)


def parts_of(found: Answer) -> dict[str, dict[str, Any]]:
    """The figures of each part of the GPU time, and of `all`."""
    return {each["part"]: each for each in found["carbon"]}


def test_sums_by_hand(lake: Lake, grid: Path) -> None:
    found = rated(lake, grid)
    parts = parts_of(found)
    # g/kWh by the hour: 100 200 300 ? 500 600 50 50, of which the fourth is in no file
    every = 100 + 200 + 300 + 500 + 600 + 50 + 50
    watt_hours = {"used": 3 * 400, "held": 2 * 126, "free": (4 + 7 + 8) * 80}
    grams = {"used": 0.4 * (100 + 200 + 600), "held": 0.126 * 300, "free": 0.08 * (3 * every - 600 - 600)}
    assert {name: each["kwh"] for name, each in parts.items() if name != "all"} == pytest.approx(
        {name: wh / 1000 for name, wh in watt_hours.items()}, rel=1e-6
    )
    assert {part: parts[part]["co2_kg"] for part in grams} == pytest.approx(
        {part: g * 1.5 / 1000 for part, g in grams.items()}
    )
    assert parts["held"]["rated_share"] == pytest.approx(0.5)
    assert parts["all"]["known_share"] == 1
    (basis,) = found["carbon_basis"]
    assert (basis["intensity_source"], basis["intensity_is_hourly"]) == ("grid.csv (intensity)", True)
    assert (basis["mean_g_per_kwh"], basis["hours"], basis["known_hours"]) == (pytest.approx(every / 7), 8, 7)
    assert (basis["pue"], basis["counter_share"]) == (1.5, 0)
    used = {each["team"]: each["kwh"] for each in found["carbon_team_parts"] if each["part"] == "used"}
    assert used == pytest.approx({"vision": 0.8, "(no team)": 0.4, "(nobody)": 0})
    # holding a card costs what it draws beyond a free one; of the other hour nothing is known
    [one] = found["parking_power"]
    assert (one["free_w"], one["held_w"]) == (pytest.approx(80), pytest.approx(126))
    assert (one["extra_kwh"], one["extra_co2_kg"]) == pytest.approx((2 * 46 / 1000, 0.046 * 300 * 1.5 / 1000))
    assert (one["year_kwh"], one["year_cost"]) == pytest.approx((46 * 8.766 * 1.5, 46 * 8.766 * 1.5 * 0.12))


def test_parts_and_teams_add_up_to_the_ledgers_own_energy(lake: Lake, grid: Path) -> None:
    found = rated(lake, grid)
    ledger = json.loads(run_in_process("ledger", "--lake", lake.root, "--json").stdout)["energy"]
    *parts, whole = found["carbon"]
    *teams, all_teams = found["carbon_teams"]
    assert (whole["part"], all_teams["team"]) == ("all", "(all)")
    for figure in ("kwh", "co2_kg", "gpu_hours"):
        for rows in (parts, teams, found["carbon_team_parts"], [all_teams]):
            assert sum(each[figure] for each in rows) == pytest.approx(whole[figure], rel=1e-12)
    assert whole["kwh"] * 3.6e6 == pytest.approx(ledger["kwh"] * 3.6e6, abs=0.01)


def test_the_ledger_has_the_same_co2_in_all_and_of_each_team(lake: Lake, grid: Path) -> None:
    found = rated(lake, grid)
    settings = {
        "FALLOW_PLAN_CARBON": str(grid),
        "FALLOW_MONEY_PUE": "1.5",
        "FALLOW_MONEY_OWNERS": str(grid.with_name("owners.csv")),
    }
    ledger = run_in_process("ledger", "--lake", lake.root, "--by", "team", "--json", **settings)
    told, whole = json.loads(ledger.stdout), parts_of(found)["all"]
    energy = told["energy"]
    assert (energy["co2_kg"], energy["rated_share"]) == pytest.approx((whole["co2_kg"], whole["rated_share"]))
    assert (energy["grid_kg_per_kwh"], energy["intensity_source"]) == (None, "grid.csv (intensity)")
    teams = {each["label"]: each["energy_co2_kg"] for each in told["groups"]["rows"]}
    assert teams == {
        each["team"]: pytest.approx(each["co2_kg"]) for each in found["carbon_teams"] if each["team"] != "(all)"
    }
    said = run_in_process("ledger", "--all", "--lake", lake.root, **settings).stdout
    assert (
        f"{whole['co2_kg']:.1f} kg of CO2 by the hour, for {100 * whole['rated_share']:.1f} % of the energy (grid.csv"
        " (intensity))" in " ".join(said.split())
    )


def test_where_the_file_cannot_be_used_the_ledger_stands_without_co2(lake: Lake) -> None:
    done = run_in_process("ledger", "--lake", lake.root, "--json", FALLOW_PLAN_CARBON="/none.csv")
    energy = json.loads(done.stdout)["energy"]
    assert (energy["co2_kg"], energy["kwh"]) == (None, pytest.approx(2.972, rel=1e-3))
    assert "/none.csv" in done.stderr


def test_a_night_that_draws_less_is_rated_as_it_was(tmp_path: Path, grid: Path) -> None:
    """One segment of work over three hours: 100, 300 and 200 W, as the rows of each hour say."""
    work = {"every_s": 60, "gpu_util_pct": 90.0, "process_count": 1}
    spans = [(hour * HOUR_S, (hour + 1) * HOUR_S, watts) for hour, watts in enumerate((100.0, 300.0, 200.0))]
    rows = [row for begin, end, watts in spans for row in samples("a", begin, end, power_w=watts, **work)]
    lake = fill(made_lake(tmp_path / "night"), rows, listed("a", 0, 3), devices=[device("a")])
    found = parts_of(rated(lake, grid))["used"]
    assert found["co2_kg"] == pytest.approx((0.1 * 100 + 0.3 * 200 + 0.2 * 300) * 1.5 / 1000)
    assert found["kwh"] == pytest.approx(0.6, rel=1e-6)


def test_what_can_wait_moves_to_the_cleanest_hour_within_reach(lake: Lake, grid: Path) -> None:
    """Bob's job ran in the dirtiest hour: one hour later the grid is twelve times cleaner, and GPUs are free."""
    found = rated(lake, grid, "--shift", "1h")
    (one,), hours = found["deferral"], found["better_hours"]
    assert (one["most_hours"], one["work_kwh"], one["moved_kwh"]) == (1, pytest.approx(0.4), pytest.approx(0.4))
    expected = pytest.approx((0.4 - 0.08) * (600 - 50) * 1.5 / 1000, rel=1e-4)
    assert (one["saved_kg"], one["saved_kg_at_most"]) == (expected, expected)
    assert sum(each["kwh"] for each in hours) == pytest.approx(sum(each["best_kwh"] for each in hours), abs=2e-9)
    dirty = {"hour": 5, "g_per_kwh": 600, "free_gpus": 2, "kwh": 0.4, "best_kwh": 0}
    assert hours[5] == pytest.approx(dirty)


def test_without_hours_nothing_is_said_of_other_hours(lake: Lake) -> None:
    found = answer(lake, "carbon")
    assert "deferral" not in found
    assert found["better_hours"] == []
    assert found["carbon_basis"][0]["mean_g_per_kwh"] == 445
    whole = parts_of(found)["all"]
    assert whole["co2_kg"] == pytest.approx(whole["kwh"] * 1.54 * 0.445)
    flat = parts_of(rated(lake, "50"))["all"]
    assert flat["co2_kg"] == pytest.approx(whole["kwh"] * 1.54 * 0.05)
    assert "Name a file with --intensity" in text(lake, "carbon")


def test_a_team_sees_its_own_alone(lake: Lake, grid: Path) -> None:
    found = rated(lake, grid, "--team", "vision")
    assert [each["team"] for each in found["carbon_teams"]] == ["vision", "(all)"]
    assert not {"parking_power", "better_hours", "deferral"} & found.keys()
    assert parts_of(found)["all"]["kwh"] == pytest.approx(0.8 + 2 * 0.126)


def test_a_file_of_other_days_leaves_the_energy(lake: Lake, grid: Path) -> None:
    old = grid.with_name("old.csv")
    old.write_text(GRID.replace("2026", "2020"), encoding="utf-8")
    whole = parts_of(rated(lake, old))["all"]
    assert (whole["co2_kg"], whole["rated_share"]) == (None, 0)
    assert whole["kwh"] == pytest.approx(1.2 + 0.252 + 1.52)
    out = text(lake, "carbon", "--intensity", str(old))
    assert "No hour of the window has a known intensity" in out
    assert "has none of the window's 8 hours" in out


def rollups(*hourly: dict[str, Any]) -> Rollups:
    return Rollups({}, {schema.HOURLY.name: [pl.DataFrame(hourly, schema=HOURLY)]})


def carbon(rows: list[dict[str, Any]], *hourly: dict[str, Any], **parents: str) -> Carbon:
    """Of ledger rows, without a lake, on a grid that gets dirtier."""
    made = accounts(rows, owners(ann="vision", eve="speech"), **parents)
    money = Money(made, (), Grid(1.0, None, None), None, owners(ann="vision"))  # type: ignore[arg-type]  # costs unused
    made.rollups = rollups(*hourly)
    basis = CarbonBasis(None, AskedCarbon(RISING, ZoneInfo("UTC")), T0, T0 + 4 * HOUR_MS)
    return find_carbon(money, basis, for_people=False)


HOURLY = {"time": pl.Int64, "host": pl.String, "gpu": pl.String, "energy_mj": pl.Float64, "energy_ms": pl.Int64}
RISING = GridIntensity("", None, pl.DataFrame({"hour": [T0, T0 + HOUR_MS], "g_per_kwh": [100.0, 300.0]}))
KWH = 3.6e9
SPENT = {"energy_mj": KWH, "energy_ms": HOUR_MS}


def test_the_hours_of_a_segment_weigh_as_their_own_energy() -> None:
    """Two kilowatt-hours in two hours: a quarter of them in the first, as the GPU's counter says by the hour."""
    rows = [segment("a1", 0, 7200, "active", user="ann", energy_mj=2 * KWH, energy_ms=7_200_000)]
    hourly = [
        {"time": T0 + place * HOUR_MS, "host": "h-1", "gpu": "a1", "energy_mj": kwh * KWH, "energy_ms": HOUR_MS}
        for place, kwh in enumerate((0.5, 1.5))
    ]
    assert carbon(rows).total.co2_g == pytest.approx(100 + 300)
    told = carbon(rows, *hourly).total
    assert told.co2_g == pytest.approx(0.5 * 100 + 1.5 * 300)
    assert told.energy.millijoules == pytest.approx(2 * KWH)
    assert carbon(rows, hourly[0]).total.co2_g == pytest.approx(100 + 300)  # of one hour nothing is known


def test_what_several_use_is_shared_and_a_split_gpu_is_nobodys() -> None:
    rows = [
        segment("a1", 0, 3600, "active", user="ann+eve", user_shares=[0.75, 0.25], **SPENT),
        segment("b2", 0, 3600, "free", gpu_share=4 / 7, **SPENT),
        segment("MIG-1", 0, 3600, "active", gpu_share=3 / 7, user="ann"),
    ]
    found = carbon(rows, MIG_1="b2")
    teams = {each.label: each.total for each in found.teams}
    grams = {label: each.co2_g for label, each in teams.items()}
    assert grams == pytest.approx({"vision": 75, "speech": 25, "(nobody)": 100})
    assert found.parts["rest"].kwh == pytest.approx(1.0)
    assert found.parts["free"].energy.total_ms == 0
    assert teams["vision"].energy.known_share == pytest.approx(0.75 / (0.75 + 3 / 7))
    assert found.total.co2_g == pytest.approx(200)


def test_unknown_energy_is_no_zero() -> None:
    found = carbon([segment("a1", 0, 3600, "active", user="ann")])
    assert (found.total.kwh, found.total.co2_kg, found.total.energy.known_share) == (None, None, 0)
    assert found.parking == ()
    texts = [str(table.headline) for table in carbon_tables(found) if table is not None]
    assert texts[0] == "No energy is known, because neither energy counters nor power were read."
    assert texts[2] == "No model was both unallocated and held idle for an hour of known energy."


@pytest.mark.parametrize(
    ("rate", "reach", "moved_to"),
    [
        ((500.0, 400, 300, 100), 3, [2, 2]),
        ((500.0, 400, 300, 100), 1, [1, 1]),  # the second leaves, and the first takes its place
        ((500.0, np.nan, np.nan, 100), 2, [0, 0]),
    ],
    ids=["the hungrier work gets the cleanest hour", "reach holds", "unknown hours hold"],
)
def test_moves_are_the_best_there_are(rate: tuple[float, ...], reach: int, moved_to: list[int]) -> None:
    """Two hours of work, one free GPU-hour in each of the two after them; by how many hours each moves."""
    work, weight, room = np.array([1.0, 1, 0, 0]), np.array([1.0, 3, 0, 0]), np.array([0.0, 0, 1, 1])
    moved = moved_work(work, weight, room, np.array(rate), reach).moved
    assert np.argmax(moved, axis=1)[:2].tolist() == moved_to
    assert moved.sum(axis=1).tolist() == pytest.approx([1, 1, 0, 0])


def test_no_plan_saves_more_than_the_bound() -> None:
    """Against the best plan for pieces of work of unlike power, as scipy finds it."""
    numbers = np.random.default_rng(3)
    for _ in range(20):
        hours, reach, pieces = 12, 4, 30
        start, weight = numbers.integers(0, hours, pieces), numbers.uniform(50, 600, pieces)
        size, room = numbers.uniform(0.1, 1, pieces), numbers.uniform(0, 1, hours)
        rate = numbers.uniform(50, 600, hours)
        work = np.bincount(start, size, hours)
        mean = np.divide(np.bincount(start, size * weight, hours), work, out=np.zeros(hours), where=work > 0)
        later = moved_work(work, mean, room, rate, reach)
        best = _best(start, (size, weight), work + room, rate, reach)
        moves = [(hour, delay) for hour in range(hours) for delay in range(min(reach + 1, hours - hour))]
        alike = sum(later.moved[hour, by] * mean[hour] * (rate[hour] - rate[hour + by]) for hour, by in moves)
        saved = weight * rate[start] - least_rates(start, weight, rate, later.prices, reach)
        bound = size @ saved + (work + room) @ later.prices
        assert alike <= best + 1e-3
        assert best <= bound + 1e-6
        assert bound <= 1.5 * best


def _best(start: Any, pieces: tuple[Any, Any], most: Any, rate: Any, reach: int) -> float:
    size, weight = pieces
    solver = one_thread_solver()
    moved = {
        (piece, hour): solver.addVariable(lb=0, obj=float(weight[piece] * rate[hour]))
        for piece, first in enumerate(start)
        for hour in range(first, min(first + reach + 1, len(most)))
    }
    for piece, whole in enumerate(size):
        solver.addConstr(sum(part for (own, _), part in moved.items() if own == piece) == float(whole))
    for hour in {hour for _, hour in moved}:
        solver.addConstr(sum(part for (_, then), part in moved.items() if then == hour) <= float(most[hour]))
    solver.run()
    return float(size @ (weight * rate[start]) - solver.getObjectiveValue())


def test_work_of_unknown_energy_moves_nothing_and_stops_nothing() -> None:
    work = {"state": "active", "user": "ann"}
    rows = [segment("a1", 0, 3600, **work), segment("a1", 3600, 7200, **work, **SPENT)]
    pieces = accounts(rows).pieces.with_columns(is_deferrable=pl.lit(value=True))
    hours = pl.DataFrame({"hour": [T0, T0 + HOUR_MS], "g_per_kwh": [300.0, 100.0]})
    energy = hourly_energy(pieces, rollups(), GridIntensity("", None, hours), 1.0)
    found = find_deferral(energy, GridHours(hours, ZoneInfo("UTC"), 1.0), {}, 1)
    assert (found.saved_g, found.moved_mj) == (0, 0)
    assert found.most_saved_g == pytest.approx(0, abs=1e-6)
    assert found.work.energy.known_share == 0.5


def test_hours_of_the_day_are_those_of_the_clocks_on_the_wall(
    lake: Lake, grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_REPORT_TIMEZONE", "Europe/Paris")
    hours = rated(lake, grid)["better_hours"]
    assert {each["hour"]: each["kwh"] for each in hours}[6] == pytest.approx(0.4)
    first = 1_792_879_200_000  # 2026-10-24 22:00 UTC, midnight in Paris; the hour after two comes twice
    hours = pl.DataFrame({"hour": [first + place * HOUR_MS for place in range(25)], "g_per_kwh": map(float, range(25))})
    rows = hourly_energy(accounts([]).pieces, Rollups({}), RISING, 1.0).with_columns(is_deferrable=pl.lit(value=True))
    day = find_deferral(rows, GridHours(hours, ZoneInfo("Europe/Paris"), 1.0), {}, 12)
    assert [each.g_per_kwh for each in day.hours] == [0, 1, 2.5, *range(4, 25)]
    assert (day.saved_g, day.moved_mj, day.work.kwh) == (0, 0, 0)


def test_which_work_can_wait() -> None:
    best = Owners({("account", "late"): Owner("account", "late", "t", priority_class="best-effort")})
    known = [("1", "train", None, None), ("2", "Jupyter", None, None), ("3", None, "prod", None), ("4",) + (None,) * 3]
    jobs = pl.DataFrame(known, schema=dict.fromkeys(("job", "name", "partition", "qos"), pl.String), orient="row")
    waits = ["slurm:1", "slurm:4", "slurm:9"]
    stays = ["slurm:2", "slurm:3", "slurm:1+slurm:4", "pod:a/b", None]
    rows = pl.DataFrame({"job": [*waits, *stays, "pod:a/c"], "user": "ann", "account": [*[None] * 8, "late"]})
    assert with_deferrable(rows, jobs, best)["is_deferrable"].to_list() == [True] * 3 + [False] * 5 + [True]
