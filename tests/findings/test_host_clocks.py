"""A host whose clock is ahead: the others' findings stay, its own take nothing back, and data quality names it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.review import Review
from analytics.decide.review import review as review_of
from analytics.ledger.summary import OTHER_HOSTS, WALL_CLOCK
from analytics.quality.model import seen_until
from analytics.quality.remarks import data_quality
from fallow.cli import main
from fallow.clock import SystemClock, format_ms
from tests.findings.conftest import FREE, HELD, HOUR, Site
from tests.ledger.recording import Recording, opened
from tests.ledger.rows import T0, fill, ms, processes, samples

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from fallow.lake import Lake

END = 12 * HOUR
"""When everybody's rows were written, on a right clock."""


def host(site: Site, name: str, *, ahead_s: float = 0, doing: dict[str, Any] = HELD, user: str | None = None) -> None:
    """A host with one GPU that did the same for twelve hours, by a clock that is so far ahead."""
    gpu, first = f"GPU-{name}", round(ahead_s)
    rows = samples(gpu, first, END + ahead_s, every_s=60, **doing)
    times = range(first, first + END, 60) if doing["process_count"] else ()
    fill(site, rows, processes(gpu, *times, every_s=60, user=user or name), host=name)


def review(site: Recording, now_s: float, until: str | None = None) -> Review:
    return review_of(*opened(site, until=until), now_ms=ms(now_s))


def held_on(found: Review, name: str) -> Finding:
    (only,) = [each for each in found.findings if each.rule == "held" and each.host == name]
    return only


@pytest.mark.parametrize(("ahead_h", "others"), [(1.5, 3), (5, 1), (24 * 300, 3)])
def test_one_clock_that_is_ahead_takes_nothing_from_the_other_hosts(
    site: Recording, ahead_h: float, others: int
) -> None:
    names = [f"h{number}" for number in range(others)]
    for name in names:
        host(site, name)
    alone = review(site, END)
    host(site, "odd", ahead_s=ahead_h * HOUR)
    beside = review(site, END)
    assert beside.context.until_ms == ms(END)
    for name in names:
        before, after = held_on(alone, name), held_on(beside, name)
        assert (before.reclaimable_gpus, before.next_command) == ((f"GPU-{name}",), f"ssh {name} kill 4711")
        assert after == before
    assert not [each for each in beside.findings if each.rule == "blind_spot" and each.host != "odd"]


def test_of_a_host_whose_clock_is_ahead_nothing_is_taken_back(site: Recording) -> None:
    """Its row of this moment was written hours ago: somebody may work there by now."""
    host(site, "h1")
    host(site, "odd", ahead_s=5 * HOUR)
    odd = held_on(review(site, END), "odd")
    assert (odd.reclaimable_gpus, odd.next_command) == ((), "")
    assert "the clock of odd is ahead, so its state at the end of the window is not known" in odd.confidence.failed
    assert odd.gpu_hours == pytest.approx(7)


def test_work_on_a_host_whose_clock_is_ahead_may_still_run(site: Recording) -> None:
    """One job on two hosts: that its part there idled by that clock does not make it safe to end here."""
    for name, ahead_s in (("h1", 0), ("odd", 5 * HOUR)):
        rows = samples(f"GPU-{name}", ahead_s, END + ahead_s, every_s=60, **HELD)
        lists = processes(f"GPU-{name}", *range(ahead_s, ahead_s + END, 60), every_s=60, slurm_job_id="7")
        fill(site, rows, lists, host=name)
    here = held_on(review(site, END), "h1")
    assert (here.reclaimable_gpus, "scancel" in here.next_command) == ((), False)


def test_free_gpus_of_a_host_whose_clock_is_ahead_are_not_handed_out(site: Recording) -> None:
    for name, ahead_s in (("h1", 0), ("odd", 5 * HOUR)):
        fill(site, samples(f"GPU-{name}", ahead_s, ahead_s + 10 * 24 * HOUR, every_s=3600, **FREE), host=name)
    never = {each.host: each for each in review(site, 10 * 24 * HOUR).findings if each.rule == "never_used"}
    assert {name: bool(each.reclaimable_gpus) for name, each in never.items()} == {"h1": True, "odd": False}


LATE = END + 400 * HOUR


