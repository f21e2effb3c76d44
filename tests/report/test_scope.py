"""A pool's, a team's or a holder's part: parts add up to the whole, and nobody gets anybody else's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.inventory import load_inventory
from analytics.ledger.summary import summarise
from analytics.money.costs import Costs
from analytics.money.owners import Owner, Owners
from analytics.money.prices import PriceBook
from analytics.scope import Scope, narrow
from analytics.window import WindowLedger
from fallow.errors import EmptyLakeError
from tests.ledger.rows import claim, device, fill, load, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

BUSY = {"gpu_util_pct": 90.0, "process_count": 1}
SHARED = {"gpu_util_pct": 90.0, "process_count": 2}
HOUR_S = 3600
TEAMS = {"ann": "vision", "bob": "speech", "eve": "vision"}
OWNERS = Owners({("user", name): Owner("user", name, team) for name, team in TEAMS.items()})


@pytest.fixture
def fleet(lake: Lake) -> Lake:
    """One hour of: a (ann), b (ann and bob at once), c (claimed by eve, no process), d (free), e (somebody unknown)."""
    rows = [
        *samples("a", 0, HOUR_S, **BUSY),
        *samples("b", 0, HOUR_S, **SHARED),
        *samples("c", 0, HOUR_S),
        *samples("d", 0, HOUR_S),
        *samples("e", 0, HOUR_S, **BUSY),
    ]
    lists = [
        *processes("a", *range(0, HOUR_S, 30), user="ann"),
        *processes("b", *range(0, HOUR_S, 30), user="ann", pid=1),
        *processes("b", *range(0, HOUR_S, 30), user="bob", pid=2),
        *processes("e", *range(0, HOUR_S, 30), user=None),
    ]
    pools = {"a": "train", "b": "train", "c": "train", "d": "dev", "e": "dev"}
    models = {"b": "NVIDIA L40S", "e": "NVIDIA L40S"}
    return fill(
        lake,
        rows,
        lists,
        [claim("c", 0, HOUR_S, "eve")],
        devices=[device(gpu, pool=pool, model=models.get(gpu, "NVIDIA H200")) for gpu, pool in pools.items()],
    )


def hours(lake: Lake, scope: Scope) -> dict[str, float]:
    """GPU-hours by state that the scope leaves."""
    whole = load(lake)
    inventory = load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    costs = Costs(PriceBook.load(None, "USD"), inventory)
    found = narrow(ledger, scope, costs, inventory, OWNERS).summary.totals.state_ms
    return {state: round(value / HOUR_S / 1000, 6) for state, value in found.items() if value}


def test_everything(fleet: Lake) -> None:
    assert hours(fleet, Scope()) == {"active": 3, "reserved": 1, "free": 1}


def test_pools_add_up(fleet: Lake) -> None:
    assert hours(fleet, Scope(pool="train")) == {"active": 2, "reserved": 1}
    assert hours(fleet, Scope(pool="dev")) == {"active": 1, "free": 1}


def test_models_add_up_and_meet_pools(fleet: Lake) -> None:
    assert hours(fleet, Scope(model="NVIDIA L40S")) == {"active": 2}
    assert hours(fleet, Scope(model="NVIDIA H200")) == {"active": 1, "reserved": 1, "free": 1}
    assert hours(fleet, Scope(pool="dev", model="NVIDIA L40S")) == {"active": 1}
    assert hours(fleet, Scope(model="NVIDIA L40S", team="speech")) == {"active": 0.5}


def test_teams_have_their_share_of_a_shared_gpu_and_what_they_reserved(fleet: Lake) -> None:
    assert hours(fleet, Scope(team="vision")) == {"active": 1.5, "reserved": 1}
    assert hours(fleet, Scope(team="speech")) == {"active": 0.5}


def test_a_holder_has_no_free_time_and_not_that_of_unknown_people(fleet: Lake) -> None:
    assert hours(fleet, Scope(holder="ann")) == {"active": 1.5}
    assert hours(fleet, Scope(holder="bob")) == {"active": 0.5}
    assert hours(fleet, Scope(pool="dev", team=None, holder=None)) == {"active": 1, "free": 1}


def test_scopes_meet(fleet: Lake) -> None:
    assert hours(fleet, Scope(pool="train", team="vision", holder="eve")) == {"reserved": 1}


@pytest.mark.parametrize("scope", [Scope(pool="nowhere"), Scope(team="sales"), Scope(pool="dev", holder="ann")])
def test_nothing_is_said_of_nobody(fleet: Lake, scope: Scope) -> None:
    with pytest.raises(EmptyLakeError, match="nothing in this window is of"):
        hours(fleet, scope)


def test_zero_time_of_a_holder_is_that_of_their_gpus(lake: Lake) -> None:
    idle = {"gpu_util_pct": 0.0, "process_count": 1}
    fill(
        lake,
        samples("a", 0, HOUR_S, **idle) + samples("b", 0, HOUR_S),
        processes("a", *range(0, HOUR_S, 30), user="ann"),
    )
    whole = load(lake)
    inventory = load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    part = narrow(ledger, Scope(holder="ann"), Costs(PriceBook.load(None, "USD"), inventory), inventory, OWNERS)
    assert ledger.summary.idle.zero_ms == 2 * HOUR_S * 1000
    assert part.summary.idle.zero_ms == HOUR_S * 1000
    assert part.inside.spells.select((pl.col("spell_end") - pl.col("spell_start")).max()).item() == HOUR_S * 1000


def test_who_gave_a_gpu_back_has_not_stopped_reporting(lake: Lake) -> None:
    """Ann holds the GPU for the first of five hours; an edition of hers is about the same window as everybody's."""
    rows = samples("a", 0, HOUR_S, **BUSY) + samples("a", HOUR_S, 5 * HOUR_S)
    fill(lake, rows, processes("a", *range(0, HOUR_S, 30), user="ann"))
    whole, inventory = load(lake), load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    costs = Costs(PriceBook.load(None, "USD"), inventory)
    part = narrow(ledger, Scope(holder="ann"), costs, inventory, OWNERS).summary
    assert (part.since_ms, part.until_ms) == (ledger.summary.since_ms, ledger.summary.until_ms)
    assert part.until_ms - part.since_ms == 5 * HOUR_S * 1000
    assert part.stopped_gpus == 0


