"""The film strip's frames against the ledger, counted the slow way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dashboard import film
from dashboard.charts.film_strip import GRAPH
from dashboard.charts.strip import WORDS
from dashboard.film import MOST_CELLS, MOST_COLUMNS, NOT_SEEN, bin_width_ms, shoot
from dashboard.pages.film import Film
from dashboard.palette import LIGHT, ORDER
from dashboard.zoom import is_zoomed, visible
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.dashboard.teams import ADA, HIRO, Teams, links, one, teams, text_of

if TYPE_CHECKING:
    from dashboard.people import Person
    from dashboard.source import View

__all__ = ["teams"]


def slow_frames(view: View, strip: film.Film) -> np.ndarray:
    spent = np.zeros((*strip.frames.shape, len(ORDER)), dtype=np.int64)
    since_ms, until_ms = visible(view)
    for row in view.part.inside.stretches.iter_rows(named=True):
        gpu, state = strip.gpus.index(row["gpu"]), ORDER.index(row["state"])
        for column in range(strip.frames.shape[1]):
            start = strip.start_ms + column * strip.bin_ms
            first, last = max(row["time"], start, since_ms), min(row["end"], start + strip.bin_ms, until_ms)
            spent[gpu, column, state] += max(0, last - first)
    return spent


@pytest.mark.parametrize("reader", [ADA, HIRO], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "search",
    [
        "?span=all",
        "?since=2025-11-18T03:07Z&until=2025-11-18T09:11Z",
        "?since=2025-11-19&until=2025-11-30",
        "?span=all&start=2025-11-19T08:00Z&end=2025-11-19T10:30Z",
    ],
)
def test_each_frame_is_the_state_that_took_most_of_it(teams: Teams, search: str, reader: Person) -> None:
    view = teams.view(search, reader)
    strip = shoot(view)
    spent = slow_frames(view, strip)
    seen = spent.sum(axis=2) > 0
    assert strip.frames.dtype == np.uint8
    assert ((strip.frames == NOT_SEEN) == ~seen).all()
    rows, columns = np.nonzero(seen)
    assert (spent[rows, columns, strip.frames[rows, columns]] == spent.max(axis=2)[rows, columns]).all()
    assert list(zip(strip.hosts, strip.gpus, strict=True)) == sorted(zip(strip.hosts, strip.gpus, strict=True))


def test_zooming_in_makes_finer_frames_of_less_time(teams: Teams) -> None:
    whole, part = teams.view("?span=all"), teams.view("?span=all&start=2025-11-19T08:00Z&end=2025-11-19T10:30Z")
    assert not is_zoomed(whole)
    assert is_zoomed(part)
    assert shoot(part).bin_ms == MINUTE_MS < shoot(whole).bin_ms
    assert shoot(part).frames.shape[1] == 150
    assert shoot(part).unused_ms == shoot(whole).unused_ms


@pytest.mark.parametrize(
    ("start", "end"), [("yesterday", ""), ("2030-01-01", ""), ("", "2020-01-01"), ("2025-11-19", "2025-11-18")]
)
def test_a_zoom_that_leaves_nothing_shows_the_window(teams: Teams, start: str, end: str) -> None:
    view = teams.view("?span=all")
    zoomed = replace(view, query=view.query.but(start=start, end=end))
    assert visible(zoomed) == (view.report.summary.since_ms, view.report.summary.until_ms)
    assert not is_zoomed(zoomed)


def test_too_many_gpus_are_cut_to_those_with_the_most_waste(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MOST_ROWS", 3)
    view = teams.view("?span=all")
    strip = shoot(view)
    waste = unused(view)
    assert strip.gpus_in_all == 10
    assert set(strip.gpus) == set(sorted(waste, key=lambda gpu: (-waste[gpu], gpu))[:3])
    assert dict(zip(strip.gpus, strip.unused_ms, strict=True)) == {gpu: waste[gpu] for gpu in strip.gpus}
    assert "Shown are 3 of 10 GPUs" in text_of(Film().content(view, LIGHT))


def unused(view: View) -> dict[str, int]:
    waste = dict.fromkeys(view.part.inside.stretches["gpu"].unique(), 0)
    for row in view.part.inside.stretches.iter_rows(named=True):
        waste[row["gpu"]] += (row["end"] - row["time"]) * (row["state"] in ("free", "reserved", "held"))
    return waste


def test_rows_go_by_what_the_address_says(teams: Teams) -> None:
    by_waste = shoot(teams.view("?span=all&sort=waste"))
    assert list(by_waste.unused_ms) == sorted(by_waste.unused_ms, reverse=True)
    by_holder = shoot(teams.view("?span=all&sort=holder"))
    names = [name for name in by_holder.holders if name is not None]
    assert names == sorted(names)
    assert None in by_holder.holders
    assert by_holder.holders[: len(names)] == tuple(names)
    assert shoot(teams.view("?span=all&sort=beauty")).hosts == shoot(teams.view("?span=all")).hosts


def test_the_holder_of_a_frame_is_who_had_it_longest(teams: Teams) -> None:
    view = teams.view("?span=all")
    strip = shoot(view)
    told = one(Film().content(view, LIGHT), WORDS).data
    for row, gpu in enumerate(strip.gpus):
        for column in range(0, strip.frames.shape[1], 7):
            start = strip.start_ms + column * strip.bin_ms
            had: dict[str, int] = {}
            for each in view.part.inside.stretches.filter(view.part.inside.stretches["gpu"] == gpu).iter_rows(
                named=True
            ):
                spent = min(each["end"], start + strip.bin_ms) - max(each["time"], start)
                had[each["holder"] or ""] = had.get(each["holder"] or "", 0) + max(0, spent)
            name = strip.names[strip.had[row, column]]
            assert had[name] == max(had.values())
            assert told["names"][by_run(told["runs"][row], column)] == name


def by_run(runs: list[int], column: int) -> int:
    return next(name for first, name in reversed(list(zip(runs[::2], runs[1::2], strict=True))) if first <= column)


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


def test_the_page_leads_on_with_what_the_bar_says(teams: Teams) -> None:
    page = Film().content(teams.view("?span=3d&lang=fr&sort=waste"), LIGHT)
    there = links(page)
    strip = shoot(teams.view("?span=3d&sort=waste"))
    assert [each for each in there if each.startswith("/gpu")] == [
        f"/gpu?span=3d&lang=fr&gpu={gpu}" for gpu in strip.gpus
    ]
    assert any(each.startswith("/host?span=3d&lang=fr&host=sim-") for each in there)
    assert any(each.startswith("/holders?span=3d&lang=fr&holder=") for each in there)
    assert [each for each in there if each.startswith("?")] == [
        "?span=3d&lang=fr",
        "?span=3d&lang=fr&sort=waste",
        "?span=3d&lang=fr&sort=holder",
    ]


def test_the_page_speaks_french_in_the_reader_s_zone(teams: Teams) -> None:
    view = teams.view("?span=all&lang=fr&zone=Asia/Kolkata")
    page = Film().content(view, LIGHT)
    assert "Les heures de la semaine" in text_of(page)
    assert "Every GPU" not in text_of(page)
    axis = one(page, GRAPH).figure.layout.xaxis
    assert all((moment + 5.5 * HOUR_MS) % (6 * HOUR_MS) == 0 for moment in axis.tickvals)
    words = one(page, WORDS).data
    assert (words["zone"], words["lang"]) == ("Asia/Kolkata", "fr")
    assert words["states"][0].startswith("actif")


def test_a_team_is_shown_its_own_people_and_time_only(teams: Teams) -> None:
    view = teams.view("?span=all", HIRO)
    page = Film().content(view, LIGHT)
    own = set(view.part.inside.stretches["holder"].drop_nulls())
    others = set(teams.spans()["holder"].drop_nulls()) - own
    told = one(page, WORDS).data
    assert others
    assert not others.intersection(text_of(page).split())
    assert set(told["names"]) == own | {""}
    assert "nothing is shown" in told["states"][NOT_SEEN]
    assert set(told["gpus"]) == set(view.part.inside.stretches["gpu"])


def test_the_hours_of_two_days_say_how_little_they_rest_on(teams: Teams) -> None:
    page = Film().content(teams.view("?span=all"), LIGHT)
    assert "Over 0.3 weeks" in text_of(page)
    assert "Fewer than 4 weeks are known" in text_of(page)
    drawn = one(page, "hours-chart").figure.data[0]
    known = [cell for row in drawn.z for cell in row if cell is not None]
    assert len(known) == 48
