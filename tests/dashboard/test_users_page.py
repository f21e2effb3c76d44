"""The users' page: the numbers of `fallow ledger --by user`, and no other reader's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytics.tables.quotas import quota_headline, quota_uses
from dashboard.app import build_app
from dashboard.source import LakeSource
from fallow.lake import Lake
from tests.dashboard.conftest import components, inputs_of, page, table, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site
from tests.ledger.rows import device, fill, processes, samples


def test_a_quotas_bar_ends_where_the_quota_does(planned: Site) -> None:
    uses = dict(quota_uses(planned.view(WEEK).report))
    longest = max(max(use.quota_gpus, use.most or 0) for use in uses.values())
    shown = page(planned.client(), "/users", WEEK)
    rows = table(shown, "quotas")
    gaps = [uses[row[0]].quota_gpus - (uses[row[0]].working_mean or 0) for row in rows]
    assert gaps == sorted(gaps, reverse=True)
    bars = [each for each in components(shown) if each["props"].get("className") == "quota"]
    for row, bar in zip(rows, bars, strict=True):
        use = uses[row[0]]
        track, mark = bar["props"]["children"]
        assert track["props"]["style"]["width"] == f"{100 * use.quota_gpus / longest:.2f}%"
        assert f"{100 * (use.most or 0) / longest:.2f}%" in mark["props"]["style"]["left"]
        widths = [float(part["props"]["style"]["width"].rstrip("%")) for part in track["props"]["children"]]
        assert sum(widths) == pytest.approx(100 * (use.allocated_mean or 0) / use.quota_gpus, abs=0.02)
    assert "Quotas are for all GPUs" in words(page(planned.client(), "/users", WEEK + "&pool=train"))


def test_a_user_of_nothing(planned: Site) -> None:
    assert "was allocated to nobody-here in this window" in words(
        page(planned.client(), "/users", WEEK + "&user=nobody-here")
    )


def test_for_a_reader_of_one_team_others_have_nothing(planned: Site) -> None:
    client = planned.client(LANGUAGE)
    assert "amara" in words(page(client, "/users", WEEK))
    for more in ("", "&team=vision"):
        assert "was allocated to greta in this window" in words(page(client, "/users", f"{WEEK}&user=greta{more}"))


def test_quotas_against_what_was_used(planned: Site) -> None:
    view = planned.view(WEEK)
    uses = dict(quota_uses(view.report))
    given = {each.name: each.allocated_ms for each in view.report.people.teams}
    length_ms = view.report.ledger.summary.until_ms - view.report.ledger.summary.since_ms
    owners = view.whole.money.owners.teams()
    assert uses.keys() == {name for name, team in owners.items() if team.quota_gpus is not None}
    for name, use in uses.items():
        assert use.quota_gpus == owners[name].quota_gpus
        assert use.allocated_mean == pytest.approx(given.get(name, 0) / length_ms)
    # a quota is for all GPUs: beside a part of them it would look generous
    assert quota_uses(planned.view(WEEK + "&pool=train").report) == []
    assert [name for name, _ in quota_uses(planned.view(WEEK, LANGUAGE).report)] == ["language"]


def test_who_has_no_name_is_not_left_out(lake: Lake) -> None:
    name = "<b>eve</b>\u202e=1"
    rows = [
        *samples("a", 0, 3600, gpu_util_pct=90.0, process_count=1),
        *samples("b", 0, 3600, gpu_util_pct=90.0, process_count=1),
    ]
    lists = [*processes("a", *range(0, 3600, 30), user=None), *processes("b", *range(0, 3600, 30), user=name)]
    fill(lake, rows, lists, devices=[device("a"), device("b")])
    client = build_app(LakeSource(lambda: inputs_of(lake))).server.test_client()
    rows_shown = table(page(client, "/users"), "users")
    assert {row[0] for row in rows_shown} == {"(unknown user)", "<b>eve</b>?=1"}
    french = words(page(client, "/users", "?lang=fr"))
    assert "(utilisateur inconnu)" in french
    assert "heures GPU" in french


def test_unobserved_hours_are_no_hours_without_use(planned: Site) -> None:
    """The same uses over a half observed window: no gap is shown, since it may be unobserved time."""
    view = planned.view(WEEK)
    uses = quota_uses(view.report)
    half = replace(view.report.ledger.seen, observed_ms=1.0, unseen_ms=1.0)
    assert "largest unused quota" in quota_headline(view.report.ledger.seen, uses)
    told = str(quota_headline(half, uses))
    assert "Only 50.0" in told.replace("\N{NO-BREAK SPACE}", " ")
    assert "unused" not in told
