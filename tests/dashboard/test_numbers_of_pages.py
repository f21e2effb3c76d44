"""Pages show the commands' numbers of GPUs, hosts, users, cards and capacity for one window and scope, to the digit."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from analytics.glossary import state_label
from analytics.tables.demand import gpus_by_hour
from dashboard.access.people import VIEWER, Reader
from tests.dashboard.conftest import by_id
from tests.dashboard.shown import (
    GIVEN,
    IDLE,
    UNKNOWN,
    UNUSED,
    NumbersSite,
    Question,
    Shown,
    Spent,
    long_site,
    money,
    numbers_site,
    percent,
    share,
    written,
)
from tests.dashboard.sites import ADMINISTRATOR
from tests.dashboard.test_numbers import DAYS, LONG, OF_GPUS, day, moment

POOL = Question("a pool", {**DAYS.asked, "pool": "train"})
TEAM = Question("a team", {"team": "vision"})
MODEL = Question("a model", {"model": "NVIDIA L40S"})
NOON = Question("noon", {"since": "2025-11-18T11:17Z", "until": "2025-11-18T13:04Z"})


def asking(*questions: Question) -> pytest.MarkDecorator:
    """Of several questions the first belongs to `make test`, the others to `make test-all`."""
    first, *others = questions
    asked = [
        pytest.param(first, id=first.name),
        *(pytest.param(each, id=each.name, marks=pytest.mark.long) for each in others),
    ]
    return pytest.mark.parametrize("asked", asked)


PRICES = pytest.mark.parametrize(
    ("site", "asked"),
    [
        pytest.param(prices, asked, id=f"{prices} {asked.name}", marks=() if asked is DAYS else pytest.mark.long)
        for prices, asked in [
            *(("priced", each) for each in (DAYS, LONG, POOL, TEAM, MODEL)),
            ("partly", LONG),
            ("unpriced", POOL),
        ]
    ],
    indirect=["site"],
)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NumbersSite:
    return numbers_site(tmp_path_factory.getbasetemp(), getattr(request, "param", "priced"))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> NumbersSite:
    return long_site(tmp_path_factory.getbasetemp())


@OF_GPUS
def test_the_timeline_lists_the_ledgers_figures_of_every_gpu(site: NumbersSite, asked: Question) -> None:
    spent = Spent.of(site.told.ledger(asked)["gpu_hours"])
    shown = site.shown("/timeline", asked)
    rows = shown.panel("timeline").rows()
    assert len(rows) == site.told.ledger(asked)["gpus"]
    listed = [float(row[3].replace(",", "")) for row in rows]
    assert sum(listed) == pytest.approx(spent.sum(*UNUSED) / 3.6e6, abs=0.0501 * len(rows))
    for host, own in itertools.groupby(sorted(rows, key=lambda row: row[1]), lambda row: row[1]):
        hours = Spent.of_account(site.told.groups(asked, "host")[host])
        cells = [float(row[3].replace(",", "")) for row in own]
        assert sum(cells) == pytest.approx(hours.sum(*UNUSED) / 3.6e6, abs=0.0501 * len(cells)), host
    given = None if "model" in asked.asked else site.told.recommendations(asked)["pool_demand"]
    if given is not None and given["releasable"] is not None and given["free_now"]:
        assert f"{given['release_now']} GPUs can be released now" in shown.panel("timeline").finding


@pytest.mark.parametrize(
    "scope",
    [{"pool": "train"}, *(pytest.param(each, marks=pytest.mark.long) for each in ({}, {"team": "vision"}))],
    ids=str,
)
def test_the_hours_of_the_week_are_those_of_the_ledger(site: NumbersSite, scope: dict[str, str]) -> None:
    """Nine days make one whole week: each cell is one hour of it."""
    panel = site.shown("/timeline", LONG.but(**scope)).panel("hours")
    rows = {row[0]: row[1:] for row in panel.rows()}
    drawn = panel.hints("hours-chart")
    last = datetime(2025, 11, 20, tzinfo=UTC)
    for back in range(3, 168, 29):
        start = last - timedelta(hours=back)
        hour = {"since": f"{start:%Y-%m-%dT%H:%MZ}", "until": f"{start + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
        spent = site.told.printed_ledger(LONG.but(**scope, **hour))
        cell = rows[f"{start:%a}"][start.hour]
        if spent is None or not spent.observed_ms:
            assert cell == "-"
            assert not [each for each in drawn if each[0].startswith(f"{start:%a %H:%M}:")]
            continue
        ratio = spent.sum(*UNUSED) / spent.observed_ms
        assert cell == percent(ratio, 0), start
        assert [f"{start:%a %H:%M}: {cell}"] in drawn


@OF_GPUS
def test_the_data_page_counts_as_the_report_does(site: NumbersSite, asked: Question) -> None:
    told = site.told.report(asked)
    shown = site.shown("/quality", asked)
    seen = told["observed"]
    [line] = [each.text for each in shown.all("className", "headline")]
    assert line == (
        f"{percent(seen['share'])} of the GPU time of this window was observed, over {seen['gpus']} GPUs. "
        f"The rest counts in no share: {told['ledger']['gpu_hours']['unknown']:,.1f} GPU-hours are unknown, "
        f"{seen['outside_gpu_hours']:,.1f} before a host's first row or after its last."
    )
    count = len(told["tables"]["data_quality"]["rows"])
    assert shown.panel("data_quality").finding == (
        f"{count} problem{'s' * (count != 1)}." if count else "No problem was found."
    )
    remarks = shown.panel("data_quality").text
    assert all(each["sentence"] in remarks for each in told["tables"]["data_quality"]["rows"])
    silent = shown.panel("silent").rows() if seen["silent"] else []
    assert [row[:3] for row in silent] == [
        [each["host"], str(each["gpus"]), moment(each["since"])] for each in seen["silent"]
    ]


@OF_GPUS
@pytest.mark.parametrize("group", ["day", "pool", "model", "host"])
def test_the_coverage_of_each_group_is_the_ledgers(site: NumbersSite, asked: Question, group: str) -> None:
    told = site.told.groups(asked, group)
    panel = site.shown("/quality", asked).panel(f"coverage_{group}")
    wanted = {}
    for label, each in told.items():
        spent = Spent.of_account(each)
        name = day(label) if group == "day" else label
        wanted[name] = [
            share(spent.observed_ms, spent.total_ms),
            str(each["gpus"]),
            written(spent.total_ms),
            written(spent.sum("unknown")),
        ]
    assert {row[0]: row[1:] for row in panel.rows()} == wanted
    least = min(wanted.values(), key=lambda row: float(row[0].removesuffix(" %")))[0]
    assert least in panel.finding or panel.finding == "All of the time was observed."


STATES_SAID = re.compile(
    r"([\d,.]+) of ([\d,.]+) observed GPU-hours were not used: ([\d,.]+) unallocated, ([\d,.]+) allocated but unused, "
    r"([\d,.]+) held idle, ([\d,.]+) stalled; ([\d,.]+) were busy, ([\d,.]+) at low use, ([\d,.]+) down\. "
    r"(\S+ %|unknown) of the time was observed\."
)


def states(spent: Spent) -> tuple[str, ...]:
    """What the line above a GPU's or a host's states has to say."""
    named = (
        written(spent.sum(state)) for state in ("free", "reserved", "held", "stalled", "active", "low", "unavailable")
    )
    coverage = share(spent.observed_ms, spent.total_ms)
    return written(spent.sum(*UNUSED)), written(spent.observed_ms), *named, coverage


def said(panel: Shown) -> tuple[str, ...]:
    found = STATES_SAID.fullmatch(panel.finding)
    assert found, panel.finding
    return found.groups()


def stays(shown: Shown, first: int) -> list[float]:
    """The sums of the columns of who had it, of GIVEN."""
    rows = shown.panel("stays").rows()
    return [sum(float(row[first + at].replace(",", "")) for row in rows) for at in range(len(GIVEN))]


@asking(DAYS, LONG, POOL, TEAM)
def test_a_hosts_page_is_its_row_of_the_ledger(site: NumbersSite, asked: Question) -> None:
    for host, row in site.told.groups(asked, "host").items():
        spent = Spent.of_account(row)
        shown = site.shown("/host", asked, host=host)
        assert said(shown.panel("states")) == states(spent), host
        count = len(shown.panel("stays").rows())
        if count < 100:
            wanted = [spent.sum(state) / 3.6e6 for state in GIVEN]
            assert stays(shown, 5) == pytest.approx(wanted, abs=0.0501 * max(1, count)), host


@asking(DAYS, LONG, NOON)
def test_a_gpus_page_equals_the_ledger_of_a_pool_with_that_gpu(site: NumbersSite, asked: Question) -> None:
    own = asked.but(pool="legacy")
    told = site.told.ledger(own)
    assert told["gpus"] == 1
    [gpu] = {href.split("gpu=")[1] for href in site.shown("/timeline", own).hrefs if href.startswith("/gpu")}
    shown = site.shown("/gpu", asked, gpu=gpu)
    spent = Spent.of(told["gpu_hours"])
    assert said(shown.panel("states")) == states(spent)
    count = len(shown.panel("stays").rows()) if shown.panel("stays").tree["props"]["children"][3:] else 0
    if count and count < 100:
        assert stays(shown, 4) == pytest.approx([spent.sum(state) / 3.6e6 for state in GIVEN], abs=0.0501 * count)
    [price] = told["money"]["prices"]
    assert shown.facts()["per GPU-hour"].startswith(f"{price['hourly']:,.2f} USD")
    about = [each for each in site.told.report(asked)["findings"] if gpu in each["gpus"]]
    hours = [written(each["gpu_hours"] * 3.6e6) for each in about]
    assert [row[5] for row in shown.panel("findings").rows()] == hours


def at_once(site: NumbersSite, asked: Question) -> pl.DataFrame:
    """The most GPUs at once in each hour, of the same ledger that the page has."""
    return gpus_by_hour(site.view(asked.search(), ADMINISTRATOR).report)


def reached(levels: Sequence[float], level: float) -> int:
    return sum(each >= level for each in levels)


@asking(DAYS, POOL, Question("a model", {**DAYS.asked, "model": "NVIDIA L40S"}))
def test_the_hours_add_up_to_the_ledger(site: NumbersSite, asked: Question) -> None:
    told = site.told.ledger(asked)
    spent, hours = Spent.of(told["gpu_hours"]), at_once(site, asked)
    since, until = (datetime.fromisoformat(told["window"][name]) for name in ("since", "until"))
    assert hours.height == (until - since).total_seconds() // 3600
    assert set(hours["there"]) == {float(told["gpus"])}
    assert hours["there"].sum() == pytest.approx(spent.total_ms / 3.6e6, rel=1e-6)
    # the most in an hour is no less than its mean, and unobserved time may add to it
    assert hours["allocated"].sum() >= spent.sum(*GIVEN) / 3.6e6 - 1e-6
    assert hours["working"].sum() >= spent.sum("active", "low") / 3.6e6 - 1e-6
    assert hours["allocated_or_unknown"].sum() >= spent.sum(*GIVEN, "unknown") / 3.6e6 - 1e-6


@asking(DAYS, POOL, Question("a model", {**DAYS.asked, "model": "NVIDIA L40S"}))
def test_the_curve_and_its_table_count_those_hours(site: NumbersSite, asked: Question) -> None:
    hours = at_once(site, asked)
    panel = site.shown("/capacity", asked).panel("demand")
    levels = {name: hours[name].to_list() for name in ("allocated", "working")}
    most = [f"{max(levels[name]):.0f}" for name in levels]
    assert panel.finding == (
        f"At most {most[0]} of {max(hours['there']):.0f} GPUs were allocated at once, and at most {most[1]} were busy."
    )
    lines = ("allocated", "busy")
    for name, own in zip(lines, levels.values(), strict=True):
        steps = [(100 * reached(own, each) / len(own), each) for each in sorted(set(own), reverse=True)]
        shown = [
            (at, line) for at, *said in panel.hints("demand-chart") for line in said if line.startswith(f"{name}: ")
        ]
        assert shown == [
            (percent(at / 100), f"{name}: {each:,.1f} GPUs at once") for at, each in [(0.0, max(own)), *steps]
        ]
    wanted = sorted({each for own in levels.values() for each in own}, reverse=True)
    assert panel.rows() == [[f"{each:.0f}", *(str(reached(own, each)) for own in levels.values())] for each in wanted]


WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@pytest.mark.long
@pytest.mark.parametrize("narrowed", [False, True], ids=["all pools", "one pool"])
def test_off_peak_hours_are_the_reports(long: NumbersSite, *, narrowed: bool) -> None:
    asked = Question("a week", {"since": "2025-11-13"})
    if narrowed:
        asked = asked.but(pool=long.told.report(asked)["off_peak"][0]["pool"])
    told = long.told.report(asked)["off_peak"]
    assert told
    panel = long.shown("/capacity", asked).panel("off_peak")

    def hour(weekday: int, number: int) -> str:
        return f"{WEEKDAYS[(weekday + number // 24) % 7]} {number % 24:02}:00"

    wanted = [
        [each["pool"], hour(each["weekday"], each["from_hour"]), hour(each["weekday"], each["until_hour"]),
         str(each["gpus"]), str(each["weeks"])]
        for each in sorted(told, key=lambda each: -each["gpus"] * (each["until_hour"] - each["from_hour"]))
    ]  # fmt: skip
    assert panel.rows() == wanted
    shown = Counter(each for [each] in panel.hints("off_peak-chart"))
    assert shown == Counter(
        f"{hour(each['weekday'], start)}: {each['gpus']} GPU"
        for each in told
        for start in (each["from_hour"], *range(24, each["until_hour"], 24))
    )


def test_what_takes_four_weeks_is_not_known_of_nine_days(site: NumbersSite) -> None:
    assert site.told.report(DAYS)["off_peak"] == []
    assert site.shown("/capacity", DAYS).panel("off_peak").finding == (
        "Not known: 4 weeks are needed, and the lake has 1.3 before the end of the window."
    )


def given(spent: Spent) -> int:
    return spent.sum(*GIVEN)


def effective_and_low(row: dict[str, Any]) -> tuple[float, float]:
    """Return a user's effective milliseconds (efficiency times allocated time), and the low time that is not."""
    spent = Spent.of_account(row)
    effective_ms = (row["efficiency"] or 0.0) * given(spent)
    return effective_ms, spent.sum("active", "low") - effective_ms


