"""What the pages say of teams, holders, hosts, GPUs, cards and findings is what the commands say, digit by digit."""

from __future__ import annotations

import csv
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.shown import Shown, Site, partly_priced_site, priced_site, unpriced_site
from tests.dashboard.told import GIVEN, UNKNOWN, Question, Spent, money, percent, share, written

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.long

LONG = Question("everything")
DAYS = Question("three days", {"since": "2025-11-17", "until": "2025-11-19"})
POOL = Question("a pool", {**DAYS.asked, "pool": "train"})
TEAM = Question("a team", {"team": "vision"})
QUESTIONS = (LONG, DAYS, POOL, TEAM, Question("a model", {"model": "NVIDIA L40S"}))
EACH = pytest.mark.parametrize("asked", QUESTIONS, ids=lambda each: each.name)
PRICES = pytest.mark.parametrize(
    ("site", "asked"),
    [*(("priced", each) for each in QUESTIONS), ("partly", LONG), ("unpriced", POOL)],
    ids=lambda each: each if isinstance(each, str) else each.name,
    indirect=["site"],
)
_SITES = {"priced": priced_site, "partly": partly_priced_site, "unpriced": unpriced_site}


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return _SITES[getattr(request, "param", "priced")](tmp_path_factory.getbasetemp())


def given(spent: Spent) -> int:
    return spent.sum(*GIVEN)


def useful_and_low(row: dict[str, Any]) -> tuple[float, float]:
    """The useful milliseconds of somebody's time, which are its efficiency, and what of the low time is not."""
    spent = Spent.of_account(row)
    useful_ms = (row["efficiency"] or 0.0) * given(spent)
    return useful_ms, spent.sum("active", "low") - useful_ms


def named(rows: Iterable[list[str]], names: Iterable[str]) -> dict[str, list[str]]:
    """Rows by whom they are about; the team stands behind a holder's name."""
    order = sorted(names, key=len, reverse=True)
    return {next(name for name in order if row[0].startswith(name)): row for row in rows}


@PRICES
@pytest.mark.parametrize("group", ["team", "holder"])
def test_who_was_given_what_is_the_ledgers(site: Site, asked: Question, group: str) -> None:
    if group == "team" and asked.is_personal:
        assert not site.shown("/holders", asked).has_panel("teams")
        return
    told = {name: row for name, row in site.told.groups(asked, group).items() if given(Spent.of_account(row))}
    ranks = {each["label"]: each for each in site.told.report(asked)[f"{group}s"]}
    panel = site.shown("/holders", asked).panel(f"{group}s")
    rows = named(panel.rows(), told)
    at = [each.text for each in panel.all("scope", "col")].index("GPU-hours")
    is_unpriced = site.told.ledger(asked)["money"]["paid"] is None
    assert rows.keys() == told.keys()
    most_ms = max(given(Spent.of_account(row)) for row in told.values())
    lengths = dict(zip(rows, panel.all("className", "lengths"), strict=True))
    for name, row in told.items():
        spent, rank = Spent.of_account(row), ranks[name]
        place = "" if rank["rank_efficiency"] is None else f"{rank['rank_efficiency']}/{rank['rank_efficiency_of']}"
        useful_ms, low_ms = useful_and_low(row)
        cost = [] if is_unpriced else [UNKNOWN if row["paid"] is None else f"{row['paid']:,.2f}"]
        shown = rows[name][at:]
        assert shown[6].partition(" ")[0] == place
        assert [*shown[:6], *shown[7:]] == [
            written(given(spent)),
            written(useful_ms),
            written(low_ms),
            written(spent.sum("held")),
            written(spent.sum("reserved")),
            percent(row["efficiency"]),
            *cost,
        ], name
        drawn = [each["props"]["style"]["width"] for each in lengths[name].tree["props"]["children"]]
        parts = (useful_ms, low_ms, spent.sum("held"), spent.sum("reserved"))
        widths = [float(each.rstrip("%")) for each in drawn]
        assert widths == pytest.approx([100 * part / most_ms for part in parts if part], abs=0.006), name
    assert list(rows) == sorted(rows, key=lambda name: (-given(Spent.of_account(told[name])), name))
    every = Spent.together(Spent.of_account(row) for row in told.values())
    assert panel.finding.startswith(f"{share(every.sum('held', 'reserved'), given(every))} of {written(given(every))} ")
    lost = {name: Spent.of_account(row).sum("held", "reserved") for name, row in told.items()}
    assert f"the most, {written(max(lost.values()))}, by {max(lost, key=lost.__getitem__)}" in panel.finding


