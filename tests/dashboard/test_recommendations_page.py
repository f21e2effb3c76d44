"""What to do: the numbers of the command, grouped and narrowed, and nothing of others for people."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date
from typing import Any

import pytest
from flask.testing import FlaskClient

from analytics.tables.recommendations import ACTION_WORDS
from analytics.workloads.pool_demand import MARGINS
from dashboard.actions import KINDS
from dashboard.query import Query
from dashboard.view import View
from tests.dashboard.acting import PLAN, Held, Pages
from tests.dashboard.conftest import by_id, components, page, table, words
from tests.dashboard.sites import LANGUAGE, WEEK, WINDOW, Site
from tests.in_process import run_in_process

PATH = "/recommendations"


@pytest.fixture(scope="module")
def told(planned: Site) -> dict[str, Any]:
    done = run_in_process("recommendations", "--json", "--config", str(planned.config), *WINDOW)
    assert done.returncode == 0
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def rows(tree: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = by_id(tree, "recommendations-grid")["rowData"]
    return found


def ids(tree: Any) -> set[str]:
    return {str(each["props"].get("id")) for each in components(tree)}


def slid(client: FlaskClient, place: int) -> Any:
    """What the page is answered when its slider is moved."""
    outputs = [{"id": "what-if", "property": "children"}, {"id": "what-if-words", "property": "children"}]
    answer = client.post("/_dash-update-component", headers={"Origin": "http://localhost"}, json={
        "output": "..what-if.children...what-if-words.children..",
        "outputs": outputs,
        "inputs": [{"id": "reserve", "property": "value", "value": place}],
        "state": [{"id": "url", "property": "search", "value": WEEK},
                  {"id": "scheme", "property": "data", "value": "light"}],
        "changedPropIds": ["reserve.value"],
    })  # fmt: skip
    assert answer.status_code == 200, answer.text
    return answer.get_json()["response"]


RELEASED = "{} GPUs can be released now"


def test_the_page_shows_the_numbers_of_the_command(planned: Site, told: dict[str, Any]) -> None:
    shown = page(planned.client(), PATH, WEEK)
    ranked = [each for each in told["recommendations"] if each["ranked"]]
    assert ranked
    assert [row["id"] for row in rows(shown)] == [each["id"] for each in ranked]
    for row, each in zip(rows(shown), ranked, strict=True):
        assert (row["gpus"], row["cost"], row["freed"]) == (
            len(each["gpus_now"]),
            each["cost"],
            each["value_per_year"]["freed"]["point"],
        )
        assert (row["confidence"], row["action"]) == (each["confidence"], ACTION_WORDS[each["action"]])
        first = "" if each["next_acts"] or not each["next"] else "to look first: "
        assert row["next"] == first + (each["next"] or "")
    given = told["pool_demand"]
    wanted = ["" if each["releasable"] is None else str(each["releasable"]) for each in given["pools"]]
    assert [row[7] for row in table(shown, "verdicts")] == wanted
    assert RELEASED.format(given["release_now"]) in words(shown)


def test_overview_and_capacity_say_the_same_number(planned: Site, told: dict[str, Any]) -> None:
    said = RELEASED.format(told["pool_demand"]["release_now"])
    for path in ("/", "/capacity", "/findings"):
        text = words(page(planned.client(), path, WEEK))
        assert said in text, path
        assert not re.search(r"\d GPUs? can (be taken back|go)", text), path
    first = table(page(planned.client(), "/", WEEK), "recommendations")
    ranked = [each["id"] for each in told["recommendations"] if each["ranked"]]
    assert len(first) == min(6, len(ranked))
    assert all(each in row[0] for each, row in zip(ranked, first, strict=False))


def test_grouping_adds_up_and_names_each_gpu_once(planned: Site, told: dict[str, Any]) -> None:
    ranked = [each for each in told["recommendations"] if each["ranked"]]
    gpus = [gpu for each in ranked for gpu in each["gpus_now"]]
    by_gpu = rows(page(planned.client(), PATH, f"{WEEK}&group=gpu"))
    assert [row["gpu"] for row in by_gpu] == gpus
    assert len(set(gpus)) == len(gpus)
    for group in ("owner", "pool"):
        shown = page(planned.client(), PATH, f"{WEEK}&group={group}")
        groups = table(shown, f"recommendations_by_{group}")
        assert sum(int(row[2]) for row in groups) == len(gpus)
        # the verdicts count a pool's reclaimable GPUs, without those to repair
        assert ("those to repair included; reclaimable GPUs are only a part" in words(shown)) == (group == "pool")
        assert {row[0] for row in groups} == {row[group] for row in rows(shown)}
        assert by_id(shown, "recommendations-grid")["columnDefs"][0]["field"] == group
    assert "there is no group by 'colour'" in words(page(planned.client(), PATH, f"{WEEK}&group=colour"))


def test_the_chosen_one_has_its_evidence_and_risk(planned: Site) -> None:
    view = planned.view(WEEK)
    listed = view.whole.recommendations(view.report.scope, view.part).listed
    each = next(each for each in listed if each.evidence and each.next_command and not each.confidence.is_low)
    shown = page(planned.client(), PATH, f"{WEEK}&recommendation={each.recommendation_id}")
    detail = by_id(shown, "recommendation-detail")["children"]
    assert all(finding.finding_id in words(detail) for finding in each.evidence)
    assert all(view.translate(condition) in words(detail) for condition in each.confidence.failed)
    assert each.next_command in words(detail)
    links = [one["props"]["href"] for one in components(detail) if one["type"] == "Link"]
    assert any(f"finding={each.evidence[0].finding_id}" in link for link in links)


def test_a_team_sees_nothing_of_others(planned: Site, told: dict[str, Any]) -> None:
    shown = page(planned.client(LANGUAGE), PATH, WEEK)
    everything = json.dumps(shown)
    own = {each.name for each in planned.view(WEEK, LANGUAGE).report.people.users}
    others = {each["user"] for each in told["recommendations"] if each["user"]} - own
    assert others
    assert not [name for name in others if f'"{name}"' in everything or f" {name} " in everything]
    assert not {"reserve", "verdicts-title", "recommendation-acts"} & ids(shown)
    strange = next(each for each in told["recommendations"] if each["user"] in others)
    assert strange["id"] not in everything
    asked = page(planned.client(LANGUAGE), PATH, f"{WEEK}&recommendation={strange['id']}")
    assert words(by_id(asked, "recommendation-detail")["children"]) == ""


def test_the_slider_shows_what_each_reserve_leaves(planned: Site, told: dict[str, Any]) -> None:
    pools = told["pool_demand"]["pools"]
    pools = [each for each in pools if each["free_now"] + each["reclaimable_now"] and each["what_if"]]
    assert pools
    for place, margin in enumerate(MARGINS):
        steps = [next(step for step in each["what_if"] if step["reserve_share"] == margin) for each in pools]
        answer = slid(planned.client(), place)
        by_pool, compared = [each for each in components(answer["what-if"]["children"]) if each["type"] == "Table"]
        assert [row[4] for row in _cells(by_pool)[1:]] == [str(step["releasable"]) for step in steps]
        assert _cells(compared)[1 + place][1] == str(sum(step["releasable"] for step in steps))
        assert f"With {margin:.0%}".replace("%", "") in answer["what-if-words"]["children"]
    default = by_id(page(planned.client(), PATH, WEEK), "reserve")
    assert MARGINS[default["value"]] == 0.15
    named = by_id(page(planned.client(), PATH, f"{WEEK}&reserve=30"), "reserve")
    assert MARGINS[named["value"]] == 0.30


def _cells(tree: Any) -> list[list[str]]:
    found = [each["props"]["children"] for each in components(tree) if each["type"] == "Tr"]
    return [[words(cell).strip() for cell in row] for row in found]


def test_the_file_has_every_recommendation(planned: Site, told: dict[str, Any]) -> None:
    answer = planned.client().get(f"/export/recommendations.csv{WEEK}")
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [each["id"] for each in lines] == [each["id"] for each in told["recommendations"]]
    assert [each["deadline"] for each in lines] == [each["deadline"] for each in told["recommendations"]]


def test_a_deadline_is_the_same_day_wherever_its_reader_is(planned: Site, told: dict[str, Any]) -> None:
    """The last day of the site on which acting is in time: in JSON and on the page, in any time zone."""
    days = {each["id"]: each["deadline"] for each in told["recommendations"]}
    moments = "?since=2025-11-13T00:00Z&until=2025-11-20T00:00Z"
    for zone in ("UTC", "Pacific/Auckland", "America/Los_Angeles"):
        shown = rows(page(planned.client(), PATH, f"{moments}&zone={zone}"))
        assert {each["id"]: each["deadline_day"] for each in shown} == {each["id"]: days[each["id"]] for each in shown}
        texts = {each["deadline_text"].replace("\N{NO-BREAK SPACE}", " ") for each in shown}
        assert texts == {f"{day.day} {day:%b %Y}" for day in (date.fromisoformat(days[each["id"]]) for each in shown)}


def test_the_table_is_read_from_what_decides(planned: Site) -> None:
    shown = page(planned.client(), PATH, f"{WEEK}&lang=fr")
    fields = [each["field"] for each in by_id(shown, "recommendations-grid")["columnDefs"]]
    assert fields == [
        *(
            "recommendation",
            "action",
            "owner",
            "freed",
            "cash",
            "deadline",
            "confidence",
            "gpus",
            "pool",
            "cost",
            "next",
            "host",
        ),
        "recommendation_id",
    ]
    view = planned.view(f"{WEEK}&lang=fr")
    said = {view.translate(each) for each in ACTION_WORDS.values()}
    assert {row["action"] for row in rows(shown)} <= said
    # a telephone has the same decisions as blocks
    cards = words(by_id(shown, "recommendations-cards")["children"])
    assert all(row["id"] in cards for row in rows(shown))


def test_the_hosts_are_those_of_the_gpus_to_act_on(planned: Site) -> None:
    view = planned.view(WEEK)
    devices = view.whole.inventory.devices
    shown = {row["id"]: row["host"] for row in rows(page(planned.client(), PATH, WEEK))}
    for each in view.whole.recommendations(view.report.scope, view.part).ranked:
        if each.gpus_now:
            assert shown[each.recommendation_id] == ", ".join(sorted({devices[gpu].host for gpu in each.gpus_now}))


PREFIX = "recommendation-"


def pressed(pages: Pages, kind: str, recommendation: str, text: str, seen: dict[str, str] | None = None) -> Any:
    """What the page is answered after a button."""
    return pages.call(f"{PREFIX}act-{kind}.n_clicks", {
        **{f"{PREFIX}act-{each}.n_clicks": int(each == kind) for each in KINDS},
        "url.search": "?span=all", "scheme.data": "light", "recommendation-chosen.data": recommendation,
        "reserve-tried.data": 3, f"{PREFIX}act-text.value": text, f"{PREFIX}act-until.value": "",
        f"{PREFIX}findings-seen.data": seen or {},
    })  # fmt: skip


def test_an_action_is_on_the_leading_finding(held: Held) -> None:
    pages = held.pages()
    found = pages.view().whole.recommendations(pages.view().report.scope, pages.view().part)
    one = next(each for each in found.listed if each.finding)
    answer = pressed(pages, "ack", one.recommendation_id, "asking")
    assert answer["recommendation-acts-status"]["children"] == "Acknowledged 1 finding"
    assert "acknowledged: asking" in words(answer["recommendation-detail"]["children"])
    view = pages.source.look(Query.parse("?span=all"), PLAN, findings=False)
    assert isinstance(view, View)
    assert list(view.report.decision_review.actions) == [one.evidence[0].finding_id]
    assert not view.report.is_reviewed, "the button did not have the rules run in the page's own window"


def test_a_snoozed_recommendation_stays_visible_and_can_be_reopened(held: Held) -> None:
    pages = held.pages()
    found = pages.view().whole.recommendations(pages.view().report.scope, pages.view().part)
    one = next(each for each in found.listed if each.finding)
    answer = pressed(pages, "snooze", one.recommendation_id, "until the move")
    assert one.recommendation_id not in {row["id"] for row in answer["recommendations-grid"]["rowData"]}
    assert one.recommendation_id not in words(answer["recommendations-cards"]["children"])
    below = answer["recommendations-rest"]["children"]
    [row] = table(below, "put_off")
    assert one.recommendation_id in row[0]
    assert row[2].startswith("pia")
    assert row[3:5] == ["until reopened", "until the move"]
    assert "snoozed" in [row[0] for row in table(below, "waste")]
    seen = answer["recommendation-findings-seen"]["data"]
    named = f"?span=all&recommendation={one.recommendation_id}"
    assert by_id(page(pages.client, PATH, named), "recommendation-acts")["disabled"] is False
    answer = pressed(pages, "reopen", one.recommendation_id, "", seen)
    assert "put_off-title" not in ids(answer["recommendations-rest"]["children"])


def test_without_a_finding_there_is_nothing_to_act_on(held: Held) -> None:
    """A fault stands on the ledger alone."""
    pages = held.pages()
    found = pages.view().whole.recommendations(pages.view().report.scope, pages.view().part)
    for each in found.listed:
        answer = pages.call(
            "recommendation-chosen.data",
            {"recommendation-chosen.data": each.recommendation_id, "url.search": "?span=all"},
        )
        assert answer["recommendation-acts"]["disabled"] == (each.finding is None)
    assert "Acknowledged" not in pressed(pages, "ack", "R-0000000000", "x")["recommendation-acts-status"]["children"]