def named(rows: Iterable[list[str]], names: Iterable[str]) -> dict[str, list[str]]:
    """Return rows by user; a team follows the user's name."""
    order = sorted(names, key=len, reverse=True)
    return {next(name for name in order if row[0].startswith(name)): row for row in rows}


@PRICES
@pytest.mark.parametrize("group", ["team", "user"])
def test_who_was_given_what_is_the_ledgers(site: NumbersSite, asked: Question, group: str) -> None:
    if group == "team" and asked.is_personal:
        assert not site.shown("/users", asked).has_panel("teams")
        return
    told = {name: row for name, row in site.told.groups(asked, group).items() if given(Spent.of_account(row))}
    ranks = {each["label"]: each for each in site.told.report(asked)[f"{group}s"]}
    panel = site.shown("/users", asked).panel(f"{group}s")
    rows = named(panel.rows(), told)
    heads = panel.heads
    at = heads.index("GPU-hours")
    is_measured = any(row["peak_share_high"] is not None for row in told.values())
    assert ("share of peak" in heads, "busy without tensor cores" in heads) == (is_measured, is_measured)
    is_unpriced = site.told.ledger(asked)["money"]["paid"] is None
    assert rows.keys() == told.keys()
    most_ms = max(given(Spent.of_account(row)) for row in told.values())
    lengths = dict(zip(rows, panel.all("className", "lengths"), strict=True))
    for name, row in told.items():
        spent, rank = Spent.of_account(row), ranks[name]
        place = "" if rank["rank_efficiency"] is None else f"{rank['rank_efficiency']}/{rank['rank_efficiency_of']}"
        effective_ms, low_ms = effective_and_low(row)
        cost = UNKNOWN if row["paid"] is None else f"{row['paid']:,.2f}"
        peak, without_tensor = share_of_peak(row), percent(row["without_tensor_share"])
        shown = dict(zip(heads[at:], rows[name][at:], strict=True))
        assert shown.pop("rank").partition(" ")[0] == place
        assert shown == {
            "GPU-hours": written(given(spent)),
            "effective": written(effective_ms),
            state_label("low"): written(low_ms),
            **{state_label(state): written(spent.sum(state)) for state in IDLE},
            "efficiency": percent(row["efficiency"]),
            **({"share of peak": peak, "busy without tensor cores": without_tensor} if is_measured else {}),
            **({} if is_unpriced else {f"cost, {site.told.currency}": cost}),
        }, name
        drawn = [each["props"]["style"]["width"] for each in lengths[name].tree["props"]["children"]]
        parts = (effective_ms, low_ms, *map(spent.sum, IDLE))
        widths = [float(each.rstrip("%")) for each in drawn]
        assert widths == pytest.approx([100 * part / most_ms for part in parts if part], abs=0.006), name
    assert list(rows) == sorted(rows, key=lambda name: (-given(Spent.of_account(told[name])), name))
    every = Spent.together(Spent.of_account(row) for row in told.values())
    assert panel.finding.startswith(f"{share(every.sum(*IDLE), given(every))} of {written(given(every))} ")
    lost = {name: Spent.of_account(row).sum(*IDLE) for name, row in told.items()}
    most = max(lost, key=lost.__getitem__)
    assert panel.finding.endswith(f" {most} has the most, {written(lost[most])} GPU-hours.")


