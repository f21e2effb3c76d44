"""Timelines whose rows are pools or hosts: shares against the ledger, and where rows lie in the picture."""

from __future__ import annotations

from urllib.parse import parse_qs

import numpy as np
import pytest

from analytics.ledger.summary import totals_by
from analytics.tables.palette import LIGHT, ORDER
from dashboard import timeline
from dashboard.access.people import Reader
from dashboard.pages.timeline import GRAPH, TIMELINE
from dashboard.render.rows import RowLabel, TimelineRows, gpu_rows, group_rows
from dashboard.render.strip import WORDS
from dashboard.timeline import NOT_SEEN, apportioned, gpu_timeline, group_timeline, kind_of, spans_of
from dashboard.times import is_zoomed, visible, zoom_note
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.conftest import HIRO, UNTIL_MS, links, one, parts, words
from tests.dashboard.sites import ADMINISTRATOR, Site


@pytest.mark.parametrize("kind", ["pool", "host"])
@pytest.mark.parametrize("reader", [ADMINISTRATOR, HIRO], ids=lambda each: each.name)
def test_lines_are_the_ledgers_shares(teams: Site, kind: str, reader: Reader) -> None:
    view = teams.view("?span=all&start=2025-11-18T03:07Z&end=2025-11-19T09:11Z", reader)
    timeline = group_timeline(view, kind)
    since_ms, until_ms = visible(view)
    size: dict[str, dict[str, float]] = {name: {} for name in timeline.names}
    for span in spans_of(view).iter_rows(named=True):
        own = size[span[kind]]
        own[span["gpu"]] = max(own.get(span["gpu"], 0.0), span["gpu_share"])
    for row, name in enumerate(timeline.names):
        for column in range(0, timeline.frames.shape[1], 29):
            start, end = max(since_ms, timeline.edges[column]), min(until_ms, timeline.edges[column + 1])
            spent = np.zeros(NOT_SEEN + 1)
            for span in spans_of(view).iter_rows(named=True):
                lasted = max(0, min(span["end"], end) - max(span["time"], start))
                spent[ORDER.index(span["state"])] += (span[kind] == name) * lasted * span["gpu_share"]
            spent[NOT_SEEN] = sum(size[name].values()) * (end - start) - spent.sum()
            drawn = timeline.frames[row * timeline.lines : (row + 1) * timeline.lines, column]
            counts = np.bincount(drawn, minlength=NOT_SEEN + 1)
            assert counts.sum() == timeline.lines
            assert abs(counts - timeline.lines * spent / spent.sum()).max() < 1
            assert list(drawn) == sorted(drawn, reverse=True)
    inside = spans_of(view)
    assert dict(zip(timeline.names, timeline.totals, strict=True)) == totals_by(inside, kind)


def test_parts_add_up_whatever_they_are() -> None:
    parts = np.array([[1.0, 1, 1], [0, 0, 0], [0, 5, 0], [0.2, 0.2, 99.6]])
    assert apportioned(parts, 10).tolist() == [[4, 3, 3], [0, 0, 10], [0, 10, 0], [0, 0, 10]]
    assert apportioned(np.random.default_rng(1).random((50, 8)), 100).sum(axis=1).tolist() == [100] * 50


def test_a_large_fleet_opens_with_its_pools_and_a_pool_with_its_hosts(
    teams: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "ALL_IN_SIGHT", 3)
    view = teams.view("?span=all")
    page = TIMELINE.content(view, LIGHT)
    pools = sorted(set(spans_of(view)["pool"]))
    assert kind_of(view) == "pool"
    assert one(page, WORDS).data["open"] == [f"/timeline?span=all&pool={pool}" for pool in pools]
    assert [each for each in links(page) if each.startswith("/timeline")] == [
        f"/timeline?span=all&pool={pool}" for pool in pools
    ]
    train = teams.view("?span=all&pool=train")
    page = TIMELINE.content(train, LIGHT)
    hosts = sorted(set(spans_of(train)["host"]))
    # one host alone is no level of its own
    assert kind_of(train) == ("host" if len(hosts) > 1 else "gpu")
    assert "all pools" in words(page)
    assert kind_of(teams.view("?span=all&rows=gpu")) == "gpu"
    assert kind_of(teams.view("?span=all&rows=beauty")) == "pool"


