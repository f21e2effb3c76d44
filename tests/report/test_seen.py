"""Time that nobody saw: how much of the week was observed, who fell silent since when, and what is not concluded from it."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from analytics.report.weeks import week_of
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, processes, samples
from tests.report.conftest import DAY, HOUR
from tests.report.test_schema import faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

WEEK_S = 7 * DAY
MONDAY = -4 * DAY - 70 * WEEK_S
"""T0 is a Friday; so far back no week is running whenever the tests run."""
WEEK = week_of(ms(MONDAY), UTC)
THIS, NEXT, LAST = WEEK.label, WEEK.before(-1).label, WEEK.before(1).label
START, END = MONDAY - 2 * WEEK_S, MONDAY + 2 * WEEK_S


def of(gpu: str, first_s: float, last_s: float, user: str | None = "ann", **values: Any) -> tuple[list[Any], list[Any]]:
    """A GPU that a process holds without a kernel, or that nobody has."""
    rows = samples(gpu, first_s, last_s, every_s=1200, process_count=0 if user is None else 1, **values)
    lists = [] if user is None else processes(gpu, *range(int(first_s), int(last_s), 1200), user=user, every_s=1200)
    return rows, lists


def host(lake: Lake, name: str, *gpus: tuple[list[Any], list[Any]], pool: str = "train") -> Lake:
    devices = [device(rows[0]["gpu"], pool=pool, time=ms(START)) for rows, _ in gpus]
    return fill(lake, [row for rows, _ in gpus for row in rows], [row for _, lists in gpus for row in lists], devices=devices, host=name)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    def new(name: str) -> Lake:
        return made_lake(tmp_path_factory.mktemp(name) / "lake")

    return new


@pytest.fixture(scope="module")
def dies(made: Callable[[str], Lake]) -> Lake:
    """Every GPU is silent from Wednesday on."""
    end = MONDAY + 2 * DAY
    return host(made("dies"), "h1", of("GPU-0", START, end), of("GPU-1", START, end))


@pytest.fixture(scope="module")
def gone(made: Callable[[str], Lake]) -> Lake:
    """h2 fell silent an hour before the week."""
    lake = host(made("gone"), "h1", of("GPU-1", START, END, "zoe"))
    return host(lake, "h2", of("GPU-2", START, MONDAY - HOUR))


@pytest.fixture(scope="module")
def part(made: Callable[[str], Lake]) -> Lake:
    """The only GPU of the pool p2, which ann holds, is silent from Wednesday on; zoe's is not."""
    lake = host(made("part"), "h1", of("GPU-1", START, END, "zoe"))
    return host(lake, "h2", of("GPU-2", START, MONDAY + 2 * DAY), pool="p2")


@pytest.fixture(scope="module")
def outage(made: Callable[[str], Lake]) -> Lake:
    """Nobody looked for the last five days of the week before."""
    lake = host(made("outage"), "h1", of("GPU-1", START, MONDAY - 5 * DAY))
    return host(lake, "h1", of("GPU-1", MONDAY, END))


def plain(done: Outcome) -> str:
    assert (done.code, done.err) == (0, "")
    return " ".join(done.out.split())


def told(done: Outcome) -> Any:
    assert (done.code, done.err) == (0, "")
    content = json.loads(done.out)
    assert faults(content) == []
    return content


def day(number: int) -> str:
    """A day of the week, the first is 0, as the text has it."""
    return WEEK.monday.fromordinal(WEEK.monday.toordinal() + number).isoformat()


def test_a_fleet_that_fell_silent_was_observed_for_a_part_of_the_week(
    dies: Lake, report: Callable[..., Outcome]
) -> None:
    text = plain(report(dies, "--week", THIS))
    assert f"window {day(0)} 00:00 UTC to {day(7)} 00:00 UTC" in text
    assert "observed 28.6 % of the time" in text
    assert f"silent h1 since {day(2)} 00:00 UTC: the time after that is in no sum" in text
    assert (
        f"Whether a GPU can be given back is not known: nothing was seen after {day(2)} 00:00 UTC. No decision is known"
        in text
    )
    assert "idle now" not in text.replace("pool model GPUs idle now", "")


