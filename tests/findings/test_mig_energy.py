"""Energy of MIG instances: a share of what their GPU drew, called an estimate, and unknown where that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.rules.held import HELD
from analytics.workloads.finding_parts import ESTIMATED
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import A100_80, Fleet

if TYPE_CHECKING:
    from analytics.workloads.model import Finding

RULE = HELD


def held_instance(*, power: float | None = 140.0) -> Finding:
    """Three slices of seven, held for a day beside an instance that works."""
    fleet = Fleet(2)
    (gpu,) = fleet.host("h1", A100_80, 1)
    small, other = fleet.split(gpu, "3g.40gb", "4g.40gb")
    fleet.run(small, "ann", fleet.between(-1), mem_gb=8)
    fleet.run(other, "bob", util=70.0, mem_gb=30)
    gpu.override(fleet.always, power_w=power, energy_mj=None)
    (each,) = found(RULE, fleet)
    assert each.gpus == (small.uuid,)
    return each


def test_an_instance_draws_its_slices_of_the_whole_gpu() -> None:
    each = held_instance()
    assert each.gpu_hours == pytest.approx(24 * 3 / 7)
    assert each.energy_kwh == pytest.approx(24 * 0.140 * 3 / 7, rel=0.01)
    assert ESTIMATED in each.notes


def test_where_the_gpus_energy_is_unknown_so_is_the_instances() -> None:
    each = held_instance(power=None)
    assert (each.energy_kwh, ESTIMATED in each.notes) == (None, False)


def test_the_energy_of_a_whole_gpu_is_measured() -> None:
    fleet = Fleet(2)
    fleet.run(fleet.host("h1", A100_80, 1), "ann", fleet.between(-1), mem_gb=8, power_w=60.0)
    (each,) = found(RULE, fleet)
    assert each.energy_kwh == pytest.approx(24 * 0.060, rel=0.01)
    assert ESTIMATED not in each.notes
