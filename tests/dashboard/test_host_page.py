"""One host: its GPUs, its own hours, and what is not a team's business."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.ledger.usage import stays
from analytics.tables.history import findings_naming
from analytics.tables.palette import LIGHT
from dashboard.pages.detail import HOST_PAGE, subject_named
from dashboard.render.panel import section_panel
from dashboard.render.strip import WORDS
from dashboard.series import host_series
from fallow.clock import HOUR_MS
from tests.dashboard.teams import ADA, HIRO, Teams, links, one, parts, teams, text_of
from tests.report.html.reports import changed

if TYPE_CHECKING:
    from dashboard.access.people import Reader
    from fallow.lake import Lake

__all__ = ["teams"]

HOST = "sim-h100-01"


def content(teams: Teams, host: str = HOST, search: str = "?span=all", reader: Reader = ADA) -> Any:
    return HOST_PAGE.content(teams.view(f"{search}&host={host}", reader), LIGHT)


def test_a_host_that_nobody_knows_and_none_at_all_are_said_so(teams: Teams) -> None:
    assert "nothing to show of the host nowhere" in text_of(content(teams, "nowhere"))
    assert "No host is named" in text_of(content(teams, ""))


def test_every_gpu_of_the_host_has_a_row_and_a_link(teams: Teams) -> None:
    gpus = sorted(teams.spans().filter(pl.col("host") == HOST)["gpu"].unique())
    page = content(teams)
    assert one(page, WORDS).data["gpus"] == gpus
    assert set(gpus) <= {each.split("gpu=")[1] for each in links(page) if each.startswith("/gpu")}


def test_rows_are_named_as_links_to_their_gpus_begin(teams: Teams) -> None:
    page = content(teams)
    names = one(page, "host-graph").figure.layout.yaxis.ticktext
    gpus = one(page, WORDS).data["gpus"]
    assert [gpu.startswith(name) for gpu, name in zip(gpus, names, strict=True)] == [True] * len(gpus)
    assert len(set(names)) == len(gpus) > 1


def test_the_hours_are_those_of_host_hourly(teams: Teams, fleet_lake: Lake) -> None:
    found = host_series(teams.view("?span=all"), HOST)
    frames = [pl.read_parquet(file.url) for file in fleet_lake.files("host_hourly")]
    kept = pl.concat(frames).filter(pl.col("host") == HOST).sort("time")
    assert found.is_raw
    assert found.bin_ms == HOUR_MS
    assert len(found.lines) == 5
    for line in found.lines:
        assert found.frame[f"{line.column}_mean"].to_list() == pytest.approx(kept[line.column].to_list())


def test_a_team_sees_hours_that_were_theirs_from_end_to_end(teams: Teams) -> None:
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


def test_a_team_is_told_neither_others_names_nor_the_host_s_faults(teams: Teams) -> None:
    host = teams.spans(HIRO)["host"].unique().sort()[0]
    page = content(teams, host, "?span=all", HIRO)
    own = set(teams.spans(HIRO)["holder"].drop_nulls())
    others = set(teams.spans()["holder"].drop_nulls()) - own
    said = text_of(page) + " ".join(links(page)) + " ".join(one(page, WORDS).data["names"])
    assert not [name for name in others if name in said]
    mine = set(teams.spans(HIRO).filter(pl.col("host") == host)["gpu"])
    assert set(one(page, WORDS).data["gpus"]) == mine
    assert "Data quality" not in said
    assert "Events" not in said
    everything = text_of(content(teams, host))
    assert "Data quality" in everything
    assert "Events" in everything


def test_what_was_wrong_with_its_rows_is_said_with_what_was_made_of_it(teams: Teams, fleet_lake: Lake) -> None:
    frames = [pl.read_parquet(file.url) for file in fleet_lake.files("quality")]
    rows = pl.concat(frames)
    for host in teams.spans()["host"].unique().sort():
        total = int(rows.filter(pl.col("host") == host)["count"].sum())
        text = text_of(content(teams, host))
        assert (f"{total:,} rows had something wrong" in text) == bool(total)
        assert ("Nothing to remark." in text) != bool(total)


def test_long_lists_are_folded(teams: Teams) -> None:
    given = stays(teams.spans().filter(pl.col("host") == "sim-a100-01"))
    assert given.height > 10
    page = content(teams, "sim-a100-01")
    first, rest = (each for each in parts(page) if is_table(each) and "reserved" in text_of(each))
    assert [count_rows(first), count_rows(rest)] == [10, given.height - 10]
    folded = next(each for each in parts(page) if type(each).__name__ == "Details" and is_in(rest, each))
    assert f"and {given.height - 10} more" in text_of(folded)


def test_of_many_findings_the_first_are_in_sight(teams: Teams) -> None:
    view = teams.view("?span=all")
    [finding, *_] = view.report.review.shown
    subject = subject_named(view, "gpu", finding.gpus[0])
    assert subject is not None
    many = changed(view.report, review=replace(view.report.review, findings=(finding,) * 13))
    panel = section_panel(view, LIGHT, findings_naming(many, subject), first=10)
    first, rest = (each for each in parts(panel) if type(each).__name__ == "Table")
    assert [count_rows(first), count_rows(rest)] == [10, 3]
    folded = next(each for each in parts(panel) if type(each).__name__ == "Details")
    assert (is_in(first, folded), is_in(rest, folded)) == (False, True)
    assert "and 3 more" in text_of(folded)


def is_table(each: Any) -> bool:
    return getattr(each, "className", "") == "listed"


def is_in(wanted: Any, tree: Any) -> bool:
    return any(each is wanted for each in parts(tree))


def count_rows(table: Any) -> int:
    return sum(type(each).__name__ == "Tr" for each in parts(table)) - 1
