"""A week seen by scrapes: no figure calls exact, observed or sure what samples at 0 alone say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.physical_week import VIEWS, look, record
from fallow.cli import main
from fallow.clock import HOUR_MS
from fallow.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.report.conftest import Outcome


@pytest.fixture(scope="module", params=["60 s scrapes", "60 s scrapes, energy"])
def scraped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("scraped") / "lake"
    (view,) = (each for each in VIEWS if each.name == request.param)
    look(record(3 * HOUR_MS), view, folder)
    return view.name, folder


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_report_says_sampled_and_between_what(scraped: tuple[str, Path], report: Callable[..., Outcome]) -> None:
    name, folder = scraped
    said = flat(report(str(folder)).out)
    assert "100.0 % of that time only sampled, once every 1 min" in said
    assert "of 21.0 GPU-hours were not used" in said
    low = "21.2 %" if "energy" in name else "0.0 %"
    assert f"(sampled every 1 min: between {low} and" in said
    assert "Work between two readings, up to 99.7 % of the time, leaves no trace in utilization" in said
    assert "observed GPU-hours were not used" not in said
    assert ("an idle card draws 70 W, measured over 9.0 GPU-hours" in said) == ("energy" in name)


@pytest.mark.usefixtures("low_is_listed")
def test_the_cost_of_what_nothing_confirms_stands_apart(
    scraped: tuple[str, Path], report: Callable[..., Outcome], tmp_path: Path
) -> None:
    name, folder = scraped
    page = flat(report(str(folder), "--format", "html", "--out", str(tmp_path / "r.html")).out) or ""
    page += flat((tmp_path / "r.html").read_text(encoding="utf-8"))
    shown = page.replace("\N{NO-BREAK SPACE}", " ")
    assert "is not confirmed: only point samples show this time as idle" in shown
    assert "wasted in this window</td>" not in shown
    found = json.loads(report(str(folder), "--json", command="recommendations").out)
    unsure, spent = found["waste"]["unconfirmed"], found["waste"]
    ledger = json.loads(report(str(folder), "--by", "user", "--json", command="ledger").out)
    assert unsure["cost"] == ledger["money"]["unconfirmed_cost"] > 0
    assert f"Between {spent['cost'] - unsure['cost']:,.2f}" in shown
    assert f"up to {spent['cost']:,.2f} USD" in shown, "the large figure"
    findings = json.loads(report(str(folder), "--json", command="findings").out)
    held = [each for each in findings["findings"] if each["rule"] == "held"]
    doubtful = [each for each in held if each["evidence"].get("unconfirmed", 0) > 0.1]
    assert doubtful
    assert {each["confidence"] for each in doubtful} == {"low"}
    assert "GPU-hours of idle time are only sampled" in flat(report(str(folder), "--all", command="findings").out)
    if "energy" not in name:
        sums = findings["totals"]["by_rule"]["held"]
        assert sums["unconfirmed_cost"] == pytest.approx(sums["cost"])


def test_every_table_of_the_ledger_states_apart_what_nothing_confirms(
    scraped: tuple[str, Path], report: Callable[..., Outcome]
) -> None:
    _, folder = scraped
    found = json.loads(report(str(folder), "--by", "user", "--json", command="ledger").out)
    rows, whole = found["groups"]["rows"], found["point_samples"]["unconfirmed_gpu_hours"]
    assert sum(each["held_unconfirmed_gpu_hours"] for each in rows) == pytest.approx(whole["held"], abs=1e-5)
    assert sum(each["unconfirmed_cost"] for each in rows) == pytest.approx(found["money"]["unconfirmed_cost"], abs=1e-6)
    assert (
        0
        < found["money"]["unconfirmed_cost"]
        <= sum(found["money"]["cost"][each] for each in ("held", "reserved", "free"))
    )
    table = flat(report(str(folder), "--by", "user", command="ledger").out)
    bounds = re.search(r"; ([\d.]+) % to ([\d.]+) % of the allocated time was effective", table)
    assert bounds is not None
    low, high = (float(each) / 100 for each in bounds.groups())
    money = found["money"]
    assert (money["efficiency_low"], money["efficiency_high"]) == pytest.approx((low, high), abs=0.0005)
    assert low < found["money"]["efficiency"] < high, "work between samples at 0, and rest between samples of work"
    assert f"{sum(whole.values()):.1f} GPU-hours of idle time are only sampled" in table


def test_what_was_unused_adds_up_with_what_is_not_confirmed(
    scraped: tuple[str, Path], report: Callable[..., Outcome]
) -> None:
    _, folder = scraped
    found = json.loads(report(str(folder), "--format", "json", "--week", "2026-W47").out)
    now = {name: each["now"] for name, each in found["trends"].items()}
    assert now["unused"] + now["unconfirmed"] == pytest.approx(now["free"] + now["reserved"] + now["held"])
    assert now["waste_money"] + now["unconfirmed_money"] == pytest.approx(
        sum(found["ledger"]["money"]["cost"][each] for each in ("held", "reserved", "free"))
    )


def test_the_ledger_states_bounds_for_people_and_machines(
    scraped: tuple[str, Path], report: Callable[..., Outcome]
) -> None:
    name, folder = scraped
    text = flat(report(str(folder), command="ledger").out)
    assert "observed: 100.0 % of the time; 100.0 % of that time only sampled, once every 1 min" in text
    assert "Time without a kernel, including very short pauses: between" in text
    whole = json.loads(report(str(folder), "--json", command="ledger").out)
    said = whole["point_samples"]
    held, unsure = whole["gpu_hours"]["held"], said["unconfirmed_gpu_hours"]["held"]
    assert f"Held idle {held:,.1f} {held - unsure:,.1f}" in text
    low, high = said["between"]["held"]
    assert said["share"] == 1
    assert (low > 0.2) == ("energy" in name)
    assert high < 1
    assert Lake.at(str(folder)).files("gpu")


def test_plans_say_what_nothing_confirms_of_what_they_count_as_unused(
    scraped: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = scraped
    for verb, sections in (("allocation", 1), ("queue", 1)):
        assert main(["plan", verb, "--lake", str(folder)]) == 0
        said = flat(capsys.readouterr().out)
        assert said.count("GPU-hours that count as unused here are only sampled") == sections
    assert main(["plan", "purchase", "--all", "--lake", str(folder)]) == 0
    assert "GPU-hours of idle time are only sampled" in flat(capsys.readouterr().out)
