"""Recommendations: wasted time is in at most one of them; with the rest they are the ledger's waste, to the cent."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.capacity.off_peak import OffPeak
from analytics.capacity.peak_demand import MARGIN
from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import SHARE, IdleHours, decide
from analytics.decide.nudge_items import NudgeBasis, nudge_items
from analytics.decide.recommendations import OPERATORS, Recommendations, value_of
from analytics.decide.savings import recommendations_in
from analytics.decide.value import ValueBasis
from analytics.ledger.usage import used_share
from analytics.money.energy import Grid
from analytics.money.prices import HOURS_PER_YEAR
from analytics.report.model import Whole
from analytics.rules import RULES, RULES_BY_NAME, rules_of_kind
from analytics.scope import Scope
from analytics.simulation import SimulatedFleet, write_fleet
from analytics.states import WASTED
from analytics.tables.recommendations import ACTION_WORDS, DECISION_COLUMNS, decision, first_recommendations, who_acts
from analytics.tables.table import record
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.fleet_demand import fleet_demand
from analytics.workloads.model import Confidence, Evidence, Finding
from analytics.workloads.pool_demand import FleetDemand, what_if_reserve
from analytics.workloads.waste import LEFT_FREE, PRECEDENCE, SURPLUS
from fallow.clock import DAY_MS, parse_day_ms
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, Site, reviewed
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, allocation, device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.ledger.recording import Recording

STEP = 1800
NO_WEEKS = ValueBasis((), Grid(1.0, None, 0.0))
WINDOWS = (("2026-11-13", None), ("2026-11-18", "2026-11-18"))
_MOST_ROUNDED = 1e-6


@cache
def whole_of(root: str, since: str, until: str | None) -> Whole:
    inputs = open_inputs(argparse.Namespace(lake=root, since=since, until=until, config=None))
    return Whole(inputs, load_window_ledger(inputs))


def adds_up(whole: Whole, scope: Scope, found: Recommendations) -> None:
    """The recommendations and the rest are the waste that the ledger's own tables give, in cents and in time."""
    part = whole.part(scope)
    money = whole.money if scope.is_all else whole.money.of(part.inside, whole.inventory)
    account, spent = money.accounts.total, found.waste
    whole_states = [state for state in WASTED if state != "low"]
    assert spent.state_cents is not None
    assert {state: spent.state_cents[state] for state in whole_states} == {
        state: account.state_cents[state] for state in whole_states
    }
    assert 0 <= spent.state_cents["low"] <= account.state_cents["low"]
    rows = part.inside.segments
    span = (rows["end"] - rows["time"]) * rows["gpu_share"]
    unused_low = (span * (1 - rows.select(used_share()).to_series())).filter(rows["state"] == "low").sum()
    assert spent.state_ms["low"] == pytest.approx(unused_low)
    assert sum(each.cents or 0 for each in found.listed) + (spent.not_actionable_cents or 0) == spent.cents
    assert sum(each.gpu_ms for each in found.listed) + spent.not_actionable_ms == pytest.approx(spent.gpu_ms)
    now = [gpu for each in found.listed for gpu in each.gpus_now]
    assert len(now) == len(set(now))
    costs, gpus = whole.money.costs, set(rows["gpu"].unique())
    paid = sum(costs.rate_of(gpu) or 0.0 for gpu in gpus) * HOURS_PER_YEAR
    freed = None if found.value is None else found.value.freed
    if freed is not None:
        assert freed.low <= freed.point * (1 + _MOST_ROUNDED)
        assert freed.point <= min(freed.high, paid) * (1 + _MOST_ROUNDED)
    points = [each.value.freed.point for each in found.ranked if each.value and each.value.freed]
    assert points == sorted(points, reverse=True)


