"""One work, one way to make do with less: what is chosen, what stands aside, and that nothing is saved twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.decide.right_sizing import right_sizing
from analytics.decide.totals import saving_of
from analytics.workloads.model import Confidence, Context, Evidence, Finding
from analytics.workloads.packing import packings
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train

H100_HOURLY, HOURS = 6.88, 72


def move(user: str, gpus: tuple[str, ...], saving: float | None, failed: int = 0, subject: str = "") -> Finding:
    """A finding that another card would do."""
    named = ("memory_oversized", "right_size", "", subject or f"{user}|{gpus}", gpus, "h1", "", user)
    sure, evidence = Confidence(("doubt",) * failed), Evidence(0, 1, {"saving": saving})
    return Finding(*named, 0, 1.0, None, sure, (), evidence, "", simulated=False)


@pytest.fixture(scope="module")
def three_small() -> tuple[Context, tuple[str, ...]]:
    """Three H100s with work for a seventh each: one card would hold all, and two come free."""
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 3)
    for number, gpu in enumerate(gpus):
        train(fleet, gpu, f"user{number}", util=13.0, sm=11.5, mem_gb=8, job=str(number))
    return context_of(fleet.recording()), tuple(each.uuid for each in gpus)


def test_the_larger_saving_of_equally_sure_ways_is_chosen(three_small: tuple[Context, tuple[str, ...]]) -> None:
    context, gpus = three_small
    (packing,) = packings(context)
    failed = len(packing.confidence.failed)
    less, unknown = move("user0", gpus[:1], 100.0, failed), move("user2", gpus[2:], None)
    chosen = right_sizing(context, [less, unknown])
    assert (chosen.packings, chosen.moves) == ((packing,), ())
    assert chosen.instead == {packing.packing_id: (less,)}
    assert chosen.saving == packing.saving == pytest.approx(2 * HOURS * H100_HOURLY)


def test_a_pool_is_packed_again_without_the_work_that_moves(three_small: tuple[Context, tuple[str, ...]]) -> None:
    context, gpus = three_small
    sure = move("user1", gpus[1:2], 5.0)
    chosen = right_sizing(context, [sure])
    assert chosen.moves == (sure,)
    (packing,) = chosen.packings
    assert gpus[1] not in packing.gpus
    assert (len(packing.freed_gpus), chosen.saving) == (1, pytest.approx(HOURS * H100_HOURLY + 5))


def test_where_the_rest_fills_no_card_the_packing_stands_aside(three_small: tuple[Context, tuple[str, ...]]) -> None:
    context, gpus = three_small
    (packing,) = packings(context)
    sure = [move(f"user{number}", (gpus[number],), 5.0) for number in range(2)]
    chosen = right_sizing(context, sure)
    assert sorted(each.user or "" for each in chosen.moves) == ["user0", "user1"]
    assert chosen.packings == ()
    assert list(chosen.instead.values()) == [(packing,), (packing,)]


def test_work_is_moved_once_and_saves_once(three_small: tuple[Context, tuple[str, ...]]) -> None:
    """Ann's work on two GPUs could go to one card or another, and share with bob's, who had one of them later."""
    context, _ = three_small
    ways = [
        move("ann", ("a", "b"), 4.0),
        move("ann", ("b",), 9.0, subject="other card"),
        move("ann+bob", ("a",), 3.0),
        move("bob", ("b",), 1.0),
    ]
    assert [saving_of(each) for each in right_sizing(context, ways, ()).moves] == [9.0, 3.0, 1.0]
    assert right_sizing(context, ways[:2], ()).saving == 9.0
    assert right_sizing(context, [ways[0], ways[3]], ()).saving == 5.0  # the same GPU at another time
    assert right_sizing(context, [], ()).saving is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0.1, HOURS * H100_HOURLY), st.integers(0, 4)),
        max_size=6,
    )
)
def test_savings_never_exceed_what_the_gpus_cost(
    three_small: tuple[Context, tuple[str, ...]], offers: list[tuple[int, int, float, int]]
) -> None:
    context, gpus = three_small
    moves = [
        move(f"user{first}", tuple(gpus[min(first, last) : max(first, last) + 1]), amount, failed, subject=str(number))
        for number, (first, last, amount, failed) in enumerate(offers)
    ]
    chosen = right_sizing(context, moves)
    packed = [gpu for each in chosen.packings for gpu in each.gpus]
    assert len(packed) == len(set(packed))
    assert not set(packed) & {gpu for each in chosen.moves for gpu in each.gpus}
    # a finding may claim what a whole GPU costs, and each may be about all three; nothing else is added to that
    assert (chosen.saving or 0.0) <= 3 * HOURS * H100_HOURLY + 1e-6


def test_without_a_price_a_packing_is_chosen_last(three_small: tuple[Context, tuple[str, ...]]) -> None:
    context, gpus = three_small
    (packing,) = packings(context)
    unpriced = replace(packing, saving=None, confidence=Confidence(()))
    doubtful = move("user0", gpus[:1], 1.0, 4)
    chosen = right_sizing(context, [doubtful], [unpriced])
    assert chosen.moves == (doubtful,)
