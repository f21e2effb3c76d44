"""A pool's, a team's or a user's part: parts add up to the whole, and nobody gets anybody else's time."""

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
from tests.ledger.rows import allocation, device, fill, load, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

BUSY = {"gpu_util_pct": 90.0, "process_count": 1}
SHARED = {"gpu_util_pct": 90.0, "process_count": 2}
HOUR_S = 3600
TEAMS = {"ann": "vision", "bob": "speech", "eve": "vision"}
OWNERS = Owners({("user", name): Owner("user", name, team) for name, team in TEAMS.items()})


@pytest.fixture
def fleet(lake: Lake) -> Lake:
    """One hour of: a (ann), b (ann and bob at once), c (allocated by eve, no process), d (free), e (unknown user)."""
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
        [allocation("c", 0, HOUR_S, "eve")],
        devices=[device(gpu, pool=pool, model=models.get(gpu, "NVIDIA H200")) for gpu, pool in pools.items()],
    )


def part_of(lake: Lake, scope: Scope, owners: Owners = OWNERS) -> tuple[WindowLedger, WindowLedger]:
    """The window of the lake, and what the scope leaves of it."""
    whole, inventory = load(lake), load_inventory(lake)
    ledger = WindowLedger(whole, whole, summarise(whole))
    return ledger, narrow(ledger, scope, Costs(PriceBook.load(None, "USD"), inventory), inventory, owners)


def hours(lake: Lake, scope: Scope) -> dict[str, float]:
    """GPU-hours by state that the scope leaves."""
    found = part_of(lake, scope)[1].summary.totals.state_ms
    return {state: round(value / HOUR_S / 1000, 6) for state, value in found.items() if value}


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        (Scope(), {"active": 3, "reserved": 1, "free": 1}),
        (Scope(pool="dev"), {"active": 1, "free": 1}),
        (Scope(model="NVIDIA L40S"), {"active": 2}),
        (Scope(model="NVIDIA L40S", team="speech"), {"active": 0.5}),
        (Scope(team="vision"), {"active": 1.5, "reserved": 1}),
        (Scope(user="ann"), {"active": 1.5}),
        (Scope(pool="train", team="vision", user="eve"), {"reserved": 1}),
    ],
    ids=str,
)
def test_parts_add_up_and_people_have_their_share_and_neither_free_time_nor_that_of_unknown_people(
    fleet: Lake, scope: Scope, left: dict[str, float]
) -> None:
    assert hours(fleet, scope) == left


@pytest.mark.parametrize("scope", [Scope(pool="nowhere"), Scope(team="sales"), Scope(pool="dev", user="ann")])
def test_nothing_is_said_of_nobody(fleet: Lake, scope: Scope) -> None:
    with pytest.raises(EmptyLakeError, match="nothing in this window belongs to"):
        hours(fleet, scope)


def test_zero_time_of_a_user_is_that_of_their_gpus(lake: Lake) -> None:
    idle = {"gpu_util_pct": 0.0, "process_count": 1}
    fill(
        lake,
        samples("a", 0, HOUR_S, **idle) + samples("b", 0, HOUR_S),
        processes("a", *range(0, HOUR_S, 30), user="ann"),
    )
    ledger, part = part_of(lake, Scope(user="ann"))
    assert ledger.summary.idle.zero_ms == 2 * HOUR_S * 1000
    assert part.summary.idle.zero_ms == HOUR_S * 1000
    assert (
        part.inside.idle_intervals.select((pl.col("idle_interval_end") - pl.col("idle_interval_start")).max()).item()
        == HOUR_S * 1000
    )


def test_who_gave_a_gpu_back_has_not_stopped_reporting(lake: Lake) -> None:
    """Ann holds the GPU for the first of five hours; an edition of hers is about the same window as everybody's."""
    rows = samples("a", 0, HOUR_S, **BUSY) + samples("a", HOUR_S, 5 * HOUR_S)
    fill(lake, rows, processes("a", *range(0, HOUR_S, 30), user="ann"))
    ledger, narrowed = part_of(lake, Scope(user="ann"))
    part = narrowed.summary
    assert (part.since_ms, part.until_ms) == (ledger.summary.since_ms, ledger.summary.until_ms)
    assert part.until_ms - part.since_ms == 5 * HOUR_S * 1000
    assert part.stopped_gpus == 0


