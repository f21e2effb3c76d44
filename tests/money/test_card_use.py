"""What busy time used of its cards: bounds of the share of peak, the closest limit, time without tensor cores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.inventory import load_inventory
from analytics.ledger.summary import clip_ledger
from analytics.money.accounts import Accounts
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from fallow.clock import HOUR_MS, Window
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, device, fill, load, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.ledger.card_use import CardUse
    from fallow.lake import Lake
    from tests.ledger.rows import Row

HOUR_S = 3600
BUSY: dict[str, Any] = {"gpu_util_pct": 100.0, "process_count": 1}
TRAINING = BUSY | {"sm_active_pct": 90.0, "tensor_active_pct": 40.0, "dram_active_pct": 30.0}
DECODING = BUSY | {"sm_active_pct": 95.0, "tensor_active_pct": 0.4, "dram_active_pct": 80.0}
SPINNING = BUSY | {"sm_active_pct": 1.5, "tensor_active_pct": 0.0, "dram_active_pct": 0.0}


def lake_of(folder: Path, *rows: list[Row]) -> Lake:
    """A lake with a process of its own user on each GPU at all times."""
    gpus = {row["gpu"]: None for part in rows for row in part}
    last_s = max((row["time"] - T0) // 1000 for part in rows for row in part)
    lists = [each for gpu in gpus for each in processes(gpu, *range(0, last_s, 30), user=f"user-{gpu}")]
    everything = [row for part in rows for row in part]
    return fill(made_lake(folder / "lake"), everything, lists, devices=[device(gpu) for gpu in gpus])


def accounts(lake: Lake, window: Window = Window()) -> Accounts:  # noqa: B008  # frozen
    inventory = load_inventory(lake)
    costs = Costs(PriceBook.load(None, "USD"), inventory)
    return Accounts(clip_ledger(load(lake), window), costs, inventory, Owners.none())


def bounds(use: CardUse | None) -> tuple[float | None, float | None, str | None]:
    assert use is not None
    low, high = (None if share is None else round(share, 3) for share in (use.peak_share_low, use.peak_share_high))
    return low, high, use.peak_by


def test_the_share_of_peak_has_bounds_names_its_limit_and_is_unknown_where_only_utilization_was_measured(
    tmp_path: Path,
) -> None:
    lake = lake_of(
        tmp_path,
        samples("training", 0, HOUR_S, **TRAINING),
        samples("solver", 0, HOUR_S, **BUSY, sm_active_pct=97.0, fp64_active_pct=85.0, tensor_active_pct=0.0),
        samples("spinning", 0, HOUR_S, **SPINNING),
        samples("sm-alone", 0, HOUR_S, **BUSY, sm_active_pct=46.0),
        samples("tensor-alone", 0, HOUR_S, **(BUSY | {"gpu_util_pct": 70.0}), tensor_active_pct=20.0),
        samples("utilization", 0, HOUR_S, **BUSY),
    )
    found = accounts(lake).card_use("gpu")
    assert {gpu: bounds(use) for gpu, use in found.items()} == {
        "training": (0.4, 0.9, "tensor"),
        "solver": (0.85, 0.97, "fp64"),
        "spinning": (0.0, 0.015, None),
        "sm-alone": (0.0, 0.46, None),
        "tensor-alone": (0.2, 0.7, "tensor"),
        "utilization": (None, None, None),
    }
    assert found["utilization"].peak_measured_share == 0.0
    without = {gpu: use.without_tensor_share for gpu, use in found.items()}
    assert without == {
        "training": 0.0,
        "solver": 1.0,
        "spinning": 1.0,
        "sm-alone": None,
        "tensor-alone": 0.0,
        "utilization": None,
    }


def test_two_hours_add_up_to_the_whole_and_the_bound_is_that_of_most_of_the_work(tmp_path: Path) -> None:
    rows = samples("a", 0, HOUR_S, **TRAINING), samples("a", HOUR_S, 2 * HOUR_S, **DECODING)
    lake = lake_of(tmp_path, *rows)
    noon = T0 + HOUR_MS
    whole, *hours = (
        accounts(lake, window).total_card_use for window in (Window(), Window(None, noon), Window(noon, None))
    )
    assert [bounds(each) for each in hours] == [(0.4, 0.9, "tensor"), (0.8, 0.95, "dram")]
    assert bounds(whole) == (0.6, 0.925, "dram")
    assert whole is not None
    assert (whole.without_tensor_share, whole.tensor_share) == (0.5, pytest.approx((0.4 + 0.004) / 2))
    for name in ("busy_ms", "measured_ms", "low_ms", "high_ms", "tensor_measured_ms", "tensor_ms", "tensor_unused_ms"):
        assert sum(getattr(each, name) for each in hours) == getattr(whole, name)


def test_idle_time_beside_busy_time_in_an_hour_does_not_dilute_it(tmp_path: Path) -> None:
    idle = {"process_count": 1, "sm_active_pct": 0.0, "tensor_active_pct": 0.0, "dram_active_pct": 0.0}
    rows = samples("a", 0, HOUR_S / 2, **TRAINING), samples("a", HOUR_S / 2, HOUR_S, **idle)
    use = accounts(lake_of(tmp_path, *rows)).total_card_use
    assert bounds(use) == (0.4, 0.9, "tensor")
    assert use is not None
    assert (use.busy_ms, use.measured_ms, use.without_tensor_share) == (HOUR_MS // 2, HOUR_MS // 2, 0.0)
    # short pauses inside busy time are part of it, as they are of its utilization
    whole = samples("a", 0, HOUR_S, **TRAINING)
    paused = [row | (idle | {"gpu_util_pct": 0.0} if place % 4 == 3 else {}) for place, row in enumerate(whole)]
    lake = lake_of(tmp_path / "paused", paused)
    assert bounds(accounts(lake).total_card_use) == (0.3, 0.675, "tensor")


def test_an_hour_of_two_users_says_nothing_of_either(tmp_path: Path) -> None:
    rows = samples("a", 0, HOUR_S, **TRAINING)
    first, second = (range(0, HOUR_S // 2, 30), range(HOUR_S // 2, HOUR_S, 30))
    lists = processes("a", *first, user="ann") + processes("a", *second, user="bob")
    found = accounts(fill(made_lake(tmp_path / "lake"), rows, lists, devices=[device("a")])).card_use("user")
    assert {user: bounds(use) for user, use in found.items()} == dict.fromkeys(("ann", "bob"), (None, None, None))


def test_people_and_programs_get_the_same_shares(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, samples("a", 0, HOUR_S, **TRAINING), samples("b", 0, HOUR_S, **BUSY))
    text = run_in_process("ledger", "--by", "user", "--lake", lake.root, "--all").stdout
    assert "40 % (tensor cores) to 90 %" in text
    assert "The share of peak is known for 50.0 % of the busy time" in " ".join(text.split())
    found = json.loads(run_in_process("ledger", "--by", "user", "--lake", lake.root, "--all", "--json").stdout)
    rows = {row["name"]: row for row in found["groups"]["rows"]}
    keys = ("peak_share_low", "peak_share_high", "peak_share_by", "without_tensor_share", "peak_measured_share")
    assert [rows["user-a"][key] for key in keys] == [pytest.approx(0.4), pytest.approx(0.9), "tensor", 0.0, 1.0]
    assert [rows["user-b"][key] for key in keys] == [None, None, None, None, 0.0]
    assert found["card_use"]["peak_measured_share"] == 0.5
    unmeasured = lake_of(tmp_path / "other", samples("b", 0, HOUR_S, **BUSY))
    assert "share of peak" not in run_in_process("ledger", "--by", "user", "--lake", unmeasured.root, "--all").stdout
