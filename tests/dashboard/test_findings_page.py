"""The findings' page has every finding of the command, with details of the selected one, and nothing of other teams."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.tables.table import Table, column
from dashboard.access.people import Reader
from dashboard.grid import _WORDS, GridOf, grid, grid_words
from dashboard.source import LATE
from fallow.actors import Actor
from fallow.cli import main
from fallow.clock import format_ms
from tests.dashboard.acting import FORMULA, MARKUP, PLAN, VIEW_ALPHA, Held
from tests.dashboard.conftest import by_id, components, page, words

ALL = "?span=all"
NOW_MS = 1_900_000_000_000


def shown(held: Held, who: Reader = PLAN, search: str = ALL) -> Any:
    return page(held.pages(who).client, "/findings", search)


def found(held: Held, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["findings", "--json", "--config", str(held.config), "--lake", held.lake.root, *arguments]) == 0
    content: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return content


def test_the_rows_are_the_findings_of_the_command(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    told, rows = found(held, capsys, "--all"), by_id(shown(held), "findings-grid")["rowData"]
    assert len(told) >= 4
    assert [row["id"] for row in rows] == [each["finding_id"] for each in told]
    for row, each in zip(rows, told, strict=True):
        assert (row["gpu_hours"], row["cost"], row["gpus"]) == (each["gpu_hours"], each["cost"], len(each["gpus"]))
        assert (row["user"], row["team"], row["host"]) == (each["user"], each["team"] or "", each["host"])
        assert format_ms(row["since"]) == each["since"]
        assert (row["rule"], row["status"], row["next_command"]) == (each["rule"], each["status"], each["next_command"])
        assert row["confidence_rank"] == len(each["failed_conditions"])
        assert row["confidence"].startswith(each["confidence"])
        assert row["aside"] == ("yes" if each["confidence"] == "low" else "")


def test_an_unknown_cost_is_unknown_and_not_nothing(held: Held) -> None:
    rows = {row["id"]: row for row in by_id(shown(held), "findings-grid")["rowData"]}
    row = rows[held.finding("b").finding_id]
    assert (row["cost"], row["cost_text"]) == (None, "unknown")
    assert rows[held.finding("a").finding_id]["cost_text"].startswith("7.50")


def test_every_column_can_be_sorted_and_filtered_and_has_its_values(held: Held) -> None:
    grid = by_id(shown(held), "findings-grid")
    for each in grid["columnDefs"]:
        assert each["filter"]
        assert all(each["field"] in row for row in grid["rowData"])
        if each.get("valueFormatter"):
            assert all(isinstance(row[f"{each['field']}_text"], str) for row in grid["rowData"])
    assert grid["defaultColDef"]["sortable"]
    assert grid["dashGridOptions"]["pagination"]


def test_names_are_text_wherever_they_stand(held: Held) -> None:
    finding_id = held.finding("c").finding_id
    record(held.lake, "note", [finding_id], Actor(MARKUP), now_ms=NOW_MS, reason=MARKUP)
    tree = shown(held, search=f"{ALL}&finding={finding_id}")
    grid = by_id(tree, "findings-grid")
    assert not grid.get("dangerously_allow_code")
    assert not [name for column in grid["columnDefs"] for name in column if "enderer" in name]
    assert {row["user"] for row in grid["rowData"]} == {"ann", "bob", MARKUP, FORMULA}
    assert words(by_id(tree, "finding-detail")["children"]).count(MARKUP) == 3
    assert {each["type"] for each in components(tree)}.isdisjoint({"Markdown", "DangerouslySetInnerHTML", "Iframe"})


def test_what_the_browser_is_asked_for_is_a_name_and_no_code(held: Held) -> None:
    """A string of JavaScript would be evaluated; names of functions in the assets are looked up."""
    known = (
        *("fallowShown(params)", "fallowDay", "fallowDayOf(params)", "fallowByNumber", "fallowByRank"),
        *("fallowLeaves()", "fallowHidesSome()", "fallowLists(params)"),
    )

    def functions(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["function"]] if "function" in value else []
            return [*own, *(each for inner in value.values() for each in functions(inner))]
        return [each for inner in value for each in functions(inner)] if isinstance(value, list) else []

    made = by_id(shown(held), "findings-grid")
    assert set(functions(made["columnDefs"])) | set(functions(made["dashGridOptions"])) == set(known)


def test_the_chosen_finding_in_full(held: Held) -> None:
    finding = held.finding("a")
    record(held.lake, "notify", [finding.finding_id], Actor("fallow"), now_ms=NOW_MS, channel="mail")
    record(held.lake, "note", [finding.finding_id], Actor("zoe"), now_ms=NOW_MS + 1, reason="asked ann")
    tree = held.pages().look_at(finding.finding_id)
    text = words(tree).replace("\N{NO-BREAK SPACE}", " ")
    for each in (
        finding.finding_id,
        *finding.confidence.failed,
        "180 samples",
        "zoe: note: asked ann",
        "1 time, last on",
    ):
        assert each in text
    assert by_id(tree, "finding-copy")["content"] == finding.next_command
    assert finding.next_command in [words(each) for each in components(tree) if each["type"] == "Code"]
    hrefs = [each["props"]["href"] for each in components(tree) if "href" in each["props"]]
    assert hrefs == ["/users?span=all&user=ann", "/host?span=all&host=h1", "/gpu?span=all&gpu=a"]


def test_several_chosen_count_each_gpu_once(held: Held) -> None:
    text = words(held.pages().look_at(*(held.finding(gpu).finding_id for gpu in ("a", "b"))))
    assert "2 findings chosen: 2 GPUs, 0 of them reclaimable" in text


@pytest.mark.parametrize("panel", ["findings-chosen.data", "recommendation-chosen.data", "reserve.value"])
def test_a_panel_whose_data_is_late_has_the_page_ask_again(
    held: Held, monkeypatch: pytest.MonkeyPatch, panel: str
) -> None:
    pages = held.pages()
    monkeypatch.setattr(pages.source, "look", lambda *_, **__: LATE)
    said = next(iter(pages.call(panel, {panel: [], "url.search": ALL}).values()))["children"]
    assert "takes longer than usual" in words(said)
    assert [each for each in components(said) if each["props"].get("data-again")], "fallow.js waits for this"


def test_a_button_whose_data_is_late_says_that_it_did_nothing(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = held.pages()
    monkeypatch.setattr(pages.source, "look", lambda *_, **__: LATE)
    assert "press the button again" in pages.press("ack", "F-0000000000")["acts-status"]["children"]


def test_an_address_leads_to_one_finding_even_a_snoozed_one(held: Held) -> None:
    finding_id = held.finding("a").finding_id
    record(held.lake, "snooze", [finding_id], Actor("zoe"), now_ms=NOW_MS, reason="warm standby")
    tree = shown(held, search=f"{ALL}&finding={finding_id}")
    assert [row["id"] for row in by_id(tree, "findings-grid")["selectedRows"]] == [finding_id]
    assert "warm standby" in words(by_id(tree, "finding-detail")["children"])
    strange = shown(held, search=f"{ALL}&finding=F-0000000000")
    assert by_id(strange, "findings-grid")["selectedRows"] == []
    every = shown(held, search=f"{ALL}&lang=fr")
    standing = {row["id"]: row["standing"] for row in by_id(every, "findings-grid")["rowData"]}
    assert [each for each, status in standing.items() if status == "snoozed"] == [finding_id]
    assert "1 en pause" in words(every), "the switch counts what it hides"


def test_a_moment_has_its_day_in_the_readers_zone(held: Held) -> None:
    """The lake of these findings begins at a midnight of UTC."""
    finding_id = held.finding("a").finding_id
    days = {}
    for zone in ("Pacific/Pago_Pago", "UTC", "Pacific/Kiritimati"):
        rows = {row["id"]: row for row in by_id(shown(held, search=f"{ALL}&zone={zone}"), "findings-grid")["rowData"]}
        days[zone] = rows[finding_id]["since_day"]
        since = datetime.fromtimestamp(rows[finding_id]["since"] / 1000, tz=ZoneInfo(zone))
        assert days[zone] == since.date().isoformat()
    assert len(set(days.values())) > 1


def test_a_viewer_of_a_team_sees_that_team_only(held: Held) -> None:
    other = held.finding("b").finding_id
    for search in (ALL, f"{ALL}&team=beta", f"{ALL}&finding={other}"):
        told = json.dumps(shown(held, VIEW_ALPHA, search))
        assert "bob" not in told
        assert '"ann"' in told
    pages = held.pages(VIEW_ALPHA)
    assert words(pages.look_at(other)) == ""


def test_the_grid_opens_at_the_page_of_the_chosen_row() -> None:
    names = tuple(f"r{number}" for number in range(25))
    shown = GridOf(Table("g", "rows", "", "", (column("name", "name", "name", ""),), names), str)
    for chosen, place in (("r0", None), ("r9", None), ("r10", 1), ("r24", 2), ("other", None)):
        made = grid(language("en"), "g", shown, chosen=[chosen]).children
        assert made.paginationGoTo == place
        assert [row["id"] for row in made.selectedRows] == [chosen] * (chosen != "other")


def test_the_links_to_the_files_have_the_scope_of_the_page(held: Held) -> None:
    tree = shown(held, search=f"{ALL}&team=alpha&finding=x")
    hrefs = [each["props"]["href"] for each in components(tree) if "/export/" in each["props"].get("href", "")]
    assert hrefs == [f"/export/findings.{kind}?span=all&team=alpha" for kind in ("csv", "parquet")]


def test_the_grid_speaks_the_readers_language() -> None:
    english, french = grid_words(language("en")), grid_words(language("fr"))
    assert english.keys() == french.keys()
    same = {key for key in _WORDS if english[key] == french[key]}
    assert same <= {"page"}
    assert (english["thousandSeparator"], english["decimalSeparator"]) == (",", ".")
    assert (french["thousandSeparator"], french["decimalSeparator"]) == ("\N{NARROW NO-BREAK SPACE}", ",")
