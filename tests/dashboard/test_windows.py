"""One window and one observed share: the same words mean the same in the commands and on the pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.window import load_window_ledger
from dashboard.access.people import VIEWER, Reader
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.clock import DAY_MS, HOUR_MS, format_ms
from tests.dashboard.conftest import inputs_of
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

DAY = 86_400
END = -30 * DAY + 8 * 3600 + 330
"""T0 is later than any day on which the tests run was when they were written: a month before it, the data end."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Three hosts up to END, one of which came on the fourth of the last seven days; the clock of a fourth is an hour ahead."""
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
    assert kept.whole.stretches.sort("gpu", "time").equals(named.whole.stretches.sort("gpu", "time"))


def test_the_header_says_that_the_data_ended_long_ago(ended: Lake) -> None:
    for command in ("ledger", "findings", "report"):
        said = " ".join(run_in_process(command, "--lake", ended.root, "--since", "7d").stdout.split())
        assert "the data end" in said, command
        assert "the window counts back from there" in said, command
        named = run_in_process(command, "--lake", ended.root, "--since", "2026-10-14").stdout
        assert "the data end" not in named, command


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
    assert "72.0 GPU-hours before a host's first row or after its last are in no sum" in text