def test_a_pool_counts_its_silent_gpus(lake: Lake) -> None:
    rows = samples("a", 0, HOUR_S) + samples("b", 0, 5 * HOUR_S)
    fill(lake, rows, devices=[device("a", pool="train"), device("b", pool="dev")])
    stopped = [part_of(lake, Scope(pool=pool))[1].summary.stopped_gpus for pool in ("train", "dev")]
    assert stopped == [1, 0]


def left(lake: Lake, scope: Scope, owners: Owners = OWNERS) -> list[tuple[object, ...]]:
    """User, account, job and shares of the rows that the scope leaves, each once."""
    rows = part_of(lake, scope, owners)[1].inside.segments
    return sorted(rows.select("user", "account", "job", "user_shares").unique().rows(), key=str)


def both(lake: Lake, one: dict[str, object], other: dict[str, object]) -> Lake:
    """An hour of a GPU with a process of each of two."""
    ticks = range(0, HOUR_S, 30)
    lists = processes("a", *ticks, pid=1, **one) + processes("a", *ticks, pid=2, **other)
    return fill(lake, samples("a", 0, HOUR_S, **SHARED), lists)


def paid_by(**teams: str) -> Owners:
    """The owners, with accounts as well."""
    lines = {("account", f"{name}-account"): Owner("account", f"{name}-account", team) for name, team in teams.items()}
    return Owners({**OWNERS.by_name, **lines})


ANN = {"user": "ann", "slurm_job_id": "1", "slurm_account": "vision-account"}
VISION, SPEECH = Scope(team="vision"), Scope(team="speech")


def test_a_shared_gpu_tells_nothing_of_the_others_work(lake: Lake) -> None:
    both(lake, ANN, {"user": "bob", "pod": "p", "namespace": "speech-space"})
    owners = paid_by(vision="vision")
    for scope in (VISION, Scope(user="ann")):
        assert left(lake, scope, owners) == [("ann", "vision-account", None, [0.5])]
    assert left(lake, SPEECH, owners) == [("bob", None, None, [0.5])]
    assert left(lake, Scope(), owners)[0][2] == "pod:speech-space/p+slurm:1"


UNPAID, POD = {"user": "ann", "slurm_job_id": "1"}, {"pod": "p", "namespace": "space"}
EVE, BOB = {"user": "eve", "slurm_job_id": "2"}, {"user": "bob"}


@pytest.mark.parametrize(
    ("one", "other", "scope", "kept"),
    [
        (UNPAID, EVE, VISION, ("ann+eve", None, "slurm:1+slurm:2", [0.5, 0.5])),
        (UNPAID, EVE, Scope(user="eve"), ("eve", None, None, [0.5])),
        (ANN, BOB, VISION, ("ann", "vision-account", None, [0.5])),
        (ANN, BOB, SPEECH, ("bob", None, None, [0.5])),
        ({"user": "ann"}, {"user": None} | POD, Scope(), ("ann", "space", "pod:space/p", None)),
        ({"user": "ann"}, {"user": None} | POD, VISION, ("ann", None, None, [1.0])),
        (UNPAID, {"user": "ann"} | POD, VISION, ("ann", "space", "pod:space/p+slurm:1", None)),
    ],
    ids=[
        "of one team a shared GPU keeps its jobs",
        "a user of the team has none of the other's",
        "an account is that of its user",
        "and not of whoever works beside it",
        "the ledger has one user, and the pod of somebody whom nobody knows",
        "which is not that of whom the list names",
        "a user keeps what is theirs alone",
    ],
)
def test_what_is_kept_of_a_row_that_two_works_share(
    lake: Lake, one: dict[str, object], other: dict[str, object], scope: Scope, kept: tuple[object, ...]
) -> None:
    both(lake, one, other)
    assert left(lake, scope, paid_by(vision="vision")) == [kept]


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
    both(lake, ANN, {"user": who, "slurm_job_id": "2", theirs: "speech-account"})
    owners = paid_by(vision="vision", speech="speech")
    assert left(lake, VISION, owners) == [kept]
    assert "slurm:2" in str(left(lake, Scope(), owners))
    if who == "ann":  # they are all hers
        assert "slurm:2" in str(left(lake, Scope(user="ann"), owners))
