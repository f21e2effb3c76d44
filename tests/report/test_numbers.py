"""The report's numbers are those of `fallow ledger`, to the digit: of the whole, of a week, of a pool, a team and a holder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.lakes import made_lake
from tests.ledger.rows import claim, device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunFallow

BUSY = {"gpu_util_pct": 71.3, "process_count": 2, "power_w": 303.0}
IDLE = {"gpu_util_pct": 0.0, "process_count": 1, "power_w": 61.7}
HOUR_S = 3600


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three GPUs in two pools over two weeks: shared, idle, reserved and free time, with prices and owners."""
    tmp_path = tmp_path_factory.mktemp("numbers")
    lake = made_lake(tmp_path / "lake")
    monday = 3 * 24 * HOUR_S  # T0 is a Friday
    rows = [
        *samples("a", monday - HOUR_S, monday + 2 * HOUR_S, **BUSY),
        *samples("b", monday - HOUR_S, monday + HOUR_S, **IDLE),
        *samples("b", monday + HOUR_S, monday + 2 * HOUR_S),
        *samples("c", monday - HOUR_S, monday + HOUR_S + 730),
    ]
    lists = [
        *processes("a", *range(monday - HOUR_S, monday + 2 * HOUR_S, 30), user="ann", pid=1),
        *processes("a", *range(monday - HOUR_S, monday + HOUR_S, 60), user="bob", pid=2),
        *processes("b", *range(monday - HOUR_S, monday + HOUR_S, 30), user="bob"),
    ]
    claims = [claim("c", monday - 500, monday + 1700, "ann")]
    devices = [device("a", pool="train"), device("b", pool="dev", model="NVIDIA L40S"), device("c", pool="train")]
    fill(lake, rows, lists, claims, devices=devices)
    (tmp_path / "owners.csv").write_text("kind,name,team\nuser,ann,vision\nuser,bob,speech\n")
    (tmp_path / "prices.csv").write_text("model,pool,hourly,currency\n,train,3.33,EUR\n,dev,0.77,EUR\n")
    config = tmp_path / "fallow.toml"
    config.write_text(
        f'[lake]\npath = "{lake.root}"\n[money]\ncurrency = "EUR"\nowners = "{tmp_path}/owners.csv"\n'
        f'prices = "{tmp_path}/prices.csv"\n'
    )
    return config


SCOPES = [(), ("--pool", "train"), ("--team", "speech"), ("--holder", "ann"), ("--pool", "train", "--team", "vision")]
WEEK = (("--since", "2026-W48", "--until", "2026-W48"), ("--week", "2026-W48"))
CASES = [*((scope, ((), ())) for scope in SCOPES), *((scope, WEEK) for scope in SCOPES[:3:2])]


@pytest.mark.parametrize(("scope", "window"), CASES)
def test_numbers_of_the_ledger(
    config: Path, run_fallow: RunFallow, scope: tuple[str, ...], window: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    ledger = run_fallow("ledger", "--config", str(config), *window[0], *scope, "--json")
    report = run_fallow("report", "--config", str(config), *window[1], *scope, "--format", "json")
    assert (ledger.returncode, report.returncode) == (0, 0), ledger.stderr + report.stderr
    printed = json.loads(report.stdout)
    told = json.loads(ledger.stdout)
    # of a week that is not over, the observed share is up to now
    for name in ("coverage", "outside_gpu_hours"):
        assert told.pop(name) == pytest.approx(printed["ledger"].pop(name), rel=1e-3)
    assert printed["ledger"] == told
    hours = printed["ledger"]["gpu_hours"]
    assert {step["state"]: step["gpu_hours"] for step in printed["waterfall"]} == {
        state: value for state, value in hours.items() if state != "total"
    }
    assert round(sum(step["amount"] for step in printed["waterfall"]), 2) == printed["ledger"]["money"]["paid"] > 0
