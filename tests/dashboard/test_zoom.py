"""The part of the window in sight: the links that lead to others, for those who drag nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from dashboard.times import is_zoomed, visible, zoom_note
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.conftest import UNTIL_MS
from tests.dashboard.teams import Teams, parts, teams, text_of

if TYPE_CHECKING:
    from dashboard.view import View

__all__ = ["teams"]

SINCE_MS = UNTIL_MS - 2 * DAY_MS


def ways(view: View) -> dict[str, str]:
    return {text_of(each): each.href for each in parts(zoom_note(view)) if getattr(each, "href", None)}


def follow(teams: Teams, search: str, *names: str) -> View:
    for name in names:
        search = ways(teams.view(search))[name]
    return teams.view(search)


def test_of_the_whole_window_one_can_come_closer(teams: Teams) -> None:
    view = teams.view("?span=all&sort=waste")
    assert list(ways(view)) == ["closer"]
    assert "Drag along the time" in text_of(zoom_note(view))
    there = parse_qs(ways(view)["closer"].removeprefix("?"))
    assert (there["span"], there["sort"]) == (["all"], ["waste"])
    assert visible(follow(teams, "?span=all", "closer")) == (SINCE_MS + 12 * HOUR_MS, UNTIL_MS - 12 * HOUR_MS)


@pytest.mark.parametrize(
    ("names", "since_ms", "until_ms"),
    [
        (("closer", "earlier"), 0, 24 * HOUR_MS),
        (("closer", "later"), 24 * HOUR_MS, 48 * HOUR_MS),
        (("closer", "closer"), 18 * HOUR_MS, 30 * HOUR_MS),
        (("closer", "closer", "wider"), 12 * HOUR_MS, 36 * HOUR_MS),
        (("closer", "closer", "later", "later", "later"), 36 * HOUR_MS, 48 * HOUR_MS),
    ],
)
def test_ways_lead_on_and_stay_in_the_window(
    teams: Teams, names: tuple[str, ...], since_ms: int, until_ms: int
) -> None:
    assert visible(follow(teams, "?span=all", *names)) == (SINCE_MS + since_ms, SINCE_MS + until_ms)


def test_at_an_end_of_the_window_nothing_leads_beyond(teams: Teams) -> None:
    assert list(ways(follow(teams, "?span=all", "closer", "earlier"))) == ["closer", "later", "Show the whole window"]
    assert list(ways(follow(teams, "?span=all", "closer", "later"))) == ["closer", "earlier", "Show the whole window"]
    assert not is_zoomed(follow(teams, "?span=all", "closer", "Show the whole window"))


def test_nobody_comes_closer_than_some_minutes(teams: Teams) -> None:
    view = teams.view("?span=all")
    for _ in range(20):
        if "closer" not in ways(view):
            break
        view = teams.view(ways(view)["closer"])
    start, end = visible(view)
    assert 10 * MINUTE_MS <= end - start < 20 * MINUTE_MS
    assert "wider" in ways(view)
