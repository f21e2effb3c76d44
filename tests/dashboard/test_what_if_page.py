"""What if: what is chosen is replayed and stands in the address; planners save scenarios, and all of them stand side by side."""

from __future__ import annotations

from typing import Any

import pytest

from analytics.plan.replay.comparisons import load_scenarios
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.tables.palette import palette
from dashboard.access.people import NotAllowedError
from dashboard.actions import record_scenario, withdraw_scenario
from dashboard.pages import what_if
from dashboard.pages.what_if import SLIDERS, WhatIfChoices, answer, compared
from tests.dashboard.acting import PLAN, PLAN_ALPHA, VIEW_ALPHA, Held
from tests.dashboard.conftest import page, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site

LIGHT = palette("light")
FLEET = ReplayFleet((HostGroup("a", "H100", 3, 8), HostGroup("b", "A100", 1, 5), HostGroup("b", "A100", 2, 8)))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays are waited for, not asked for again."""
    monkeypatch.setattr(what_if, "_PATIENCE_S", None)


@pytest.mark.parametrize(
    "choices",
    [
        WhatIfChoices(),
        WhatIfChoices(size=-20, idle=2),
        WhatIfChoices(off=(20, 8), share=3, merge=("a,b", "c&d"), small="ü"),
    ],
)
def test_the_address_says_what_was_chosen(choices: WhatIfChoices) -> None:
    assert WhatIfChoices.parse(choices.text, ("a,b", "c&d", "ü", "x")) == choices
    assert (choices.text == "") == (choices == WhatIfChoices())


def test_whatever_a_browser_sends_is_a_choice() -> None:
    assert WhatIfChoices.at(dict.fromkeys(SLIDERS, 99), ["a", 7, "gone"], {"x": 1}, ("a", "b")) == WhatIfChoices()
    assert WhatIfChoices.parse("size=17&idle=x&merge=a&share=-1&small=gone", ("a", "b")) == WhatIfChoices()


def test_a_choice_is_a_policy_of_the_pools_that_are_there() -> None:
    chosen = WhatIfChoices(size=-10, idle=4, off=(18, 8), share=2, merge=("a", "b", "gone"), small="gone")
    assert chosen.content(FLEET) == {
        "gpus": {"a/H100": 22, "b/A100": 19},
        "merge": [["a", "b"]],
        "off_peak": "18:00-08:00",
        "share": 2,
        "idle_timeout_h": 4,
    }
    assert WhatIfChoices(merge=("a", "gone")).content(FLEET) == {}


def test_a_choice_is_answered_beside_today(planned: Site) -> None:
    view = planned.view()
    today = words(shown(planned, view, WhatIfChoices()))
    fewer = words(shown(planned, view, WhatIfChoices(size=-50)))
    assert "What the change would have made of the same jobs" in today
    assert today != fewer
    assert "The GPUs would have cost" in fewer


def shown(planned: Site, view: Any, choices: WhatIfChoices) -> Any:
    """The answer, however long it takes."""
    parts, is_done = answer(planned.source, view, LIGHT, choices)
    assert is_done
    return parts


def test_until_it_is_there_the_page_says_how_far_it_is(planned: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "_PATIENCE_S", 0.0)
    view = planned.view("?since=2025-11-14&until=2025-11-15")
    parts, is_done = answer(planned.source, view, LIGHT, WhatIfChoices(share=2))
    assert not is_done
    assert "s so far" in words(parts)


def test_people_have_no_fleet_of_their_own(planned: Site) -> None:
    assert "choose all teams" in words(page(planned.client(LANGUAGE), "/what-if", WEEK))
    told = words(page(planned.client(), "/what-if", WEEK))
    assert "GPUs of every pool" in told
    assert "Name of the scenario" not in told, "a viewer saves nothing"


def test_planners_save_what_all_compare(held: Held, audited: list[str]) -> None:
    pages = held.pages(PLAN)
    record_scenario(pages.view(), "half", 'gpus = {"gone" = 1}\n', 1)
    record_scenario(pages.view(), "shared", "share = 2\n", 2)
    assert audited[:2] == [
        "person pia: asks to save scenario as planner: half",
        "person pia: save scenario as planner: half",
    ]
    parts, is_done = compared(pages.source, pages.view(), LIGHT)
    assert is_done
    said = words(parts)
    assert "2 scenarios are saved." in said
    assert "half cannot be replayed: there is no pool gone" in said
    assert "as it is today" in said
    withdraw_scenario(pages.view(), "half", 3)
    assert [each.name for each in load_scenarios(held.lake)] == ["shared"]


@pytest.mark.parametrize("who", [VIEW_ALPHA, PLAN_ALPHA], ids=lambda each: each.name)
def test_others_save_nothing(held: Held, who: Any, audited: list[str]) -> None:
    for act in (lambda view: record_scenario(view, "x", "share = 2", 1), lambda view: withdraw_scenario(view, "x", 1)):
        with pytest.raises(NotAllowedError):
            act(held.pages(who).view())
    assert load_scenarios(held.lake) == ()
    assert [line.split(" as ")[0] for line in audited] == [
        f"person {who.name}: refused save scenario",
        f"person {who.name}: refused remove scenario",
    ]
