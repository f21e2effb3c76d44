"""What fallow promises of recommendations: each waste in one of them, snoozed ones respected, cents that add up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.actions import Action
from analytics.decide.decisions import TimeClaim, claims_of, decide
from analytics.decide.lifecycle import status_of
from analytics.decide.recommendations import Recommendations
from analytics.decide.savings import recommendations_in
from analytics.money.priced_segments import MICROCENTS, nested, rounded, share_out
from analytics.scope import Scope
from analytics.states import WASTED
from analytics.tables.plan_forecast import order_dates
from analytics.tables.verdicts import pool_verdicts
from analytics.workloads.model import Confidence
from analytics.workloads.pool_demand import most_urgent_first
from analytics.workloads.waste import HELD_IDLE, RETURN
from fallow.actors import Actor
from tests.delivery.made_items import found as finding_by_hand
from tests.delivery.made_items import recommendation, worth
from tests.money.fleet import accounts, segment

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from tests.promises.site import Site

SCOPES = (
    Scope(),
    Scope(pool="train"),
    Scope(pool="dev"),
    Scope(team="vision"),
    Scope(team="speech"),
    Scope(user="ann"),
)
Row = dict[str, Any]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_every_gpu_hour_of_waste_is_in_one_recommendation_at_most_and_costs_add_up_to_the_ledgers_waste_to_the_cent(
    waste: Site, scope: Scope
) -> None:
    """docs/recommendations.md: "Wasted time is in exactly one recommendation, or in none".

    This holds in every window, pool, team and user.
    """
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
        asked = [gpu for each in site.nudge_items.items for gpu in each.gpus]
        assert len(acted) == len(set(acted))
        assert len(asked) == len(set(asked))
        assert set(asked) <= set(acted)


def test_of_two_findings_about_the_same_time_the_one_of_the_first_rule_has_it(waste: Site) -> None:
    """docs/recommendations.md, Who gets the time: "Within a row the rule that stands first has it".

    The other finding is evidence.
    """
    held = one(waste, "held", "ann")
    faded = replace(held, rule="ending", subject="ann")
    stranger = replace(held, rule="partial_use", subject="a job of eve", user="eve")
    alone = by_rule(decided(waste, held))["held"]
    both = by_rule(decided(waste, faded, stranger, held))
    assert both["held"].gpu_ms == alone.gpu_ms > 0
    assert both["held"].cents == alone.cents
    assert [each.rule for each in both["held"].evidence] == ["held", "ending"]
    assert "ending" not in both
    assert (both["partial_use"].gpu_ms, both["partial_use"].gpus_now) == (0, ()), "the time of ann is not eve's"


def test_idle_time_is_claimed_from_exactly_held_min_on_and_only_by_a_finding_of_its_user(waste: Site) -> None:
    """docs/recommendations.md: "held for at least `findings.held_min`, of the user"; shorter is not actionable."""
    rows = waste.whole.ledger.inside.segments.filter(state="held", user="ann").head(3)
    pieces = rows.select("gpu", "state", user="user").with_columns(
        segment_ms=rows["segment_end"] - rows["segment_start"]
    )
    length_ms = int(pieces["segment_ms"][0])
    for least_ms, user, claimed in ((length_ms, "ann", True), (length_ms + 1, "ann", False), (length_ms, "bob", False)):
        claims = claims_of([TimeClaim("R-1", HELD_IDLE, ("GPU-h1-5",), (user,))], least_ms)
        assert claims.assigned(pieces)["recommendation"][0] == ("R-1" if claimed else None)


def test_a_snoozed_finding_is_neither_recommended_nor_counted_as_releasable(waste: Site) -> None:
    """docs/recommendations.md: `snoozed`: "GPUs of a snoozed finding; no other GPUs take their place"."""
    before = waste.recommendations()
    assert before.fleet is not None
    for snoozed in (one(waste, "held", "ann"), one(waste, "never_used", None), one(waste, "releasable_pool", None)):
        after = decided(
            waste, *(replace(each, status="snoozed") if each == snoozed else each for each in findings(waste))
        )
        assert after.fleet is not None
        (same,) = (
            each for each in after.listed if each.finding is not None and each.finding.finding_id == snoozed.finding_id
        )
        (was,) = (each for each in before.listed if each.recommendation_id == same.recommendation_id)
        assert was.ranked
        assert (same.ranked, same.gpus_now, same.value) == (False, (), None)
        assert (same.cents, same.gpu_ms) == (was.cents, was.gpu_ms), "its waste stays"
        acted = {gpu for each in after.listed for gpu in each.gpus_now}
        assert acted.isdisjoint(snoozed.reclaimable_gpus)
        assert after.fleet.releasable_gpus.isdisjoint(snoozed.reclaimable_gpus)
        assert after.fleet.released <= before.fleet.released
        free = before.fleet.released & set(snoozed.reclaimable_gpus)
        assert after.fleet.snoozed == len(free)


def test_no_weaker_finding_asks_for_the_gpus_of_a_snoozed_one(waste: Site) -> None:
    """docs/recommendations.md: of a snoozed finding: "no other recommendation acts on its GPUs"."""
    held = one(waste, "held", "ann")
    faded = replace(held, rule="ending", subject="ann")
    tuning = replace(held, rule="low_efficiency", subject="ann of all", category="efficiency", reclaimable_gpus=())
    listed = by_rule(decided(waste, replace(held, status="snoozed"), faded, tuning))
    assert {rule: each.gpus_now for rule, each in listed.items() if each.gpus_now} == {}
    assert by_rule(decided(waste, held, tuning))["held"].gpus_now == ("GPU-h1-5",)


@pytest.mark.parametrize(("as_of_ms", "status"), [(9, "snoozed"), (10, "standing"), (11, "standing")])
def test_a_snoozed_finding_is_back_at_the_moment_at_which_the_snooze_ends(as_of_ms: int, status: str) -> None:
    """docs/recommendations.md, Status: "A snooze applies to windows that end before it expires"."""
    assert status_of([Action(1, "A-1", "F-1", "snooze", Actor("ann"), expires_ms=10)], "standing", as_of_ms) == status


@pytest.mark.parametrize(
    ("changes", "is_ranked"),
    [
        ({}, True),
        ({"value": worth(0.0, 0.01, 1.0)}, True),
        ({"value": worth(0.0, 0.0, 5.0)}, False),
        ({"value": None}, False),
        ({"confidence": Confidence(("one",))}, True),
        ({"confidence": Confidence(("one", "two"))}, False),
        ({"action": "ask"}, False),
        ({"status": "snoozed"}, False),
        ({"status": "acknowledged"}, True),
    ],
    ids=str,
)
def test_ranked_is_only_what_is_known_to_save_something_with_medium_or_high_confidence(
    changes: dict[str, Any], *, is_ranked: bool
) -> None:
    """docs/recommendations.md: "`ranked` are those of medium or high confidence that free GPU time with a price"."""
    sure = {"value": worth(1.0, 2.0, 3.0), "confidence": Confidence(())}
    assert recommendation(finding_by_hand("held"), **(sure | changes)).ranked is is_ranked


def test_ranked_recommendations_come_first_the_largest_value_first_and_their_sum_is_within_what_a_year_costs(
    waste: Site,
) -> None:
    """docs/recommendations.md, What it is worth: "their sum never exceeds what a year of these GPUs costs"."""
    found = waste.recommendations()
    assert [each.ranked for each in found.listed] == sorted((each.ranked for each in found.listed), reverse=True)
    points = [
        each.value.freed.point for each in found.ranked if each.value is not None and each.value.freed is not None
    ]
    assert points == sorted(points, reverse=True)
    assert found.value is not None
    assert found.value.freed is not None
    year = 8766 * (24 * 2.17 + 4 * 0.93)
    assert found.value.freed.low <= found.value.freed.point <= min(found.value.freed.high, year)


def test_free_and_reclaimable_gpus_less_what_is_kept_are_the_releasable_ones(waste: Site) -> None:
    """docs/recommendations.md: "in every line and in the sum", by the formula of the reserve with 15 % and 1/days."""
    found = waste.recommendations().fleet
    assert found is not None
    for each in (found, *found.pools):
        unknown = each.demand_unknown if each is found else 0
        kept = (each.reserve or 0) + (each.growth or 0) + (each.kept_for_hosts or 0) + each.snoozed
        assert each.free_now + each.reclaimable_now - unknown - kept == (each.releasable or 0)
        left = [reserve.releasable for reserve in each.reserves] if each is not found else []
        assert left == sorted(left, reverse=True), "a larger reserve never leaves more"
    assert found.releasable == found.release_now + found.release_later > 0
    assert not {"GPU-h3-0", "GPU-h1-0"} & found.releasable_gpus, "neither a lost GPU nor one at work"


@pytest.mark.parametrize("scope", SCOPES[:3], ids=str)
def test_a_pool_has_one_verdict_in_every_table_and_is_never_both_to_release_and_to_order(
    waste: Site, scope: Scope
) -> None:
    """docs/recommendations.md: "one verdict. Every page, report, mail, command and the API reads" it."""
    found = waste.recommendations(scope)
    assert found.fleet is not None
    pools = most_urgent_first(waste.whole.decisions.fleet.pools, scope)
    released, ordered = pool_verdicts(found.fleet), order_dates(pools)
    assert released is not None
    keys = ("verdict", "verdict_gpus", "order_by")
    first, second = (
        {(row["pool"], row["model"]): tuple(row[key] for key in keys) for row in table.records()}
        for table in (released, ordered)
    )
    assert first == second != {}
    assert {kind for kind, _, day in first.values() if day is not None} <= {"order"}
    acted = [gpu for each in found.listed if each.kind.request == RETURN for gpu in each.gpus_now]
    assert set(acted) <= found.fleet.released
    assert len(acted) <= found.fleet.release_now <= found.fleet.free_now
    assert found.fleet.releasable <= found.fleet.free_now + found.fleet.reclaimable_now


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


@pytest.mark.parametrize("group", ["pool", "team", "organisation", "model", "host", "user", "account", "day"])
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
        segment("a1", 0, 3600, "active", user="ann+bob", user_shares=[0.75, 0.25]),
        segment("a1", 3600, 7200, "held", user="ann+eve"),
        segment("a1", 7200, 10_800, "free"),
        segment("a1", 10_800, 14_400, "unavailable", user="ann"),
    ]
    users = {
        row.label: {state: each for state, each in row.state_cents.items() if each} for row in accounts(rows).by("user")
    }
    known = {"ann": {"active": 516, "held": 344}, "bob": {"active": 172}, "eve": {"held": 344}}
    assert users == known | {"(nobody)": {"free": 688, "unavailable": 688}}


def findings(site: Site) -> tuple[Finding, ...]:
    return site.whole.decision_review.findings


def one(site: Site, rule: str, user: str | None) -> Finding:
    """The rule's first finding of that user."""
    return next(each for each in findings(site) if (each.rule, each.user) == (rule, user))


def decided(site: Site, *own: Finding) -> Recommendations:
    """What these findings alone lead to, over the whole fleet."""
    whole, known = site.whole, site.whole.decisions
    decisions = decide(replace(whole.decision_review, findings=own), known.deadlines, known.basis)
    inside = whole.decision_window.ledger.inside.segments
    return recommendations_in(decisions, inside, asked=whole.ledger.inside.segments)


def by_rule(found: Recommendations) -> dict[str, Any]:
    return {each.evidence[0].rule: each for each in found.listed if each.evidence}
