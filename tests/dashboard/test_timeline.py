"""The timeline's frames against the ledger, counted the slow way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analytics.simulation import SimulatedFleet, write_fleet
from analytics.tables.palette import LIGHT, ORDER
from dashboard import timeline
from dashboard.access.people import Reader
from dashboard.pages import timeline as pages
from dashboard.pages.timeline import GRAPH, TIMELINE
from dashboard.query import Query
from dashboard.render import strip as strips
from dashboard.render.strip import WORDS
from dashboard.source import LakeSource
from dashboard.timeline import MOST_CELLS, MOST_COLUMNS, NOT_SEEN, SAMPLED, bin_width_ms, gpu_timeline
from dashboard.times import is_zoomed, visible
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.conftest import HIRO, UNTIL_MS, hints, inputs_of, links, one, words
from tests.dashboard.sites import ADMINISTRATOR, Site, content
from tests.lakes import made_lake
from tests.ledger.rows import fill, samples


def slow_frames(view: View, strip: timeline.PageTimeline) -> np.ndarray:
    spent = np.zeros((*strip.frames.shape, len(ORDER)), dtype=np.int64)
    since_ms, until_ms = visible(view)
    for row in view.part.inside.segments.iter_rows(named=True):
        gpu, state = strip.gpus.index(row["gpu"]), ORDER.index(row["state"])
        for column in range(strip.frames.shape[1]):
            start, end = strip.edges[column], strip.edges[column + 1]
            first, last = max(row["time"], start, since_ms), min(row["end"], end, until_ms)
            spent[gpu, column, state] += max(0, last - first)
    return spent


@pytest.mark.parametrize("reader", [ADMINISTRATOR, HIRO], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "search",
    [
        "?span=all",
        "?since=2025-11-18T03:07Z&until=2025-11-18T09:11Z",
        "?since=2025-11-19&until=2025-11-30",
        "?span=all&start=2025-11-19T08:00Z&end=2025-11-19T10:30Z",
        "?span=all&zone=Asia/Kolkata",
    ],
)
def test_each_frame_is_the_state_that_took_most_of_it(teams: Site, search: str, reader: Reader) -> None:
    view = teams.view(search, reader)
    strip = gpu_timeline(view)
    spent = slow_frames(view, strip)
    seen = spent.sum(axis=2) > 0
    assert strip.frames.dtype == np.uint8
    assert ((strip.frames == NOT_SEEN) == ~seen).all()
    rows, columns = np.nonzero(seen)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()
    places = list(zip(strip.pools, strip.hosts, strip.gpus, strict=True))
    assert places == sorted(places)


def test_sampled_idle_time_is_drawn_paler_and_named_so(tmp_path: Path) -> None:
    """One GPU is held by samples only; the other GPU is free, as its empty memory shows."""
    lake = made_lake(tmp_path / "lake")
    scrapes = samples("GPU-a", 0, 4 * 3600, every_s=60, process_count=1)
    fill(lake, [*scrapes, *samples("GPU-b", 0, 4 * 3600, every_s=60, mem_used_bytes=0)])
    view = LakeSource(lambda: inputs_of(lake), patience_s=120).look(Query.parse("?span=all"), ADMINISTRATOR)
    assert isinstance(view, View)
    strip = gpu_timeline(view)
    drawn = {gpu: set(row.tolist()) - {NOT_SEEN} for gpu, row in zip(strip.gpus, strip.frames, strict=True)}
    held = SAMPLED[ORDER.index("held")]
    assert drawn == {"GPU-a": {held}, "GPU-b": {ORDER.index("free")}}
    page = TIMELINE.content(view, LIGHT)
    assert one(page, WORDS).data["states"][held] == "Held idle, sampled: seen at moments, not confirmed"
    assert "Paler colours are sampled" in words(page)
    assert "up to 4.0" in words(page)


def test_zooming_in_makes_finer_frames_of_less_time(teams: Site) -> None:
    whole, part = teams.view("?span=all"), teams.view("?span=all&start=2025-11-19T08:00Z&end=2025-11-19T10:30Z")
    assert not is_zoomed(whole)
    assert is_zoomed(part)
    assert gpu_timeline(part).bin_ms == MINUTE_MS < gpu_timeline(whole).bin_ms
    assert gpu_timeline(part).frames.shape[1] == 150
    assert gpu_timeline(part).unused_ms == gpu_timeline(whole).unused_ms


@pytest.mark.parametrize(
    ("start", "end"), [("yesterday", ""), ("2030-01-01", ""), ("", "2020-01-01"), ("2025-11-19", "2025-11-18")]
)
def test_a_zoom_that_leaves_nothing_shows_the_window(teams: Site, start: str, end: str) -> None:
    view = teams.view("?span=all")
    zoomed = replace(view, query=view.query.but(start=start, end=end))
    assert visible(zoomed) == (view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms)
    assert not is_zoomed(zoomed)


def test_too_many_gpus_are_cut_to_those_with_the_most_waste(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_ROWS", 3)
    view = teams.view("?span=all")
    strip = gpu_timeline(view)
    waste = unused(view)
    assert strip.in_all == 10
    assert set(strip.gpus) == set(sorted(waste, key=lambda gpu: (-waste[gpu], gpu))[:3])
    assert dict(zip(strip.gpus, strip.unused_ms, strict=True)) == {gpu: waste[gpu] for gpu in strip.gpus}
    assert "Shown: the 3 of 10 GPUs" in words(TIMELINE.content(view, LIGHT))


def unused(view: View) -> dict[str, int]:
    waste = dict.fromkeys(view.part.inside.segments["gpu"].unique(), 0)
    for row in view.part.inside.segments.iter_rows(named=True):
        waste[row["gpu"]] += (row["end"] - row["time"]) * (row["state"] in ("free", "reserved", "held"))
    return waste


def test_the_list_of_gpus_ends_where_the_browser_would_take_too_long(
    teams: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_MOST_LISTED", 3)
    page = TIMELINE.content(teams.view("?span=all&sort=waste"), LIGHT)
    listed = [each.rsplit("gpu=")[1] for each in links(page) if each.startswith("/gpu?")]
    assert listed == list(gpu_timeline(teams.view("?span=all&sort=waste")).gpus[:3])
    assert "The first 3 are listed." in words(page)


def test_rows_are_sorted_as_the_address_asks(teams: Site) -> None:
    by_waste = gpu_timeline(teams.view("?span=all&sort=waste"))
    assert list(by_waste.unused_ms) == sorted(by_waste.unused_ms, reverse=True)
    by_user = gpu_timeline(teams.view("?span=all&sort=user"))
    names = [name for name in by_user.users if name is not None]
    assert names == sorted(names)
    assert None in by_user.users
    assert by_user.users[: len(names)] == tuple(names)
    assert gpu_timeline(teams.view("?span=all&sort=beauty")).hosts == gpu_timeline(teams.view("?span=all")).hosts


def test_the_user_of_a_frame_is_who_had_it_longest(teams: Site) -> None:
    view = teams.view("?span=all")
    strip = gpu_timeline(view)
    told = one(TIMELINE.content(view, LIGHT), WORDS).data
    for row, gpu in enumerate(strip.gpus):
        for column in range(0, strip.frames.shape[1], 7):
            start, end = strip.edges[column], strip.edges[column + 1]
            had: dict[str, int] = {}
            for each in view.part.inside.segments.filter(view.part.inside.segments["gpu"] == gpu).iter_rows(named=True):
                spent = min(each["end"], end) - max(each["time"], start)
                had[each["user"] or ""] = had.get(each["user"] or "", 0) + max(0, spent)
            name = strip.names[strip.had[row, column]]
            assert had[name] == max(had.values())
            assert told["names"][by_run(told["runs"][row], column)] == name


def by_run(runs: list[int], column: int) -> int:
    return [name for name, lasted in zip(runs[::2], runs[1::2], strict=True) for _ in range(lasted)][column]


@pytest.mark.parametrize(
    ("span_ms", "rows", "width_ms"),
    [
        (1, 1, MINUTE_MS),
        (12 * HOUR_MS, 64, MINUTE_MS),
        (14 * DAY_MS, 64, 30 * MINUTE_MS),
        (7 * DAY_MS, 2_000, 2 * HOUR_MS),
        (360 * DAY_MS, 64, 12 * HOUR_MS),
    ],
)
def test_frames_are_as_short_as_fits(span_ms: int, rows: int, width_ms: int) -> None:
    assert bin_width_ms(0, span_ms, rows) == width_ms
    assert span_ms / width_ms <= MOST_COLUMNS
    assert rows * span_ms / width_ms <= MOST_CELLS


def test_the_pages_links_keep_the_filters(teams: Site) -> None:
    page = TIMELINE.content(teams.view("?span=3d&lang=fr&sort=waste"), LIGHT)
    there = links(page)
    strip = gpu_timeline(teams.view("?span=3d&sort=waste"))
    assert [each for each in there if each.startswith("/gpu")] == [
        f"/gpu?span=3d&lang=fr&gpu={gpu}" for gpu in strip.gpus
    ]
    assert any(each.startswith("/host?span=3d&lang=fr&host=sim-") for each in there)
    assert any(each.startswith("/users?span=3d&lang=fr&user=") for each in there)
    assert [each for each in there if each.startswith("?") and "start=" not in each] == [
        "?span=3d&lang=fr&sort=waste&rows=pool",
        "?span=3d&lang=fr&sort=waste&rows=host",
        "?span=3d&lang=fr&sort=waste&rows=gpu",
        "?span=3d&lang=fr",
        "?span=3d&lang=fr&sort=waste",
        "?span=3d&lang=fr&sort=user",
    ]


def test_the_page_speaks_french_in_the_reader_s_zone(teams: Site) -> None:
    view = teams.view("?span=all&lang=fr&zone=Asia/Kolkata")
    page = TIMELINE.content(view, LIGHT)
    assert "Les heures de la semaine" in words(page)
    assert "Every GPU" not in words(page)
    axis = one(page, GRAPH).figure.layout.xaxis
    assert all((moment + 5.5 * HOUR_MS) % (6 * HOUR_MS) == 0 for moment in axis.tickvals)
    told = one(page, WORDS).data
    assert (told["zone"], told["lang"], told["states"][0][:5]) == ("Asia/Kolkata", "fr", "Actif")


def test_a_team_is_shown_its_own_people_and_time_only(teams: Site) -> None:
    view = teams.view("?span=all", HIRO)
    page = TIMELINE.content(view, LIGHT)
    own = set(view.part.inside.segments["user"].drop_nulls())
    others = set(teams.spans()["user"].drop_nulls()) - own
    told = one(page, WORDS).data
    assert others
    assert not others.intersection(words(page).split())
    assert set(told["names"]) == own | {""}
    assert "nothing is shown" in told["states"][NOT_SEEN]
    assert set(told["gpus"]) == set(view.part.inside.segments["gpu"])


@pytest.mark.long
def test_four_weeks_of_hours_are_no_odd_week(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=2, days=29, seed=3, interval_ms=HOUR_MS))
    source = LakeSource(lambda: inputs_of(lake), patience_s=120)
    found = source.look(Query.parse("?span=24h&zone=Asia/Kolkata"), ADMINISTRATOR)
    assert isinstance(found, View)
    page = content(TIMELINE, found)
    assert "The data cover 4 weeks" in words(page)
    assert "With fewer than 4 weeks" not in words(page)
    spans = found.whole.ledger.whole.segments.filter(pl.col("end") > UNTIL_MS - 28 * DAY_MS)
    unused, observed = 0, 0
    for row in spans.iter_rows(named=True):
        for week in range(5):
            # Wednesday, 9:00 to 10:00 in India; the weeks end on a Thursday at 5:30 there
            start = UNTIL_MS - (week * 7 + 1) * DAY_MS + int(3.5 * HOUR_MS)
            start = start if start >= UNTIL_MS - 28 * DAY_MS else UNTIL_MS
            spent = max(0, min(row["end"], start + HOUR_MS, UNTIL_MS) - max(row["time"], start))
            unused += spent * (row["state"] in ("free", "reserved", "held"))
            observed += spent * (row["state"] != "unknown")
    assert [f"Wed 09:00: {100 * unused / observed:.0f} %"] in hints(page, "hours-chart")


def test_the_hours_of_two_days_show_their_small_sample(teams: Site) -> None:
    page = content(TIMELINE, teams.view("?span=all"))
    assert "The data cover 0.3 weeks" in words(page)
    assert "With fewer than 4 weeks" in words(page)
    assert len(hints(page, "hours-chart")) == 48


def test_frames_of_an_hour_are_hours_of_the_reader_s_clocks(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_COLUMNS", 60)
    view = teams.view("?span=all&zone=Asia/Kolkata")
    strip = gpu_timeline(view)
    assert strip.bin_ms == HOUR_MS
    assert strip.is_even
    assert all((edge + 5.5 * HOUR_MS) % HOUR_MS == 0 for edge in strip.edges)
    spent = slow_frames(view, strip)
    rows, columns = np.nonzero(spent.sum(axis=2) > 0)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()


def test_many_gpus_are_named_by_the_start_of_their_names(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "_MOST_WHOLE", 4)
    told = one(TIMELINE.content(teams.view("?span=all"), LIGHT), WORDS).data
    every = teams.spans()["gpu"].unique().to_list()
    assert len(told["gpus"]) == 10
    for gpu, host in zip(told["gpus"], told["at"], strict=True):
        (meant,) = [each for each in every if each.startswith(gpu)]
        assert len(gpu) == len("GPU-1ae8e3d9")
        assert told["hosts"][host] in set(teams.spans().filter(pl.col("gpu") == meant)["host"])


def test_names_that_begin_alike_are_distinguished() -> None:
    names = ["MIG-00000000-1a", "MIG-00000000-1b", "GPU-00000000-1a"] * 30
    assert strips.beginnings(names, set(names)) == names
    assert strips.beginnings(names[:2], set(names)) == names[:2]
