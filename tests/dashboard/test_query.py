"""An address asks for one thing, and the same thing has one address."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.window import load_window_ledger
from dashboard.access.people import VIEWER, Reader
from dashboard.query import SPANS, Query
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, Window, format_ms, parse_day_ms
from fallow.errors import UsageError
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, samples

TEXTS = st.text(max_size=40)


@given(pool=TEXTS, model=TEXTS, team=TEXTS, span=st.sampled_from(["", *SPANS]), lang=st.sampled_from(["", "en", "fr"]))
def test_what_is_asked_comes_back_from_the_address(pool: str, model: str, team: str, span: str, lang: str) -> None:
    query = Query(span=span, pool=pool, model=model, team=team, lang=lang)
    assert Query.parse(query.search) == query


def test_nothing_asked_is_no_search() -> None:
    assert Query().search == ""
    assert Query.parse("") == Query.parse(None) == Query.parse("?") == Query()


def test_what_is_not_known_is_left_out() -> None:
    assert Query.parse("?utm_source=chat&span=24h&") == Query(span="24h")


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("?span=9y", "'9y' is not a valid window"),
        ("?lang=tlh", "'tlh' is not a language of these pages"),
        ("?zone=../../etc/passwd", "is not a time zone"),
        ("?zone=Mars/Olympus", "is not a time zone"),
        ("?zone=localtime", "is not a time zone"),
        ("?zone=posixrules", "is not a time zone"),
        ("?zone=right/UTC", "is not a time zone"),
        ("?since=yesterdayish", "yesterdayish"),
        ("?since=2026-11-20&until=2026-11-01", "is not before"),
        ("?pool=" + "x" * 301, "too long"),
        ("?first=2026-W47", "'2026-W47' is not a day"),
        ("?last=9999-01-01", "'9999-01-01' is not a day"),
        ("?first=1971-01-02&last=9000-12-30", "'9000-12-30' is not a day"),
        ("?since=1971-01-02&until=9000-01-01", "'9000-01-01' is not in the years"),
        ("?first=2026-11-20&last=2026-11-01", "is after the last"),
        ("?against=yesterday", "is not what a window can be compared with|is not a day"),
        ("?against=2026-11-01..", "is not what a window can be compared with"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(search: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", "[?]")) as caught:
        Query.parse(search)
    assert caught.value.hint


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/Argentina/Ushuaia", "Asia/Kathmandu", "Etc/GMT+12"])
def test_a_time_zone_is_one(zone: str) -> None:
    assert Query.parse(f"?zone={quote(zone)}").zone == zone


def test_the_window_ends_with_the_newest_row_unless_days_are_named() -> None:
    newest_ms = 100 * DAY_MS
    assert Query().window(newest_ms, UTC) == Window(93 * DAY_MS, None)
    assert Query(span="all").window(newest_ms, UTC) == Window(None, None)
    assert Query(since="3d").window(newest_ms, UTC) == Window(97 * DAY_MS, None), "as the command's --since"
    days = Query(span="24h", since="2026-11-01", until="2026-11-02").window(newest_ms, UTC)
    assert (days.until_ms or 0) - (days.since_ms or 0) == 2 * DAY_MS


def test_what_a_page_is_about_does_not_go_along_to_the_next() -> None:
    query = Query(span="24h", pool="train", zone="Europe/Paris", lang="fr", gpu="GPU-1", sort="waste", start="5")
    assert query.on_every_page == Query(span="24h", pool="train", zone="Europe/Paris", lang="fr")


def test_days_are_whole_and_inclusive_in_the_readers_zone() -> None:
    paris = ZoneInfo("Europe/Paris")
    october = Query.parse("?first=2026-10-25&last=2026-10-25").window(0, paris)  # clocks go back that day
    assert october == Window(parse_day_ms("2026-10-24") + 22 * HOUR_MS, parse_day_ms("2026-10-25") + 23 * HOUR_MS)
    assert Query(first="2026-10-25").window(0, UTC) == Window(parse_day_ms("2026-10-25"), None)
    assert Query(last="2026-10-25", span="24h").window(0, UTC) == Window(None, parse_day_ms("2026-10-26"))
    assert Query(first="2026-10-25").on_every_page.first == "2026-10-25"


def test_moments_are_rounded_outward_to_ten_seconds_so_that_readers_who_mean_the_same_share_a_window() -> None:
    end_ms = parse_day_ms("2026-11-20")
    window = Query(since="2026-11-18T10:00:01Z", until="2026-11-18T11:59:51Z").window(end_ms, UTC)
    assert window == Query(since="2026-11-18T10:00Z", until="2026-11-18T12:00Z").window(end_ms, UTC)
    assert Query(since="90s").window(end_ms + 1, UTC).since_ms == end_ms + 1 - 90_000  # as the commands count it


DAY = 86_400
END = -30 * DAY + 8 * 3600 + 330
"""T0 is later than any day on which the tests run was when they were written: a month before it, the data end."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three hosts up to END, one from the fourth of the last seven days on; a fourth host's clock is an hour ahead."""
    lake = made_lake(tmp_path_factory.mktemp("ended") / "lake")
    starts = {"h1": END - 9 * DAY, "h2": END - 9 * DAY, "h3": END - 4 * DAY, "odd": END - 9 * DAY}
    for host, start in starts.items():
        last = END + 3600 if host == "odd" else END
        gpu = f"GPU-{host}"
        fill(lake, samples(gpu, start, last, every_s=30), devices=[device(gpu, time=ms(start))], host=host)
    return lake