def share_of_peak(row: dict[str, Any]) -> str:
    """Both bounds as pages write them."""
    if row["peak_share_by"] is None:
        return UNKNOWN if row["peak_share_high"] is None else f"up to {percent(row['peak_share_high'], 0)}"
    limit = {"tensor": "tensor cores", "dram": "memory bandwidth"}[row["peak_share_by"]]
    return f"{percent(row['peak_share_low'], 0)} ({limit}) to {percent(row['peak_share_high'], 0)}"


@PRICES
def test_one_users_page_is_their_row_and_their_jobs_add_up_to_it(site: NumbersSite, asked: Question) -> None:
    told = site.told.groups(asked, "user")
    report = site.told.report(asked)
    for person in report["users"][:3]:
        name, row = person["name"], told[person["label"]]
        spent = Spent.of_account(row)
        shown = site.shown("/users", asked, user=name)
        facts = shown.facts()
        effective_ms, low_ms = effective_and_low(row)
        assert facts["GPU-hours allocated"] == written(given(spent))
        assert (facts["effective"], facts["low, unused"]) == (written(effective_ms), written(low_ms))
        assert {state: facts[state_label(state)] for state in IDLE} == {
            state: written(spent.sum(state)) for state in IDLE
        }
        assert facts["efficiency"].split(",")[0] == percent(row["efficiency"])
        assert facts.get("share of peak", UNKNOWN) == share_of_peak(row)
        assert facts["cost"] == money(row["paid"], site.told.currency)
        panel = shown.panel("jobs")
        jobs = [dict(zip(panel.heads, job, strict=True)) for job in panel.rows()]
        of_states = {"GPU-hours allocated": GIVEN, "used": ("active", "low")} | {
            state_label(state): (state,) for state in IDLE
        }
        for column, states in of_states.items():
            sums = sum(float(job[column].replace(",", "")) for job in jobs)
            assert sums == pytest.approx(spent.sum(*states) / 3.6e6, abs=0.0501 * len(jobs)), (name, column)
        costs = [job["cost"] for job in jobs]
        if row["paid"] is None:
            assert set(costs) == {UNKNOWN}
        elif UNKNOWN not in costs:
            paid = sum(float(each.split()[0].replace(",", "")) for each in costs)
            assert paid == pytest.approx(row["paid"], abs=0.0051 * len(jobs) + 0.02)
        about = [each for each in report["findings"] if name in (each["user"] or "").split("+")]
        assert shown.panel("about").finding.startswith(f"{len(about)} finding" if about else "No finding")


