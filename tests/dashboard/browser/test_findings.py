"""The findings' page in a browser: found, chosen, acted on and taken along, with the mouse or without."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlparse

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe

from dashboard.grid import MOMENT, NUMBER, RANK, TEXT, Column
from dashboard.grid_address import check
from dashboard.query import Query
from fallow.cli import main
from fallow.clock import DAY_MS, SystemClock, format_ms
from fallow.lake import Lake
from tests.dashboard.browser.conftest import PLANNERS, VIEWER, VIEWER_OF_A_TEAM
from tests.dashboard.browser.test_frame import asked, picture

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page, Request

    from tests.dashboard.browser.conftest import Site, Surfer

PIA, PAUL = PLANNERS
ALL = "span=all"
STATE = """() => {
    const grid = dash_ag_grid.getApi('findings-grid');
    const ids = [];
    grid.forEachNodeAfterFilterAndSort((node) => ids.push(node.id));
    return {ids, filters: grid.getFilterModel(), chosen: grid.getSelectedNodes().map((node) => node.id).sort()};
}"""


def told(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["findings", *arguments, "--json", "--config", str(config)]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def state(page: Page) -> dict[str, Any]:
    """Which rows the table lists in which order, and which are chosen."""
    found: dict[str, Any] = page.evaluate(STATE)
    return found


def opened(surf: Callable[..., Surfer], search: str = f"?{ALL}", **how: Any) -> Page:
    page = surf(**how).open(f"/findings{search}")
    return listed(page)


def listed(page: Page) -> Page:
    """Waits until the table follows its address."""
    page.wait_for_selector("#findings-hidden[aria-pressed]")
    page.wait_for_load_state("networkidle")
    return page


def row(page: Page, finding_id: str) -> Locator:
    return page.locator(f"#findings-grid .ag-center-cols-container [row-id='{finding_id}']")


def choose(page: Page, *ids: str) -> None:
    """Lists the rows by a filter of their ids, and chooses them by their boxes."""
    for number, each in enumerate(ids):
        place(page, each)
        box = page.locator(f"#findings-grid [row-id='{each}'] input[type=checkbox]")
        box.set_checked(checked=True)
        page.wait_for_function(
            "many => dash_ag_grid.getApi('findings-grid').getSelectedNodes().length === many", arg=number + 1
        )
    page.wait_for_function("() => !document.querySelector('#acts')?.disabled")


def place(page: Page, finding_id: str) -> None:
    """Opens the page of the table on which the row stands."""
    page.evaluate(
        """id => {
            const grid = dash_ag_grid.getApi('findings-grid');
            grid.paginationGoToPage(Math.floor(grid.getRowNode(id).rowIndex / grid.paginationGetPageSize()));
        }""",
        finding_id,
    )
    row(page, finding_id).wait_for()


def says(page: Page, text: str) -> str:
    """Waits until the line below the buttons has the text."""
    page.wait_for_function("text => document.querySelector('#acts-said').innerText.includes(text)", arg=text)
    return page.inner_text("#acts-said")


def standing(page: Page, finding_id: str, status: str) -> None:
    """Waits until the row has the status."""
    page.wait_for_function(
        "([id, status]) => dash_ag_grid.getApi('findings-grid').getRowNode(id)?.data.status === status",
        arg=[finding_id, status],
    )


def made_again(page: Page) -> None:
    """Has the page made again, as after new data, and waits for it."""
    page.evaluate("document.querySelector('#findings-grid').dataset.old = 'yes'")
    page.evaluate("document.getElementById('again').click()")
    page.wait_for_selector("#findings-grid:not([data-old])")
    listed(page)


def untouched(page: Page, number: int) -> list[str]:
    """So many findings about which nobody has done anything yet."""
    found: list[str] = page.evaluate(
        """() => {
            const ids = [];
            dash_ag_grid.getApi('findings-grid').forEachNode((node) => {
                if (['new', 'standing'].includes(node.data.standing)) { ids.push(node.id); }
            });
            return ids;
        }"""
    )
    assert len(found) >= number
    return found[:number]


def files(site: Site) -> set[str]:
    return {each.key for each in Lake.at(str(site.lake)).files("action")}


def a_day_to_come() -> str:
    return format_ms(SystemClock().now_ms() + 7 * DAY_MS)[:10]


def test_a_finding_is_acknowledged(surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    place(page, finding_id)
    row(page, finding_id).click()
    page.wait_for_url(f"**finding={finding_id}*")
    page.fill("#act-text", "asking the team")
    before = files(site)
    page.click("#act-ack")
    assert says(page, "Acknowledged") == "Acknowledged 1 finding"
    standing(page, finding_id, "acknowledged")
    assert "acknowledged" in row(page, finding_id).inner_text()
    assert f"{PIA}: acknowledged: asking the team" in page.inner_text("#finding-detail")
    assert page.input_value("#act-text") == ""
    assert state(page)["chosen"] == [finding_id]
    assert len(files(site) - before) == 1
    history = told(site.config, capsys, "history", finding_id)["actions"]
    assert [(each["kind"], each["actor"], each["reason"]) for each in history] == [("ack", PIA, "asking the team")]
    by_id = {each["finding_id"]: each["status"] for each in told(site.config, capsys)["findings"]}
    assert by_id[finding_id] == "acknowledged"
    made_again(page)
    standing(page, finding_id, "acknowledged")
    assert page.input_value("#act-text") == ""


def test_suppressed_to_a_day_behind_the_switch_and_reopened(
    surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    choose(page, finding_id)
    page.click("#act-suppress")
    says(page, "takes a reason")
    page.fill("#act-text", "warm standby")
    page.fill("#act-until", day := a_day_to_come())
    page.click("#act-suppress")
    assert "Suppressed 1 finding until" in says(page, "Suppressed")
    page.wait_for_function("id => !document.querySelector(`#findings-grid [row-id='${id}']`)", arg=finding_id)
    page.wait_for_function("() => document.querySelector('#acts').disabled")
    assert finding_id not in state(page)["ids"]
    assert "1 suppressed" in page.inner_text("#findings-words")
    [suppressed] = told(site.config, capsys, "history", finding_id)["actions"]
    assert (suppressed["kind"], suppressed["reason"]) == ("suppress", "warm standby")
    assert suppressed["expires"] > day
    page.click("#findings-hidden")
    page.wait_for_url("**show=all*")
    assert finding_id in state(page)["ids"]
    choose(page, finding_id)
    page.click("#act-reopen")
    assert says(page, "Reopened") == "Reopened 1 finding"
    page.wait_for_function(
        "id => ['new', 'standing'].includes(dash_ag_grid.getApi('findings-grid').getRowNode(id).data.standing)",
        arg=finding_id,
    )
    assert [each["kind"] for each in told(site.config, capsys, "history", finding_id)["actions"]] == [
        "suppress",
        "reopen",
    ]


def test_several_at_once(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    ids = untouched(page, 3)
    choose(page, *ids)
    page.wait_for_selector("#finding-detail >> text=3 findings chosen")
    before = files(site)
    page.click("#act-ack")
    assert says(page, "Acknowledged") == "Acknowledged 3 findings"
    for each in ids:
        standing(page, each, "acknowledged")
    assert state(page)["chosen"] == sorted(ids)
    assert len(files(site) - before) == 1


def test_no_button_works_on_rows_that_a_filter_hides(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    ids = untouched(page, 2)
    choose(page, *ids)
    page.evaluate("dash_ag_grid.getApi('findings-grid').ensureColumnVisible('finding_id')")
    page.get_by_label("id Filter", exact=True).fill(ids[0])
    page.wait_for_url(f"**filter=finding_id:{ids[0]}*")
    page.wait_for_selector(f"#finding-detail h3 >> text={ids[0]}")
    assert state(page) | {"filters": {}} == {"ids": [ids[0]], "chosen": [ids[0]], "filters": {}}


def test_two_people_act_on_one_finding(
    surf: Callable[..., Surfer], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (opened(surf, at=site.address, user=user) for user in (PIA, PAUL))
    [finding_id] = untouched(one, 1)
    for page in (one, other):
        choose(page, finding_id)
    one.fill("#act-text", "asking the team")
    one.click("#act-ack")
    says(one, "Acknowledged")
    other.fill("#act-text", "warm standby")
    other.click("#act-suppress")
    said = says(other, "Somebody acted meanwhile")
    assert f"{PIA}: acknowledged: asking the team" in said
    assert other.input_value("#act-text") == "warm standby"
    standing(other, finding_id, "acknowledged")
    assert [each["kind"] for each in told(site.config, capsys, "history", finding_id)["actions"]] == ["ack"]
    other.click("#act-suppress")
    says(other, "Suppressed 1 finding")
    history = told(site.config, capsys, "history", finding_id)["actions"]
    assert [(each["kind"], each["actor"]) for each in history] == [("ack", PIA), ("suppress", PAUL)]


def test_a_viewer_has_no_buttons_and_a_forged_answer_of_one_is_refused(surf: Callable[..., Surfer], site: Site) -> None:
    asks: list[Request] = []
    planner = surf(at=site.address, user=PIA)
    planner.page.on(
        "request", lambda request: asks.append(request) if '"act-note' in (request.post_data or "") else None
    )
    page = listed(planner.open(f"/findings?{ALL}"))
    [finding_id] = untouched(page, 1)
    choose(page, finding_id)
    page.fill("#act-text", "hm")
    page.click("#act-note")
    says(page, "Noted on 1 finding")
    before = files(site)
    for user in (VIEWER, VIEWER_OF_A_TEAM):
        viewer = opened(surf, at=site.address, user=user)
        assert viewer.locator("#acts, #act-ack").count() == 0
        row(viewer, state(viewer)["ids"][0]).click()
        viewer.wait_for_selector("#finding-detail h4")
        answer = viewer.context.request.post(
            f"{site.address}/_dash-update-component", data=asks[-1].post_data, headers={
                "Content-Type": "application/json", "Origin": site.address,
            },
        )  # fmt: skip
        assert "may not do this" in answer.json()["response"]["acts-said"]["children"]
    foreign = page.context.request.post(
        f"{site.address}/_dash-update-component", data=asks[-1].post_data, headers={
            "Content-Type": "application/json", "Origin": "http://evil.example",
        },
    )  # fmt: skip
    assert foreign.status == 403
    assert files(site) == before


def test_without_a_mouse(surf: Callable[..., Surfer], site: Site) -> None:
    page = opened(surf, at=site.address, user=PIA)
    [finding_id] = untouched(page, 1)
    page.focus("#findings-hidden")
    reach(page, "() => document.activeElement.closest('#findings-grid [role=columnheader]')")
    for key in ("ArrowDown", "ArrowDown"):  # past the filters, into the first row
        page.keyboard.press(key)
    while page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-id')") != finding_id:
        before = page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-index')")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('[role=row]')?.getAttribute('row-index')") != before
    page.keyboard.press("Space")
    page.wait_for_url(f"**finding={finding_id}*")
    page.wait_for_function("() => !document.querySelector('#acts').disabled")
    reach(page, "() => document.activeElement.id === 'act-text'")
    page.keyboard.type("by keys alone")
    reach(page, "() => document.activeElement.id === 'act-ack'")
    page.keyboard.press("Enter")
    says(page, "Acknowledged 1 finding")
    standing(page, finding_id, "acknowledged")


def reach(page: Page, there: str, most: int = 40) -> None:
    """Presses Tab until something has the focus."""
    for _ in range(most):
        if page.evaluate(there):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"not reached by {most} tabs: {there}")


def test_filter_order_and_switch_are_steps_in_the_address(surf: Callable[..., Surfer]) -> None:
    page = opened(surf)
    whole = state(page)["ids"]
    pages_made: list[str] = []
    page.on(
        "request",
        lambda request: pages_made.append(request.url) if '"page.children' in (request.post_data or "") else None,
    )
    page.locator("#findings-grid .ag-floating-filter-input input").nth(1).fill("medium")
    page.wait_for_url(f"**?{ALL}&filter=confidence:medium")
    filtered = state(page)["ids"]
    assert 0 < len(filtered) < len(whole)
    head = page.locator("#findings-grid [role=columnheader][col-id=cost]")
    head.click()
    page.wait_for_url("**&sort=cost")
    head.click()
    page.wait_for_url("**&sort=-cost")
    ordered = state(page)["ids"]
    assert sorted(ordered) == sorted(filtered)
    page.click("#findings-hidden")
    page.wait_for_url("**&show=all")
    shared = page.url
    for search in (f"{ALL}&filter=confidence:medium&sort=-cost", f"{ALL}&filter=confidence:medium&sort=cost"):
        page.go_back()
        assert urlparse(page.url).query == search
    page.go_back()
    page.wait_for_function("() => !dash_ag_grid.getApi('findings-grid').getColumnState().some((each) => each.sort)")
    assert state(page)["ids"] == filtered
    page.go_back()
    assert asked(page) == {"span": ["all"]}
    assert state(page)["ids"] == whole
    page.go_forward()
    assert state(page)["ids"] == filtered
    assert pages_made == []
    other = opened(surf, f"?{urlparse(shared).query}")
    assert state(other)["ids"] == ordered
    assert other.get_attribute("#findings-hidden", "aria-pressed") == "true"


def test_what_a_reader_has_found_stays_when_the_page_is_made_again(surf: Callable[..., Surfer]) -> None:
    page = opened(surf, f"?{ALL}&filter=gpus.least:1&sort=holder")
    rows = state(page)["ids"]
    choose_here = rows[-2:]
    assert len(rows) > 10
    for each in choose_here:
        place(page, each)
        page.locator(f"#findings-grid [row-id='{each}'] input[type=checkbox]").check()
    page.fill("#act-text", "half a sent")
    page.wait_for_selector("#finding-detail >> text=2 findings chosen")
    before = page.url
    made_again(page)
    page.wait_for_selector("#finding-detail >> text=2 findings chosen")
    assert page.url == before
    assert state(page)["ids"] == rows
    assert state(page)["chosen"] == sorted(choose_here)
    assert row(page, choose_here[0]).is_visible()
    assert page.input_value("#act-text") == "half a sent"


FILTERS = (
    "holder:a", "holder.without:a", "holder.is:nobody else", "holder.not:nobody else", "holder.begins:a", "holder.ends:a",
    "team.unknown", "team.known", "cost.above:100", "cost.below:100.5", "cost.most:100", "cost.least:100",
    "gpus:1", "gpus.not:1", "gpus.between:2..8", "cost.known", "since.before:2100-01-01", "since.after:2020-02-29",
    "since.between:2020-01-01..2100-01-01", "since.not:2020-01-01", "status:new|status:standing",
    "holder.known,holder.without:a", r"command:a\,b", r"command:a\|b\\c", "confidence:medium,gpus.above:1,team:v",
)  # fmt: skip
GO = "search => { history.pushState({}, '', search); dispatchEvent(new PopStateEvent('popstate')); }"


def test_every_filter_has_its_words(surf: Callable[..., Surfer]) -> None:
    """The table filters as the address says, and would say the same again."""
    page = opened(surf)
    rows = page.evaluate(
        "() => {const all = []; dash_ag_grid.getApi('findings-grid').forEachNode((node) => all.push(node.data)); return all; }"
    )
    columns = [Column(name, name, kind) for name, kind in KINDS.items()]
    page.wait_for_timeout(3_100)  # until then only what a reader does counts as theirs, and this is a program
    for filters in FILTERS:
        check(Query(filter=filters), columns)
        page.evaluate(GO, f"?{urlencode({'span': 'all', 'filter': filters})}")
        page.wait_for_function("() => Object.keys(dash_ag_grid.getApi('findings-grid').getFilterModel()).length")
        # what the reader adds is written beside it
        page.evaluate(
            """() => {
                const grid = dash_ag_grid.getApi('findings-grid');
                grid.setFilterModel({...grid.getFilterModel(), rule: {filterType: 'text', type: 'notBlank'}});
            }"""
        )
        page.wait_for_url("**rule.known*")
        assert sorted(asked(page)["filter"][0].split(",")) == sorted([*filters.split(","), "rule.known"])
        if filters in LISTS:
            assert set(state(page)["ids"]) == {each["id"] for each in rows if LISTS[filters](each)}, filters


KINDS = {
    "holder": TEXT, "team": TEXT, "cost": NUMBER, "gpus": NUMBER, "since": MOMENT, "status": RANK, "command": TEXT,
    "confidence": RANK,
}  # fmt: skip
LISTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "holder:a": lambda row: "a" in row["holder"],
    "holder.begins:a": lambda row: row["holder"].startswith("a"),
    "team.unknown": lambda row: not row["team"],
    "cost.above:100": lambda row: row["cost"] is not None and row["cost"] > 100,
    "cost.below:100.5": lambda row: row["cost"] is not None and row["cost"] < 100.5,
    "gpus.between:2..8": lambda row: 2 <= row["gpus"] <= 8,
    "status:new|status:standing": lambda row: row["status"] in ("new", "standing"),
    "confidence:medium,gpus.above:1,team:v": lambda row: (
        row["confidence"].startswith("medium") and row["gpus"] > 1 and "v" in row["team"]
    ),
}


def test_a_day_is_one_of_the_readers_zone(surf: Callable[..., Surfer]) -> None:
    """Whatever the browser's own zone is."""
    found: dict[str, set[str]] = {}
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        page = opened(surf, f"?{ALL}&zone={zone}")
        days = page.evaluate(
            "() => {const found = {}; dash_ag_grid.getApi('findings-grid').forEachNode((node) => {"
            " (found[node.data.since_day] ||= []).push(node.id); }); return found; }"
        )
        day = min(days)
        narrowed = opened(surf, f"?{ALL}&zone={zone}&filter=since:{day}")
        # the grid's own filter for days comes a little later than the others
        narrowed.wait_for_function(
            "many => dash_ag_grid.getApi('findings-grid').getDisplayedRowCount() === many", arg=len(days[day])
        )
        assert set(state(narrowed)["ids"]) == set(days[day])
        found[zone] = set(days)
    assert len(set.union(*found.values())) > len(found["Pacific/Pago_Pago"])


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("filter=salary:1", "the table has no column 'salary'"), ("filter=cost:cheap", "is no filter of the column 'cost'"),
        ("sort=-wages", "the table has no column 'wages'"), ("show=everything", "'everything' is nothing to show"),
    ],
)  # fmt: skip
def test_what_the_table_cannot_do_is_a_sentence_beside_all_of_it(
    surf: Callable[..., Surfer], search: str, said: str
) -> None:
    page = opened(surf, f"?{ALL}&{search}")
    assert said in page.inner_text("#findings-wrong")
    assert state(page)["filters"] == {}
    assert len(state(page)["ids"]) > 10
    page.locator("#findings-grid [role=columnheader][col-id=holder]").click()
    page.wait_for_url("**sort=holder*")
    page.wait_for_selector("#findings-wrong", state="hidden")