@pytest.mark.parametrize(
    ("ahead_s", "now_s", "until_s", "ahead_of"),
    [
        pytest.param([0, 300], END, END + 300, None, id="some minutes are no lead"),
        pytest.param([0, 360], END, END, WALL_CLOCK, id="six minutes are"),
        pytest.param(
            [0, 0, -5 * HOUR], END - 5 * HOUR, END, None, id="where most are ahead the one that looks is behind"
        ),
        pytest.param([0], END - 5 * HOUR, END, None, id="a single host is believed"),
        # the same rows: three hosts are silent if the fourth one's newest row is of now, and it is ahead if theirs are
        pytest.param([0, 0, 0, 5 * HOUR], END + 5 * HOUR, END + 5 * HOUR, None, id="hosts that fell silent"),
        pytest.param([0, 0, 0, 5 * HOUR], END, END, WALL_CLOCK, id="one that is ahead"),
        # in a lake that nobody writes any more the bulk of the hosts decides
        pytest.param([0, 0, 5 * HOUR], LATE, END, OTHER_HOSTS, id="5 h ahead of two"),
        pytest.param([0, 0, 14 * HOUR], LATE, END, OTHER_HOSTS, id="14 h ahead of two"),
        pytest.param([0, 0, 15 * HOUR], LATE, END + 15 * HOUR, None, id="no time zone is so far ahead"),
        pytest.param([0, 5 * HOUR], LATE, END + 5 * HOUR, None, id="of two hosts nobody can say which is the odd one"),
        pytest.param([0, 0, 0.9 * HOUR], LATE, END + 0.9 * HOUR, None, id="less than an hour"),
        pytest.param([0, 3 * HOUR, 6 * HOUR, 9 * HOUR], LATE, END + 9 * HOUR, None, id="retired one after the other"),
    ],
)
def test_until_when_a_fleet_is_seen(
    site: Recording, ahead_s: list[float], now_s: float, until_s: float, ahead_of: str | None
) -> None:
    for number, each in enumerate(ahead_s):
        host(site, f"h{number}", ahead_s=each)
    found = seen_until(opened(site)[1], ms(now_s))
    odd = {} if ahead_of is None else {f"h{len(ahead_s) - 1}": ms(END + ahead_s[-1])}
    assert (found.until_ms, found.ahead, found.ahead_of if odd else None) == (ms(until_s), odd, ahead_of)


def test_a_window_that_ended_is_seen_to_its_end(site: Recording) -> None:
    host(site, "h1")
    host(site, "odd", ahead_s=5 * HOUR)
    found = review(site, END, until="2026-11-20T10:00Z")
    assert (found.context.until_ms, held_on(found, "odd").reclaimable_gpus) == (ms(10 * HOUR), ())
    assert held_on(found, "h1").reclaimable_gpus == ("GPU-h1",)


def test_data_quality_names_the_host_and_calls_nobody_else_silent(site: Recording) -> None:
    for name in ("h1", "h2"):
        host(site, name)
    host(site, "odd", ahead_s=5 * HOUR)
    inputs, ledger = opened(site)
    remarks = data_quality(inputs, ledger, ledger.whole.inventory, ms(END))
    (clock,) = [each for each in remarks if each.kind == "clock_ahead"]
    assert clock.example == "odd"
    assert clock.sentence.startswith(
        "the clock of odd is ahead: its rows go up to 2026-11-20 17:00 UTC, beyond the time on this machine; findings"
        " end with the other hosts, at 2026-11-20 12:00 UTC"
    )
    assert not [each for each in remarks if each.kind == "silent"]


def test_the_command_says_whose_clock_is_ahead(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = (SystemClock().now_ms() - T0) // 60_000 * 60
    host(lake, "h1", ahead_s=now_s - END)
    host(lake, "odd", ahead_s=now_s - END + 5 * HOUR)
    assert main(["findings", "--lake", lake.root, "--rule", "held", "--all"]) == 0
    said = capsys.readouterr().out
    assert "The clock of odd is ahead: nothing is taken back there until it is set." in " ".join(said.split())
    assert "ssh h1 kill 4711" in said
    assert main(["findings", "--lake", lake.root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window"]["until"] == format_ms(ms(now_s))
