"""One GPU: its rows as they lie in the lake, its holders as in the ledger, and nothing of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.tables.chart import round_step
from analytics.tables.history import Subject, events_of, processes_of
from analytics.tables.palette import LIGHT
from dashboard.pages.detail import GPU_PAGE
from dashboard.render.strip import WORDS
from dashboard.series import MOST_POINTS, gpu_series
from fallow.clock import HOUR_MS, to_ms
from tests.dashboard.teams import ADA, HIRO, Teams, links, one, parts, teams, text_of

if TYPE_CHECKING:
    from dashboard.access.people import Reader
    from dashboard.view import View
    from fallow.lake import Lake

__all__ = ["teams"]

ZOOM = "&start=2025-11-19T08:00Z&end=2025-11-19T09:00Z"


def shared_gpu(teams: Teams) -> str:
    """A GPU that Hiro's team had for a part of the time, and others at other times."""
    own, every = teams.spans(HIRO), teams.spans()
    mine = set(own["gpu"])
    others = every.filter(
        pl.col("holder").is_not_null() & ~pl.col("holder").is_in(own["holder"].drop_nulls().implode())
    )
    return min(mine.intersection(others["gpu"]))


def content(teams: Teams, gpu: str, search: str = "?span=all", reader: Reader = ADA) -> Any:
    return GPU_PAGE.content(teams.view(f"{search}&gpu={gpu}", reader), LIGHT)


def rows_of(lake: Lake, gpu: str) -> pl.DataFrame:
    frames = [pl.read_parquet(file.url) for file in lake.files("gpu")]
    return pl.concat(frames).filter(pl.col("gpu") == gpu).with_columns(pl.col("time").dt.epoch("ms")).sort("time")


def test_a_gpu_that_nobody_knows_and_none_at_all_are_said_so(teams: Teams) -> None:
    assert "nothing to show of the GPU GPU-nowhere" in text_of(content(teams, "GPU-nowhere"))
    assert "No GPU is named" in text_of(content(teams, ""))


def test_markup_in_the_address_stays_text(teams: Teams) -> None:
    assert "<b>x</b>" in text_of(content(teams, "%3Cb%3Ex%3C/b%3E"))


