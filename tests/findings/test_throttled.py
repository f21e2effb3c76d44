"""The rule `throttled`: what holds clocks down, for how much of the active time."""

from __future__ import annotations

import pytest

from tests.findings.one_rule import of_rule, only_of
from tests.findings.scenarios.builder import H100, Fleet

RULE = "throttled"


def fleet_of(*, util: float = 95.0, power_w: float | None = None, days: float = 1, **shares: float) -> Fleet:
    """A throttled GPU beside one that is not."""
    fleet = Fleet(days)
    first, second = fleet.host("h1", H100, 2)
    fleet.run([first, second], "ann", util=util, slurm_job_id="7", power_w=power_w)
    first.throttle(fleet.always, **shares)
    return fleet


def test_heat_in_numbers_and_where_to_look() -> None:
    found = only_of(RULE, fleet_of(sw_thermal=0.5))
    assert (found.subject, found.gpus, found.host, found.holder) == ("heat", ("GPU-h1-0",), "h1", "ann")
    numbers = found.evidence.numbers
    assert numbers["throttled_share_of_active_time"] == pytest.approx(0.5, abs=0.01)
    assert numbers["throttled_gpu_hours"] == pytest.approx(12.0, abs=0.1)
    assert (numbers["cause"], numbers["temperature_max_c"]) == ("heat", 87)
    assert numbers["sm_clock_mean_mhz"] == pytest.approx(0.8 * 1980)
    assert found.next_command == "ssh h1 nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i GPU-h1-0"
    assert not found.reclaimable


@pytest.mark.parametrize("cause", ["sw_thermal", "hw_thermal", "sync_boost"])
@pytest.mark.parametrize(("share", "count"), [(0.09, 0), (0.11, 1)])
def test_more_than_a_tenth_of_the_active_time(cause: str, share: float, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(**{cause: share}))) == count


@pytest.mark.parametrize(
    ("power_w", "share", "subjects"),
    [
        (590.0, 0.11, ["brake"]),
        (590.0, 0.09, []),
        (600.0, 0.5, []),  # at the limit: a cap, as usual
        (600.0, 0.6, []),  # clocks 24 % lower
        (600.0, 0.7, ["cap"]),  # clocks 28 % lower
    ],
)
def test_a_cap_at_full_load_is_normal_and_a_brake_is_not(power_w: float, share: float, subjects: list[str]) -> None:
    found = of_rule(RULE, fleet_of(power_w=power_w, power_cap=share))
    assert [each.subject for each in found] == subjects
    assert all(each.confidence.failed for each in found)


def test_a_gpu_that_does_not_work_is_not_slowed_down() -> None:
    assert of_rule(RULE, fleet_of(util=9.0, sw_thermal=0.5)) == []


@pytest.mark.parametrize(("hours", "count"), [(5, 0), (8, 1)])
def test_some_hours_of_work_are_needed(hours: int, count: int) -> None:
    assert len(of_rule(RULE, fleet_of(days=hours / 24, sw_thermal=0.5))) == count


def test_cards_without_the_counters_are_not_judged() -> None:
    fleet = fleet_of(sw_thermal=0.5)
    fleet.gpus[0].override(
        fleet.always,
        **dict.fromkeys(
            (
                "throttled_sw_thermal_ms",
                "throttled_hw_thermal_ms",
                "throttled_power_cap_ms",
                "throttled_power_brake_ms",
                "throttled_sync_boost_ms",
            )
        ),
    )
    assert of_rule(RULE, fleet) == []


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.95, []), (0.5, ["why clocks were held down was measured for 49.8 % of the time, 90 % are needed"])],
)
def test_counters_that_were_read_for_some_of_the_time_say_so(share: float, said: list[str]) -> None:
    fleet = fleet_of(sw_thermal=0.5, days=2)
    blind = fleet.between(0, 2 * (1 - share))
    for gpu in fleet.gpus:
        gpu.override(blind, **{f"throttled_{cause}_ms": None for cause in gpu.throttled})
    found = only_of(RULE, fleet)
    assert [failure for failure in found.confidence.failed if "clocks were held down" in failure] == said
