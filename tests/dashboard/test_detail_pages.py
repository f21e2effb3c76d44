"""One GPU, one host: their rows as they lie in the lake, their users as in the ledger, and nothing of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from analytics.glossary import state_label
from analytics.tables.history import Subject, events_of, findings_naming, processes_of
from analytics.tables.palette import LIGHT
from dashboard.access.people import Reader
from dashboard.pages.detail import GPU_PAGE, HOST_PAGE, subject_named
from dashboard.render.panel import section_panel
from dashboard.render.strip import WORDS
from dashboard.series import MOST_POINTS, gpu_series, host_series
from dashboard.view import View
from fallow.clock import HOUR_MS, to_ms
from fallow.lake import Lake
from tests.dashboard.conftest import HIRO, links, one, parts, words
from tests.dashboard.sites import ADMINISTRATOR, Site
from tests.report.html.reports import changed

HOST = "sim-h100-01"
ZOOM = "&start=2025-11-19T08:00Z&end=2025-11-19T09:00Z"


def shared_gpu(teams: Site) -> str:
    """A GPU that Hiro's team had for a part of the time, and others at other times."""
    own, every = teams.spans(HIRO), teams.spans()
    mine = set(own["gpu"])
    others = every.filter(pl.col("user").is_not_null() & ~pl.col("user").is_in(own["user"].drop_nulls().implode()))
    return min(mine.intersection(others["gpu"]))


def gpu_page(teams: Site, gpu: str, search: str = "?span=all", reader: Reader = ADMINISTRATOR) -> Any:
    return GPU_PAGE.content(teams.view(f"{search}&gpu={gpu}", reader), LIGHT)


def host_page(teams: Site, host: str = HOST, search: str = "?span=all", reader: Reader = ADMINISTRATOR) -> Any:
    return HOST_PAGE.content(teams.view(f"{search}&host={host}", reader), LIGHT)


def stored(lake: Lake, table: str) -> pl.DataFrame:
    """The rows of a table of the lake, with the host of each."""
    frames = ((pl.read_parquet(file.url), pl.lit(file.host)) for file in lake.files(table))
    return pl.concat(rows if "host" in rows.columns else rows.with_columns(host=host) for rows, host in frames)


def rows_of(lake: Lake, gpu: str) -> pl.DataFrame:
    return stored(lake, "gpu").filter(pl.col("gpu") == gpu).with_columns(pl.col("time").dt.epoch("ms")).sort("time")


@pytest.mark.parametrize(
    ("page", "name", "said"),
    [
        (gpu_page, "GPU-nowhere", "No data of the GPU GPU-nowhere"),
        (gpu_page, "", "No GPU is named"),
        (host_page, "nowhere", "No data of the host nowhere"),
        (host_page, "", "No host is named"),
        (gpu_page, "%3Cb%3Ex%3C/b%3E", "<b>x</b>"),
    ],
)
def test_an_unknown_or_missing_subject_is_reported(teams: Site, page: Any, name: str, said: str) -> None:
    assert said in words(page(teams, name))


@pytest.mark.parametrize("page", [gpu_page, host_page])
def test_a_reader_of_a_team_reads_no_other_names_nor_the_hosts_faults(teams: Site, page: Any) -> None:
    gpu = shared_gpu(teams)
    name = gpu if page is gpu_page else teams.spans().filter(pl.col("gpu") == gpu)["host"][0]
    own = set(teams.spans(HIRO)["user"].drop_nulls())
    others = set(teams.spans()["user"].drop_nulls()) - own
    shown, everything = page(teams, name, "?span=all", HIRO), words(page(teams, name))
    said = words(shown) + " ".join(links(shown)) + " ".join(one(shown, WORDS).data["names"])
    assert own.intersection(said.split())
    assert not [name for name in others if name in said]
    for text in ("Data quality", "Events") if page is host_page else ():
        assert (text in said, text in everything) == (False, True)
    assert ("the time of others is left empty" in said) >= (page is gpu_page)
    assert "the time of others is left empty" not in everything


def test_the_head_names_the_subject(teams: Site) -> None:
    gpu = shared_gpu(teams)
    device = teams.view("").whole.inventory.devices[gpu]
    text = words(gpu_page(teams, gpu))
    for each in (gpu, device.host, device.model, device.pool, "20 Nov 2025, 00:00 UTC"):
        assert str(each) in text
    beside = set(teams.spans().filter(pl.col("host") == device.host)["gpu"]) - {gpu}
    assert beside == {each.split("gpu=")[1] for each in links(gpu_page(teams, gpu)) if each.startswith("/gpu")}


def test_a_short_time_is_shown_row_by_row(teams: Site, fleet_lake: Lake) -> None:
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


def test_a_long_time_is_shown_in_few_bins_with_least_and_most(teams: Site, fleet_lake: Lake) -> None:
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
        each.connectgaps for each in one(gpu_page(teams, gpu), "gpu-graph").figure.data if each.type == "scatter"
    )