def test_the_observed_share_is_of_the_week_and_the_sums_are_those_of_the_ledger(
    dies: Lake, report: Callable[..., Outcome]
) -> None:
    content = told(report(dies, "--week", THIS, "--format", "json"))
    seen = content["observed"]
    assert (seen["since"], seen["until"]) == (f"{day(0)}T00:00:00Z", f"{day(7)}T00:00:00Z")
    assert (seen["gpus"], seen["observed_gpu_hours"], seen["unseen_gpu_hours"]) == (2, 96.0, 240.0)
    assert seen["share"] == pytest.approx(2 / 7)
    assert seen["silent"] == [{"host": "h1", "gpus": 2, "since": f"{day(2)}T00:00:00Z", "whole_host": True}]
    window = ("--since", day(0), "--until", day(6))
    ledger = json.loads(report(dies, *window, "--json", command="ledger").out)
    assert content["ledger"]["gpu_hours"] == ledger["gpu_hours"]
    assert content["trends"]["observed"]["now"] == pytest.approx(2 / 7)


def test_a_week_of_a_dead_fleet_is_empty_and_says_who_is_silent(dies: Lake, report: Callable[..., Outcome]) -> None:
    text = plain(report(dies, "--week", NEXT))
    assert f"silent h1 since {day(2)} 00:00 UTC" in text
    content = told(report(dies, "--week", NEXT, "--format", "json"))
    assert (content["empty"], content["observed"]["share"]) == (True, 0.0)
    assert content["trends"]["total"]["last_week"] == 96.0


def test_a_host_that_fell_silent_before_the_week_is_named(gone: Lake, report: Callable[..., Outcome]) -> None:
    text = plain(report(gone, "--week", THIS))
    assert f"silent h2 since {day(-1)} 23:00 UTC: the time after that is in no sum" in text
    assert "observed 50.0 % of the time" in text


def test_findings_on_gpus_that_nobody_saw_are_not_closed(gone: Lake, report: Callable[..., Outcome]) -> None:
    ended = told(report(gone, "--week", THIS, "--format", "json"))["ended"]
    assert {each["status"] for each in ended if each["gpus"] == ["GPU-2"]} == {"unseen"}
    assert {each["rule"] for each in ended} >= {"held"}


def test_a_pool_that_fell_silent_is_unseen_and_not_absent(part: Lake, report: Callable[..., Outcome]) -> None:
    text = plain(report(part, "--week", THIS, "--pool", "p2"))
    assert "observed 28.6 % of the time" in text
    assert f"Whether a GPU can be given back is not known: nothing was seen after {day(2)} 00:00 UTC." in text
    later = plain(report(part, "--week", NEXT, "--pool", "p2"))
    assert f"Nothing of pool p2 was observed in this window. Silent: h2 since {day(2)} 00:00 UTC." in later
    assert "Nothing in this window is of" not in later
    assert "observed 100.0 % of the time" in plain(report(part, "--week", THIS, "--pool", "train"))


def test_an_edition_for_people_names_the_hosts_they_last_had_and_no_others(
    part: Lake, report: Callable[..., Outcome]
) -> None:
    ann = plain(report(part, "--week", THIS, "--user", "ann"))
    assert f"silent h2 since {day(2)} 00:00 UTC" in ann
    assert "observed 28.6 % of the time" in ann
    zoe = plain(report(part, "--week", THIS, "--user", "zoe"))
    assert ("silent none" in zoe, "h2" in zoe) == (True, False)
    assert told(report(part, "--week", THIS, "--user", "zoe", "--format", "json"))["observed"]["silent"] == []


