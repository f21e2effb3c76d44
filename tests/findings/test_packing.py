"""Packings: which GPUs' work lies together, what that frees, and what it does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from analytics.workloads.mig_profiles import fits
from analytics.workloads.packing import packings
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, Fleet, Gpu
from tests.findings.scenarios.situations import serve, train

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.workloads.packing import Packing

H100_HOURLY, L40S_HOURLY = 6.88, 1.861


def packed(fleet: Fleet) -> tuple[Packing, ...]:
    return packings(context_of(fleet.recording()))


def small(fleet: Fleet, gpu: Gpu, user: str = "ann", *, job: str, sm: float = 11.5, mem_gb: float = 8) -> None:
    """Work for a seventh of an H100."""
    train(fleet, gpu, user, util=13.0, sm=sm, mem_gb=mem_gb, job=job)


def check(found: Packing) -> None:
    """No work is in two places, no card is overfull, and what stays is not what comes free."""
    workloads = [(each.gpu, each.user, each.job) for each in found.workloads]
    assert len(workloads) == len(set(workloads))
    profiles = {each.profile.name: each for each in fits(found.model)}
    for card in found.cards:
        instances = {(each.start, each.profile) for each in card.workloads}
        taken: Counter[int] = Counter()
        for start, name in instances:
            assert start is not None
            assert name is not None
            assert start in profiles[name].starts
            taken.update(range(start, start + profiles[name].memory_slices))
        assert set(taken.values()) <= {1}
        assert sum(profiles[name or ""].profile.slices for _, name in instances) <= 7
    kept = [each.gpu for each in found.cards]
    assert len(kept) == len(set(kept))
    assert set(kept) | set(found.freed_gpus) == set(found.gpus)
    assert not set(kept) & set(found.freed_gpus)


def test_small_works_free_whole_cards_and_a_host() -> None:
    """Nine works on nine H100s of two hosts fit on two; one of the hosts comes free as a whole."""
    fleet = Fleet(3)
    gpus = [*fleet.host("h1", H100, 5), *fleet.host("h2", H100, 4)]
    for number, gpu in enumerate(gpus):
        small(fleet, gpu, user=f"user{number}", job=str(number))
    (found,) = packed(fleet)
    check(found)
    assert (found.kind, found.pool, found.model, found.measured_by) == ("mig", "train", H100.model, "sm")
    assert (len(found.workloads), len(found.cards), len(found.freed_gpus)) == (9, 2, 7)
    assert found.freed_hosts == ("h2",)
    assert found.at_most == 7
    assert found.saving == pytest.approx(7 * 72 * H100_HOURLY)
    assert {each.profile for each in found.workloads} == {"1g.10gb"}
    assert {each.slowdown.expected for each in found.workloads} == {1.0}
    assert all(1.0 <= each.slowdown.at_most < 1.9 for each in found.workloads)
    assert any("mig -i" in each.command and "1g.10gb:6" in each.command for each in found.cards)
    assert any("days, 7 are needed" in failure for failure in found.confidence.failed)


def test_alone_on_its_pool_a_small_work_frees_nothing() -> None:
    fleet = Fleet(3)
    for number, pool in enumerate(("train", "serving")):
        (gpu,) = fleet.host(f"h{number}", H100, 1, pool=pool)
        small(fleet, gpu, job=str(number))
    (gpu,) = fleet.host("h3", A100_80, 1)
    train(fleet, gpu, "ann", util=10.0, mem_gb=8, job="9")
    assert packed(fleet) == ()


@pytest.mark.parametrize(("other_hours", "frees"), [(0.5, 1), (2, 0)])
def test_a_card_that_other_work_needs_is_not_freed(other_hours: float, frees: int) -> None:
    """Two hours of training on one of two cards want it whole; half an hour is a test, and said."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    small(fleet, first, job="1")
    when = fleet.between(0, other_hours / 24)
    train(fleet, second, "bob", when, util=95.0, job="2")
    train(fleet, second, "ann", ~when, util=13.0, sm=11.5, mem_gb=8, job="3")
    found = packed(fleet)
    assert sum(len(each.freed_gpus) for each in found) == frees
    if frees:
        assert any("1 run of less than an hour" in failure for failure in found[0].confidence.failed)