def test_a_finding_in_full_has_its_numbers(site: NumbersSite) -> None:
    for each in site.told.report(DAYS)["findings"][:8]:
        detail = site.shown("/findings", DAYS, finding=each["finding_id"]).all("id", "finding-detail")[0].facts()
        assert detail["GPU-hours"] == written(each["gpu_hours"] * 3.6e6)
        assert detail["cost"] == money(each["cost"], "USD")
        energy = each["energy_kwh"]
        assert detail["energy"] == (UNKNOWN if energy is None else f"{energy:,.1f} kWh")
        assert detail["confidence"].split(",")[0] == each["confidence"]


@PRICES
def test_what_could_move_is_what_the_findings_say(site: NumbersSite, asked: Question) -> None:
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
    assert panel.finding.startswith(f"{len(told)} finding" if told else "No finding is about the size of cards.")


@asking(DAYS, LONG, POOL, TEAM, MODEL)
def test_every_workload_is_drawn_at_the_figures_of_its_row(site: NumbersSite, asked: Question) -> None:
    shown = site.shown("/right-size", asked).panel("sizes")
    workloads = site.client().get("/export/workloads.csv" + asked.search()).text
    rows = [
        row
        for row in csv.DictReader(workloads.splitlines())
        if row["peak_bytes"] and (row["sm_p95_pct"] or row["util_p95_pct"])
    ]
    wanted = sorted(
        (f"{float(row['peak_bytes']) / 2**30:,.1f} GiB", percent(float(row["sm_p95_pct"] or row["util_p95_pct"]) / 100))
        for row in rows
    )
    drawn = [tuple(each[-3:-1]) for each in shown.hints("sizes-chart")] if rows else []
    assert sorted(drawn) == wanted
    hours = sum(float(row["gpu_hours"]) for row in rows)
    if rows:
        assert f" of {hours:,.1f} GPU-hours" in shown.finding
        assert f" of {len(rows)} workload" in shown.finding
    assert hours <= given(Spent.of(site.told.ledger(asked)["gpu_hours"])) / 3.6e6 + 1e-6