def test_a_pool_counts_its_silent_gpus(lake: Lake) -> None:
    rows = samples("a", 0, HOUR_S) + samples("b", 0, 5 * HOUR_S)
    fill(lake, rows, devices=[device("a", pool="train"), device("b", pool="dev")])
    whole, inventory = load(lake), load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    costs = Costs(PriceBook.load(None, "USD"), inventory)
    stopped = [
        narrow(ledger, Scope(pool=pool), costs, inventory, OWNERS).summary.stopped_gpus for pool in ("train", "dev")
    ]
    assert stopped == [1, 0]


def left(lake: Lake, scope: Scope, owners: Owners = OWNERS) -> list[tuple[object, ...]]:
    """Holder, account, job and shares of the rows that the scope leaves, each once."""
    whole, inventory = load(lake), load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    rows = narrow(ledger, scope, Costs(PriceBook.load(None, "USD"), inventory), inventory, owners).inside.stretches
    return sorted(rows.select("holder", "account", "job", "holder_shares").unique().rows(), key=str)


def both(lake: Lake, one: dict[str, object], other: dict[str, object]) -> Lake:
    """An hour of a GPU with a process of each of two."""
    ticks = range(0, HOUR_S, 30)
    lists = processes("a", *ticks, pid=1, **one) + processes("a", *ticks, pid=2, **other)
    return fill(lake, samples("a", 0, HOUR_S, **SHARED), lists)


