"""Users of many GPU-hours who use a quarter of them or less.

Look-alikes that it leaves alone: one day of debugging, small users of a large fleet, services without a particular
user, GPUs without measured utilization.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import Number, Sentence, Share, tr
from analytics.ranks import rank
from analytics.states import OCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import Known, label, rank_label
from analytics.workloads.ledger_rows import GPU_MS, SEVERAL, gpus_on, newest_source
from analytics.workloads.model import Context, Finding, Label, gpus_of, of_gpus
from analytics.workloads.process_lists import is_service
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS

EFFICIENCY_MAX = 0.25
GPU_HOURS_MIN = 50
FLEET_SHARE_MIN = 0.02
TOP = 15
KNOWN_MIN = 0.9


def _use() -> dict[str, pl.Expr]:
    """GPU time, efficiency over the time of known utilization, and SM activity beside utilization in the same time."""
    share, util = pl.col("gpu_share"), pl.col("gpu_util_mean_pct")
    util_ms = pl.col("util_ms") * share
    known_ms, used_ms = util_ms.sum(), (util / 100 * util_ms).sum()  # null utilization is unknown and in neither sum
    with_sm = pl.col("sm_active_mean_pct").is_not_null()
    sm_ms = util_ms.filter(with_sm).sum()
    return {
        "gpu_ms": GPU_MS.sum(),
        "used_ms": used_ms,
        "efficiency": pl.when(known_ms > 0).then((used_ms / known_ms).clip(0, 1)),
        "known_share": known_ms / GPU_MS.sum(),
        "sm_gpus": pl.col("gpu").filter(with_sm).n_unique(),
        "sm_pct": pl.when(sm_ms > 0).then((pl.col("sm_active_mean_pct") * util_ms).filter(with_sm).sum() / sm_ms),
        "util_with_sm_pct": pl.when(sm_ms > 0).then((util * util_ms).filter(with_sm).sum() / sm_ms),
        "sm_known_share": pl.when(sm_ms > 0).then(sm_ms / known_ms),
    }


_USE = _use()


def _sm_words(known: Known, _: Finding) -> list[Sentence]:
    """Return SM activity with the utilization of the time for which SM activity was measured."""
    if known.get("sm_active_mean_pct") is None:
        return []
    return [
        tr(
            "SM activity, measured for {share} of that time: mean {sm} % at a mean utilization of {util} %",
            share=Share(float(known["sm_known_share"])),
            sm=Number(float(known["sm_active_mean_pct"]), 1),
            util=Number(float(known["gpu_util_mean_with_sm_pct"]), 1),
        )
    ]


def _user_words(known: Known, finding: Finding) -> list[Sentence]:
    """Return the mean over all GPUs of the user, if the finding names only some of them."""
    gpus = int(known["user_gpus"])
    if gpus <= len(finding.gpus):
        return []
    mean = Number(float(known["user_gpu_util_mean_pct"]), 1)
    return [tr("{mean} % over all {gpus} of the user", mean=mean, gpus=gpus_of(gpus))]


def low_efficiency_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per large user whose GPUs are busy for at most a quarter of the time in the mean.

    The finding names the GPUs that are below the limit by themselves.
    """
    is_service = pl.col("user").is_in(_low_efficiency_services(context).implode())
    is_held = pl.col("user").is_not_null() & pl.col("state").is_in(OCCUPIED)
    held = context.inside.segments.lazy().filter(is_held & ~is_service)
    use = ("user", "time", "end", "gpu_share", "util_ms", "gpu_util_mean_pct")
    users = _low_efficiency_users(held.select(use).collect())
    low = users.head(TOP).filter(
        (pl.col("gpu_ms") > GPU_HOURS_MIN * HOUR_MS)
        & (pl.col("fleet_share") >= FLEET_SHARE_MIN)
        & (pl.col("efficiency") <= EFFICIENCY_MAX)
    )
    owned = held.filter(pl.col("user").is_in(low["user"].implode())).collect()
    by_gpu = owned.group_by("user", "gpu").agg(efficiency=_USE["efficiency"])
    by_gpu = by_gpu.filter(pl.col("efficiency") <= EFFICIENCY_MAX)
    for row in low.iter_rows(named=True):
        mine = owned.filter(pl.col("user") == row["user"])
        named = mine.join(by_gpu, on=("user", "gpu"), how="semi")
        figures = named.select(**_USE).row(0, named=True)
        user, known = str(row["user"]), float(figures["known_share"])
        host = named["host"][0]
        share, wanted = Share(known, 0), Share(KNOWN_MIN, 0)
        unsure = tr("utilization is known for {share} of the time, {wanted} are needed", share=share, wanted=wanted)
        yield Candidate(
            named,
            subject=user,
            numbers={
                "gpu_util_mean_pct": 100 * figures["efficiency"],
                "user_gpus": mine["gpu"].n_unique(),
                "user_gpu_util_mean_pct": 100 * float(row["efficiency"]),
                "used_gpu_hours": figures["used_ms"] / HOUR_MS,
                "rank_among_users": f"{row['rank']} of {users.height}",
                "share_of_held_hours": row["fleet_share"],
                "sm_active_mean_pct": figures["sm_pct"],
                "gpu_util_mean_with_sm_pct": figures["util_with_sm_pct"],
                "sm_known_share": figures["sm_known_share"],
                "gpus_with_sm_activity": figures["sm_gpus"] or None,
                "user_source": newest_source(named),
            },
            failed=[[unsure] if known < KNOWN_MIN else []],
            next_command=monitor_command(host, gpus_on(named, host)),
            user=user,
            notes=[tr("low utilization shows how the GPUs are used, not which GPUs are reclaimable")],
        )


