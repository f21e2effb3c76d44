"""What if: the page replays the choices in its address; planners save scenarios, which it shows side by side."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from analytics.plan.replay.comparisons import as_toml, load_scenarios
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.tables.palette import palette
from dashboard.access.people import NotAllowedError
from dashboard.actions import record_scenario, withdraw_scenario
from dashboard.pages import what_if
from dashboard.pages.what_if_replays import Replays, WhatIfChoices, resizable
from dashboard.query import Query
from fallow.clock import Window
from fallow.errors import UsageError
from tests.dashboard.acting import PLAN, PLAN_ALPHA, VIEW_ALPHA, Held
from tests.dashboard.conftest import links, page, words
from tests.dashboard.conftest import parts as components
from tests.dashboard.sites import LANGUAGE, WEEK, Site

LIGHT = palette("light")
FLEET = ReplayFleet(
    (
        HostGroup("a,=b", "H100", 3, 8),
        HostGroup("ü", "A100", 1, 5),
        HostGroup("ü", "A100", 2, 8),
        HostGroup("ü", "H100", 1, 8),
    )
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays are waited for, not asked for again."""
    monkeypatch.setattr(what_if, "_PATIENCE_S", None)


@pytest.mark.parametrize(
    "choices",
    [
        WhatIfChoices(),
        WhatIfChoices(gpus=(("a,=b", 16), ("ü/A100", -8)), idle=0.5, curve="ü/H100"),
        WhatIfChoices(off=(20, 8), share=3, merge=("a,=b", "ü"), small="ü"),
    ],
)
def test_the_address_and_a_saved_policy_have_the_choices(choices: WhatIfChoices) -> None:
    assert WhatIfChoices.parse(choices.text, FLEET) == choices
    assert (choices.text == "") == (choices == WhatIfChoices())
    assert WhatIfChoices.of_policy(as_toml(choices.content), FLEET) == choices.but_curve


def test_a_saved_policy_that_the_fields_cannot_show_opens_nothing() -> None:
    for policy in (
        "share =",
        "share = 9",
        'order = "fifo"',
        'gpus = {"gone" = 1}',
        "gpus = 4",
        'off_peak = "01:00-02:00"',
    ):
        assert WhatIfChoices.of_policy(policy, FLEET) is None
    assert WhatIfChoices.of_policy('gpus = {"a,=b" = 20}', FLEET) == WhatIfChoices(gpus=(("a,=b", -4),))


