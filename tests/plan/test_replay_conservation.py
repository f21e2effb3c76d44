"""Whatever jobs, fleet and policy: no GPU is held twice, every job that can run runs, and runs to its end."""

from __future__ import annotations

import polars as pl
from hypothesis import assume, given
from hypothesis import strategies as st

from analytics.plan.replay.engine import Replayed, replay
from analytics.plan.replay.policy import ORDERS, Priorities, ReplayPolicy, SmallWork
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from tests.plan.queueing import replay_jobs

GB = 10**9
PLACES = st.tuples(st.sampled_from("pq"), st.sampled_from(["m", "NVIDIA H100 80GB HBM3"]))
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 3)).map(lambda size: (max(size), size[1]))


@st.composite
def a_job(draw: st.DrawFn) -> dict[str, object]:
    (pool, model), (gpus, hosts) = draw(PLACES), draw(SIZES)
    return {
        "pool": pool,
        "model": model,
        "gpus": gpus,
        "hosts": hosts,
        "asked": draw(st.integers(0, 30)),
        "ran_ms": draw(st.integers(0, 20)),
        "limit_ms": draw(st.none() | st.integers(1, 25)),
        "kind": draw(st.sampled_from([None, "serving", "batch"])),
        "mem_bytes": draw(st.sampled_from([None, 5 * GB, 30 * GB])),
        "sm_pct": draw(st.sampled_from([None, 10.0, 45.0])),
    }


GROUPS = st.builds(
    lambda place, hosts, gpus: HostGroup(*place, hosts, gpus, mem_bytes=80 * GB),
    PLACES,
    st.integers(1, 3),
    st.integers(1, 4),
)
POLICIES = st.builds(
    ReplayPolicy,
    order=st.sampled_from(ORDERS),
    priorities=st.none()
    | st.builds(Priorities, st.just("kind"), st.just(("serving",)), st.booleans(), st.booleans(), st.integers(0, 5)),
    share=st.sampled_from([1, 3]),
    mig=st.booleans(),
    small_work=st.none() | st.just(SmallWork("q")),
)


def most_held(replayed: Replayed) -> pl.DataFrame:
    """The most GPUs of each host that are held at once: `pool`, `model`, `host` and `most`."""
    holds = replayed.holds.filter(pl.col("end") > pl.col("time"))
    place = ("pool", "model", "host")
    begun = holds.select(*place, at="time", change=pl.col("gpus"))
    ended = holds.select(*place, at="end", change=-pl.col("gpus"))
    changes = pl.concat([begun, ended]).group_by(*place, "at").agg(pl.col("change").sum()).sort("at")
    return changes.group_by(place).agg(most=pl.col("change").cum_sum().max())


@given(st.lists(a_job(), max_size=25), st.lists(GROUPS, min_size=1, max_size=4), POLICIES)
def test_no_gpu_is_held_twice_and_who_can_run_runs(
    rows: list[dict[str, object]], groups: list[HostGroup], policy: ReplayPolicy
) -> None:
    assume(policy.small_work is None or "q" in {group.pool for group in groups})
    jobs = replay_jobs(rows)
    found = replay(jobs, ReplayFleet(tuple(groups)), policy)
    widths = {}
    for group in sorted(groups, key=lambda group: policy.small_work is not None and group.pool != "q"):
        widths.setdefault((group.pool, group.model), []).extend([group.gpus_per_host] * group.hosts)
    for pool, model, host, most in most_held(found).iter_rows():
        assert most <= widths[pool, model][host] + 1e-9
    runs = found.runs.with_columns(ran_ms=jobs["ran_ms"])
    assert (runs["begin"].is_null() == runs["why_not"].is_not_null()).all()
    ran = runs.drop_nulls("begin")
    assert (ran["begin"] >= ran["arrived"]).all()
    assert (ran["end"] - ran["begin"] >= ran["held_ms"]).all()
    assert (ran["held_ms"] >= ran["ran_ms"]).all()
    undisturbed = ran.filter(pl.col("preempted") == 0)
    assert (undisturbed["held_ms"] == undisturbed["ran_ms"]).all()


@given(st.lists(a_job(), max_size=25), st.integers(1, 3), st.integers(1, 4))
def test_backfill_never_delays_the_first_that_waits(rows: list[dict[str, object]], hosts: int, gpus: int) -> None:
    """All come at once with limits that they use up: the first without room begins when it would in order."""
    jobs = replay_jobs(rows).with_columns(
        asked=pl.lit(0, pl.Int64), limit_ms="ran_ms", pool=pl.lit("p"), model=pl.lit("m")
    )
    fleet = ReplayFleet((HostGroup("p", "m", hosts, gpus),))
    in_order, *others = (replay(jobs, fleet, ReplayPolicy(order=order)).runs for order in ORDERS)
    first = in_order.filter(pl.col("begin") > 0).head(1)
    for early in others:
        assert early.join(first.select("number"), on="number")["begin"].to_list() == first["begin"].to_list()
