"""Every number on pages about the whole window equals the commands' for the same window and scope, digit by digit."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from analytics.glossary import state_label
from analytics.report.figures import STEPS
from dashboard.pages import PAGES
from fallow.schema import STATES
from tests.dashboard.shown import (
    HOLE,
    UNKNOWN,
    UNUSED,
    NumbersSite,
    Question,
    Shown,
    Spent,
    money,
    ms,
    numbers_site,
    percent,
    share,
    written,
)

DAYS = Question("three days", {"since": "2025-11-17", "until": "2025-11-19"})
PAIR = Question("two days", {"since": "2025-11-18", "until": "2025-11-19"})
LONG = Question("everything")
HOURS = Question("twelve hours", {"since": "2025-11-18T06:00Z", "until": "2025-11-18T18:00Z"})
UNSEEN = Question("a day that was not seen whole", {"since": HOLE[1], "until": HOLE[1]})
NOTHING = Question(
    "nothing observed", {"since": f"{HOLE[1]}T06:00Z", "until": f"{HOLE[1]}T18:00Z", "pool": "train-old"}
)
QUESTIONS = (
    LONG,
    DAYS,
    HOURS,
    UNSEEN,
    Question("a pool", {"pool": "train", "since": "2025-11-13"}),
    Question("a model", {**DAYS.asked, "model": "NVIDIA L40S"}),
    NOTHING,
    Question("a team", {"team": "vision"}),
    Question("a team in a pool", {**DAYS.asked, "team": "language", "pool": "train"}),
)
QUICK = ("everything", "a team in a pool")
"""Questions of `make test`; `make test-all` asks the others."""

ASKED = [pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.long) for each in QUESTIONS]
EACH = pytest.mark.parametrize("asked", ASKED)
OF_GPUS = pytest.mark.parametrize(
    "asked", [each for each, question in zip(ASKED, QUESTIONS, strict=True) if not question.is_personal]
)
_WASTE = {
    "free": "unallocated GPUs",
    "reserved": "allocated GPUs without a process",
    "held": "GPUs held idle",
    "stalled": "stalled GPUs",
}
_FIGURE = re.compile(r"[\d,]+\.\d+")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> NumbersSite:
    return numbers_site(tmp_path_factory.getbasetemp())


def moment(text: str) -> str:
    """What a command prints of a moment, as pages write it."""
    when = datetime.fromisoformat(text)
    return f"{when.day} {when:%b %Y, %H:%M} UTC"


def day(text: str) -> str:
    when = date.fromisoformat(text)
    return f"{when.day} {when:%b %Y}"


def before(told: dict[str, Any]) -> Question:
    """The window of the same length just before a report's."""
    since, until = (datetime.fromisoformat(told["observed"][name]) for name in ("since", "until"))
    earlier = {"since": f"{2 * since.timestamp() - until.timestamp():.0f}", "until": f"{since.timestamp():.0f}"}
    return Question("before", {name: _utc(value) for name, value in earlier.items()})


def _utc(seconds: str) -> str:
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


@EACH
def test_every_page_shows_the_same_window_and_coverage(site: NumbersSite, asked: Question) -> None:
    observed = site.told.report(asked)["observed"]
    for each in PAGES:
        facts = site.shown(each.path, asked).facts()
        assert facts["window"] == f"{moment(observed['since'])} to {moment(observed['until'])}", each.path
        outside = observed["outside_gpu_hours"]
        of_none = f"; no sum includes {outside:,.1f} GPU-hours before a host's first row or after its last"
        said = f"{percent(observed['share'])} of the time{of_none if round(outside, 1) else ''}"
        assert facts["observed"] == said, each.path
        assert facts["data as of"] == "20 Nov 2025, 00:00 UTC"


@EACH
def test_the_headline_is_the_ledgers(site: NumbersSite, asked: Question) -> None:
    spent = Spent.of(site.told.ledger(asked)["gpu_hours"])
    [line] = [each.text for each in site.shown("/", asked).all("className", "headline")]
    if not spent.observed_ms:
        assert line == "Nothing was observed in this window."
        return
    free, reserved, held, stalled, active = (
        share(spent.sum(state), spent.observed_ms) for state in ("free", "reserved", "held", "stalled", "active")
    )
    wasted = written(spent.sum(*UNUSED))
    assert line == (
        f"{wasted} of {written(spent.observed_ms)} observed GPU-hours were not used: "
        f"{free} unallocated, {reserved} allocated but unused, {held} held idle, {stalled} stalled; "
        f"{active} were busy."
    )


def waterfall_rows(told: Any) -> list[Any]:
    """The steps, without what was paid; a report for people leaves out states that they have no time in."""
    steps = {each["state"]: each for each in told["tables"]["waterfall"]["rows"][1:]}
    return [steps.get(state, {"state": state, "gpu_hours": 0.0, "cost": 0.0}) for state in STEPS]


