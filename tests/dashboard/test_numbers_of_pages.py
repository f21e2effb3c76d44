"""What the pages say of GPUs, hosts and their time is what the commands say of the same window and scope, digit by digit."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.dashboard.shown import Shown, Site, priced_site
from tests.dashboard.test_numbers import DAYS, LONG, OF_GPUS, day, moment
from tests.dashboard.told import GIVEN, UNUSED, Question, Spent, percent, share, written

pytestmark = pytest.mark.long

POOL = Question("a pool", {**DAYS.asked, "pool": "train"})
TEAM = Question("a team", {"team": "vision"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return priced_site(tmp_path_factory.getbasetemp())


@OF_GPUS
def test_the_film_strip_lists_what_the_ledger_says_of_each_gpu(site: Site, asked: Question) -> None:
    spent = Spent.of(site.told.ledger(asked)["gpu_hours"])
    shown = site.shown("/film", asked)
    rows = shown.panel("film").rows()
    assert len(rows) == site.told.ledger(asked)["gpus"]
    listed = [float(row[3].replace(",", "")) for row in rows]
    assert sum(listed) == pytest.approx(spent.sum(*UNUSED) / 3.6e6, abs=0.0501 * len(rows))
    for host, own in itertools.groupby(sorted(rows, key=lambda row: row[1]), lambda row: row[1]):
        hours = Spent.of_account(site.told.groups(asked, "host")[host])
        cells = [float(row[3].replace(",", "")) for row in own]
        assert sum(cells) == pytest.approx(hours.sum(*UNUSED) / 3.6e6, abs=0.0501 * len(cells)), host
    given = None if "model" in asked.asked else site.told.recommendations(asked)["reclaimable"]
    if given is not None and given["safe"] is not None and given["idle_now"]:
        assert f"{given['safe']} safe to give back" in shown.panel("film").finding


@pytest.mark.parametrize("scope", [{}, {"pool": "train"}, {"team": "vision"}], ids=str)
def test_the_hours_of_the_week_are_those_of_the_ledger(site: Site, scope: dict[str, str]) -> None:
    """Nine days make one whole week: each cell is one hour of it."""
    panel = site.shown("/film", LONG.but(**scope)).panel("hours")
    rows = {row[0]: row[1:] for row in panel.rows()}
    drawn = panel.figure("hours-chart")["data"][0]
    last = datetime(2025, 11, 20, tzinfo=UTC)
    for back in range(3, 168, 29):
        start = last - timedelta(hours=back)
        hour = {"since": f"{start:%Y-%m-%dT%H:%MZ}", "until": f"{start + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
        spent = site.told.printed_ledger(LONG.but(**scope, **hour))
        cell = rows[f"{start:%a}"][start.hour]
        if spent is None or not spent.observed_ms:
            assert cell == "-"
            continue
        ratio = spent.sum(*UNUSED) / spent.observed_ms
        assert cell == percent(ratio, 0), start
        assert drawn["z"][start.weekday()][start.hour] == pytest.approx(ratio, abs=6e-5)


@OF_GPUS
def test_the_data_page_counts_as_the_report_does(site: Site, asked: Question) -> None:
    told = site.told.report(asked)
    shown = site.shown("/quality", asked)
    seen = told["observed"]
    [line] = [each.text for each in shown.all("className", "headline")]
    assert line == (
        f"{percent(seen['share'])} of the GPU time of this window was observed, over {seen['gpus']} GPUs. "
        f"The rest counts in no share: {told['ledger']['gpu_hours']['unknown']:,.1f} GPU-hours are unknown, "
        f"{seen['outside_gpu_hours']:,.1f} before a host's first row or after its last."
    )
    count = len(told["tables"]["data-quality"]["rows"])
    assert shown.panel("data-quality").finding == (
        f"{count} remark{'s' * (count != 1)}." if count else "Nothing to remark."
    )
    remarks = shown.panel("data-quality").text
    assert all(each["sentence"] in remarks for each in told["tables"]["data-quality"]["rows"])
    silent = shown.panel("silent").rows() if seen["silent"] else []
    assert [row[:3] for row in silent] == [
        [each["host"], str(each["gpus"]), moment(each["since"])] for each in seen["silent"]
    ]


@OF_GPUS
@pytest.mark.parametrize("group", ["day", "pool", "model", "host"])
def test_the_coverage_of_each_group_is_the_ledgers(site: Site, asked: Question, group: str) -> None:
    told = site.told.groups(asked, group)
    panel = site.shown("/quality", asked).panel(f"coverage-{group}")
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
    assert least in panel.finding or panel.finding == "All of it was observed."


STATES_SAID = re.compile(
    r"([\d,.]+) of ([\d,.]+) observed GPU-hours went unused: ([\d,.]+) free, ([\d,.]+) reserved, ([\d,.]+) held; "
    r"([\d,.]+) were active, ([\d,.]+) at low use, ([\d,.]+) unavailable\. (\S+ %|unknown) of the time was observed\."
)


def states(spent: Spent) -> tuple[str, ...]:
    """What the line above a GPU's or a host's states has to say."""
    named = (written(spent.sum(state)) for state in ("free", "reserved", "held", "active", "low", "unavailable"))
    coverage = share(spent.observed_ms, spent.total_ms)
    return written(spent.sum(*UNUSED)), written(spent.observed_ms), *named, coverage


def said(panel: Shown) -> tuple[str, ...]:
    found = STATES_SAID.fullmatch(panel.finding)
    assert found, panel.finding
    return found.groups()


def stays(shown: Shown, first: int) -> list[float]:
    """The sums of the columns of who had it: active, low, held, reserved."""
    rows = shown.panel("stays").rows()
    return [sum(float(row[first + at].replace(",", "")) for row in rows) for at in range(len(GIVEN))]


@pytest.mark.parametrize("asked", [LONG, DAYS, POOL, TEAM], ids=lambda each: each.name)
def test_a_hosts_page_is_its_row_of_the_ledger(site: Site, asked: Question) -> None:
    for host, row in site.told.groups(asked, "host").items():
        spent = Spent.of_account(row)
        shown = site.shown("/host", asked, host=host)
        assert said(shown.panel("states")) == states(spent), host
        count = len(shown.panel("stays").rows())
        if count < 100:
            wanted = [spent.sum(state) / 3.6e6 for state in GIVEN]
            assert stays(shown, 5) == pytest.approx(wanted, abs=0.0501 * max(1, count)), host


@pytest.mark.parametrize(
    "asked", [LONG, DAYS, Question("noon", {"since": "2025-11-18T11:17Z", "until": "2025-11-18T13:04Z"})]
)
def test_a_gpus_page_is_what_the_ledger_says_of_a_pool_with_that_one(site: Site, asked: Question) -> None:
    own = asked.but(pool="legacy")
    told = site.told.ledger(own)
    assert told["gpus"] == 1
    [gpu] = {href.split("gpu=")[1] for href in site.shown("/film", own).hrefs if href.startswith("/gpu")}
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