@pytest.mark.parametrize("window", WINDOWS)
def test_recommendations_and_the_rest_are_the_waste_in_every_scope(
    simulated: tuple[Lake, object], window: tuple[str, str | None]
) -> None:
    whole = whole_of(simulated[0].root, *window)
    pools = {each.label for each in whole.money.accounts.by("pool") if each.name}
    people = [each.label for each in whole.money.accounts.by("user") if each.name][:4]
    for scope in (Scope(), *(Scope(pool=name) for name in pools), *(Scope(user=name) for name in people)):
        adds_up(whole, scope, whole.recommendations(scope, whole.part(scope)))


def _finding(rule: str, gpus: tuple[str, ...], user: str | None, grade: int, whole: Whole) -> Finding:
    until_ms = whole.found.context.until_ms
    sure, evidence = Confidence(("doubt",) * grade), Evidence(0, until_ms, {})
    named = (rule, "reclaim", rule, f"{rule}{gpus}{user}", gpus, "", "", user)
    return Finding(*named, 0, 0.0, None, sure, gpus, evidence, "", simulated=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_findings_say_no_time_is_in_two_recommendations(
    simulated: tuple[Lake, object], data: st.DataObject
) -> None:
    whole = whole_of(simulated[0].root, *WINDOWS[0])
    gpus = sorted(whole.ledger.inside.segments["gpu"].unique())
    users = [each.label for each in whole.money.accounts.by("user") if each.name]
    findings = data.draw(
        st.lists(
            st.builds(
                lambda rule, own, user, grade: _finding(rule, tuple(sorted(own)), user, grade, whole),
                st.sampled_from([rule.name for rule in RULES]),
                st.sets(st.sampled_from(gpus), min_size=1, max_size=5),
                st.sampled_from([None, *users, "+".join(users[:2])]),
                st.integers(0, 2),
            ),
            max_size=12,
            unique_by=lambda each: each.finding_id,
        )
    )
    scope = data.draw(st.sampled_from([Scope(), Scope(user=users[0]), Scope(pool=whole.inventory.pool(gpus[0]))]))
    decided = whole.decisions
    decisions = decide(replace(whole.decision_review, findings=tuple(findings)), decided.deadlines, decided.basis)
    own = whole.narrowed(whole.decision_window.ledger.inside, scope).segments
    adds_up(whole, scope, recommendations_in(decisions, own, asked=whole.part(scope).inside.segments))


def test_every_rule_has_its_place_in_the_precedence() -> None:
    assert all(rule.kinds == tuple(kind for kind in PRECEDENCE if kind in rule.kinds) != () for rule in RULES)
    for kind in PRECEDENCE:
        places = [rule.precedence for rule in rules_of_kind(kind)]
        assert len(set(places)) == len(places)


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A simulated fleet over more than one complete week."""
    lake = made_lake(tmp_path_factory.mktemp("two_weeks") / "lake")
    write_fleet(lake, SimulatedFleet(gpus=16, days=15, interval_ms=900_000, until_ms=20_777 * DAY_MS))
    return lake


def test_where_no_value_is_known_the_first_page_has_what_to_look_at(two_weeks: Lake) -> None:
    whole = whole_of(two_weeks.root, *WINDOWS[0])
    found = whole.recommendations(Scope(), whole.part(Scope()))
    assert found.ranked
    assert found.to_look_at
    unsure = first_recommendations(replace(found, listed=found.to_look_at))
    assert (first_recommendations(found).name, unsure.name) == ("recommendations", "to_look_at")
    assert [column.key for column in unsure.columns] == ["recommendation", "owner", "confidence", "cost"]
    assert len(unsure.rows) == min(6, len(found.to_look_at))
    assert str(unsure.headline).startswith("No recommendation frees a known amount of GPU time.")


def test_a_fleet_is_asked_what_its_recommendations_say_and_each_gpu_once(simulated: tuple[Lake, object]) -> None:
    whole = whole_of(simulated[0].root, *WINDOWS[0])
    listed = whole.recommendations(Scope(), whole.part(Scope())).listed
    by_id = {each.recommendation_id: each for each in listed}
    asked = nudge_items(listed, NudgeBasis({}, whole.found.context.until_ms, {}, {}))
    about = {each.about.recommendation_id for each in asked.items}
    assert about | {each.recommendation_id for each, _ in asked.left_out} == by_id.keys()
    gpus = [gpu for each in asked.items for gpu in each.gpus]
    assert len(gpus) == len(set(gpus)) > 0
    for item in asked.items:
        one = by_id[item.about.recommendation_id]
        said = one.value if one.ranked else None
        assert (item.gpus, item.about.deadline, item.about.value) == (one.gpus_now, one.deadline, said)
        assert item.to_operators == (one.owner == OPERATORS)
        assert item.to_operators or not any(RULES_BY_NAME[each.rule].of_machine for each in item.about.evidence)
    assert {each.to_operators for each in asked.items} == {True, False}


def test_a_recommendation_names_the_action_that_it_states(simulated: tuple[Lake, object]) -> None:
    whole = whole_of(simulated[0].root, *WINDOWS[0])
    listed = whole.recommendations(Scope(), whole.part(Scope())).listed
    said = {(each.kind.name, each.action, str(decision(each)).split()[0]) for each in listed}
    of_gpus = [(action, verb) for kind, action, verb in said if kind in ("held_idle", "allocated_idle", "faulty")]
    assert of_gpus == [(action, action) for action, _ in of_gpus]
    assert "ask" in {action for action, _ in of_gpus}
    actions = {kind.action for kind in PRECEDENCE}
    assert {action: str(ACTION_WORDS[action]) for action in actions} == {action: action for action in actions}


def test_short_pauses_are_no_recommendation(site: Recording) -> None:
    """Ann's GPU rests for forty minutes of each hour, waste that nobody can act on, and then for three hours."""
    rows = []
    for hour in range(26):
        rows += samples("a", hour * HOUR, hour * HOUR + 1200, every_s=300, **BUSY)
        rows += samples("a", hour * HOUR + 1200, (hour + 1) * HOUR, every_s=300, **HELD)
    rows += samples("a", 26 * HOUR, 29 * HOUR, every_s=300, **HELD)
    fill(site, rows, processes("a", *range(0, 29 * HOUR, 300), every_s=300, user="ann", pid=1), devices=[device("a")])
    found = reviewed(site)
    recommendations = recommendations_in(
        decide(found, Deadlines(1, 5, 10, (), UTC), NO_WEEKS), found.context.inside.segments
    )
    (held,) = (each for each in recommendations.listed if each.gpu_ms > 0)
    assert held.gpu_ms == pytest.approx((3 * HOUR + 2400) * 1000, rel=0.05)
    assert recommendations.waste.not_actionable_ms == pytest.approx(25 * 2400 * 1000, rel=0.05)


def test_where_no_user_is_known_operators_act_with_whoever_was_given_the_gpu(site: Recording) -> None:
    """A pod's namespace says whom to ask, though neither processes nor a user were read."""
    idle = {"gpu_util_pct": 0.0, "mem_used_bytes": 30 * 2**30, "gpu_util_coverage_ratio": 1.0}
    pod = allocation("a", 0, None, None, "nlp/notebook-7f") | {"account": "nlp", "scheduler": "kubernetes"}
    fill(site, samples("a", 0, 29 * HOUR, every_s=300, **idle), allocations=[pod], devices=[device("a")])
    found = reviewed(site)
    listed = recommendations_in(
        decide(found, Deadlines(1, 5, 10, (), UTC), NO_WEEKS), found.context.inside.segments
    ).listed
    (held,) = (each for each in listed if each.gpus_now == ("a",))
    assert (held.owner, held.user) == (OPERATORS, None)
    assert held.given_to == "pod:nlp/notebook-7f"
    assert str(who_acts(held)) == "operators, with pod:nlp/notebook-7f"


@pytest.mark.parametrize(("unknown", "releasable"), [(7, None), (0, 0)])
def test_where_no_demand_is_known_no_reserve_says_how_many_can_go(unknown: int, releasable: int | None) -> None:
    found = replace(FleetDemand.of(), free_now=unknown, demand_unknown=unknown)
    assert what_if_reserve(found, MARGIN).releasable == releasable


def test_hosts_that_jobs_need_whole_are_not_broken(site: Recording) -> None:
    """Two hosts of eight; jobs fill h1 for two of nine days; now each has two idle GPUs: one host may be broken up."""
    job = {"every_s": STEP, "user": "ann", "pid": 1, "slurm_job_id": "7"}
    late = 9 * DAY - 2 * HOUR
    for host in ("h1", "h2"):
        own, rows, lists = [f"{host}-{place}" for place in range(8)], [], []
        for place, gpu in enumerate(own):
            first, last = 2 * DAY if host == "h1" else 0, 9 * DAY if place < 2 else late
            rows += samples(gpu, 0, first, every_s=STEP, **BUSY) + samples(gpu, first, last, every_s=STEP, **FREE)
            rows += samples(gpu, last, 9 * DAY, every_s=STEP, **BUSY)
            lists += processes(gpu, *range(0, first, STEP), **job)
            lists += processes(gpu, *range(last, 9 * DAY, STEP), **(job | {"slurm_job_id": gpu}))
        fill(site, rows, lists, devices=[device(gpu, pool="train") for gpu in own], host=host)
    (pool,) = fleet_demand(reviewed(site, since="2d").context, ()).pools
    assert pool.release is not None
    assert (pool.free_now, pool.reserve, pool.kept_for_hosts, pool.releasable) == (4, 0, 2, 2)
    assert {gpu.partition("-")[0] for gpu in pool.release.now} == {"h1"}


LOST = {"gpu_util_pct": None, "process_count": None, "health": "lost"}


def host_of_eight(
    site: Site, host: str, busy: int, days: float, *, pool: str = "x", lost_for: float | None = None
) -> Site:
    """Ann works on the first `busy` GPUs; `lost_for`: hours at the end in which all are lost, or, if 0, silent."""
    last = days * DAY if lost_for is None else days * DAY - (lost_for or 3) * HOUR
    rows, lists = [], []
    for place in range(8):
        gpu = f"{host}-{place}"
        rows += samples(gpu, 0, last, every_s=STEP, **(BUSY if place < busy else FREE))
        rows += samples(gpu, last, days * DAY, every_s=STEP, **LOST) if lost_for else []
        lists += processes(gpu, *range(0, int(last), STEP), every_s=STEP, user="ann", pid=1) if place < busy else []
    return fill(site, rows, lists, devices=[device(f"{host}-{place}", pool=pool) for place in range(8)], host=host)


@pytest.mark.parametrize("lost_for", [3, 0], ids=["out of order", "silent"])
def test_work_of_gpus_that_fell_out_is_still_to_be_done(site: Recording, lost_for: float) -> None:
    """Nine of sixteen were needed at once; of the eight that are left none can go."""
    host_of_eight(site, "h1", 2, 9)
    host_of_eight(site, "h2", 7, 9, lost_for=lost_for)
    (pool,) = fleet_demand(reviewed(site, since="2d").context, ()).pools
    assert (pool.gpus, pool.missing, pool.free_now, pool.releasable) == (8, 8, 6, 0)


def test_what_moved_is_decided_where_it_is(lake: Lake) -> None:
    """Three idle GPUs moved from pool a to pool b before the end: each is in recommendations of b alone."""
    host_of_eight(lake, "a", 2, 16, pool="a")
    moved = [device(f"a-{place}", pool="b", time=T0 + 15 * DAY * 1000) for place in (5, 6, 7)]
    fill(lake, [], devices=moved, host="a")
    host_of_eight(lake, "b", 2, 16, pool="b")
    whole = whole_of(lake.root, "3d", None)
    found = {name: whole.recommendations(scope := Scope(pool=name), whole.part(scope)) for name in ("a", "b", None)}
    released = {name: each.fleet.releasable for name, each in found.items() if each.fleet is not None}
    assert released["a"] + released["b"] == released[None]
    values = {name: value_of(scope.listed) for name, scope in found.items()}
    points = {name: own.freed.point for name, own in values.items() if own is not None and own.freed is not None}
    assert points["a"] > 0
    assert points["a"] + points["b"] == pytest.approx(points[None])
    assert not {f"a-{place}" for place in (5, 6, 7)} & {gpu for each in found["a"].listed for gpu in each.gpus_now}
    ann = Scope(user="ann")
    assert [
        each.action for each in whole.recommendations(ann, whole.part(ann)).listed if each.action == "release"
    ] == []


def test_where_all_fell_silent_nothing_is_released(site: Recording) -> None:
    host_of_eight(site, "h1", 2, 9)
    found = fleet_demand(reviewed(site, "2026-11-25", "2026-11-30", later_ms=3 * DAY * 1000).context, ())
    assert (found.unseen_since_ms, found.pools, found.is_known) == (T0 + 9 * DAY * 1000, (), False)


def test_the_command_prints_what_adds_up(two_weeks: Lake) -> None:
    args = ("recommendations", "--lake", two_weeks.root, "--since", "2026-11-13", "--json")
    done = run_in_process(*args)
    content = json.loads(done.stdout)
    parts = {"window", "prices", "recommendations", "waste", "pool_demand", "value_per_year", "value_weeks", "waiting"}
    assert parts == set(content)
    waste = content["waste"]
    total = sum(each["cost"] or 0 for each in content["recommendations"]) + waste["not_actionable"]["cost"]
    assert round(total, 2) == waste["cost"]
    ranked = [each for each in content["recommendations"] if each["ranked"]]
    assert ranked
    assert all(each["value_per_year"]["freed"]["point"] > 0 and each["confidence"] != "low" for each in ranked)
    assert "SIMULATED" in done.stderr


def test_another_pool_and_other_people_are_not_listed(simulated: tuple[Lake, object]) -> None:
    whole = whole_of(simulated[0].root, *WINDOWS[0])
    for name in {each.label for each in whole.money.accounts.by("pool") if each.name}:
        scope = Scope(pool=name)
        listed = whole.recommendations(scope, whole.part(scope)).listed
        assert all(any(whole.inventory.pool(gpu) == name for gpu in each.gpus) for each in listed if each.gpus)
    for user in [each.label for each in whole.money.accounts.by("user") if each.name]:
        scope = Scope(user=user)
        others = {each.label for each in whole.money.accounts.by("user")} - {user}
        said = str([record(DECISION_COLUMNS, each) for each in whole.recommendations(scope, whole.part(scope)).listed])
        assert not [name for name in others if f"'{name}'" in said or f"+{name}" in said]


def test_a_lake_of_two_minutes_gives_no_all_clear(lake: Lake) -> None:
    fill(lake, samples("a", 0, 120, every_s=10, **FREE), devices=[device("a", pool="train")])
    done = run_in_process("recommendations", "--lake", lake.root)
    assert "1 GPU unallocated now, 1 in pools whose demand is known from" in done.stdout
    assert "have too little history" in done.stdout


def test_free_time_in_off_peak_hours_is_cut_exactly() -> None:
    """Hours from Monday 22:00 to Tuesday 02:00: of a row from 21:30 to 03:00 four of five and a half hours."""
    window = OffPeak("train", 0, 22, 26, 4, 5)
    monday_ms = parse_day_ms("2026-11-16")
    rows = pl.DataFrame(
        {
            "gpu": ["a", "a", "b"],
            "time": [monday_ms + 21 * 3_600_000 + 1_800_000, monday_ms + 25 * 3_600_000 + 1_800_000, monday_ms],
            "end": [monday_ms + 27 * 3_600_000, monday_ms + 26 * 3_600_000, monday_ms + 48 * 3_600_000],
        }
    )
    pools = SimpleNamespace(inventory=SimpleNamespace(pool={"a": "train", "b": "other"}.get))
    found = IdleHours({"train": (window,)}, UTC).shares(pools, rows)  # type: ignore[arg-type]  # it reads no other part
    assert found[SHARE].to_list() == pytest.approx([4 / 5.5, 1.0, 0.0])


@pytest.fixture(scope="module")
def with_surplus(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Two weeks of a pool of three hosts: one at work, one never used, and of the third a day's work of two GPUs."""
    root = tmp_path_factory.mktemp("surplus")
    fleet = Fleet(15, interval_s=1800)
    first, second, _ = (fleet.host(name, H100, 8) for name in ("h1", "h2", "h3"))
    train(fleet, first, "ann")
    train(fleet, second[:2], "ben", fleet.between(0, 1), job="1002")
    train(fleet, second[2:], "ben", fleet.between(0, 0.5), job="1003")
    fleet.write(made_lake(root))
    return whole_of(str(root), "2026-01-01", None)


def test_gpus_that_can_go_are_those_that_the_finding_of_their_pool_names(with_surplus: Whole) -> None:
    listed = with_surplus.recommendations(Scope(), with_surplus.part(Scope())).listed
    (each,) = (each for each in listed if each.kind is SURPLUS and each.finding is not None)
    assert each.finding is not None
    assert each.gpus_now
    assert set(each.gpus_now) <= set(each.finding.gpus)


def test_gpus_left_free_are_worth_all_of_their_time(tmp_path: Path) -> None:
    """As all that leaves the pool: also the time before they were left, in which they worked."""
    fleet = Fleet(30, interval_s=3600)
    first, second = (fleet.host(name, H100, 8) for name in ("h1", "h2"))
    train(fleet, first[:4], "ann")
    train(fleet, second[:2], "ben", fleet.between(0, -16), job="1002")
    fleet.write(made_lake(tmp_path / "lake"))
    whole = whole_of(str(tmp_path / "lake"), "2026-01-01", None)
    listed = whole.recommendations(Scope(), whole.part(Scope())).listed
    (each,) = (each for each in listed if each.kind is LEFT_FREE and each.gpus_now)
    assert each.value is not None
    assert each.value.gpu_hours.point == pytest.approx(len(each.gpus_now) * HOURS_PER_YEAR)


def test_what_has_no_price_is_told_and_is_no_zero(with_surplus: Whole, tmp_path: Path) -> None:
    """Without any price no sum is said; with that of one pool the hours of the others stand beside the sum."""
    lake, config = with_surplus.inputs.lake.root, tmp_path / "fallow.toml"
    config.write_text('[money]\ncurrency = "EUR"\n')
    command = ("recommendations", "--lake", lake, "--config", str(config), "--since", "7d")
    found = json.loads(run_in_process(*command, "--json").stdout)
    assert {each["cost"] for each in found["recommendations"]} == {None}
    assert found["waste"]["unpriced_gpu_hours"] == found["waste"]["gpu_hours"] > 0
    text = " ".join(run_in_process(*command).stdout.split())
    assert "No price is known, so recommendations cannot be ranked by value." in text
    assert "0.00" not in text


def test_public_list_prices_are_called_so_and_a_sites_own_are_not(with_surplus: Whole, tmp_path: Path) -> None:
    command = ("recommendations", "--lake", with_surplus.inputs.lake.root, "--since", "7d")
    assert "100.0 % of the GPU time has public list prices" in " ".join(run_in_process(*command).stdout.split())
    prices, config = tmp_path / "prices.csv", tmp_path / "fallow.toml"
    prices.write_text("pool,hourly,currency,source\ntrain,2.5,USD,ours\n")
    config.write_text(f'[money]\nprices = "{prices}"\n')
    own = run_in_process(*command, "--config", str(config))
    assert "cost" in own.stdout
    assert "public list" not in own.stdout