def test_a_link_to_one_finding_shows_its_evidence_and_copies_its_command(
    surf: Callable[..., Surfer], demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = told(demo / "fallow.toml", capsys)["findings"]
    finding = next(each for each in reversed(findings) if each["failed_conditions"] and each["next_command"])
    finding_id = finding["finding_id"]
    surfer = surf()
    surfer.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=surfer.address)
    page = listed(surfer.open(f"/findings?{ALL}&finding={finding_id}"))
    page.wait_for_function("() => dash_ag_grid.getApi('findings-grid').getSelectedNodes().length")
    assert state(page)["chosen"] == [finding_id]
    assert row(page, finding_id).is_visible()
    shown = page.inner_text("#finding-detail")
    for each in (finding_id, finding["next_command"], *finding["failed_conditions"]):
        assert each in shown
    for number in (finding["evidence"]["sample_count"],):
        assert f"{number:,}" in shown
    page.click("#finding-copy")
    page.wait_for_function("async text => await navigator.clipboard.readText() === text", arg=finding["next_command"])


@pytest.mark.parametrize("filters", ["", "&filter=status:new"])
def test_the_files_have_all_rows_however_the_table_is_filtered(
    surf: Callable[..., Surfer], demo: Path, capsys: pytest.CaptureFixture[str], filters: str
) -> None:
    known = told(demo / "fallow.toml", capsys, "--all")["findings"]
    page = opened(surf, f"?{ALL}{filters}")
    content = {}
    for kind in ("CSV", "Parquet"):
        with page.expect_download() as download:
            page.click(f".tools a >> text={kind}")
        content[kind] = Path(download.value.path()).read_bytes()
        assert download.value.suggested_filename == f"fallow-findings.{kind.lower()}"
    rows = list(csv.DictReader(io.StringIO(content["CSV"].decode())))
    frame = pl.read_parquet(io.BytesIO(content["Parquet"]))
    ids = [each["finding_id"] for each in known]
    assert len(ids) > 10
    assert [each["finding_id"] for each in rows] == frame["finding_id"].to_list() == ids
    assert frame["cost"].to_list() == [each["cost"] for each in known]


@pytest.mark.parametrize(("lang", "scheme"), [("en", "light"), ("en", "dark"), ("fr", "light"), ("fr", "dark")])
def test_one_chosen_is_accessible_and_fits_a_phone(surf: Callable[..., Surfer], lang: str, scheme: str) -> None:
    page = opened(surf, f"?{ALL}&lang={lang}", scheme=scheme)
    finding_id = state(page)["ids"][3]
    row(page, finding_id).click()
    page.wait_for_selector("#finding-detail h4")
    page.wait_for_load_state("networkidle")
    if lang == "fr":
        assert page.inner_text("#page h1") == "Constats"
        assert "commande" in page.inner_text("#finding-detail")
        assert "Accuser" in page.inner_text("#acts") or "Prendre" in page.inner_text("#acts")
    picture(page, f"findings-chosen-{lang}-{scheme}")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_timeout(300)
    picture(page, f"findings-chosen-{lang}-{scheme}-phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
