"""What fallow promises of jobs that hang: their time is waste, has its price, and is named within ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from analytics.tables.recommendations import decision
from analytics.tables.witnesses import witness_facts
from fallow.clock import format_ms
from tests.findings.one_rule import found, only_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.findings.scenarios.stalled import (
    hang,
    rank_at_work_half_of_the_time,
    rank_that_tokenizes_on_the_cpu,
)
from tests.lakes import made_lake
from tests.promises.site import Site

if TYPE_CHECKING:
    from pathlib import Path

    from tests.findings.scenarios.situations import Scenario

LATE = 2 / 1440
"""The others wait two minutes later."""


def hung_fleet(*, days_of_hang: float = 1.0) -> Fleet:
    """Eight H100s train for half a day; rank 3 falls, the others follow; the window ends after `days_of_hang` days."""
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
    assert str(decision(hung)) == "8 GPUs on h1 stalled: their kernels wait and do no work"


def test_a_hang_is_found_after_nine_minutes_and_named_by_job_and_first_rank() -> None:
    finding = only_of("hung_job", hung_fleet(days_of_hang=9 / 1440))
    assert (finding.job, len(finding.gpus)) == ("slurm:1001", 8)
    notes = " ".join(map(str, finding.notes))
    for command in ("py-spy dump --pid", "scontrol show job 1001", "scancel --signal=ABRT --full 1001"):
        assert command in notes
    numbers = finding.evidence.numbers
    assert (numbers["first_gpu"], numbers["first_by_s"], numbers["gpus_from_work"]) == ("GPU-h1-3", 120.0, 8)
    assert found("hung_job", hung_fleet(days_of_hang=6 / 1440)) == []


@pytest.mark.parametrize("scenario", [rank_that_tokenizes_on_the_cpu, rank_at_work_half_of_the_time])
def test_while_a_rank_works_no_command_ends_the_job(scenario: Scenario) -> None:
    fleet = scenario.fleet()
    assert found("hung_job", fleet) == []
    waits = only_of("straggler", fleet)
    assert (waits.evidence.numbers["working_gpus"], waits.reclaimable_gpus) == ("GPU-h1-0", ())
    assert waits.next_command.startswith("ssh h1 py-spy dump --pid ")


def test_the_first_to_leave_work_is_named_though_it_idles_and_single_readings_are_out_of_line() -> None:
    fleet = Fleet(0.2, interval_s=10)
    gpus = fleet.host("h1", H100, 4)
    falls = fleet.rows // 2
    later = np.arange(fleet.rows) >= falls
    train(fleet, gpus[:1], "ann", util=np.where(later, 0.0, 95.0), cpu_util_pct=90.0)
    for number, gpu in enumerate(gpus[1:], start=1):
        hang(fleet, [gpu], np.arange(fleet.rows) >= falls + 2, cpu_util_pct=100.0)
        gpu.util[falls + 100 * number] = 96.5
    finding = only_of("hung_job", fleet)
    numbers = finding.evidence.numbers
    assert (numbers["first_gpu"], numbers["first_by_s"], numbers["gpus_of_the_job"]) == ("GPU-h1-0", 20.0, 4)
    assert "where the first rank waits: ssh h1 py-spy dump" in " ".join(map(str, finding.notes))


def test_no_first_rank_is_named_where_all_fall_together() -> None:
    fleet = Fleet(0.2, interval_s=10)
    hang(fleet, fleet.host("h1", H100, 2), fleet.between(0.1))
    finding = only_of("hung_job", fleet)
    notes = " ".join(map(str, finding.notes))
    assert "first_gpu" not in finding.evidence.numbers
    assert "first" not in notes
    assert "where a rank waits: ssh h1 py-spy dump" in notes


def test_the_note_on_stacks_ends_no_job_that_the_finding_does_not() -> None:
    """Another job of the user works, and both may be of one array."""
    fleet = hung_fleet(days_of_hang=0.05)
    train(fleet, fleet.host("h2", H100, 1), "ann", job="1002")
    finding = only_of("hung_job", fleet)
    assert not finding.next_command.startswith("scancel")
    assert "scancel" not in " ".join(map(str, finding.notes))


def test_work_before_the_window_counts() -> None:
    fleet = hung_fleet(days_of_hang=0.05)
    since_ms = int(fleet.times_ms[-1]) - 20 * 60_000
    finding = only_of("hung_job", fleet, format_ms(since_ms))
    assert finding.evidence.numbers["gpus_from_work"] == 8
    assert not any("at work before" in failure for failure in finding.confidence.failed)


def test_a_tools_name_counts_for_its_own_user_only_and_a_pod_may_be_probed() -> None:
    fleet = Fleet(1, interval_s=60)
    (gpu,) = fleet.host("h1", H100, 1)
    blips = np.where(np.arange(fleet.rows) % 4 == 0, 30.0, 0.0)
    quiet = {"mem_gb": 1.2, "power_w": 125.0, "cpu_util_pct": 2.0}
    fleet.run(gpu, "zed", fleet.between(0, 0.4), util=blips, command="keep-gpu", **quiet)
    fleet.run(gpu, "yan", fleet.between(0.4, 0.7), util=blips, command="python3", **quiet)
    fleet.run(gpu, "kim", fleet.between(0.7), util=blips, command="python3", pod="score-1", namespace="risk", **quiet)
    tools = {each.user: each.evidence.numbers["tool"] for each in found("keep_alive", fleet)}
    assert tools == {"zed": "named", "yan": "unnamed"}


def test_each_witness_is_a_row_of_evidence_and_one_that_was_not_measured_says_so() -> None:
    finding = only_of("hung_job", hung_fleet())
    rows = {each.name: (each.value, each.says) for each in finding.witnesses}
    assert rows["power"] == rows["energy_counter"] == (120.0, "stalled")
    assert rows["sm_activity"] == (14.0, "nothing")
    assert rows["other_stalled_gpus"] == (7, "stalled")
    assert rows["pcie_traffic"] == (None, None)
    words = {str(title): str(said) for title, said in witness_facts(finding)}
    assert words["power"] == "120.0 W, at most 247.5 W without work: speaks for stalled"
    assert words["PCIe traffic"] == "not measured"
    assert len(words) == len(rows)
    # nine minutes have no whole hour of their own, and an hour's mean would be that of the work before
    (short,) = found("hung_job", hung_fleet(days_of_hang=9 / 1440))
    assert {each.name for each in short.witnesses if each.value is None} >= {"tensor_activity", "host_traffic"}


def test_confidence_is_lower_where_only_the_draw_speaks_against_work() -> None:
    fleet, alone = Fleet(0.2, interval_s=10), "only the draw of the cards speaks against work"
    hang(fleet, fleet.host("h1", H100, 2), fleet.between(0.1))
    assert alone not in only_of("hung_job", fleet).confidence.failed  # tensor cores and memory rest
    for gpu in fleet.gpus:
        gpu.sm = gpu.dram = gpu.tensor = np.full(fleet.rows, np.nan)
    assert alone in only_of("hung_job", fleet).confidence.failed


def test_a_witness_of_work_beside_a_straggler_speaks_for_work() -> None:
    (waits,) = found("straggler", rank_at_work_half_of_the_time.fleet())
    assert {each.name: each.says for each in waits.witnesses}["other_stalled_gpus"] == "work"