LOW_EFFICIENCY = Rule(
    name="low_efficiency",
    category="efficiency",
    sentence=of_gpus("at a mean utilization of 25 % or less, of one of the largest users"),
    kinds=(waste.INEFFICIENT,),
    precedence=60,
    advice=tr(
        "Put more work on each GPU, such as larger batches or several runs, or request fewer GPUs. If neither is"
        " possible, reply with the reason."
    ),
    history=HistoryNeed(gpu_hours=GPU_HOURS_MIN),
    thresholds={
        "utilization": (
            f"mean over the time in which its processes held GPUs of at most {EFFICIENCY_MAX:.0%} (Job Defense Shield; "
            "GPUs that are reserved and have no process are not part of it)"
        ),
        "hours": f"more than {GPU_HOURS_MIN} GPU-hours (Job Defense Shield)",
        "share": f"at least {FLEET_SHARE_MIN:.0%} of all GPU-hours that processes held (Job Defense Shield)",
        "users": f"among the {TOP} users with the most GPU-hours (Job Defense Shield)",
    },
    labels=(
        Label(("user_gpus", "user_gpu_util_mean_pct"), _user_words),
        Label(("sm_active_mean_pct", "gpu_util_mean_with_sm_pct", "sm_known_share"), _sm_words),
        rank_label("rank {rank} of {users} users by GPU-hours with processes"),
        label("share_of_held_hours", "the user has {value} of all GPU-hours with processes", Share),
    ),
    find=low_efficiency_findings,
)


def _low_efficiency_services(context: Context) -> pl.Series:
    """Return users that run only display servers, monitors and similar services."""
    users = context.rollups.processes().select("user", service=is_service()).drop_nulls("user")
    people = users.filter(~pl.col("service"))["user"].unique().to_list()
    names = (
        context.inside.segments.filter(pl.col("user_source") == "process").select(names="user").drop_nulls().unique()
    )
    each = names.with_columns(user=pl.col("names").str.split(SEVERAL)).explode("user")
    known = each.join(users.select("user").unique(), on="user", how="semi")
    people_on = known.group_by("names").agg(has_person=pl.col("user").is_in(people).any())
    return people_on.filter(~pl.col("has_person"))["names"]


def _low_efficiency_users(owned: pl.DataFrame) -> pl.DataFrame:
    """Return per user: GPU time, its rank, its share of all, and efficiency."""
    return (
        owned.group_by("user")
        .agg(gpu_ms=_USE["gpu_ms"], efficiency=_USE["efficiency"])
        .sort("gpu_ms", "user", descending=(True, False))
        .with_columns(rank=rank(pl.col("gpu_ms")), fleet_share=pl.col("gpu_ms") / pl.col("gpu_ms").sum())
    )