@pytest.mark.parametrize("asked", [LONG, DAYS, TEAM], ids=lambda each: each.name)
def test_quotas_are_the_owners_files_and_means_the_ledgers(site: Site, asked: Question) -> None:
    owners = site.told.config.parent / "owners.csv"
    with owners.open(encoding="utf-8") as file:
        quotas = {row["team"]: float(row["quota_gpus"]) for row in csv.DictReader(file) if row["quota_gpus"]}
    window = site.told.ledger(asked)["window"]
    since, until = (datetime.fromisoformat(window[name]) for name in ("since", "until"))
    length_ms = (until - since).total_seconds() * 1000
    told = site.told.groups(asked, "team")
    wanted = {name: quotas[name] for name in quotas if not asked.is_personal or name == asked.asked["team"]}
    rows = {row[0]: row for row in site.shown("/holders", asked).panel("quotas").rows()}
    assert rows.keys() == wanted.keys()
    for name, quota in wanted.items():
        spent = Spent.of_account(told[name])
        shown = [each for each in rows[name][1:] if each]
        assert shown[:3] == [
            f"{quota:,.0f}", f"{given(spent) / length_ms:.1f}", f"{spent.sum('active', 'low') / length_ms:.1f}"
        ]  # fmt: skip
        above, hours = (int(each) for each in shown[-1].split(" of "))
        assert hours == (until - since).total_seconds() // 3600
        assert (float(shown[3]) > quota) == (above > 0)
    assert not site.shown("/holders", POOL).has_panel("quotas")


@PRICES
def test_one_holders_page_is_their_row_and_their_jobs_add_up_to_it(site: Site, asked: Question) -> None:
    told = site.told.groups(asked, "holder")
    report = site.told.report(asked)
    for person in report["holders"][:3]:
        name, row = person["name"], told[person["label"]]
        spent = Spent.of_account(row)
        shown = site.shown("/holders", asked, holder=name)
        facts = shown.facts()
        useful_ms, low_ms = useful_and_low(row)
        assert facts["GPU-hours given"] == written(given(spent))
        assert (facts["useful"], facts["low, unused"]) == (written(useful_ms), written(low_ms))
        assert (facts["held"], facts["reserved"]) == (written(spent.sum("held")), written(spent.sum("reserved")))
        assert facts["efficiency"].split(",")[0] == percent(row["efficiency"])
        assert facts["cost"] == money(row["paid"], site.told.currency)
        jobs = shown.panel("jobs").rows()
        for column, states in ((3, GIVEN), (4, ("active", "low")), (5, ("held",)), (6, ("reserved",))):
            sums = sum(float(job[column].replace(",", "")) for job in jobs)
            assert sums == pytest.approx(spent.sum(*states) / 3.6e6, abs=0.0501 * len(jobs)), (name, column)
        costs = [job[9] for job in jobs]
        if row["paid"] is None:
            assert set(costs) == {UNKNOWN}
        elif UNKNOWN not in costs:
            paid = sum(float(each.split()[0].replace(",", "")) for each in costs)
            assert paid == pytest.approx(row["paid"], abs=0.0051 * len(jobs) + 0.02)
        about = [each for each in report["findings"] if name in (each["holder"] or "").split("+")]
        assert shown.panel("about").finding.startswith(f"{len(about)} finding" if about else "No finding")


@PRICES
def test_the_findings_are_those_of_the_commands(site: Site, asked: Question) -> None:
    report = site.told.report(asked)
    grid = grid_of(site.shown("/findings", asked))
    if asked in (LONG, DAYS):
        assert [each["finding_id"] for each in site.told.findings(asked)["findings"]] == [row["id"] for row in grid]
    assert len(grid) == len(report["findings"])
    for row, each in zip(grid, report["findings"], strict=True):
        assert (row["id"], row["gpus"]) == (each["finding_id"], len(each["gpus"]))
        assert (row["gpu_hours"], row["cost"]) == (each["gpu_hours"], each["cost"])
        texts = [" ".join(row[f"{name}_text"].split()) for name in ("gpu_hours", "cost")]
        assert texts == [written(each["gpu_hours"] * 3.6e6), money(each["cost"], site.told.currency)]
    gpus = {gpu for each in report["findings"] for gpu in each["gpus"]}
    count = len(report["findings"])
    words = site.shown("/findings", asked).panel("all-findings").finding
    assert words.startswith(f"{count} findings about {len(gpus)} GPU{'s' * (len(gpus) != 1)}")


def grid_of(shown: Shown) -> list[dict[str, Any]]:
    """The rows of the table of findings."""
    return list(shown.all("id", "findings-grid")[0].tree["props"]["rowData"])


def test_a_finding_in_full_has_its_numbers(site: Site) -> None:
    for each in site.told.report(DAYS)["findings"][:8]:
        detail = site.shown("/findings", DAYS, finding=each["finding_id"]).all("id", "finding-detail")[0].facts()
        assert detail["GPU-hours"] == written(each["gpu_hours"] * 3.6e6)
        assert detail["cost"] == money(each["cost"], "USD")
        energy = each["energy_kwh"]
        assert detail["energy"] == (UNKNOWN if energy is None else f"{energy:,.1f} kWh")
        assert detail["confidence"].split(",")[0] == each["confidence"]