def figures(site: NumbersSite, asked: Question) -> dict[str, tuple[str, list[str]]]:
    """What each tile has to show: its large figure, and the lines below it."""
    told = site.told.report(asked)
    spent, steps = Spent.of(told["ledger"]["gpu_hours"]), {each["state"]: each["cost"] for each in waterfall_rows(told)}
    paid, seen = told["ledger"]["money"]["paid"], told["observed"]

    def tile(*states: str) -> tuple[str, list[str]]:
        amounts = [steps[state] for state in states]
        cost = None if None in amounts else sum(amounts)
        return share(spent.sum(*states), spent.observed_ms), [
            money(cost, "USD"),
            f"{written(spent.sum(*states))} GPU-hours",
        ]

    found = {
        "Busy": tile("active"),
        "unused": tile(*UNUSED),
        **{state_label(state): tile(state) for state in (*UNUSED, "unavailable")},
        "paid": (f"{paid:,.0f}", [money(paid, "USD"), f"{written(spent.total_ms)} GPU-hours"]),
        "observed": (percent(seen["share"]), [f"{written(ms(seen['observed_gpu_hours']))} GPU-hours"]),
    }
    of_no_user = {state_label(state) for state in ("free", "unavailable")} if asked.is_personal else ()
    return {name: tile for name, tile in found.items() if name not in of_no_user}


def tiles(shown: Shown) -> dict[str, Shown]:
    """The tiles by their label."""
    return {each.all_of("Dt")[0].text: each for each in shown.all("className", "tile")}


@EACH
def test_the_tiles_are_the_ledgers(site: NumbersSite, asked: Question) -> None:
    shown = tiles(site.shown("/", asked))
    wanted = figures(site, asked)
    assert shown.keys() == wanted.keys()
    for name, (figure, below) in wanted.items():
        large = shown[name].all("className", "figure")[0].text
        assert large.removesuffix(" USD") == figure, name
        [unit] = shown[name].all("className", "unit")
        assert sorted(Shown(each).text for each in unit.tree["props"]["children"]) == sorted(below), name


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(PAIR, marks=pytest.mark.long),
        pytest.param(HOURS, marks=pytest.mark.long),
        Question("a model", {**PAIR.asked, "model": "NVIDIA L40S"}),
    ],
)
def test_changes_are_those_between_two_runs_of_the_command(site: NumbersSite, asked: Question) -> None:
    now, scope = site.told.report(asked), {name: value for name, value in asked.asked.items() if name == "model"}
    old = site.told.report(before(now).but(**scope))
    shown = tiles(site.shown("/", asked))

    def shares(told: dict[str, Any]) -> dict[str, float]:
        spent = Spent.of(told["ledger"]["gpu_hours"])
        groups = {
            "Busy": ("active",),
            "unused": UNUSED,
            **{state_label(each): (each,) for each in (*UNUSED, "unavailable")},
        }
        found = {name: spent.sum(*states) / spent.observed_ms for name, states in groups.items()}
        return found | {"observed": told["observed"]["share"]}

    for name, value in shares(now).items():
        points = 100 * (value - shares(old)[name])
        assert changed(shown[name]) == f"{signed(points)} points", name
    paid, was = (told["ledger"]["money"]["paid"] for told in (now, old))
    assert changed(shown["paid"]) == f"{signed(100 * (paid - was) / was)} %"


def changed(tile: Shown) -> str:
    """Return the change that a tile shows, without the arrow."""
    [text] = [each.text for kind in ("better", "worse", "same") for each in tile.all("className", f"change {kind}")]
    return text.lstrip("▼▲ ")


def signed(change: float) -> str:
    rounded = round(change, 1)
    return f"{'+' if rounded > 0 else chr(0x2212) if rounded < 0 else '±'}{abs(change):.1f}"


def test_no_change_is_shown_where_too_little_was_observed(site: NumbersSite) -> None:
    shown = site.shown("/", UNSEEN)
    seen = site.told.report(UNSEEN)["observed"]["share"]
    earlier = site.told.report(before(site.told.report(UNSEEN)))["observed"]["share"]
    assert f"This window has {percent(seen)}, the one before {percent(earlier)}." in shown.text
    assert not [kind for kind in ("better", "worse", "same") if shown.all("className", f"change {kind}")]