@pytest.mark.parametrize(
    "path", ["/", "/timeline", "/findings", "/users", "/right-size", "/capacity", "/quality", "/gpu", "/host"]
)
@pytest.mark.parametrize("site", ["unpriced"], indirect=True)
def test_what_has_no_price_costs_an_unknown_amount_and_not_nothing(site: NumbersSite, path: str) -> None:
    told = site.told.ledger(DAYS)
    assert told["money"]["paid"] is None
    assert set(told["money"]["cost"].values()) == {None}
    gpu = site.told.report(DAYS)["findings"][0]["gpus"][0]
    host, user = next(iter(site.told.groups(DAYS, "host"))), site.told.report(DAYS)["users"][0]["name"]
    more = {"/gpu": {"gpu": gpu}, "/host": {"host": host}}.get(path, {})
    for shown in (site.shown(path, DAYS, **more), site.shown("/users", DAYS, user=user)):
        assert not re.search(r"\d\s?(EUR|USD)", shown.text), path
        assert not re.search(r"(?<![\d.,])0\.00(?!\d)", shown.text), path
    if path == "/findings":
        assert {row["cost"] for row in by_id(site.shown(path, DAYS).tree, "findings-grid")["rowData"]} == {None}
    if path == "/":
        rows = site.shown(path, DAYS).panel("waterfall").rows()
        assert {len(row) for row in rows} == {5}  # without a column for money
        assert "no price is known" in site.shown(path, DAYS).text
    if path == "/gpu":
        assert "per GPU-hour" not in site.shown(path, DAYS, **more).facts()