def test_the_highest_mark_of_each_axis_lies_above_all_values(teams: Site) -> None:
    gpu = shared_gpu(teams)
    series = gpu_series(teams.view("?span=all"), gpu)
    axes = one(gpu_page(teams, gpu), "gpu-graph").figure.layout
    assert len(series.lines) > 2
    for number, line in enumerate(series.lines, start=2):
        axis = axes[f"yaxis{number}"]
        most = float(series.frame[f"{line.column}_max"].max()) / line.scale  # type: ignore[arg-type]  # of numbers
        highest = axis.dtick * (axis.range[1] // axis.dtick)
        assert most <= highest + 1e-6, line
        assert highest / axis.dtick <= 3


def test_a_reader_of_a_team_gets_no_value_of_others_time(teams: Site) -> None:
    gpu = shared_gpu(teams)
    view = teams.view(f"?span=all&gpu={gpu}", HIRO)
    own = view.part.inside.segments.filter(pl.col("gpu") == gpu)
    found = gpu_series(view, gpu)
    for row in found.frame.drop_nulls("power_w_mean").iter_rows(named=True):
        inside = own.filter((pl.col("time") < row["time"] + found.bin_ms) & (pl.col("end") > row["time"]))
        assert not inside.is_empty()
    every = gpu_series(teams.view(f"?span=all&gpu={gpu}"), gpu)
    seen_ms = int((own["end"] - own["time"]).sum())
    assert 0 < found.frame["power_w_mean"].count() * found.bin_ms < seen_ms + 2 * own.height * found.bin_ms
    assert found.frame["power_w_mean"].count() < every.frame["power_w_mean"].count()


def test_a_gpu_that_the_team_never_had_is_nothing_to_it(teams: Site) -> None:
    strange = min(set(teams.spans()["gpu"]) - set(teams.spans(HIRO)["gpu"]))
    text = words(gpu_page(teams, strange, "?span=all", HIRO))
    assert "No data of the GPU" in text
    assert "sim-" not in text
    assert "No data of the GPU" not in words(gpu_page(teams, strange))


def test_who_had_it_is_the_ledger_s_time(teams: Site) -> None:
    gpu = shared_gpu(teams)
    page = gpu_page(teams, gpu)
    table = next(each for each in parts(page) if getattr(each, "className", "") == "listed" and "user" in words(each))
    rows = teams.spans().filter(
        (pl.col("gpu") == gpu) & pl.col("state").is_in(["active", "low", "stalled", "held", "reserved"])
    )
    for user in rows["user"].unique():
        assert (user or "(no user)") in words(table)
    heads = [words(each) for each in parts(table) if type(each).__name__ == "Th" and each.scope == "col"]
    assert heads == [
        "user",
        "job",
        "from",
        "until",
        *map(state_label, ("active", "low", "stalled", "held", "reserved")),
    ]


def test_the_events_of_a_gpu_are_those_of_the_lake(teams: Site, fleet_lake: Lake) -> None:
    event = stored(fleet_lake, "event").drop_nulls("gpu").row(0, named=True)
    text = words(gpu_page(teams, event["gpu"]))
    assert event["kind"] in text
    assert f"{event['time']:%H:%M} UTC" in text


def test_an_event_in_the_time_of_others_is_not_shown(teams: Site, fleet_lake: Lake) -> None:
    event = stored(fleet_lake, "event").drop_nulls("gpu").row(0, named=True)
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


def test_in_french_the_series_have_french_names(teams: Site) -> None:
    page = gpu_page(teams, shared_gpu(teams), "?span=all&lang=fr")
    told = [each["name"] for each in one(page, WORDS).data["lines"] if each]
    lines = gpu_series(teams.view("?span=all"), shared_gpu(teams)).lines
    assert len(told) == len(lines)
    assert (told[0], told[-1]) == ("utilisation du GPU", "puissance")


def test_as_much_of_a_name_as_no_other_begins_with_is_enough(teams: Site) -> None:
    gpu = shared_gpu(teams)
    assert words(gpu_page(teams, gpu[:12])) == words(gpu_page(teams, gpu))
    assert "begin with GPU-" not in words(gpu_page(teams, gpu[:12]))
    assert "No data of the GPU GPU-" in words(gpu_page(teams, "GPU-"))


def test_of_a_name_that_several_begin_with_none_is_shown(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pages.detail._NO_NAME", 1)
    text = words(gpu_page(teams, "GPU-"))
    assert "The names of several GPUs begin with GPU-." in text
    assert "sim-" not in text


def test_the_processes_are_those_of_the_lists(teams: Site, fleet_lake: Lake) -> None:
    gpu = shared_gpu(teams)
    lists = stored(fleet_lake, "process").filter(pl.col("gpu") == gpu)
    view = teams.view(f"?span=all&gpu={gpu}")
    found = processes_of(
        view.report, Subject(gpu, is_host=False, spans=view.part.inside.segments.filter(pl.col("gpu") == gpu))
    )
    wanted = lists.group_by("pid", "started").agg(
        pl.col("mem_used_bytes").max(), pl.col("user").last(), pl.col("time").min().dt.epoch("ms")
    )
    assert found.height == wanted.height > 2
    assert set(found.select("pid", "user", "mem_used_max_bytes", "time").iter_rows()) == set(
        wanted.select("pid", "user", "mem_used_bytes", "time").iter_rows()
    )
    text = words(GPU_PAGE.content(view, LIGHT))
    assert f"{found.height} processes in this window" in text
    assert f"({found['pid'][0]})" in text


def test_a_team_sees_only_its_own_processes(teams: Site) -> None:
    gpu = shared_gpu(teams)
    view = teams.view(f"?span=all&gpu={gpu}", HIRO)
    own = view.part.inside.segments.filter(pl.col("gpu") == gpu)
    found = processes_of(view.report, Subject(gpu, is_host=False, spans=own))
    every = processes_of(
        teams.view("?span=all").report, Subject(gpu, is_host=False, spans=teams.spans().filter(pl.col("gpu") == gpu))
    )
    assert 0 < found.height < every.height
    for row in found.iter_rows(named=True):
        met = own.filter((pl.col("time") < row["end"]) & (pl.col("end") > row["time"]))
        assert row["user"] in set(met["user"].drop_nulls())


def test_bins_of_a_day_begin_at_the_reader_s_midnight(teams: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.series.MOST_POINTS", 8)
    monkeypatch.setattr("dashboard.series._TABLE_ROWS", 3)
    gpu = shared_gpu(teams)
    found = gpu_series(teams.view("?span=all&zone=Asia/Kolkata"), gpu)
    assert found.coarse.height == 3
    assert all((moment + 5.5 * HOUR_MS) % (24 * HOUR_MS) == 0 for moment in found.coarse["time"])
    text = words(gpu_page(teams, gpu, "?span=all&zone=Asia/Kolkata"))
    assert "19 Nov 2025, 00:00 IST" in text


def test_every_gpu_of_the_host_has_a_row_and_a_link(teams: Site) -> None:
    gpus = sorted(teams.spans().filter(pl.col("host") == HOST)["gpu"].unique())
    page = host_page(teams)
    assert one(page, WORDS).data["gpus"] == gpus
    assert set(gpus) <= {each.split("gpu=")[1] for each in links(page) if each.startswith("/gpu")}


def test_the_hours_are_those_of_host_hourly(teams: Site, fleet_lake: Lake) -> None:
    found = host_series(teams.view("?span=all"), HOST)
    kept = stored(fleet_lake, "host_hourly").filter(pl.col("host") == HOST).sort("time")
    assert found.is_raw
    assert found.bin_ms == HOUR_MS
    assert len(found.lines) == 5
    for line in found.lines:
        assert found.frame[f"{line.column}_mean"].to_list() == pytest.approx(kept[line.column].to_list())


def test_a_team_sees_hours_that_were_theirs_from_end_to_end(teams: Site) -> None:
    hosts = teams.spans(HIRO)["host"].unique().sort()
    shown = 0
    for host in hosts:
        found = host_series(teams.view("?span=all", HIRO), host).frame
        own = teams.spans(HIRO).filter(pl.col("host") == host)
        known = "cpu_util_mean_pct_mean"
        for row in found.drop_nulls(known).iter_rows(named=True) if known in found else ():
            covered = [0] * 60
            for start, end in own.select("time", "end").iter_rows():
                for minute in range(60):
                    at = row["time"] + minute * 60_000
                    covered[minute] |= start <= at < end
            assert all(covered)
            shown += 1
    assert shown
    assert shown < 48 * len(hosts)


def test_a_host_page_counts_its_faulty_rows(teams: Site, fleet_lake: Lake) -> None:
    rows = stored(fleet_lake, "quality")
    for host in teams.spans()["host"].unique().sort():
        total = int(rows.filter(pl.col("host") == host)["count"].sum())
        text = words(host_page(teams, host))
        assert (f"{total:,} rows had something wrong" in text) == bool(total)
        assert ("No problem was found." in text) != bool(total)


def test_of_many_findings_the_first_are_in_sight(teams: Site) -> None:
    view = teams.view("?span=all")
    [finding, *_] = view.report.review.shown
    subject = subject_named(view, "gpu", finding.gpus[0])
    assert subject is not None
    many = changed(view.report, review=replace(view.report.review, findings=(finding,) * 13))
    panel = section_panel(view, LIGHT, findings_naming(many, subject), first=10)
    first, rest = (each for each in parts(panel) if type(each).__name__ == "Table")
    assert [sum(type(each).__name__ == "Tr" for each in parts(table)) - 1 for table in (first, rest)] == [10, 3]
    folded = next(each for each in parts(panel) if type(each).__name__ == "Details")
    assert [any(each is table for each in parts(folded)) for table in (first, rest)] == [False, True]
    assert "and 3 more" in words(folded)