@EACH
def test_the_waterfall_is_the_reports(site: NumbersSite, asked: Question) -> None:
    told = site.told.report(asked)
    spent = Spent.of(told["ledger"]["gpu_hours"])
    panel = site.shown("/", asked).panel("waterfall")
    steps = [each for each in waterfall_rows(told) if each["gpu_hours"] or not asked.is_personal]
    left_ms, wanted = (
        spent.total_ms,
        [["paid", written(spent.total_ms), "", "", "", f"{told['ledger']['money']['paid']:,.2f}"]],
    )
    for each in steps:
        own_ms = ms(each["gpu_hours"])
        left_ms -= own_ms
        left = "" if each is steps[-1] else share(left_ms, spent.total_ms)
        observed = "" if each["state"] == "unknown" else share(own_ms, spent.observed_ms)
        wanted.append(
            [
                state_label(each["state"]),
                written(own_ms),
                share(own_ms, spent.total_ms),
                left,
                observed,
                f"{each['cost']:,.2f}",
            ]
        )
    assert panel.rows() == wanted
    # tests/dashboard/test_charts.py: bars are as long as the rows' numbers
    for (name, *labels), row in zip(panel.hints("waterfall-chart"), wanted, strict=True):
        assert name == row[0]
        assert _FIGURE.findall(labels[0]), labels
        assert set(_FIGURE.findall(" ".join(labels))) <= set(_FIGURE.findall(" ".join(row))), labels
    busy = next(each for each in waterfall_rows(told) if each["state"] == "active")
    assert panel.finding.startswith(f"{share(ms(busy['gpu_hours']), spent.total_ms)} of the paid GPU time was busy")
    worst = max((each for each in waterfall_rows(told) if each["state"] in UNUSED), key=lambda each: each["cost"])
    if worst["cost"]:
        hours, cost = written(ms(worst["gpu_hours"])), money(worst["cost"], "USD")
        assert panel.finding.endswith(f" The largest waste is {_WASTE[worst['state']]}, {hours} GPU-hours, {cost}.")


@EACH
def test_the_bars_of_days_or_hours_are_those_of_the_ledger(site: NumbersSite, asked: Question) -> None:
    told = site.told.report(asked)
    since, until = (datetime.fromisoformat(told["ledger"]["window"][name]) for name in ("since", "until"))
    panel = site.shown("/", asked).panel("days")
    if until - since > timedelta(days=3):
        wanted = {day(name): Spent.of(each["gpu_hours"]) for name, each in told["by"]["day"].items()}
    else:
        wanted = {}
        for number in range(-(-(until - since) // timedelta(hours=1))):
            start = since + number * timedelta(hours=1)
            hour = {"since": f"{start:%Y-%m-%dT%H:%MZ}", "until": f"{start + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"}
            if number % 11 == 3:  # the others are compared by their sum
                spent = site.told.printed_ledger(asked.but(**hour))
                if spent is not None:
                    wanted[moment(start.isoformat())] = spent
    rows = {row[0]: row[1:] for row in panel.rows()}
    states = {state_label(state): state for state in STATES}
    heads = [each.text for each in panel.all("scope", "col")][2:-1]
    assert sorted(heads) == sorted(states)
    bars = {name: dict(each.split(": ") for each in said) for name, *said in panel.hints("days-chart")}
    for name, spent in wanted.items():
        unused = share(spent.sum(*UNUSED), spent.observed_ms)
        assert rows[name] == [written(spent.total_ms), *(written(spent.sum(states[head])) for head in heads), unused], (
            name
        )
        for label, drawn in bars[name].items():
            assert drawn == f"{spent.sum(states[label]) / 3.6e6:,.1f}", (name, label)
    whole = Spent.of(told["ledger"]["gpu_hours"])
    for label, state in states.items():
        total = sum(float(said.get(label, "0").replace(",", "")) for said in bars.values())
        assert total == pytest.approx(whole.sum(state) / 3.6e6, abs=0.051 * len(rows) + 0.05), state


@EACH
def test_the_idle_bars_are_the_ledgers(site: NumbersSite, asked: Question) -> None:
    told = site.told.ledger(asked)
    idle, observed = told["idle"], Spent.of(told["gpu_hours"]).observed_ms
    panel = site.shown("/method", asked).panel("idle")
    shares = {"all intervals": idle["share"]} | {
        f"≥ {name[:-1]} min": value for name, value in idle["idle_intervals"].items()
    }
    assert [row[1:] for row in panel.rows() if row[0] == "at 0 % utilization"] == [
        [name, written(round((value or 0.0) * observed)), percent(value)] for name, value in shares.items()
    ]
    drawn = panel.hints("idle-chart")
    assert drawn[-len(shares) :] == [[name, percent(value)] for name, value in shares.items()]


def test_unobserved_time_is_unknown_and_not_zero(site: NumbersSite) -> None:
    """The pool of the host without a row that day: a share of nothing observed is no 0 %."""
    told = site.told.ledger(NOTHING)
    assert told["coverage"] == 0
    assert told["idle"]["share"] is None
    shown = site.shown("/", NOTHING)
    states = tiles(shown)
    for name in ("Busy", "unused", *map(state_label, (*UNUSED, "unavailable"))):
        assert states[name].all("className", "figure")[0].text == UNKNOWN, name
    idle = site.shown("/method", NOTHING).panel("idle")
    assert {row[3] for row in idle.rows()} == {UNKNOWN}
    assert {line for _, *said in idle.hints("idle-chart")[4:] for line in said} == {UNKNOWN}
    assert "No period was observed for 90 % of its time." in shown.panel("days").finding
