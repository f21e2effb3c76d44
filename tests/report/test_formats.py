"""The whole report in every format: golden files, the ledger's numbers, the schema, and a week without data.

`UPDATE_GOLDEN=1 pytest tests/report` writes the golden files again: read the diff.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from analytics.glossary import state_label
from analytics.language.languages import language
from analytics.render.html.mail import mail_body
from analytics.render.report.formats import FORMATS
from analytics.render.report.json_format import report_schema
from fallow import __version__
from tests import shared_results
from tests.ledger.rows import T0, device, fill, samples
from tests.report.conftest import BUSY, HOUR
from tests.report.html.pages import Page
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

    Report = Callable[..., Outcome]

GOLDEN = Path(__file__).parent / "golden"
SUFFIX = {"text": "txt", "md": "md", "json": "json", "csv": "csv"}
PAGES = ("text", "md", "html")
BEFORE, AFTER = "2020-W10", "2026-W42"
"""Weeks in which nothing was seen."""
SCHEMA = report_schema()
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


def one_line(done: Outcome) -> str:
    assert (done.code, done.err) == (0, "")
    return " ".join(done.out.replace("\N{NO-BREAK SPACE}", " ").split())


def told(done: Outcome) -> Any:
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def faults(content: object) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in VALIDATOR.iter_errors(content)]


@pytest.mark.parametrize("name", SUFFIX)
def test_golden(full: Lake, report: Report, name: str) -> None:
    done = report(full, "--format", name)
    assert (done.code, done.err) == (0, "")
    shown = done.out.replace(full.root, "LAKE").replace(f"fallow {__version__}", "fallow VERSION")
    shown = shown.replace(f'"fallow_version": "{__version__}"', '"fallow_version": "VERSION"')
    file = GOLDEN / f"report.{SUFFIX[name]}"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_the_same_lake_gives_the_same_bytes(full: Lake, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--week", "2026-W40", "--lang", "fr", "--timezone", "Europe/Paris", "--format")
    names = [each.name for each in FORMATS if each.name != "pdf"]
    first = {name: report(full, *flags, name).out for name in names}
    monkeypatch.setattr(shared_results, "_results", OrderedDict())  # all is computed anew, and forgotten after
    assert {name: report(full, *flags, name).out for name in names} == first


@pytest.mark.parametrize(
    "window",
    [
        ("--since", "2026-09-28T05:17Z"),
        # tests/promises/test_report.py asks the same in many scopes
        *(pytest.param(each, marks=pytest.mark.long) for each in ((), ("--until", "2026-09-25"))),
    ],
)
def test_the_numbers_are_those_of_the_ledger_and_the_findings_to_the_digit(
    full: Lake, report: Report, window: tuple[str, ...]
) -> None:
    content = told(report(full, "--format", "json", *window))
    ledger = told(report(full, "--json", *window, command="ledger"))
    assert content["ledger"] == ledger
    assert content["findings"] == told(report(full, "--json", *window, command="findings"))["findings"]
    total = content["ledger"]["gpu_hours"]
    for section in ("pool", "model", "day"):
        for state in total:
            groups = content["by"][section].values()
            assert sum(each["gpu_hours"][state] for each in groups) == pytest.approx(total[state], abs=1e-9)
    text, markdown = report(full, *window).out, report(full, *window, "--format", "md").out
    for state, hours in ledger["gpu_hours"].items():
        name, shown = "paid" if state == "total" else state_label(state), f"{hours:,.1f}"
        assert any(re.split(r"\s{2,}", line.strip())[:2] == [name, shown] for line in text.splitlines())
        assert f"| {name} | {shown} |" in markdown


@pytest.mark.parametrize("form", PAGES)
def test_a_single_busy_gpu_has_no_findings(lake: Lake, report: Report, form: str) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, **BUSY), devices=[device("GPU-0")])
    text = one_line(report(lake, "--format", form))
    assert "1 GPU on 1 host" in text
    assert "100.0 % of the time" in text
    assert "100.0 % of the paid GPU time was busy; no idle time was observed." in text
    assert (
        "No GPU is unallocated now, and no finding shows a reclaimable GPU. No yearly figure is known yet, because the"
        " data cover no complete week." in text
    )
    assert told(report(lake, "--format", "json"))["findings"] == []


def test_nothing_observed_is_said_not_divided(lake: Lake, report: Report) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, gpu_util_pct=None, process_count=None))
    shown = {name: one_line(report(lake, "--format", name)) for name in (*PAGES, "csv")}
    shown["mail"], picture = mail_body(report_of(lake), language("en"))
    assert picture is not None
    assert all("Nothing was observed in this window." in shown[form] for form in (*PAGES, "mail"))
    assert all("1 GPU never reported utilization: its use is unknown, not zero" in shown[form] for form in PAGES)
    assert '<span class="figure">unknown</span>' in shown["html"]
    assert "nan" not in shown["html"].replace("unavailable", "").lower().split()
    content = told(report(lake, "--format", "json"))
    assert content["ledger"]["idle"]["share"] is None
    assert faults(content) == []


def test_a_window_that_ends_in_the_future_calls_nobody_silent(lake: Lake, report: Report) -> None:
    now_s = time.time() - T0 / 1000
    fill(lake, samples("GPU-0", now_s - 600, now_s, **BUSY | {"every_s": 10}))
    assert "  silent hosts  none" in report(lake, "--until", "2199-01-01").out.splitlines()


def test_simulated_fleets_say_so_first(lake: Lake, report: Report) -> None:
    fill(lake, samples("a", 0, HOUR, **BUSY) + samples("b", 0, HOUR, **BUSY), devices=[device("a", source="simulated")])
    for name in PAGES:
        assert "1 of 2 GPUs is SIMULATED: its figures are no measurements." in report(lake, "--format", name).out
    fill(lake, [], devices=[device("b", source="simulated")])
    assert "SIMULATED FLEET: none of these GPUs exists" in report(lake).out
    html = report(lake, "--format", "html").out
    assert html.index("SIMULATED FLEET") < html.index("<h1>")


def test_the_schema_is_one_and_is_printed(report: Report) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert told(report("nowhere", "--schema")) == json.loads(json.dumps(SCHEMA))


@pytest.mark.parametrize(
    "flags",
    [
        "",
        pytest.param("--week 2026-W40 --timezone Europe/Paris", marks=pytest.mark.long),
        "--pool train",
        "--week 2026-W40 --user greta --lang fr",
    ],
)
def test_reports_are_as_the_schema_says(full: Lake, report: Report, flags: str) -> None:
    content = told(report(full, "--format", "json", *flags.split()))
    assert faults(content) == []
    for record_of in (content, *(content[path] for path in ("ledger", "scope", "settings", "by"))):
        record_of["another"] = 1
        assert faults(content) != [], "what no report has is refused"
        del record_of["another"]


@pytest.mark.parametrize("form", PAGES)
@pytest.mark.parametrize("week", [BEFORE, AFTER])
def test_an_empty_week_says_where_the_rows_are_and_concludes_nothing(
    full: Lake, report: Report, form: str, week: str
) -> None:
    text = one_line(report(full, "--week", week, "--format", form))
    assert f"GPU waste report, {week}" in text
    assert "Nothing was observed in this window. The lake has rows from " in text
    conclusions = ("No GPU could be taken back", "o findings", "Nothing is snoozed", "Nobody was given", "0.0")
    assert [each for each in conclusions if each in text] == []


def test_figures_of_an_empty_week_are_unknown_and_not_zero(full: Lake, report: Report) -> None:
    content = told(report(full, "--week", AFTER, "--format", "json"))
    assert (content["empty"], faults(content)) == (True, [])
    assert content["known"] == {"since": "2026-09-21T00:00:00Z", "until": "2026-10-05T00:00:00Z"}
    ledger, energy = content["ledger"], content["ledger"]["energy"]
    figures = [ledger["gpu_hours"], ledger["money"]["cost"], ledger["idle"], energy["kwh_by_state"], energy["kwh"]]
    figures += [each["now"] for each in content["trends"].values() if each["unit"] != "share"]
    figures += [content[name] for name in ("sensitivity", "hosts", "simulated_gpus")]
    assert numbers(figures) == []
    assert (ledger["gpus"], ledger["coverage"], ledger["money"]["unpriced_gpu_hours"]) == (None, None, None)
    assert energy["pue"] > 1  # a setting holds whatever was seen
    assert content["ledger"]["window"] == {"since": "2026-10-12T00:00:00Z", "until": "2026-10-19T00:00:00Z"}
    assert (content["findings"], content["ended"], content["reversals"]) == ([], [], None)
    assert list(content["tables"]) == ["data_quality"]
    lines = report(full, "--week", AFTER, "--format", "csv").out.splitlines()
    assert {"empty,true", "ledger.gpu_hours.free,", "ledger.gpus,", "trends.total.now,"} <= set(lines)


def numbers(value: object) -> list[object]:
    """Every number in JSON values."""
    if isinstance(value, dict | list):
        return [found for each in (value.values() if isinstance(value, dict) else value) for found in numbers(each)]
    return [] if value is None or isinstance(value, str) else [value]


def test_the_mail_of_an_empty_week_has_no_picture_of_nothing(full: Lake) -> None:
    body, picture = mail_body(report_of(full, BEFORE), language("en", "UTC"))
    assert picture is None
    assert Page(body).all("img") == []
    assert "Nothing was observed in this window." in body


def test_who_had_nothing_in_a_week_has_an_edition_that_says_so(full: Lake, report: Report) -> None:
    dark, without = (one_line(report(full, "--week", week, "--user", "svc")) for week in (BEFORE, "2026-W39"))
    assert "Nothing was observed in this window." in dark
    assert "This window has no GPU time of user svc." in without
    assert faults(told(report(full, "--week", BEFORE, "--user", "svc", "--format", "json"))) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--week", "2026-W39", "--user", "svcc"), "fallow: nothing in this window belongs to user svcc; "),
        (("--week", "2198-W01"), "holds nothing between 219"),
    ],
    ids=["a name that nobody has", "a week that has not begun"],
)
def test_nothing_to_report_on_is_refused(full: Lake, report: Report, flags: tuple[str, ...], said: str) -> None:
    done = report(full, *flags)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