def test_five_silent_hosts_are_named_and_the_others_counted(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    lake = host(made("many"), "h0", of("GPU-0", MONDAY - DAY, MONDAY + WEEK_S))
    for number in range(1, 8):
        host(lake, f"h{number}", of(f"GPU-{number}", MONDAY - DAY, MONDAY + number * HOUR))
    text = plain(report(lake, "--week", THIS))
    assert f"silent h1 since {day(0)} 01:00 UTC, h2 since " in text
    assert f"h5 since {day(0)} 05:00 UTC, and 2 more hosts: the time after that is in no sum" in text
    assert "h6 since" not in text.split("thresholds")[0]


def test_a_gpu_that_its_living_host_lost_is_silent_too(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    end = MONDAY + WEEK_S
    lake = host(made("lost"), "h1", of("GPU-0", MONDAY - WEEK_S, end), of("GPU-1", MONDAY - WEEK_S, MONDAY + 2 * DAY))
    text = plain(report(lake, "--week", THIS))
    assert f"silent 1 GPU of h1 since {day(2)} 00:00 UTC" in text
    assert f"observed {100 * 9 / 14:.1f} % of the time" in text


def test_a_gpu_that_came_to_a_host_in_the_week_was_not_there_before(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    end = MONDAY + WEEK_S
    lake = host(made("new"), "h1", of("GPU-0", MONDAY - WEEK_S, end), of("GPU-1", MONDAY + 2 * DAY, end))
    assert told(report(lake, "--week", THIS, "--format", "json"))["observed"]["share"] == 1.0


def test_a_gpu_that_told_its_uuid_in_the_week_was_observed_all_of_it(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    middle, end = MONDAY + 2 * DAY, MONDAY + WEEK_S
    dead = of("h1/pci-0000:17:00.0", MONDAY - WEEK_S, middle, None, health="missing", gpu_util_pct=None)
    lake = host(made("dead"), "h1", of("GPU-0", MONDAY - WEEK_S, end), dead, of("GPU-1", middle, end))
    assert told(report(lake, "--week", THIS, "--format", "json"))["observed"]["share"] == 1.0
    assert "silent 1 GPU" not in plain(report(lake, "--week", THIS))


def test_a_week_in_which_the_lake_begins_was_seen_in_part(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    lake = host(made("young"), "h1", of("GPU-0", MONDAY + DAY, END))
    assert "observed 85.7 % of the time" in plain(report(lake, "--week", THIS))
    content = told(report(lake, "--week", NEXT, "--format", "json"))
    assert content["weeks_before"][0] == {"label": THIS, "observed_share": pytest.approx(6 / 7)}
    assert content["trends"]["total"]["last_week"] == 144.0


@pytest.mark.parametrize("scope", [(), ("--user", "ann")])
def test_sums_of_a_week_of_which_a_part_was_seen_are_shown_and_not_compared(
    outage: Lake, report: Callable[..., Outcome], scope: tuple[str, ...]
) -> None:
    done = report(outage, "--week", THIS, *scope)
    rows = {line.strip().split("  ")[0]: line.split() for line in done.out.splitlines()}
    assert rows["held, GPU-hours"][2:5] == ["168.0", "48.7", "-"]
    assert rows["observed share"][2:] == ["100.0", "%", "29.0", "%", "+71.0", "points", "-"]
    assert f"Observed of the GPU time: 29.0 % of {LAST}. Below 90 % sums have no change" in plain(done)


def test_sums_of_weeks_that_were_seen_are_compared(part: Lake, report: Callable[..., Outcome]) -> None:
    text = plain(report(part, "--week", THIS, "--pool", "train"))
    assert "held, GPU-hours 168.0 168.0 0.0 % -" in text
    assert "Observed of the GPU time" not in text


def test_dates_of_some_prices_are_not_those_of_all(part: Lake, report: Callable[..., Outcome], tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("model,pool,hourly,currency,date\n,train,3,USD,2025-01-02\n,p2,2,USD,\n", encoding="utf-8")
    config = tmp_path / "fallow.toml"
    config.write_text(f'[money]\nprices = "{prices}"\n', encoding="utf-8")
    text = plain(report(part, "--week", THIS, "--config", str(config)))
    assert "the site's own, in USD, of 2025-01-02 (1 of 2 are dated)" in text
    alone = plain(report(part, "--week", THIS, "--pool", "train", "--config", str(config)))
    assert "the site's own, in USD, of 2025-01-02 thresholds" not in alone
    assert "are dated" not in alone


@pytest.mark.parametrize(("scope", "stopped"), [((), "1 GPU"), (("--pool", "p2"), "1 GPU"), (("--pool", "train"), "")])
def test_the_ledger_counts_who_was_silent_at_the_end_that_was_asked_for(
    dies: Lake, part: Lake, report: Callable[..., Outcome], scope: tuple[str, ...], stopped: str
) -> None:
    window = ("--since", day(0), "--until", day(6))
    text = plain(report(part, *window, *scope, command="ledger"))
    assert (f"{stopped} stopped reporting before the end" in text) == bool(stopped)
    assert ("stopped reporting" in text) == bool(stopped)
    assert "2 GPUs stopped reporting before the end" in plain(report(dies, *window, command="ledger"))
