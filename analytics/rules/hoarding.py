"""A team's quota or allocation far exceeds its use.

Look-alikes that it leaves alone: weekly peaks and nightly batches (the 95th percentile of four weeks contains them), a
team's first weeks, a team without a quota on file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.language.sentences import Number, tr
from analytics.money.owners import Owner, Team
from analytics.states import ALLOCATED, IDLE_ALLOCATED, IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import quote, watch_command
from analytics.workloads.finding_parts import counted, label, words_for
from analytics.workloads.ledger_rows import gpu_ms_of, joined, whole_number
from analytics.workloads.model import Context, EvidenceValue, Finding, agreeing, of_gpus, whole_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import DAY_MS, HOUR_MS

HISTORY_DAYS = 28
HISTORY_MIN_DAYS = 14
QUANTILE = 0.95
SHARE_MAX = 0.5
EFFICIENCY_MAX = 0.25
GPU_HOURS_MIN = 50

_QUOTA = of_gpus("idle in a team whose quota far exceeds its allocations")
_ALLOCATION = of_gpus("idle in a team that is allocated far more than it uses")


KINDS = {
    "quota": "the quota far exceeds the team's allocations",
    "allocation": "the team is allocated far more than it uses",
}


def hoarding_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per team whose quota far exceeds its allocations, or whose allocations far exceed its use."""
    teams = {name: team for name, team in context.owners.teams().items() if team.quota_gpus}
    start_ms = whole_number(context.whole.segments, pl.col("time").min())
    since_ms = max(start_ms, context.until_ms - HISTORY_DAYS * DAY_MS)
    days = (context.until_ms - since_ms) / DAY_MS
    if not teams or days < HISTORY_MIN_DAYS:
        return
    owned = _of_teams(context, context.whole.segments.filter(pl.col("end") > since_ms))
    inside = _of_teams(context, context.inside.segments)
    working = owned.filter(pl.col("state").is_in(IN_USE))
    had, used = (_at_once(rows, since_ms, context.until_ms) for rows in (owned, working))
    for name, team in teams.items():
        mine, rows = (frame.filter(pl.col("team") == name) for frame in (owned, inside))
        quota, at_once, used_at_once = float(team.quota_gpus or 0), had.get(name, 0.0), used.get(name, 0.0)
        had_h = gpu_ms_of(mine) / HOUR_MS
        used_h = gpu_ms_of(mine.filter(pl.col("state").is_in(IN_USE))) / HOUR_MS
        numbers: dict[str, EvidenceValue] = {
            "quota_gpus": team.quota_gpus,
            "allocated_at_once_q95_gpus": at_once,
            "used_at_once_q95_gpus": used_at_once,
            "allocated_gpu_hours": had_h,
            "used_gpu_hours": used_h,
            "history_days": days,
        }
        if at_once < SHARE_MAX * quota:
            left = {"quota_unused_gpus": quota - at_once}
            yield _hoarding_finding(context, team, "quota", rows, numbers | left, days=days)
        if had_h > GPU_HOURS_MIN and used_h <= EFFICIENCY_MAX * had_h and used_at_once < SHARE_MAX * at_once:
            yield _hoarding_finding(context, team, "allocation", rows, numbers, days=days)


