"""The Grafana dashboards: each query asks for metrics that there are, and each panel has its place."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

from analytics.states import UNUSED
from fallow.schema import UNAVAILABLE_HEALTH
from tests.deploy.queries import BOARDS, METRICS, board, expressions, metric_names, panels, recorded, rules

NAMES = [each.name for each in BOARDS]


def test_there_are_two_with_names_of_their_own() -> None:
    assert NAMES == ["fallow-fleet.json", "fallow-waste.json"]
    assert len({board(name)["uid"] for name in NAMES}) == len({board(name)["title"] for name in NAMES}) == 2


@pytest.mark.parametrize("name", NAMES)
def test_every_query_asks_for_metrics_that_there_are(name: str) -> None:
    for each in expressions(name):
        assert metric_names(each) <= METRICS | recorded(), each
        assert metric_names(each), each
        assert "$" not in each, f"a variable that nobody can choose: {each}"


def test_every_rule_asks_for_metrics_that_there_are() -> None:
    for each in rules():
        assert metric_names(each["expr"]) <= METRICS, each


def test_sets_of_states_are_those_of_the_code() -> None:
    every = [*(each["expr"] for each in rules()), *(each for name in NAMES for each in expressions(name))]
    sets = {tuple(each.split("|")) for text in every for each in re.findall(r'(?:state|health)=~"([^"]+)"', text)}
    assert sets == {UNAVAILABLE_HEALTH, UNUSED}


def test_names_are_told_from_everything_else() -> None:
    assert metric_names('sum by (a) (x{b="c{d"}) / rate(y_total[5m]) > 7200') == {"x", "y_total"}
    assert metric_names("topk(20, a:b:c) or 0 * count(z) and on (job, UUID) w") == {"a:b:c", "z", "w"}


@pytest.mark.parametrize("name", NAMES)
def test_every_query_goes_to_the_chosen_source(name: str) -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables = {each["name"]: each for each in board(name)["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels(name):
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    asked = {
        each for panel in panels(name) for target in panel["targets"] for each in re.findall(r"\$(\w+)", target["expr"])
    }
    assert asked == set(variables) - {"datasource"}
    for each in asked:
        assert (
            re.fullmatch(r"label_values\((\w+), \w+\)", variables[each]["definition"])[1]  # type: ignore[index]
            in METRICS
        )


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_an_id_a_title_and_a_place_of_its_own(name: str) -> None:
    every = board(name)["panels"]
    assert len({each["id"] for each in every}) == len(every)
    titles = [each["title"] for each in panels(name)]
    assert len(set(titles)) == len(titles)
    for each in every:
        assert each["gridPos"]["x"] + each["gridPos"]["w"] <= 24
    for one, other in combinations([each["gridPos"] for each in every], 2):
        assert not _overlap(one, other)


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_known_is_never_drawn_as_0(name: str) -> None:
    for each in expressions(name):
        assert "vector(" not in each
    assert not any(panel["fieldConfig"]["defaults"]["custom"].get("spanNulls") for panel in panels(name))
