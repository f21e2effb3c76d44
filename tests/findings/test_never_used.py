"""The rule `never_used`: GPUs that were watched for a week and more and never saw a process or a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.findings.conftest import BUSY, DAY, FREE, idle_findings, only
from tests.ledger.rows import GB, claim, device, fill, ms, processes, samples

if TYPE_CHECKING:
    from tests.ledger.recording import Recording

WEEK = 7 * DAY
EVERY_S = 600


def free(gpu: str, first_s: float = 0, last_s: float = WEEK, **values: object) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=EVERY_S, **FREE | values)


def used(gpu: str, at_s: float, **values: object) -> list[dict[str, Any]]:
    return samples(gpu, at_s, at_s + EVERY_S, every_s=EVERY_S, **BUSY | values)


@pytest.mark.parametrize(("seconds", "count"), [(WEEK - EVERY_S, 0), (WEEK, 1)])
def test_it_takes_seven_observed_days(site: Recording, seconds: int, count: int) -> None:
    assert len(idle_findings(fill(site, free("a", 0, seconds)))) == count


def test_time_that_nobody_watched_does_not_count(site: Recording) -> None:
    rows = free("a", 0, 4 * DAY) + free("a", 6 * DAY, 8 * DAY)
    assert idle_findings(fill(site, rows)) == ()
    fill(site, free("a", 8 * DAY, 9 * DAY))
    assert only(site).rule == "never_used"


def test_what_it_says(site: Recording) -> None:
    rows = free("a", power_w=60.0) + free("b", DAY, 8 * DAY, power_w=60.0)
    fill(site, rows, devices=[device("a"), device("b", model="NVIDIA L40S")])
    found = only(site)
    assert (found.gpus, found.host, found.holder, found.since_ms) == (("a", "b"), "h1", None, ms(0))
    assert (found.gpu_hours, found.reclaimable, found.simulated) == (336.0, True, False)
    assert found.energy_kwh == pytest.approx(0.06 * 336)
    # nothing was ever used here, so that little more than what is believed beforehand tells
    numbers = dict(found.evidence.numbers)
    assert 0.75 < numbers.pop("stays_unused_probability") < 0.95  # type: ignore[operator]  # it is a number
    assert numbers == {
        "stays_unused_horizon_h": 168.0, "observed_gpu_hours": 336.0, "reserved_gpu_hours": 0.0, "gpu_util_max_pct": 0.0, "mem_used_max_bytes": None,
        "sample_count": 2016, "coverage": 1.0, "model": "NVIDIA H100 80GB HBM3+NVIDIA L40S",
    }  # fmt: skip
    assert found.next_command == "ssh h1 nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


@pytest.mark.parametrize(
    "trace",
    [
        used("a", WEEK),
        used("a", WEEK, gpu_util_pct=0.0),  # a process that ran no kernel
        used("a", WEEK, process_count=0, gpu_util_pct=0.25),  # a kernel of nobody known
        used("a", WEEK, process_count=None, gpu_util_pct=0.0, mem_used_bytes=2 * GB),
    ],
)
def test_one_use_ever_is_a_use(site: Recording, trace: list[dict[str, Any]]) -> None:
    rows = free("a", 0, WEEK) + trace + free("a", WEEK + EVERY_S, 3 * WEEK)
    fill(site, rows)
    assert idle_findings(site) == ()
    assert idle_findings(site, since="2026-12-01") == ()


def test_as_of_a_day_before_its_first_use_it_was_never_used(site: Recording) -> None:
    fill(site, free("a", 0, 8 * DAY) + used("a", 8 * DAY))
    assert only(site, until="2026-11-27").rule == "never_used"
    assert idle_findings(site) == ()


@pytest.mark.parametrize("health", ["ok", "lost"])
def test_a_gpu_that_nobody_could_measure_is_unknown_not_unused(site: Recording, health: str) -> None:
    assert idle_findings(fill(site, free("a", 0, 2 * WEEK, gpu_util_pct=None, health=health))) == ()


def test_a_card_that_was_used_in_another_host_has_been_used(site: Recording) -> None:
    fill(site, used("a", 0) + used("b", 0), host="old")
    fill(site, free("a", DAY, 9 * DAY) + free("c", DAY, 9 * DAY), host="new")
    found = only(site)
    assert (found.host, found.gpus) == ("new", ("c",))


def test_a_reserved_gpu_without_a_process_is_unused_and_says_who_claims_it(site: Recording) -> None:
    found = only(fill(site, free("a"), claims=[claim("a", DAY, None)]))
    assert (found.holder, found.evidence.numbers["reserved_gpu_hours"]) == ("bob", 144.0)


def test_a_gpu_that_was_lost_at_the_end_is_nothing_to_hand_out(site: Recording) -> None:
    lost = samples("a", WEEK, WEEK + DAY, every_s=EVERY_S, gpu_util_pct=None, process_count=None, health="lost")
    assert not only(fill(site, free("a") + lost)).reclaimable


def test_a_gpu_that_fell_silent_is_nothing_to_hand_out(site: Recording) -> None:
    fill(site, free("a") + samples("b", WEEK, WEEK + DAY, every_s=EVERY_S, **BUSY), processes("b", WEEK))
    assert not only(site).reclaimable


def test_only_gpus_seen_in_the_window_are_reported_for_it(site: Recording) -> None:
    fill(site, free("a") + samples("b", 2 * WEEK, 2 * WEEK + DAY, every_s=EVERY_S, **BUSY))
    assert idle_findings(site, since="2026-12-04") == ()
