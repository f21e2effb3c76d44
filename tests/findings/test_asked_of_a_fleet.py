"""What is asked of a whole fleet: nothing but what its recommendations say, each GPU once, until the same day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.decide.asks import Basis, asks_of
from analytics.decide.recommendations import OPERATORS
from analytics.rules import RULES_BY_NAME
from analytics.scope import Scope
from tests.findings.test_recommendations import WINDOWS, whole_of

if TYPE_CHECKING:
    from fallow.lake import Lake


def test_a_fleet_is_asked_what_its_recommendations_say_and_each_gpu_once(simulated: tuple[Lake, object]) -> None:
    whole = whole_of(simulated[0].root, *WINDOWS[0])
    listed = whole.recommendations(Scope(), whole.part(Scope())).listed
    asked = asks_of(listed, Basis({}, whole.found.context.until_ms, {}, {}))
    assert {each.about.recommendation_id for each in asked.asks} | {
        each.recommendation_id for each, _ in asked.left_out
    } == {each.recommendation_id for each in listed}
    gpus = [gpu for each in asked.asks for gpu in each.gpus]
    assert len(gpus) == len(set(gpus)) > 0
    by_id = {each.recommendation_id: each for each in listed}
    for ask in asked.asks:
        one = by_id[ask.about.recommendation_id]
        said = one.saving if one.ranked else None
        assert (ask.gpus, ask.about.deadline_ms, ask.about.saving) == (one.gpus_now, one.deadline_ms, said)
        assert ask.to_operators == (one.owner == OPERATORS)
        assert ask.to_operators or not any(RULES_BY_NAME[each.rule].of_machine for each in ask.about.evidence)
    assert {each.to_operators for each in asked.asks} == {True, False}