@pytest.mark.parametrize("sent", [1.5, "16", True, [], 10**400, float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(sent: object) -> None:
    for field in ("gpus.a,=b", "idle"):
        if (field, sent) != ("idle", 1.5):
            with pytest.raises(UsageError):
                WhatIfChoices.of_values({field: sent}, FLEET)


def test_other_values_from_a_browser_are_as_today() -> None:
    sent = {"off": 99, "share": "x", "merge": ["ü", 7, "gone"], "small": {"x": 1}, "curve": 7, "gpus.gone": 3}
    assert WhatIfChoices.of_values(sent, FLEET) == WhatIfChoices()
    assert WhatIfChoices.parse("idle=x&merge=ü&share=-1&small=gone&gpus.gone=1", FLEET) == WhatIfChoices()


def test_a_choice_is_a_policy() -> None:
    assert resizable(FLEET) == {"a,=b": 24, "ü/A100": 21, "ü/H100": 8}
    chosen = WhatIfChoices(gpus=(("a,=b", 16), ("ü/A100", -8)), idle=4, off=(18, 8), share=2, merge=("a,=b", "ü"))
    assert chosen.content == {
        "gpus": {"a,=b": "+16", "ü/A100": "-8"},
        "merge": [["a,=b", "ü"]],
        "off_peak": "18:00-08:00",
        "share": 2,
        "idle_timeout_h": 4,
    }


def answered(planned: Site, view: Any, fields: dict[str, object]) -> tuple[str, str]:
    """The words of the answer, and the choices for the address, however long they take."""
    parts, is_whole, text = what_if.shown(planned.source, view, LIGHT, fields)
    assert is_whole
    return words(parts), text


def test_a_number_for_each_pool_is_answered_beside_today(planned: Site) -> None:
    view = planned.view()
    names = [*resizable(Replays.of(view).base.fleet)]
    search = f"{WEEK}&scenario=gpus.{names[0]}%3D%252B16"
    fields = [*components(what_if.WHAT_IF.content(planned.view(search), LIGHT))]
    numbers = {each.id["name"]: each.value for each in fields if isinstance(getattr(each, "id", None), dict)}
    assert numbers == {f"gpus.{name}": 16 if name == names[0] else None for name in names} | {"idle": None}
    today, text = answered(planned, view, {})
    assert (text, "Difference" in today, "Link to this answer" in today) == ("", False, False)
    more, text = answered(planned, view, numbers)
    assert text == f"gpus.{names[0]}=%2B16"
    assert "16 more GPUs add" in more
    refused, _ = answered(planned, view, {f"gpus.{names[0]}": -999})
    assert "cannot be removed" in refused


def test_the_time_out_comes_before_the_waits(planned: Site) -> None:
    said, _ = answered(planned, planned.view(), {"idle": 2})
    assert said.index("An idle time-out of 2 h frees") < said.index("start within")


def test_the_link_opens_the_same_answer_on_a_later_day(planned: Site) -> None:
    view = planned.view()
    parts, _, _ = what_if.shown(planned.source, view, LIGHT, {"idle": 2})
    [link] = [each for each in links(parts) if "scenario" in each]
    query = Query.parse(link.partition("?")[2])
    summary = view.report.ledger.summary
    assert query.window(summary.until_ms + 10**9, UTC) == Window(summary.since_ms, summary.until_ms)
    assert WhatIfChoices.parse(query.scenario, FLEET).idle == 2


def test_a_pool_has_a_curve_or_the_reason_for_none(planned: Site) -> None:
    view = planned.view()
    replays = Replays.of(view)
    for name in resizable(replays.base.fleet):
        shown, _, _ = what_if.shown(planned.source, view, LIGHT, {"curve": name})
        ids = {getattr(each, "id", None) for each in components(shown)}
        assert ("replay_sweep-chart" in ids) == replays.has_curve(name)
        assert (f"Queue waits in {replays.pool_of(name)} cannot be computed" in words(shown)) != replays.has_curve(name)
        assert replays.curve_name(WhatIfChoices(curve=name)) == name
        if replays.has_curve(name):
            sizes = replays.sizes(WhatIfChoices(gpus=((name, 3),)), name)
            there = resizable(replays.base.fleet)[name]
            assert sizes[:2] == (there, there + 3)


def test_the_page_shows_its_progress_until_it_is_ready(planned: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "_PATIENCE_S", 0.0)
    view = planned.view("?since=2025-11-14&until=2025-11-15")
    parts, is_whole = what_if.answer(planned.source, view, LIGHT, WhatIfChoices(share=2))
    assert not is_whole
    assert "s so far" in words(parts)


def test_people_have_no_fleet_of_their_own(planned: Site) -> None:
    assert "choose all teams" in words(page(planned.client(LANGUAGE), "/what-if", WEEK))
    assert "Name of the scenario" not in words(page(planned.client(), "/what-if", WEEK)), "a viewer saves nothing"


def test_planners_save_what_all_compare(held: Held, audited: list[str]) -> None:
    pages = held.pages(PLAN)
    record_scenario(pages.view(), "half", 'gpus = {"gone" = 1}\n', 1)
    record_scenario(pages.view(), "shared", "share = 2\n", 2)
    assert audited[:2] == [
        "person pia: asks to save scenario as planner: half",
        "person pia: save scenario as planner: half",
    ]
    parts, is_whole = what_if.compared(pages.source, pages.view(), LIGHT)
    assert is_whole
    said = words(parts)
    assert "2 scenarios are saved." in said
    assert "half cannot be replayed: there is no pool gone" in said
    opened = said.partition("Open:")[2].partition("How this is counted")[0]
    assert opened.split() == ["shared"], "half has no fields"
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