def test_rows_that_are_too_thin_to_hit_open_their_host(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    view = teams.view("?span=all")
    assert one(TIMELINE.content(view, LIGHT), WORDS).data["open"] == []
    monkeypatch.setattr("dashboard.render.rows._THIN_PX", 100)
    page = TIMELINE.content(view, LIGHT)
    told = one(page, WORDS).data
    assert told["open"] == [f"/host?span=all&host={host}" for host in told["hosts"]]
    assert "A click opens the host." in words(page)


def test_pools_stand_apart_and_every_line_is_of_its_row(teams: Site) -> None:
    view = teams.view("?span=all")
    timeline = gpu_timeline(view)
    rows = gpu_rows(timeline, by_pool=True)
    assert len(rows.gaps) == len(set(timeline.pools)) - 1
    told, drawn = (
        one(TIMELINE.content(view, LIGHT), WORDS).data,
        one(TIMELINE.content(view, LIGHT), GRAPH).figure.data[0].z,
    )
    assert (told["gaps"], told["gap"], told["each"]) == (list(rows.gaps), rows.gap_lines, 1)
    for row in range(len(timeline.gpus)):
        assert (drawn[int(rows.middle(row, 1))] == timeline.frames[row]).all()
    between = np.setdiff1d(np.arange(len(drawn)), [int(rows.middle(row, 1)) for row in range(len(timeline.gpus))])
    assert (drawn[between] == NOT_SEEN).all()
    groups = group_timeline(view, "host")
    places = group_rows(groups, by_pool=True)
    spread = places.spread(groups.frames)
    top = int(places.middle(2, 1) - (groups.lines - 1) / 2)
    assert (spread[top : top + groups.lines] == groups.frames[2 * groups.lines : 3 * groups.lines]).all()


def test_names_of_pools_come_before_those_of_hosts_where_room_is_short() -> None:
    rows = TimelineRows(20, 1, 5.0)
    named = [RowLabel(0, 1, "a"), RowLabel(3, 1, "b"), RowLabel(4, 1, "pool", is_pool=True), RowLabel(9, 1, "c")]
    assert [name for _, name in rows.labels(named)] == ["a", "pool", "c"]


SINCE_MS = UNTIL_MS - 2 * DAY_MS


def ways(view: View) -> dict[str, str]:
    return {words(each): each.href for each in parts(zoom_note(view)) if getattr(each, "href", None)}


def follow(teams: Site, search: str, *names: str) -> View:
    for name in names:
        search = ways(teams.view(search))[name]
    return teams.view(search)


def test_of_the_whole_window_one_can_come_closer(teams: Site) -> None:
    view = teams.view("?span=all&sort=waste")
    assert list(ways(view)) == ["closer"]
    assert "Drag along the time" in words(zoom_note(view))
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
def test_ways_lead_on_and_stay_in_the_window(teams: Site, names: tuple[str, ...], since_ms: int, until_ms: int) -> None:
    assert visible(follow(teams, "?span=all", *names)) == (SINCE_MS + since_ms, SINCE_MS + until_ms)


def test_at_an_end_of_the_window_nothing_leads_beyond(teams: Site) -> None:
    assert list(ways(follow(teams, "?span=all", "closer", "earlier"))) == ["closer", "later", "Show the whole window"]
    assert list(ways(follow(teams, "?span=all", "closer", "later"))) == ["closer", "earlier", "Show the whole window"]
    assert not is_zoomed(follow(teams, "?span=all", "closer", "Show the whole window"))


def test_the_zoom_ends_at_some_minutes(teams: Site) -> None:
    view = teams.view("?span=all")
    for _ in range(20):
        if "closer" not in ways(view):
            break
        view = teams.view(ways(view)["closer"])
    start, end = visible(view)
    assert 10 * MINUTE_MS <= end - start < 20 * MINUTE_MS
    assert "wider" in ways(view)
