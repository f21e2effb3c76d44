"""The film strip's frames against the ledger, counted the slow way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analytics.simulation import SimulatedFleet, write_fleet
from analytics.tables.palette import LIGHT, ORDER
from dashboard import film
from dashboard.access.people import Reader
from dashboard.film import MOST_CELLS, MOST_COLUMNS, NOT_SEEN, bin_width_ms, shoot
from dashboard.pages.film import FILM, GRAPH
from dashboard.query import Query
from dashboard.render import strip as strips
from dashboard.render.strip import WORDS
from dashboard.source import LakeSource
from dashboard.times import is_zoomed, visible
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.conftest import HIRO, UNTIL_MS, inputs_of, links, one, words
from tests.dashboard.sites import ADMINISTRATOR, Site
from tests.lakes import made_lake


def slow_frames(view: View, strip: film.PageFilm) -> np.ndarray:
    spent = np.zeros((*strip.frames.shape, len(ORDER)), dtype=np.int64)
    since_ms, until_ms = visible(view)
    for row in view.part.inside.stretches.iter_rows(named=True):
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
    strip = shoot(view)
    spent = slow_frames(view, strip)
    seen = spent.sum(axis=2) > 0
    assert strip.frames.dtype == np.uint8
    assert ((strip.frames == NOT_SEEN) == ~seen).all()
    rows, columns = np.nonzero(seen)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()
    places = list(zip(strip.pools, strip.hosts, strip.gpus, strict=True))
    assert places == sorted(places)


def test_zooming_in_makes_finer_frames_of_less_time(teams: Site) -> None:
    whole, part = teams.view("?span=all"), teams.view("?span=all&start=2025-11-19T08:00Z&end=2025-11-19T10:30Z")
    assert not is_zoomed(whole)
    assert is_zoomed(part)
    assert shoot(part).bin_ms == MINUTE_MS < shoot(whole).bin_ms
    assert shoot(part).frames.shape[1] == 150
    assert shoot(part).unused_ms == shoot(whole).unused_ms


@pytest.mark.parametrize(
    ("start", "end"), [("yesterday", ""), ("2030-01-01", ""), ("", "2020-01-01"), ("2025-11-19", "2025-11-18")]
)
def test_a_zoom_that_leaves_nothing_shows_the_window(teams: Site, start: str, end: str) -> None:
    view = teams.view("?span=all")
    zoomed = replace(view, query=view.query.but(start=start, end=end))
    assert visible(zoomed) == (view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms)
    assert not is_zoomed(zoomed)


def test_too_many_gpus_are_cut_to_those_with_the_most_waste(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MOST_ROWS", 3)
    view = teams.view("?span=all")
    strip = shoot(view)
    waste = unused(view)
    assert strip.in_all == 10
    assert set(strip.gpus) == set(sorted(waste, key=lambda gpu: (-waste[gpu], gpu))[:3])
    assert dict(zip(strip.gpus, strip.unused_ms, strict=True)) == {gpu: waste[gpu] for gpu in strip.gpus}
    assert "Shown are 3 of 10 GPUs" in words(FILM.content(view, LIGHT))


def unused(view: View) -> dict[str, int]:
    waste = dict.fromkeys(view.part.inside.stretches["gpu"].unique(), 0)
    for row in view.part.inside.stretches.iter_rows(named=True):
        waste[row["gpu"]] += (row["end"] - row["time"]) * (row["state"] in ("free", "reserved", "held"))
    return waste


def test_rows_go_by_what_the_address_says(teams: Site) -> None:
    by_waste = shoot(teams.view("?span=all&sort=waste"))
    assert list(by_waste.unused_ms) == sorted(by_waste.unused_ms, reverse=True)
    by_holder = shoot(teams.view("?span=all&sort=holder"))
    names = [name for name in by_holder.holders if name is not None]
    assert names == sorted(names)
    assert None in by_holder.holders
    assert by_holder.holders[: len(names)] == tuple(names)
    assert shoot(teams.view("?span=all&sort=beauty")).hosts == shoot(teams.view("?span=all")).hosts


def test_the_holder_of_a_frame_is_who_had_it_longest(teams: Site) -> None:
    view = teams.view("?span=all")
    strip = shoot(view)
    told = one(FILM.content(view, LIGHT), WORDS).data
    for row, gpu in enumerate(strip.gpus):
        for column in range(0, strip.frames.shape[1], 7):
            start, end = strip.edges[column], strip.edges[column + 1]
            had: dict[str, int] = {}
            for each in view.part.inside.stretches.filter(view.part.inside.stretches["gpu"] == gpu).iter_rows(
                named=True
            ):
                spent = min(each["end"], end) - max(each["time"], start)
                had[each["holder"] or ""] = had.get(each["holder"] or "", 0) + max(0, spent)
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


def test_the_page_leads_on_with_what_the_bar_says(teams: Site) -> None:
    page = FILM.content(teams.view("?span=3d&lang=fr&sort=waste"), LIGHT)
    there = links(page)
    strip = shoot(teams.view("?span=3d&sort=waste"))
    assert [each for each in there if each.startswith("/gpu")] == [
        f"/gpu?span=3d&lang=fr&gpu={gpu}" for gpu in strip.gpus
    ]
    assert any(each.startswith("/host?span=3d&lang=fr&host=sim-") for each in there)
    assert any(each.startswith("/holders?span=3d&lang=fr&holder=") for each in there)
    assert [each for each in there if each.startswith("?") and "start=" not in each] == [
        "?span=3d&lang=fr&sort=waste&rows=pool",
        "?span=3d&lang=fr&sort=waste&rows=host",
        "?span=3d&lang=fr&sort=waste&rows=gpu",
        "?span=3d&lang=fr",
        "?span=3d&lang=fr&sort=waste",
        "?span=3d&lang=fr&sort=holder",
    ]


def test_the_page_speaks_french_in_the_reader_s_zone(teams: Site) -> None:
    view = teams.view("?span=all&lang=fr&zone=Asia/Kolkata")
    page = FILM.content(view, LIGHT)
    assert "Les heures de la semaine" in words(page)
    assert "Every GPU" not in words(page)
    axis = one(page, GRAPH).figure.layout.xaxis
    assert all((moment + 5.5 * HOUR_MS) % (6 * HOUR_MS) == 0 for moment in axis.tickvals)
    told = one(page, WORDS).data
    assert (told["zone"], told["lang"], told["states"][0][:5]) == ("Asia/Kolkata", "fr", "actif")


def test_a_team_is_shown_its_own_people_and_time_only(teams: Site) -> None:
    view = teams.view("?span=all", HIRO)
    page = FILM.content(view, LIGHT)
    own = set(view.part.inside.stretches["holder"].drop_nulls())
    others = set(teams.spans()["holder"].drop_nulls()) - own
    told = one(page, WORDS).data
    assert others
    assert not others.intersection(words(page).split())
    assert set(told["names"]) == own | {""}
    assert "nothing is shown" in told["states"][NOT_SEEN]
    assert set(told["gpus"]) == set(view.part.inside.stretches["gpu"])


@pytest.mark.long
def test_four_weeks_of_hours_are_no_odd_week(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=2, days=29, seed=3, interval_ms=HOUR_MS))
    source = LakeSource(lambda: inputs_of(lake), patience_s=120)
    found = source.look(Query.parse("?span=24h&zone=Asia/Kolkata"), ADMINISTRATOR)
    assert isinstance(found, View)
    page = FILM.content(found, LIGHT)
    assert "Over 4 weeks" in words(page)
    assert "are known: one odd week shows" not in words(page)
    drawn = one(page, "hours-chart").figure.data[0]
    spans = found.whole.ledger.whole.stretches.filter(pl.col("end") > UNTIL_MS - 28 * DAY_MS)
    day, hour = 2, 9
    unused, observed = 0, 0
    for row in spans.iter_rows(named=True):
        for week in range(5):
            # Wednesday, 9:00 to 10:00 in India; the weeks end on a Thursday at 5:30 there
            start = UNTIL_MS - (week * 7 + 1) * DAY_MS + int(3.5 * HOUR_MS)
            start = start if start >= UNTIL_MS - 28 * DAY_MS else UNTIL_MS
            spent = max(0, min(row["end"], start + HOUR_MS, UNTIL_MS) - max(row["time"], start))
            unused += spent * (row["state"] in ("free", "reserved", "held"))
            observed += spent * (row["state"] != "unknown")
    assert drawn.z[day][hour] == pytest.approx(unused / observed, abs=1e-4)


def test_the_hours_of_two_days_say_how_little_they_rest_on(teams: Site) -> None:
    page = FILM.content(teams.view("?span=all"), LIGHT)
    assert "Over 0.3 weeks" in words(page)
    assert "Fewer than 4 weeks are known" in words(page)
    drawn = one(page, "hours-chart").figure.data[0]
    known = [cell for row in drawn.z for cell in row if cell is not None]
    assert len(known) == 48


def test_frames_of_an_hour_are_hours_of_the_reader_s_clocks(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MOST_COLUMNS", 60)
    view = teams.view("?span=all&zone=Asia/Kolkata")
    strip = shoot(view)
    assert strip.bin_ms == HOUR_MS
    assert strip.is_even
    assert all((edge + 5.5 * HOUR_MS) % HOUR_MS == 0 for edge in strip.edges)
    spent = slow_frames(view, strip)
    rows, columns = np.nonzero(spent.sum(axis=2) > 0)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()


def test_many_gpus_are_told_by_how_their_names_begin(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "_MOST_WHOLE", 4)
    told = one(FILM.content(teams.view("?span=all"), LIGHT), WORDS).data
    every = teams.spans()["gpu"].unique().to_list()
    assert len(told["gpus"]) == 10
    for gpu, host in zip(told["gpus"], told["at"], strict=True):
        (meant,) = [each for each in every if each.startswith(gpu)]
        assert len(gpu) == len("GPU-1ae8e3d9")
        assert told["hosts"][host] in set(teams.spans().filter(pl.col("gpu") == meant)["host"])


def test_names_that_begin_alike_are_told_apart() -> None:
    names = ["MIG-00000000-1a", "MIG-00000000-1b", "GPU-00000000-1a"] * 30
    assert strips.beginnings(names, set(names)) == names
    assert strips.beginnings(names[:2], set(names)) == names[:2]
