"""Every table adds up to what was paid, to the cent."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.money.accounts import GROUPS, EfficiencyRank
from analytics.money.energy import Energy, Grid
from analytics.money.priced_segments import MICROCENTS, nested
from analytics.tables.accounts import COST_PARTS
from fallow.clock import HOUR_MS, Window
from fallow.schema import STATES
from tests.money.fleet import MODELS, T0, accounts, book, owners, segment

if TYPE_CHECKING:
    import random

    from analytics.money.accounts import Account, Accounts
    from tests.money.fleet import Row

TEAMS = owners(ann="research/vision", bob="research/speech", eve="product/serving")


def by_label(found: Accounts, group: str) -> dict[str, Account]:
    return {row.label: row for row in found.by(group)}


def cents(row: Account) -> dict[str, int]:
    return {state: each for state, each in row.state_cents.items() if each}


def test_the_docs_name_every_part_of_the_amount_paid() -> None:
    docs = Path(__file__).parents[2].joinpath("docs/money.md").read_text(encoding="utf-8")
    found = re.search(r"\*\*paid = (.+)\*\*", docs)
    assert found is not None
    assert found[1].split(" + ") == [part.key for part in COST_PARTS]


def test_by_hand() -> None:
    rows = [
        segment("a1", 0, 3600, "active", user="ann"),
        segment("a1", 3600, 5400, "held", user="ann"),
        segment("a1", 5400, 7200, "free"),
        segment("b2", 0, 3600, "reserved", user="bob", account="sp01"),
        segment("b2", 3600, 7200, "unknown"),
    ]
    found = accounts(rows, TEAMS)
    assert cents(found.total) == {"active": 688, "held": 344, "free": 344, "reserved": 186, "unknown": 186}
    assert found.total.paid_cents == 1748
    assert found.total.efficiency == pytest.approx(3600 / 9000)
    teams = by_label(found, "team")
    assert set(teams) == {"vision", "speech", "(nobody)"}
    assert (teams["vision"].paid_cents, teams["speech"].paid_cents, teams["(nobody)"].paid_cents) == (1032, 186, 530)
    assert teams["vision"].efficiency == pytest.approx(2 / 3)
    assert teams["speech"].efficiency == 0
    assert teams["(nobody)"].efficiency is None, "nothing was allocated: not 100 %"
    assert (teams["vision"].rank_gpu_time, teams["speech"].rank_gpu_time) == (1, 2)
    assert teams["(nobody)"].rank_gpu_time is None
    assert set(by_label(found, "account")) == {"sp01", "(no account)", "(nobody)"}
    assert set(by_label(found, "pool")) == {"pool-1", "pool-2"}


def test_low_time_counts_by_its_activity() -> None:
    rows = [
        segment("a1", 0, 3600, "low", user="ann", gpu_util_mean_pct=8.0, sm_active_mean_pct=2.0),
        segment("a1", 3600, 7200, "low", user="ann", gpu_util_mean_pct=4.0),
        segment("a1", 7200, 10800, "active", user="ann"),
    ]
    found = accounts(rows, TEAMS).total
    assert found.efficiency == pytest.approx((0.02 + 0.04 + 1) / 3), "SM activity where measured, else utilization"
    assert found.low_by_sm == 0.5
    never = accounts([segment("a1", 0, 604_800, "low", user="ann", gpu_util_mean_pct=4.0)], TEAMS).total
    assert (never.efficiency, never.low_by_sm) == (pytest.approx(0.04), 0.0), "a week below 10 % is not a week of use"


def test_ranks_compare_only_those_with_the_same_model() -> None:
    rows = [
        segment("a1", 0, 7200, "active", user="ann"),
        segment("a2", 0, 3600, "held", user="bob"),
        segment("b1", 0, 36000, "held", user="ann"),
        segment("b2", 0, 3600, "active", user="bob"),
        segment("b3", 0, 3600, "active", user="eve"),
        segment("b3", 3600, 5400, "active", user="carl"),
        segment("c1", 0, 90000, "active", user="dora"),
    ]
    ranks = {name: row.efficiency_rank for name, row in by_label(accounts(rows, TEAMS), "user").items()}
    ann, bob, eve = (ranks[name] for name in ("ann", "bob", "eve"))
    assert ann == EfficiencyRank(3, 3, str(MODELS["b"]), 10 * HOUR_MS, 0.0), "on the model of which she had most"
    assert bob == EfficiencyRank(2, 2, str(MODELS["a"]), HOUR_MS, 0.0), "of as much of both, the first by name"
    assert eve == EfficiencyRank(1, 3, str(MODELS["b"]), HOUR_MS, 1.0), "bob is as good and shares the rank"
    assert ranks["carl"] is None, "half an hour is not compared"
    assert ranks["dora"] is None, "there is nobody to compare with"


def test_several_users_share_by_their_process_time_and_equally_without_it() -> None:
    rows = [
        segment("a1", 0, 3600, "active", user="ann+bob", user_shares=[0.75, 0.25]),
        segment("a1", 3600, 7200, "held", user="ann+eve"),
    ]
    users = by_label(accounts(rows, TEAMS), "user")
    spent = {name: cents(row) for name, row in users.items()}
    assert spent == {"ann": {"active": 516, "held": 344}, "bob": {"active": 172}, "eve": {"held": 344}}
    assert by_label(accounts(rows, TEAMS), "organisation")["research"].paid_cents == 1032


def test_a_mig_instance_costs_its_share() -> None:
    rows = [
        segment("a1", 0, 3600, "free", gpu_share=4 / 7, energy_mj=3.6e9, energy_ms=3_600_000),
        segment("MIG-1", 0, 3600, "active", gpu_share=3 / 7, user="ann"),
    ]
    found = accounts(rows, TEAMS, MIG_1="a1")
    assert found.total.paid_cents == 688
    assert found.total.gpus == 1
    assert by_label(found, "user")["ann"].paid_cents == 295
    assert by_label(found, "model")[str(MODELS["a"])].paid_cents == 688
    assert found.total.energy.kwh == pytest.approx(1.0), "the counter is the whole GPU's"
    assert by_label(found, "user")["ann"].energy.kwh is None, "the counter says nothing of an instance"


def test_time_without_a_price_is_in_no_sum_of_money_but_in_the_hours() -> None:
    rows = [segment(gpu, 0, 3600, "active", user=who) for gpu, who in (("a1", "ann"), ("c2", "ann"), ("d3", "bob"))]
    found = accounts(rows, TEAMS)
    assert found.total.paid_cents == 688
    assert found.total.unpriced_ms == 2 * HOUR_MS
    assert found.total.total_ms == 3 * HOUR_MS
    users = by_label(found, "user")
    assert (users["ann"].paid_cents, users["ann"].unpriced_ms) == (688, HOUR_MS)
    assert users["bob"].paid_cents is None, "unknown is not 0"
    assert by_label(found, "model")["unknown model"].name is None


def test_a_user_that_is_not_known_is_not_nobody_and_free_time_stays_in_its_pool() -> None:
    rows = [segment("a1", 0, 3600, "held"), segment("a1", 3600, 7200, "held", user="carl")]
    rows += [segment("b1", 0, 3600, "free"), segment("b1", 3600, 7200, "unavailable", user="ann")]
    found = accounts(rows, TEAMS)
    assert set(by_label(found, "user")) == {"(unknown user)", "carl", "(nobody)"}
    assert set(by_label(found, "team")) == {"(unknown user)", "(no team)", "(nobody)"}
    nothing = accounts([])
    assert (nothing.total.total_ms, nothing.total.efficiency) == (0, None)
    assert all(nothing.by(group) == () for group in GROUPS)


def test_doubtful_low_use_takes_from_the_efficiency_no_more_than_it_gave() -> None:
    hour = {"user": "ann", "sampled_ms": HOUR_MS, "perhaps_idle_ms": HOUR_MS, "perhaps_stalled_ms": 0}
    watched = hour | {"sampled_ms": 0, "perhaps_idle_ms": 0}
    rows = [segment("a1", 0, 3600, "active", **watched)]
    rows += [segment("a1", 3600, 7200, "low", **hour, gpu_util_mean_pct=5.0)]
    found = accounts(rows).total
    assert found.efficiency == pytest.approx(1.05 / 2)
    assert found.efficiency_bound == pytest.approx((1 / 2, 1.05 / 2)), "the busy hour was watched"
    ranked = accounts([*rows, segment("a2", 0, 3600, "active", **watched | {"user": "bob"})], TEAMS).by("user")
    ann, bob = (row.efficiency_rank for row in sorted(ranked, key=lambda row: row.label))
    assert ann is not None
    assert bob is not None
    assert (ann.efficiency_bound, ann.unconfirmed) == (found.efficiency_bound, True)
    assert (bob.efficiency_bound, bob.unconfirmed) == (None, True), "the other one's is a range"


def test_energy_needs_to_be_known_for_nine_tenths_of_the_time() -> None:
    grid = Grid(pue=1.5, price_per_kwh=0.1, intensity=None)
    known = Energy(7.2e9, 90.0, 100.0)
    assert known.kwh == 2
    assert grid.drawn_kwh(known) == 3
    assert grid.cost(known) == pytest.approx(0.3)
    unknown = Energy(7.2e9, 89.0, 100.0)
    assert unknown.kwh is grid.cost(unknown) is None
    assert unknown.known_share == 0.89
    assert Energy(0.0, 0.0, 0.0).kwh is None
    assert Energy(0.0, 100.0, 100.0).kwh == 0, "a measured 0 is a number"


def test_energy_by_state() -> None:
    rows = [
        segment("a1", 0, 3600, "active", user="ann", energy_mj=3.6e9, energy_ms=3_600_000),
        segment("a1", 3600, 7200, "held", user="ann", energy_mj=1.8e9, energy_ms=1_800_000),
    ]
    found = accounts(rows, TEAMS)
    assert found.energy_by_state["active"].kwh == pytest.approx(1.0)
    assert found.energy_by_state["held"].kwh is None
    assert found.total.energy.kwh is None
    assert found.total.energy.known_share == 0.75


NAMES = st.sampled_from([None, "ann", "bob", "carl", "ann+bob", "ann+bob+eve"])


SHARES = st.sampled_from([1.0, 1 / 7, 3 / 7, 0.25])
SPANS = st.tuples(
    st.floats(0.001, 20_000), st.sampled_from(STATES), NAMES, st.sampled_from([None, "x", "y", "x+y"]), SHARES
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Row]:
    """Up to five GPUs, each with segments of any states and users; some are MIG instances without a known energy."""
    rows: list[Row] = []
    for gpu in draw(st.lists(st.sampled_from(["a1", "a2", "b1", "c2", "d1"]), unique=True, min_size=1)):
        start: float = draw(st.integers(-7200, 7200))
        for length, state, user, account, share in draw(st.lists(SPANS, min_size=1, max_size=6)):
            values = {"user": user, "account": account, "gpu_share": share}
            if "+" in (user or "") and draw(st.booleans()):
                raw = [draw(st.floats(0.01, 1)) for _ in user.split("+")]
                values["user_shares"] = [each / sum(raw) for each in raw]
            rows.append(segment(gpu, start, start + length, state, **values))
            start += length
    return rows


PRICES = st.fixed_dictionaries(
    {str(MODELS["a"]): st.decimals("0.0001", "50", places=4), str(MODELS["b"]): st.decimals("0", "3", places=3)}
)


def exact_cents(rows: list[Row], hourly: dict[str, Decimal]) -> dict[str, Fraction]:
    """What each state costs, exactly."""
    found = dict.fromkeys(STATES, Fraction(0))
    for row in rows:
        model = MODELS[row["gpu"][0]]
        if model in hourly:
            hours = Fraction(row["end"] - row["time"]) * Fraction(row["gpu_share"]) / HOUR_MS
            found[row["state"]] += hours * Fraction(hourly[model]) * 100
    return found


MOVES = st.lists(
    st.tuples(st.sampled_from(["a1", "b1"]), st.integers(0, 30_000), st.sampled_from("xyz")),
    max_size=5,
    unique_by=lambda move: move[:2],
)


@given(fleets(), PRICES, MOVES, st.randoms(use_true_random=False))
def test_every_table_adds_up_to_what_was_paid_in_any_order_of_the_rows(
    rows: list[Row], hourly: dict[str, Decimal], moves: list[tuple[str, int, str]], random_: random.Random
) -> None:
    """Also of GPUs that change their pool."""
    found, other = (
        accounts(each, TEAMS, book(hourly), moves=moves) for each in (rows, random_.sample(rows, len(rows)))
    )
    exact = exact_cents(rows, hourly)
    total = found.total
    assert abs(sum(total.state_cents.values()) - sum(exact.values())) <= Fraction(501, 1000)
    for state in STATES:
        assert abs(total.state_cents[state] - exact[state]) < Fraction(1001, 1000)
    for group in GROUPS:
        table = found.by(group)
        assert [(row.label, row.state_cents) for row in table] == [
            (row.label, row.state_cents) for row in other.by(group)
        ]
        for state in STATES:
            assert sum(row.state_cents[state] for row in table) == total.state_cents[state], (group, state)
            assert sum(row.state_ms[state] for row in table) == pytest.approx(total.state_ms[state])
        for row in table:
            parts = row.used_cents + sum(row.state_cents[state] for state in STATES if state not in ("active", "low"))
            assert row.paid_cents in (None, parts), "what was paid is used or of one of the other states"
        assert sum(row.unpriced_ms for row in table) == pytest.approx(total.unpriced_ms)


@given(fleets(), PRICES, st.lists(st.integers(-7200, 60_000), min_size=1, max_size=3, unique=True))
def test_windows_that_meet_add_up_to_the_whole_within_the_rounding(
    rows: list[Row], hourly: dict[str, Decimal], cuts_s: list[int]
) -> None:
    """Each window's paid is within half a cent and each state within one cent of its exact amount."""
    prices = book(hourly)
    cuts = [None, *(T0 + cut * 1000 for cut in sorted(cuts_s)), None]
    whole = accounts(rows, TEAMS, prices).total
    parts = [accounts(rows, TEAMS, prices, Window(*ends)).total for ends in itertools.pairwise(cuts)]
    paid = sum(sum(part.state_cents.values()) for part in parts)
    assert abs(paid - sum(whole.state_cents.values())) <= (len(parts) + 1) / 2
    for state in STATES:
        assert abs(sum(part.state_cents[state] for part in parts) - whole.state_cents[state]) <= len(parts) + 1
        assert sum(part.state_ms[state] for part in parts) == pytest.approx(whole.state_ms[state])


KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from("cde"), st.sampled_from("fghi"))


@given(st.dictionaries(KEYS, st.integers(0, 10**9), max_size=24))
def test_cents_go_down_the_levels_and_every_figure_is_within_a_cent(amounts: dict[tuple[str, ...], int]) -> None:
    shared = nested(amounts)
    assert abs(sum(shared.values()) * MICROCENTS - sum(amounts.values())) <= MICROCENTS / 2
    for level in range(1, 4):
        for prefix in {key[:level] for key in amounts}:
            below = [key for key in amounts if key[:level] == prefix]
            off = sum(shared[key] for key in below) * MICROCENTS - sum(amounts[key] for key in below)
            assert abs(off) < MICROCENTS, prefix
    assert all(shared[key] == 0 for key, amount in amounts.items() if not amount), "nothing costs nothing"


def test_the_highest_price_that_a_table_may_have_is_summed_exactly() -> None:
    hourly = Decimal("999999999999.99")
    rows = [segment("a1", hour * 3600, (hour + 1) * 3600, "active", user="ann+bob+eve") for hour in range(1000)]
    found = accounts(rows, TEAMS, book({str(MODELS["a"]): hourly}))
    exact = int(hourly * 100) * 1000
    # a float has 16 digits: so many are right of each hour's amount, and what they leave is lost nowhere
    assert abs(found.total.state_cents["active"] - exact) <= 1000
    for group in GROUPS:
        assert sum(row.state_cents["active"] for row in found.by(group)) == found.total.state_cents["active"]