HOARDING = Rule(
    name="hoarding",
    category="demand",
    sentence=of_gpus("of a team whose quota or allocation far exceeds its use"),
    kinds=(waste.ALLOCATED_IDLE, waste.HELD_IDLE, waste.INEFFICIENT),
    precedence=90,
    history=HistoryNeed(HISTORY_MIN_DAYS * DAY_MS),
    thresholds={
        "quota": (
            f"Q{QUANTILE * 100:.0f} of the GPUs that the team has at once, hour by hour over {HISTORY_DAYS} days, under"
            f" {SHARE_MAX:.0%} of its quota (facts of the field)"
        ),
        "allocation": (
            f"active for at most {EFFICIENCY_MAX:.0%} of more than {GPU_HOURS_MIN} GPU-hours that it had (Job Defense"
            f" Shield), and Q{QUANTILE * 100:.0f} of the active GPUs at once under {SHARE_MAX:.0%} of that of those it"
            " had (short peaks are no hoard; ours)"
        ),
        "history": f"at least {HISTORY_MIN_DAYS} days; under {HISTORY_DAYS} the finding says so",
    },
    labels=(
        label("kind", "{value}", words_for(KINDS)),
        label("quota_gpus", "a quota of {value} GPUs", whole_gpus),
        label("quota_unused_gpus", "{value} of the quota not allocated", whole_gpus),
        label("allocated_at_once_q95_gpus", "at most {value} GPUs allocated at once in 95 % of the hours", whole_gpus),
        label("used_at_once_q95_gpus", "at most {value} GPUs active at once in 95 % of the hours", whole_gpus),
        label("allocated_gpu_hours", "{value} GPU-hours allocated"),
        counted("hosts", "on {number} {host|hosts}"),
    ),
    find=hoarding_findings,
)


def _hoarding_finding(
    context: Context, team: Team, kind: str, rows: pl.DataFrame, numbers: Mapping[str, EvidenceValue], *, days: float
) -> Candidate:
    idle = rows.filter(pl.col("state").is_in(IDLE_ALLOCATED)).drop("team")
    # a team without a GPU of its own is judged by how well the fleet was watched
    about = context.inside.segments if idle.is_empty() else idle
    short = tr("{days} days of demand, {wanted} are needed", days=Number(days, 1), wanted=Number(HISTORY_DAYS))
    look = _quota_command if kind == "quota" else _work_command

    def revised(finding: Finding) -> Finding:
        if idle.is_empty():
            finding = replace(finding, gpus=(), gpu_ms=0.0, energy_kwh=None, cost=None, currency=None, job=None)
        about_what = _QUOTA if kind == "quota" else _ALLOCATION
        return replace(finding, team=team.name, sentence=agreeing(about_what, len(finding.gpus)))

    return Candidate(
        about,
        subject=f"{kind}: {team.name}",
        numbers={"kind": kind, **numbers, "hosts": idle["host"].n_unique()},
        failed=[[short] if days < HISTORY_DAYS - 1 / 24 else []],
        user=joined(idle, "user"),
        next_command=look(team.owners[0]) or watch_command(about["host"][0]),
        host="",
        notes=[tr("the GPU-hours count time that the team held or had allocated and did not use")],
        revised=revised,
    )


def _of_teams(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return rows of GPUs with a user, once per team that shares the GPU, with the team's part of it."""
    owned = segments.filter(pl.col("state").is_in(ALLOCATED))
    pairs = owned.select("user", "account").unique()
    names = [context.owners.team(user, account) for user, account in pairs.iter_rows()]
    teams = pairs.with_columns(team=pl.Series(names, dtype=pl.String)).filter(pl.col("team").is_not_null())
    shared = owned.join(teams, on=("user", "account"), nulls_equal=True).with_columns(pl.col("team").str.split("+"))
    return shared.with_columns(pl.col("gpu_share") / pl.col("team").list.len()).explode("team")


def _at_once(rows: pl.DataFrame, since_ms: int, until_ms: int) -> dict[str, float]:
    """Return per team the number of GPUs at once that it exceeds in 5 % of the hours."""
    most = hourly_most(rows, ("team",), since_ms, until_ms)
    return dict(most.group_by("team").agg(pl.col("most").quantile(QUANTILE, "higher")).iter_rows())


def _quota_command(owner: Owner) -> str:
    name = quote(owner.name)
    if owner.kind == "namespace":
        return f"kubectl describe resourcequota -n {name}"
    return f"sacctmgr show assoc where {owner.kind}={name} format=Account,User,GrpTRES,MaxTRES"


def _work_command(owner: Owner) -> str:
    name = quote(owner.name)
    return f"kubectl get pods -n {name}" if owner.kind == "namespace" else f"squeue --{owner.kind}={name} --long"
