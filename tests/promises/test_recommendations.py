"""What fallow promises of recommendations: each waste in one of them, snoozed ones left alone, and cents that add up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.actions import Action
from analytics.decide.decisions import TimeClaim, claims_of, decide
from analytics.decide.lifecycle import status_of
from analytics.decide.recommendations import Recommendations, Saving
from analytics.decide.savings import recommendations_in
from analytics.money.priced_segments import MICROCENTS, nested, rounded, share_out
from analytics.scope import Scope
from analytics.states import WASTED
from analytics.workloads.model import Confidence
from analytics.workloads.waste import HELD_IDLE
from fallow.actors import Actor
from tests.delivery.asking import found as finding_by_hand
from tests.delivery.asking import recommendation
from tests.money.fleet import accounts, stretch

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from tests.promises.site import Site

SCOPES = (
    Scope(),
    Scope(pool="train"),
    Scope(pool="dev"),
    Scope(team="vision"),
    Scope(team="speech"),
    Scope(holder="ann"),
)
Row = dict[str, Any]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_every_gpu_hour_of_waste_is_in_one_recommendation_at_most_and_costs_add_up_to_the_ledgers_waste_to_the_cent(
    waste: Site, scope: Scope
) -> None:
    """docs/recommendations.md: "each piece of wasted time is in exactly one, or in none", in every window, pool, team and user."""
    part, found = waste.whole.part(scope), waste.recommendations(scope)
    money = waste.whole.money if scope.is_all else waste.whole.money.of(part.inside, waste.whole.inventory)
    ledger, spent = money.accounts.total.state_cents, found.waste
    assert spent.state_cents is not None
    assert {state: spent.state_cents[state] for state in WASTED if state != "low"} == {
        state: ledger[state] for state in WASTED if state != "low"
    }
    assert 0 <= spent.state_cents["low"] <= ledger["low"]
    listed = found.listed
    assert sum(each.cents or 0 for each in listed) + (spent.not_actionable_cents or 0) == spent.cents
    assert sum(each.gpu_ms for each in listed) + spent.not_actionable_ms == pytest.approx(spent.gpu_ms)
    assert [each for each in listed if each.gpu_ms > 0]


def test_each_gpu_is_to_be_acted_on_by_one_recommendation_and_in_one_nudge(handed_on: Site, waste: Site) -> None:
    """docs/recommendations.md: "Each GPU is in `gpus_now` of one recommendation only: the first that can act on it"."""
    for site in (handed_on, waste):
        acted = [gpu for each in site.recommendations().listed for gpu in each.gpus_now]
        asked = [gpu for each in site.asks.asks for gpu in each.gpus]
        assert len(acted) == len(set(acted))
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(acted)


def test_of_two_findings_about_the_same_time_the_one_of_the_first_rule_has_it(waste: Site) -> None:
    """docs/recommendations.md, Who gets the time: "Within a row the rule that stands first has it"; the other is evidence."""
    held = one(waste, "held", "ann")
    zombie = replace(held, rule="zombie_holder", subject="parent gone: ann")
    stranger = replace(held, rule="loaded_no_traffic", subject="a server of eve", holder="eve")
    alone = by_rule(decided(waste, held))["held"]
    both = by_rule(decided(waste, held, stranger, zombie))
    assert both["zombie_holder"].gpu_ms == alone.gpu_ms > 0
    assert both["zombie_holder"].cents == alone.cents
    assert [each.rule for each in both["zombie_holder"].evidence] == ["zombie_holder", "held"]
    assert "held" not in both
    assert (both["loaded_no_traffic"].gpu_ms, both["loaded_no_traffic"].gpus_now) == (0, ()), (
        "the time of ann is not eve's"
    )


def test_idle_time_is_claimed_from_exactly_held_min_on_and_only_by_a_finding_of_its_user(waste: Site) -> None:
    """docs/recommendations.md: "held for at least `findings.held_min`, of the user"; shorter pauses are not actionable."""
    rows = waste.whole.ledger.inside.stretches.filter(state="held", holder="ann").head(3)
    pieces = rows.select("gpu", "state", holder="holder").with_columns(
        spell_ms=rows["stretch_end"] - rows["stretch_start"]
    )
    length_ms = int(pieces["spell_ms"][0])
    for least_ms, user, claimed in ((length_ms, "ann", True), (length_ms + 1, "ann", False), (length_ms, "bob", False)):
        claims = claims_of([TimeClaim("R-1", HELD_IDLE, ("GPU-h1-5",), (user,))], least_ms)
        assert claims.assigned(pieces)["recommendation"][0] == ("R-1" if claimed else None)


def test_a_snoozed_finding_is_neither_recommended_nor_counted_as_releasable(waste: Site) -> None:
    """docs/recommendations.md: "no other decision acts on them"; `put_off` GPUs "are not in `safe`"; docs/findings.md."""
    before = waste.recommendations()
    assert before.reclaimable is not None
    for snoozed in (one(waste, "held", "ann"), one(waste, "never_used", None), one(waste, "standing_surplus", None)):
        after = decided(
            waste, *(replace(each, status="suppressed") if each == snoozed else each for each in findings(waste))
        )
        assert after.reclaimable is not None
        (same,) = (
            each for each in after.listed if each.finding is not None and each.finding.finding_id == snoozed.finding_id
        )
        (was,) = (each for each in before.listed if each.recommendation_id == same.recommendation_id)
        assert was.ranked
        assert (same.ranked, same.gpus_now, same.saving) == (False, (), None)
        assert (same.cents, same.gpu_ms) == (was.cents, was.gpu_ms), "its waste stays"
        acted = {gpu for each in after.listed for gpu in each.gpus_now}
        assert acted.isdisjoint(snoozed.reclaimable_gpus)
        assert after.reclaimable.safe_gpus.isdisjoint(snoozed.reclaimable_gpus)
        for pool in after.reclaimable.pools:
            assert all(set(snoozed.reclaimable_gpus).isdisjoint(each.safe_gpus) for each in pool.reserves)
        lost = before.reclaimable.safe - after.reclaimable.safe
        assert lost == after.reclaimable.put_off == len(before.reclaimable.safe_gpus & set(snoozed.reclaimable_gpus))


def test_no_weaker_finding_asks_for_the_gpus_of_a_snoozed_one(waste: Site) -> None:
    """docs/recommendations.md: GPUs "of which somebody asked to wait": "no other decision acts on them"."""
    held = one(waste, "held", "ann")
    zombie = replace(held, rule="zombie_holder", subject="parent gone: ann", status="suppressed")
    tuning = replace(held, rule="low_efficiency", subject="ann of all", category="efficiency", reclaimable_gpus=())
    listed = by_rule(decided(waste, zombie, held, tuning))
    assert {rule: each.gpus_now for rule, each in listed.items() if each.gpus_now} == {}
    assert by_rule(decided(waste, held, tuning))["held"].gpus_now == ("GPU-h1-5",)


@pytest.mark.parametrize(("as_of_ms", "status"), [(9, "suppressed"), (10, "standing"), (11, "standing")])
def test_a_snoozed_finding_is_back_at_the_moment_at_which_the_snooze_ends(as_of_ms: int, status: str) -> None:
    """docs/findings.md, Status: "A suppression applies to windows that end before it expires"."""
    assert status_of([Action(1, "A-1", "F-1", "suppress", Actor("ann"), expires_ms=10)], "standing", as_of_ms) == status


@pytest.mark.parametrize(
    ("changes", "is_ranked"),
    [
        ({}, True),
        ({"saving": Saving(0.0, 0.01, 1.0)}, True),
        ({"saving": Saving(0.0, 0.0, 5.0)}, False),
        ({"saving": None}, False),
        ({"confidence": Confidence(("one",))}, True),
        ({"confidence": Confidence(("one", "two"))}, False),
        ({"action": "ask"}, False),
        ({"status": "suppressed"}, False),
        ({"status": "acknowledged"}, True),
    ],
    ids=str,
)
def test_ranked_is_only_what_is_known_to_save_something_with_medium_or_high_confidence(
    changes: dict[str, Any], *, is_ranked: bool
) -> None:
    """docs/recommendations.md: "`ranked` are those with a saving above 0 of medium or high confidence"."""
    sure = {"saving": Saving(1.0, 2.0, 3.0), "confidence": Confidence(())}
    assert recommendation(finding_by_hand("held"), **(sure | changes)).ranked is is_ranked


def test_ranked_recommendations_come_first_the_largest_saving_first_and_their_savings_are_within_what_a_year_costs(
    waste: Site,
) -> None:
    """docs/recommendations.md, What it saves: "their sum never exceeds what a year of these GPUs costs"."""
    found = waste.recommendations()
    assert [each.ranked for each in found.listed] == sorted((each.ranked for each in found.listed), reverse=True)
    points = [each.saving.point for each in found.ranked if each.saving is not None]
    assert points == sorted(points, reverse=True)
    assert found.saving is not None
    year = 8766 * (24 * 2.17 + 4 * 0.93)
    assert found.saving.low <= found.saving.point <= min(found.saving.high, year)
    assert found.given_back is not None
    assert found.freed is not None
    assert found.given_back.point + found.freed.point == pytest.approx(found.saving.point)


def test_idle_gpus_less_unknown_demand_reserve_broken_hosts_and_snoozed_ones_are_the_releasable_ones(
    waste: Site,
) -> None:
    """docs/recommendations.md: "in every line and in the sum", by the formula of the reserve with 15 % and 1/days."""
    found = waste.recommendations().reclaimable
    assert found is not None
    assert (found.idle_now, found.safe, found.put_off) == (21, 16, 0)
    for each in (found, *found.pools):
        unknown = each.need_unknown if each is found else 0
        assert each.idle_now - unknown - (each.reserve or 0) - (each.broken_blocks or 0) - each.put_off == (
            each.safe or 0
        )
        safe = [reserve.safe for reserve in each.reserves] if each is not found else []
        assert safe == sorted(safe, reverse=True), "a larger reserve never leaves more"
    train, dev = found.pools
    assert (dev.pool, dev.gpus, dev.safe) == ("dev", 4, 4 - math.ceil(1 * 1.15 * (1 + 1 / 15)))
    assert (train.missing, len(train.safe_gpus)) == (1, train.safe)
    assert not {"GPU-h3-0", "GPU-h1-0"} & found.safe_gpus, "neither a lost GPU nor one at work"


@pytest.mark.parametrize(
    ("microcents", "cents"),
    [(0, 0), (499_999, 0), (500_000, 1), (500_001, 1), (1_499_999, 1), (1_500_000, 2), (2_500_000, 3)],
)
def test_half_a_cent_is_rounded_up_once(microcents: int, cents: int) -> None:
    """docs/money.md, To the cent: "It rounds what was paid once, half a cent up"."""
    assert rounded(microcents) == cents
    parts = {("a",): microcents // 2, ("b",): microcents - microcents // 2}
    assert sum(nested(parts).values()) == cents, "rounded once, not once for each part"


def test_cents_go_to_the_largest_remainders_and_of_equal_ones_to_the_first_by_name() -> None:
    """docs/money.md: "distributes the cents by the largest remainder"."""
    third = MICROCENTS // 3
    assert share_out(2, {("a",): 2 * third, ("b",): MICROCENTS, ("c",): third}) == {("a",): 1, ("b",): 1, ("c",): 0}
    half = MICROCENTS // 2
    assert share_out(2, {("b",): half, ("c",): half, ("a",): MICROCENTS}) == {("a",): 1, ("b",): 1, ("c",): 0}


@pytest.mark.parametrize("group", ["pool", "team", "organisation", "model", "host", "holder", "account", "day"])
def test_every_table_adds_up_to_what_was_paid_to_the_cent(waste: Site, group: str) -> None:
    """docs/money.md: "in every table each column adds up to the whole, and each line's parts to what was paid"."""
    found = waste.whole.money.accounts
    assert found.total.paid_cents == sum(found.total.state_cents.values()) > 0
    for state, cents in found.total.state_cents.items():
        assert sum(row.state_cents[state] for row in found.by(group)) == cents
    assert sum(row.paid_cents for row in found.by(group)) == found.total.paid_cents


def test_time_of_several_users_is_charged_by_their_process_time_and_free_time_to_no_user() -> None:
    """docs/money.md, What is paid for: "split by their share of the process time, or equally if that is unknown"."""
    rows = [
        stretch("a1", 0, 3600, "active", holder="ann+bob", holder_shares=[0.75, 0.25]),
        stretch("a1", 3600, 7200, "held", holder="ann+eve"),
        stretch("a1", 7200, 10_800, "free"),
        stretch("a1", 10_800, 14_400, "unavailable", holder="ann"),
    ]
    users = {
        row.label: {state: each for state, each in row.state_cents.items() if each}
        for row in accounts(rows).by("holder")
    }
    known = {"ann": {"active": 516, "held": 344}, "bob": {"active": 172}, "eve": {"held": 344}}
    assert users == known | {"(nobody)": {"free": 688, "unavailable": 688}}


def findings(site: Site) -> tuple[Finding, ...]:
    return site.whole.review.findings


def one(site: Site, rule: str, user: str | None) -> Finding:
    """The rule's first finding of that user."""
    return next(each for each in findings(site) if (each.rule, each.holder) == (rule, user))


def decided(site: Site, *own: Finding) -> Recommendations:
    """What these findings alone lead to, over the whole fleet."""
    decisions = decide(replace(site.whole.review, findings=own), site.whole.decisions.deadlines)
    return recommendations_in(decisions, site.whole.ledger.inside.stretches)


def by_rule(found: Recommendations) -> dict[str, Any]:
    return {each.evidence[0].rule: each for each in found.listed if each.evidence}
