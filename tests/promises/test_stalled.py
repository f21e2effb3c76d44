"""What fallow promises of jobs that hang: their time is waste, has its price, and is named within ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.findings.one_rule import found, only_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.stalled import hang
from tests.lakes import made_lake
from tests.promises.site import Site

if TYPE_CHECKING:
    from pathlib import Path

LATE = 2 / 1440
"""The others wait two minutes later."""


def hung_fleet(*, days_of_hang: float = 1.0) -> Fleet:
    """Eight H100s train for half a day; rank 3 falls, the others follow, and the window ends after so many days of it."""
    fleet = Fleet(days_of_hang + 0.5, interval_s=10 if days_of_hang < 0.1 else 60)
    gpus = fleet.host("h1", H100, 8)
    hang(fleet, gpus[3:4], fleet.between(-days_of_hang))
    hang(fleet, [*gpus[:3], *gpus[4:]], fleet.between(-days_of_hang + LATE))
    return fleet


def test_a_hung_day_of_eight_gpus_is_192_gpu_hours_of_waste_with_their_price(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("model,pool,hourly,currency,source\n,train,3,USD,a contract\n")
    config = tmp_path / "fallow.toml"
    config.write_text(f'[money]\nprices = "{tmp_path}/prices.csv"\n')
    recommended = Site(hung_fleet().write(made_lake(tmp_path / "lake")), config).recommendations()
    waste = recommended.waste
    late_h = 7 * 24 * LATE
    assert waste.state_ms["stalled"] / 3_600_000 == pytest.approx(192 - late_h)
    assert waste.state_cents is not None
    assert waste.state_cents["stalled"] == pytest.approx(300 * (192 - late_h), abs=1)
    (hung,) = (each for each in recommended.listed if each.finding and each.finding.rule == "hung_job")
    assert (hung.user, len(hung.gpus_now), hung.next_command) == ("ann", 8, "scancel 1001")
    assert hung.cents == waste.state_cents["stalled"]


def test_a_hang_is_found_after_nine_minutes_and_named_by_job_and_first_rank() -> None:
    finding = only_of("hung_job", hung_fleet(days_of_hang=9 / 1440))
    assert (finding.job, len(finding.gpus)) == ("slurm:1001", 8)
    notes = " ".join(map(str, finding.notes))
    for command in ("py-spy dump --pid", "scontrol show job 1001", "scancel --signal=ABRT --full 1001"):
        assert command in notes
    numbers = finding.evidence.numbers
    assert (numbers["first_gpu"], numbers["first_by_s"], numbers["gpus_from_work"]) == ("GPU-h1-3", 120.0, 8)
    assert found("hung_job", hung_fleet(days_of_hang=6 / 1440)) == []