def view_of(lake: Lake, **asked: str) -> View:
    found = LakeSource(lambda: inputs_of(lake)).look(Query(**asked), Reader("", VIEWER))
    assert isinstance(found, View)
    return found


def told(*arguments: str) -> Any:
    done = run_in_process(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("span", "days"), [("7d", 7), pytest.param("24h", 1, marks=pytest.mark.long)])
def test_a_span_ends_with_the_data_everywhere(ended: Lake, span: str, days: int) -> None:
    since_ms = ms(END) - days * DAY_MS
    view = view_of(ended, span=span)
    assert view.report.ledger.summary.since_ms == view_of(ended, since=span).report.ledger.summary.since_ms == since_ms
    flags = ("--lake", ended.root, "--since", span)
    ledger = told("ledger", *flags, "--json")
    findings = told("findings", *flags, "--json")
    report = told("report", *flags, "--format", "json")
    assert {each["window"]["since"] for each in (ledger, findings, report["ledger"])} == {format_ms(since_ms)}
    hours = view.report.ledger.summary.totals.total_ms / HOUR_MS
    assert ledger["gpu_hours"]["total"] == report["ledger"]["gpu_hours"]["total"] == hours


def test_a_kept_ledger_is_read_for_the_same_window_as_a_new_one(ended: Lake) -> None:
    new = load_window_ledger(inputs_of(ended, since="7d"))
    kept = load_window_ledger(inputs_of(ended, since="7d"))
    named = load_window_ledger(inputs_of(ended, since=format_ms(ms(END) - 7 * DAY_MS)))
    assert new.window == kept.window == named.window
    assert new.summary == kept.summary == named.summary
    assert kept.whole.segments.sort("gpu", "time").equals(named.whole.segments.sort("gpu", "time"))


def test_the_header_shows_that_the_data_ended_long_ago(ended: Lake) -> None:
    for command in ("ledger", "findings", "report"):
        said = " ".join(run_in_process(command, "--lake", ended.root, "--since", "7d").stdout.split())
        assert "d old (2026-10-21 08:05 UTC): the window counts back from that moment" in said, command
        named = run_in_process(command, "--lake", ended.root, "--since", "2026-10-14").stdout
        assert "the newest data are" not in named, command


def test_one_share_is_called_observed(ended: Lake) -> None:
    """The host that came later was not observed before; no sum has that time, so that the sums know all of theirs."""
    since = format_ms(ms(END) - 7 * DAY_MS)
    ledger = told("ledger", "--lake", ended.root, "--since", since, "--json")
    report = told("report", "--lake", ended.root, "--since", since, "--format", "json")
    seen = view_of(ended, since=since).report.ledger.seen
    assert ledger["coverage"] == report["observed"]["share"] == report["ledger"]["coverage"] == seen.share
    assert seen.share == pytest.approx(25 / 28, abs=0.01)
    assert (ledger["known_share"], round(seen.outside_ms / DAY_MS, 1)) == (1.0, 3.0)
    text = " ".join(run_in_process("report", "--lake", ended.root, "--since", since).stdout.split())
    assert "no sum includes 72.0 GPU-hours before a host's first row or after its last" in text