def cells(rows: Sequence[Sequence[str]], name: str) -> list[str]:
    return next(list(row[1:]) for row in rows if row[0].startswith(name))


def test_the_time_just_before_is_the_first_choice(site: NumbersSite) -> None:
    shown = site.shown("/compare", DAYS)
    assert [each.text for each in shown.all("className", "here")] == ["the window before"]
    assert any("against=13w" in href for href in shown.hrefs)
    panel = shown.panel("comparison")
    assert "The other: 14 Nov 2025, 00:00 UTC to 17 Nov 2025, 00:00 UTC." in shown.text
    paid = cells(panel.rows(), "paid (USD)")
    tiles = site.shown("/", DAYS).panel("waterfall").text
    assert paid[0] in tiles
    # one host was not observed on the 15th: its pool is not compared, unlike the fleet
    pools = {row[0]: row[1:] for row in shown.panel("pools_compared").rows()}
    assert pools["train-old"][2] == "not compared"
    assert pools["train"][2].endswith("points")


def test_any_days_are_a_choice(site: NumbersSite) -> None:
    shown = site.shown("/compare", DAYS, against="2025-11-16..2025-11-16")
    assert [each.text for each in shown.all("className", "here")] == ["2025-11-16 - 2025-11-16"]
    assert "The windows differ in length" in shown.text
    assert cells(shown.panel("comparison").rows(), "waste")[2] == "not compared"


def test_a_reader_of_one_team_compares_that_team(site: NumbersSite) -> None:
    text = site.shown("/compare", DAYS, Reader("vic", VIEWER, "vision")).text
    assert "cost of free time" not in text
    assert "efficiency" in text