def test_works_of_one_card_follow_one_another_in_the_largest_place() -> None:
    fleet = Fleet(4)
    first, second = fleet.host("h1", H100, 2)
    for number, (since, memory) in enumerate(((0, 8), (2, 30))):
        when = fleet.between(since, since + 2)
        train(fleet, first, "ann", when, util=13.0, sm=11.5, mem_gb=memory, job=f"1{number}")
    small(fleet, second, job="20")
    (found,) = packed(fleet)
    check(found)
    places = {each.job: (each.profile, each.start) for each in found.workloads}
    assert places["slurm:10"] == places["slurm:11"]
    assert {name for name, _ in places.values()} == {"3g.40gb", "1g.10gb"}
    assert found.saving == pytest.approx(96 * H100_HOURLY)


def test_idle_time_of_a_freed_card_is_not_saved_again() -> None:
    """Both were there for half of the window; the other half is the business of whoever finds them idle."""
    fleet = Fleet(4)
    for number, gpu in enumerate(fleet.host("h1", H100, 2)):
        train(fleet, gpu, "ann", fleet.between(-2), util=13.0, sm=11.5, mem_gb=8, job=str(number))
    (found,) = packed(fleet)
    assert found.saving == pytest.approx(48 * H100_HOURLY)


def test_reserved_memory_and_work_of_several_gpus_are_left_out() -> None:
    fleet = Fleet(3)
    one, reserving, *pair = fleet.host("h1", H100, 4)
    small(fleet, one, job="1")
    serve(fleet, reserving, util=10.0, sm=8.0, mem_gb=0.9 * H100.mem_total_bytes / GB, command="vllm", pod="llm-0")
    train(fleet, pair, "ann", util=10.0, sm=8.0, mem_gb=8, job="2")
    assert packed(fleet) == ()


def test_without_sm_activity_it_is_to_be_tried() -> None:
    fleet = Fleet(3)
    for number, gpu in enumerate(fleet.host("h1", A100_80, 2)):
        train(fleet, gpu, "ann", util=13.0, mem_gb=8, job=str(number))
    (found,) = packed(fleet)
    assert found.measured_by == "busy time"
    assert any(failure.endswith("test first, then measure") for failure in found.confidence.failed)
    # a seventh of the card for work whose kernels may take up all of it while they run
    assert found.workloads[0].slowdown.at_most == pytest.approx(1 - 0.13 + 0.13 * 7)


def test_what_was_decided_otherwise_is_left_out() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 3)
    for number, gpu in enumerate(gpus):
        small(fleet, gpu, job=str(number))
    context = context_of(fleet.recording())
    (found,) = packings(context, frozenset({gpus[0].uuid}))
    assert (len(found.freed_gpus), gpus[0].uuid in found.gpus) == (1, False)
    assert packings(context, frozenset({each.uuid for each in gpus[:2]})) == ()


@pytest.fixture
def batch_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = tmp_path / "owners.csv"
    owners.write_text("kind,name,team,priority_class\nuser,batch,search,best-effort\n", encoding="utf-8")
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(owners))


@pytest.mark.usefixtures("batch_gives_way")
@pytest.mark.parametrize(("second", "frees"), [("batch", 1), ("ann", 0)])
def test_a_shared_card_needs_one_that_gives_way(second: str, frees: int) -> None:
    """L40S have no MIG. A service with a quarter of the time, and another work with a third."""
    fleet = Fleet(3)
    for number, (user, util) in enumerate((("ann", 25.0), (second, 30.0))):
        (gpu,) = fleet.host(f"h{number}", L40S, 1)
        train(fleet, gpu, user, util=util, mem_gb=14, job=str(number))
    found = packed(fleet)
    assert sum(len(each.freed_gpus) for each in found) == frees
    if frees:
        (only,) = found
        assert (only.kind, only.measured_by, len(only.freed_hosts)) == ("sharing", "busy time", 1)
        assert only.saving == pytest.approx(72 * L40S_HOURLY)
        assert {each.profile for each in only.workloads} == {None}
        slower = only.workloads[0].slowdown
        assert (slower.expected, slower.at_most) == (pytest.approx(1.075), pytest.approx(1.25))
        assert any(failure.startswith("interference cannot be measured") for failure in only.confidence.failed)