def test_the_head_says_what_it_is(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    device = teams.view("").whole.inventory.devices[gpu]
    text = text_of(content(teams, gpu))
    for each in (gpu, device.host, device.model, device.pool, "20 Nov 2025, 00:00 UTC"):
        assert str(each) in text
    beside = set(teams.spans().filter(pl.col("host") == device.host)["gpu"]) - {gpu}
    assert beside == {each.split("gpu=")[1] for each in links(content(teams, gpu)) if each.startswith("/gpu")}


def test_a_short_time_is_shown_row_by_row(teams: Teams, fleet_lake: Lake) -> None:
    gpu = shared_gpu(teams)
    view = teams.view(f"?span=all&gpu={gpu}{ZOOM}")
    found = gpu_series(view, gpu)
    start = 1_763_539_200_000
    rows = rows_of(fleet_lake, gpu).filter(pl.col("time").is_between(start, start + HOUR_MS, closed="left"))
    assert found.is_raw
    assert found.frame["time"].to_list() == rows["time"].to_list()
    for line in found.lines:
        assert found.frame[f"{line.column}_mean"].to_list() == pytest.approx(rows[line.column].to_list())
    drawn = [each for each in one(GPU_PAGE.content(view, LIGHT), "gpu-graph").figure.data if each.type == "scatter"]
    assert [round(value) for value in drawn[0].y] == [round(value) for value in rows["gpu_util_pct"].to_list()]


def test_a_long_time_is_shown_in_few_bins_with_least_and_most(teams: Teams, fleet_lake: Lake) -> None:
    gpu = shared_gpu(teams)
    found = gpu_series(teams.view("?span=all"), gpu)
    rows = rows_of(fleet_lake, gpu)
    assert not found.is_raw
    assert found.frame.height * len(found.lines) <= MOST_POINTS
    for row in found.frame.iter_rows(named=True):
        own = rows.filter(pl.col("time").is_between(row["time"], row["time"] + found.bin_ms, closed="left"))
        assert row["power_w_min"] == own["power_w"].min()
        assert row["power_w_max"] == own["power_w"].max()
        # a row weighs by the time that the ledger gives it, which differs by milliseconds from row to row
        assert row["power_w_mean"] == pytest.approx(own["power_w"].mean(), rel=1e-4)
    assert not any(
        each.connectgaps for each in one(content(teams, gpu), "gpu-graph").figure.data if each.type == "scatter"
    )


def test_the_highest_mark_of_each_axis_lies_above_all_values(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    series = gpu_series(teams.view("?span=all"), gpu)
    axes = one(content(teams, gpu), "gpu-graph").figure.layout
    assert len(series.lines) > 2
    for number, line in enumerate(series.lines, start=2):
        axis = axes[f"yaxis{number}"]
        most = float(series.frame[f"{line.column}_max"].max()) / line.scale  # type: ignore[arg-type]  # of numbers
        highest = axis.dtick * (axis.range[1] // axis.dtick)
        assert most <= highest + 1e-6, line
        assert highest / axis.dtick <= 3


@pytest.mark.parametrize(
    ("most", "step"), [(0.0, 1.0), (91.0, 50.0), (13.6, 5.0), (7.5, 2.5), (300.0, 100.0), (0.003, 0.001)]
)
def test_steps_of_axes_are_round(most: float, step: float) -> None:
    assert round_step(most) == pytest.approx(step)


def test_a_reader_of_a_team_gets_no_value_of_others_time(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    view = teams.view(f"?span=all&gpu={gpu}", HIRO)
    own = view.part.inside.stretches.filter(pl.col("gpu") == gpu)
    found = gpu_series(view, gpu)
    for row in found.frame.drop_nulls("power_w_mean").iter_rows(named=True):
        inside = own.filter((pl.col("time") < row["time"] + found.bin_ms) & (pl.col("end") > row["time"]))
        assert not inside.is_empty()
    every = gpu_series(teams.view(f"?span=all&gpu={gpu}"), gpu)
    seen_ms = int((own["end"] - own["time"]).sum())
    assert 0 < found.frame["power_w_mean"].count() * found.bin_ms < seen_ms + 2 * own.height * found.bin_ms
    assert found.frame["power_w_mean"].count() < every.frame["power_w_mean"].count()


def test_a_reader_of_a_team_reads_no_other_names(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    page = content(teams, gpu, "?span=all", HIRO)
    own = set(teams.spans(HIRO)["holder"].drop_nulls())
    others = set(teams.spans()["holder"].drop_nulls()) - own
    said = text_of(page) + " ".join(links(page)) + " ".join(one(page, WORDS).data["names"])
    assert own.intersection(said.split())
    assert not [name for name in others if name in said]
    assert "the time of others is left empty" in said
    assert "the time of others is left empty" not in text_of(content(teams, gpu))


def test_a_gpu_that_the_team_never_had_is_nothing_to_it(teams: Teams) -> None:
    strange = min(set(teams.spans()["gpu"]) - set(teams.spans(HIRO)["gpu"]))
    text = text_of(content(teams, strange, "?span=all", HIRO))
    assert "nothing to show" in text
    assert "sim-" not in text
    assert "nothing to show" not in text_of(content(teams, strange))


def test_who_had_it_is_the_ledger_s_time(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    page = content(teams, gpu)
    table = next(each for each in parts(page) if getattr(each, "className", "") == "listed" and "user" in text_of(each))
    rows = teams.spans().filter((pl.col("gpu") == gpu) & pl.col("state").is_in(["active", "low", "held", "reserved"]))
    for holder in rows["holder"].unique():
        assert (holder or "(nobody)") in text_of(table)
    heads = [text_of(each) for each in parts(table) if type(each).__name__ == "Th" and each.scope == "col"]
    assert heads == ["user", "job", "from", "until", "active", "low", "held", "reserved"]


def test_findings_that_name_it_are_listed(teams: Teams) -> None:
    view = teams.view("?span=all")
    finding = view.report.review.shown[0]
    assert finding.sentence in text_of(content(teams, finding.gpus[0]))


def test_the_events_of_a_gpu_are_those_of_the_lake(teams: Teams, fleet_lake: Lake) -> None:
    frames = [pl.read_parquet(file.url) for file in fleet_lake.files("event")]
    known = pl.concat(frames).filter(pl.col("gpu").is_not_null())
    assert not known.is_empty()
    event = known.row(0, named=True)
    text = text_of(content(teams, event["gpu"]))
    assert event["kind"] in text
    assert f"{event['time']:%H:%M} UTC" in text


def test_an_event_in_somebody_else_s_time_is_not_told(teams: Teams, fleet_lake: Lake) -> None:
    frames = [pl.read_parquet(file.url).with_columns(host=pl.lit(file.host)) for file in fleet_lake.files("event")]
    event = pl.concat(frames).filter(pl.col("gpu").is_not_null()).row(0, named=True)
    at_ms, gpu = to_ms(event["time"]), event["gpu"]
    spans = teams.spans().filter(pl.col("gpu") == gpu)
    then = (pl.col("time") <= at_ms) & (pl.col("end") > at_ms)
    everybody, hiro = teams.view("?span=all"), teams.view("?span=all", HIRO)

    def told(view: View, those: pl.DataFrame) -> list[int]:
        return (
            events_of(view.report, Subject(gpu, is_host=False, spans=those))["time"].to_list() if those.height else []
        )

    assert at_ms in told(everybody, spans)
    assert at_ms in told(hiro, spans.filter(then))
    assert at_ms not in told(hiro, spans.filter(~then))


def test_in_french_the_series_have_french_names(teams: Teams) -> None:
    page = content(teams, shared_gpu(teams), "?span=all&lang=fr")
    told = [each["name"] for each in one(page, WORDS).data["lines"] if each]
    lines = gpu_series(teams.view("?span=all"), shared_gpu(teams)).lines
    assert len(told) == len(lines)
    assert (told[0], told[-1]) == ("utilisation du GPU", "puissance")


def test_as_much_of_a_name_as_no_other_begins_with_is_enough(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    assert text_of(content(teams, gpu[:12])) == text_of(content(teams, gpu))
    assert "begin with GPU-" not in text_of(content(teams, gpu[:12]))
    assert "nothing to show of the GPU GPU-" in text_of(content(teams, "GPU-"))


def test_of_a_name_that_several_begin_with_none_is_shown(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pages.detail._NO_NAME", 1)
    text = text_of(content(teams, "GPU-"))
    assert "The names of several GPUs begin with GPU-." in text
    assert "sim-" not in text


def test_the_processes_are_those_of_the_lists(teams: Teams, fleet_lake: Lake) -> None:
    gpu = shared_gpu(teams)
    lists = pl.concat([pl.read_parquet(file.url) for file in fleet_lake.files("process")]).filter(pl.col("gpu") == gpu)
    view = teams.view(f"?span=all&gpu={gpu}")
    found = processes_of(
        view.report, Subject(gpu, is_host=False, spans=view.part.inside.stretches.filter(pl.col("gpu") == gpu))
    )
    wanted = lists.group_by("pid", "started").agg(
        pl.col("mem_used_bytes").max(), pl.col("user").last(), pl.col("time").min().dt.epoch("ms")
    )
    assert found.height == wanted.height > 2
    assert set(found.select("pid", "user", "mem_used_max_bytes", "time").iter_rows()) == set(
        wanted.select("pid", "user", "mem_used_bytes", "time").iter_rows()
    )
    text = text_of(GPU_PAGE.content(view, LIGHT))
    assert f"{found.height} processes in this window" in text
    assert f"({found['pid'][0]})" in text


def test_a_team_is_told_of_its_own_processes_only(teams: Teams) -> None:
    gpu = shared_gpu(teams)
    view = teams.view(f"?span=all&gpu={gpu}", HIRO)
    own = view.part.inside.stretches.filter(pl.col("gpu") == gpu)
    found = processes_of(view.report, Subject(gpu, is_host=False, spans=own))
    every = processes_of(
        teams.view("?span=all").report, Subject(gpu, is_host=False, spans=teams.spans().filter(pl.col("gpu") == gpu))
    )
    assert 0 < found.height < every.height
    for row in found.iter_rows(named=True):
        met = own.filter((pl.col("time") < row["end"]) & (pl.col("end") > row["time"]))
        assert row["user"] in set(met["holder"].drop_nulls())


def test_bins_of_a_day_begin_at_the_reader_s_midnight(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.series.MOST_POINTS", 8)
    monkeypatch.setattr("dashboard.series._TABLE_ROWS", 3)
    gpu = shared_gpu(teams)
    found = gpu_series(teams.view("?span=all&zone=Asia/Kolkata"), gpu)
    assert found.coarse.height == 3
    assert all((moment + 5.5 * HOUR_MS) % (24 * HOUR_MS) == 0 for moment in found.coarse["time"])
    text = text_of(content(teams, gpu, "?span=all&zone=Asia/Kolkata"))
    assert "19 Nov 2025, 00:00 IST" in text
