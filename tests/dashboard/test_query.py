"""An address asks for one thing, and the same thing has one address."""

from __future__ import annotations

from datetime import UTC
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.query import SPANS, Query
from fallow.clock import DAY_MS, HOUR_MS, Window, parse_day_ms
from fallow.errors import UsageError

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