@PRICES
def test_what_could_move_is_what_the_findings_say(site: Site, asked: Question) -> None:
    told = [each for each in site.told.report(asked)["findings"] if each["category"] == "right_size"]
    panel = site.shown("/right-size", asked).panel("moves")
    wanted = {}
    for each in told:
        key = next(href for href in panel.hrefs if each["finding_id"] in href)
        wanted[key] = [
            str(len(each["gpus"])),
            written(each["gpu_hours"] * 3.6e6),
            money(each["evidence"].get("saving"), site.told.currency),
            money(each["cost"], site.told.currency),
            each["confidence"],
        ]
    shown = {}
    for row in (each for each in panel.all_of("Tr") if each.hrefs):
        cells = [Shown(cell).text for cell in row.tree["props"]["children"]]
        shown[row.hrefs[0]] = [*cells[2:4], cells[6], *cells[8:10]]  # beside the saving: what is proposed instead
    assert shown == wanted
    assert panel.finding.startswith(f"{len(told)} finding" if told else "No finding about the size of cards.")


@EACH
def test_every_work_is_drawn_where_its_row_says(site: Site, asked: Question) -> None:
    shown = site.shown("/right-size", asked).panel("sizes")
    works = site.pages.client().get("/export/works.csv" + asked.search()).text
    rows = [
        row
        for row in csv.DictReader(works.splitlines())
        if row["peak_bytes"] and (row["sm_p95_pct"] or row["util_p95_pct"])
    ]
    wanted = sorted(
        (float(row["sm_p95_pct"] or row["util_p95_pct"]), round(float(row["peak_bytes"]) / 2**30, 1)) for row in rows
    )
    drawn = [
        point for trace in shown.figure("sizes-chart")["data"] for point in zip(trace["x"], trace["y"], strict=True)
    ]
    assert sorted(drawn) == wanted
    hours = sum(float(row["gpu_hours"]) for row in rows)
    if rows:
        assert f" of {hours:,.1f} GPU-hours" in shown.finding
        assert f" of {len(rows)}: " in shown.finding
    assert hours <= given(Spent.of(site.told.ledger(asked)["gpu_hours"])) / 3.6e6 + 1e-6


@pytest.mark.parametrize(
    "path", ["/", "/film", "/findings", "/holders", "/right-size", "/capacity", "/quality", "/gpu", "/host"]
)
@pytest.mark.parametrize("site", ["unpriced"], indirect=True)
def test_what_has_no_price_costs_an_unknown_amount_and_not_nothing(site: Site, path: str) -> None:
    told = site.told.ledger(DAYS)
    assert told["money"]["paid"] is None
    assert set(told["money"]["cost"].values()) == {None}
    gpu = site.told.report(DAYS)["findings"][0]["gpus"][0]
    host, holder = next(iter(site.told.groups(DAYS, "host"))), site.told.report(DAYS)["holders"][0]["name"]
    more = {"/gpu": {"gpu": gpu}, "/host": {"host": host}}.get(path, {})
    for shown in (site.shown(path, DAYS, **more), site.shown("/holders", DAYS, holder=holder)):
        assert not re.search(r"\d\s?(EUR|USD)", shown.text), path
        assert not re.search(r"(?<![\d.,])0\.00(?!\d)", shown.text), path
    if path == "/findings":
        assert {row["cost"] for row in grid_of(site.shown(path, DAYS))} == {None}
    if path == "/":
        rows = site.shown(path, DAYS).panel("waterfall").rows()
        assert {len(row) for row in rows} == {5}  # without a column for money
        assert "no price is known" in site.shown(path, DAYS).text
    if path == "/gpu":
        assert "per GPU-hour" not in site.shown(path, DAYS, **more).facts()


def test_the_price_of_each_pool_is_the_ledgers(site: Site) -> None:
    """Of the settings' page, whatever the window: the newest prices."""
    rows = site.shown("/settings", LONG).panel("prices").rows()
    shown = {(row[0], row[1]): row for row in rows}
    for each in site.told.ledger(LONG)["money"]["prices"]:
        row = shown.get((each["model"], each["pool"])) or shown["any model", each["pool"]]
        assert row[2] == f"{each['hourly']:,.4f} USD"
        assert row[6] == str(each["gpus"])


def test_the_reports_page_hands_out_the_numbers_of_the_command(site: Site) -> None:
    """The week of its address, with the site's prices."""
    for scope in ({}, {"pool": "train"}, {"team": "vision"}):
        flags = [each for name, value in scope.items() for each in (f"--{name}", value)]
        told = site.told.printed("report", "--format", "json", "--week", "2025-W46", *flags)
        search = Question("week", scope).search(start="2025-W46")
        assert site.pages.client().get("/report/download/json" + search).text == told