def test_a_shared_gpu_tells_nothing_of_the_others_work(lake: Lake) -> None:
    mine = {"user": "ann", "slurm_job_id": "1", "slurm_account": "vision-account"}
    theirs = {"user": "bob", "pod": "p", "namespace": "speech-space"}
    both(lake, mine, theirs)
    accounts = {("account", "vision-account"): Owner("account", "vision-account", "vision")}
    owners = Owners({**OWNERS.by_name, **accounts})
    assert left(lake, Scope(team="vision"), owners) == [("ann", "vision-account", None, [0.5])]
    assert left(lake, Scope(holder="ann"), owners) == [("ann", "vision-account", None, [0.5])]
    assert left(lake, Scope(team="speech"), owners) == [("bob", None, None, [0.5])]
    assert left(lake, Scope(), owners)[0][2] == "pod:speech-space/p+slurm:1"


def test_of_one_team_a_shared_gpu_keeps_its_jobs(lake: Lake) -> None:
    both(lake, {"user": "ann", "slurm_job_id": "1"}, {"user": "eve", "slurm_job_id": "2"})
    assert left(lake, Scope(team="vision")) == [("ann+eve", None, "slurm:1+slurm:2", [0.5, 0.5])]
    assert left(lake, Scope(holder="eve")) == [("eve", None, None, [0.5])]


def test_an_account_is_not_that_of_whoever_works_beside_it(lake: Lake) -> None:
    both(lake, {"user": "ann", "slurm_job_id": "1", "slurm_account": "vision-account"}, {"user": "bob"})
    accounts = {("account", "vision-account"): Owner("account", "vision-account", "vision")}
    owners = Owners({**OWNERS.by_name, **accounts})
    assert left(lake, Scope(team="vision"), owners) == [("ann", "vision-account", None, [0.5])]
    assert left(lake, Scope(team="speech"), owners) == [("bob", None, None, [0.5])]


def test_work_of_unknown_people_is_not_that_of_whom_the_list_names(lake: Lake) -> None:
    """The ledger's row has one holder, and the pod of somebody whose name nobody knows."""
    both(lake, {"user": "ann"}, {"user": None, "pod": "p", "namespace": "speech-space"})
    assert left(lake, Scope()) == [("ann", "speech-space", "pod:speech-space/p", None)]
    assert left(lake, Scope(team="vision")) == [("ann", None, None, [1.0])]


def test_a_holder_keeps_what_is_theirs_alone(lake: Lake) -> None:
    both(lake, {"user": "ann", "slurm_job_id": "1"}, {"user": "ann", "pod": "p", "namespace": "space"})
    assert left(lake, Scope(team="vision")) == [("ann", "space", "pod:space/p+slurm:1", None)]


@pytest.mark.parametrize(
    ("who", "theirs", "kept"),
    [
        ("ann", "slurm_account", ("ann", "vision-account", None, [1.0])),
        ("ann", "namespace", ("ann", "vision-account", None, [1.0])),
        ("eve", "slurm_account", ("ann+eve", "vision-account", None, [0.5, 0.5])),
    ],
)
def test_a_joined_job_that_another_team_pays_is_not_shown(
    lake: Lake, who: str, theirs: str, kept: tuple[object, ...]
) -> None:
    """Of one person, or of two of a team: alone such a job is the other team's, and not shown either."""
    other = {"user": who, "slurm_job_id": "2", theirs: "speech-account"}
    both(lake, {"user": "ann", "slurm_job_id": "1", "slurm_account": "vision-account"}, other)
    lines = {
        ("account", "vision-account"): Owner("account", "vision-account", "vision"),
        ("account", "speech-account"): Owner("account", "speech-account", "speech"),
    }
    owners = Owners({**OWNERS.by_name, **lines})
    assert left(lake, Scope(team="vision"), owners) == [kept]
    assert "slurm:2" in str(left(lake, Scope(), owners))
    if who == "ann":  # they are all hers
        assert "slurm:2" in str(left(lake, Scope(holder="ann"), owners))
