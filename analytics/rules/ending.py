"""Users whose work has nearly stopped, or whose project ends, and who still have GPUs.

Look-alikes that it leaves alone: weekends, holidays for everybody, quiet nights, a next experiment that has begun, an
agent that was down. One person's holiday looks the same, and is a failed condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from analytics.intervals import clip
from analytics.language.sentences import Number, Sentence, plain, tr, tr_many
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.states import ALLOCATED, IDLE_ALLOCATED, IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import look_command, quote, ties
from analytics.workloads.finding_parts import counted, label, of_user_alone
from analytics.workloads.ledger_rows import GPU_MS, joined
from analytics.workloads.model import Context, EvidenceValue, Finding, Label, floored, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import last_rows
from fallow.clock import DAY_MS, HOUR_MS, from_ms, parse_day_ms

GAP_RATIO = 1.5
GAPS_MIN = 10
GAP_MIN_MS = 3 * DAY_MS
PAUSE_MS = HOUR_MS
RECENT_DAYS = 3
PRIOR_DAYS = 14
PRIOR_MIN_DAYS = 7
FALL_MAX = 0.2
NO_START_MS = 2 * DAY_MS
LULL_MAX = 0.5
LULL_USERS_MIN = 3

FOLLOWED_DAYS = 35
"""Latest start of a fall before the end of the window.

Findings look at six weeks, and one week must remain for comparison.
"""
_LENGTHS = (*range(RECENT_DAYS, FOLLOWED_DAYS - 6), FOLLOWED_DAYS)
"""Lengths in days that are compared with the time before.

The last one covers falls of 29 days and more: six days of work in 35 are below FALL_MAX.
"""

_DAYS = FOLLOWED_DAYS + PRIOR_DAYS + 6
"""Days that must be available: two weekends may be left out before the fall, and one weekend after it."""
_SATURDAY, _EPOCH_WEEKDAY = 5, 3


def split_users(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with a user, once per user who shares the GPU; `who` has the name."""
    return segments.filter(pl.col("user").is_not_null()).with_columns(who=pl.col("user").str.split("+")).explode("who")


def fading(context: Context, names: pl.Series) -> pl.DataFrame:
    """Return the users whose work has nearly stopped.

    Columns: who, since (start of the fall), by_gap, gap_ms, gap_p95_ms, gap_count, recent_ms and prior_ms (used GPU
    time per day), no_start_ms (time since the start of the user's last process).
    """
    work = split_users(context.whole.segments.filter(pl.col("state").is_in(IN_USE)))
    own = work.filter(pl.col("who").is_in(names.implode()))
    until_ms = context.until_ms
    found = (
        _gaps(own, until_ms)
        .with_columns(
            by_gap=(pl.col("gap_count") >= GAPS_MIN)
            & (pl.col("gap_ms") > GAP_RATIO * pl.col("gap_p95_ms"))
            & (pl.col("gap_ms") > GAP_MIN_MS)
        )
        .join(_falls(context, work, names), on="who", how="left")
        .join(_starts(context), on="who", how="left")
        .with_columns(
            by_gap=pl.col("by_gap") & _at_the_gap(),
            by_fall=pl.col("fell") & (pl.col("no_start_ms") >= NO_START_MS).fill_null(value=True),
        )
        .with_columns(pl.col("by_gap", "by_fall", "lull").fill_null(value=False))
    )
    detected = found.filter((pl.col("by_gap") | pl.col("by_fall")) & ~pl.col("lull"))
    # the whole of a long fall, not its last days alone
    longest = detected.sort("by_gap", "by_fall", "days", descending=True).unique("who", keep="first")
    fell_ms = pl.col("days") * DAY_MS
    return longest.with_columns(
        since=until_ms - pl.when("by_gap").then("gap_ms").otherwise(fell_ms).cast(pl.Int64)
    ).sort("who")


def _at_the_gap() -> pl.Expr:
    """Return an expression: True for the row of `_falls` whose length is nearest to the gap."""
    gap_days = (pl.col("gap_ms") // DAY_MS).clip(RECENT_DAYS, pl.col("days").max().over("who"))
    return pl.col("days").is_null() | (pl.col("days") == gap_days)


def _gaps(work: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Return per user the time since activity on any GPU, and past gaps: who, gap_ms, gap_p95_ms, gap_count."""
    ordered = work.select("who", "time", "end").sort("who", "time")
    gap = pl.col("time") - pl.col("end").cum_max().over("who").shift(1)
    same = pl.col("who") == pl.col("who").shift(1)
    gaps = ordered.with_columns(past=pl.when(same).then(gap))
    real = pl.col("past").filter(pl.col("past") >= PAUSE_MS)
    return gaps.group_by("who").agg(
        gap_ms=until_ms - pl.col("end").max(), gap_p95_ms=real.quantile(0.95, "higher"), gap_count=real.len()
    )


def _falls(context: Context, work: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the fall of each user's work, per number of `days` before the end.

    Columns: recent_ms, prior_ms, whether the work `fell` and whether it is a `lull`.
    """
    per_day = _daily(work, context.until_ms)
    history_ms = context.until_ms - int(context.whole.segments.select(pl.col("time").min()).item() or 0)
    known_days = min(_DAYS, history_ms // DAY_MS)
    days = pl.DataFrame({"day": range(known_days)}, schema={"day": pl.Int64})
    middle = (context.until_ms - DAY_MS * pl.col("day") - DAY_MS // 2) // DAY_MS
    days = days.with_columns(weekend=(middle + _EPOCH_WEEKDAY) % 7 >= _SATURDAY)
    fleet = per_day.group_by("day").agg(fleet_ms=pl.col("active_ms").sum())
    grid = (
        names.to_frame("who")
        .join(days, how="cross")
        .join(per_day, on=("who", "day"), how="left")
        .join(fleet, on="day", how="left")
        .with_columns(pl.col("active_ms", "fleet_ms").fill_null(0))
        .with_columns(others_ms=pl.col("fleet_ms") - pl.col("active_ms"))
    )
    longest = max(RECENT_DAYS, known_days - PRIOR_MIN_DAYS)
    return pl.concat([_fall(grid, per_day, length) for length in _LENGTHS if length <= longest])


def _fall(grid: pl.DataFrame, per_day: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return `_falls` of one length."""
    worked = _on_their_days(grid, length).sort("who", "day").with_columns(number=pl.int_range(pl.len()).over("who"))
    since = pl.col("day") < length
    last = pl.col("number") < RECENT_DAYS
    recent = since | last
    prior = ~recent & (pl.col("number") < recent.sum().over("who") + PRIOR_DAYS)
    others = per_day.filter(pl.col("day") >= length)["who"].n_unique() - 1
    fell = pl.col("others_ms").filter(recent).mean() <= LULL_MAX * pl.col("others_ms").filter(prior).median()
    return (
        worked.group_by("who")
        .agg(
            recent_ms=pl.col("active_ms").filter(recent).mean(),
            last_ms=pl.col("active_ms").filter(last).mean(),
            prior_ms=pl.col("active_ms").filter(prior).median(),
            prior_days=prior.sum(),
            lull=fell & (others >= LULL_USERS_MIN),
        )
        .select(
            "who",
            "recent_ms",
            "prior_ms",
            "lull",
            days=pl.lit(length, pl.Int64),
            fell=(pl.max_horizontal("recent_ms", "last_ms") <= FALL_MAX * pl.col("prior_ms"))
            & (pl.col("prior_ms") > 0)
            & (pl.col("prior_days") >= PRIOR_MIN_DAYS),
        )
    )


def _daily(work: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Return used GPU time per user and day before the end (0: the last 24 h). A ledger row is at most a day long."""
    rows = work.filter(pl.col("end") > until_ms - _DAYS * DAY_MS).select("who", "time", "end", gpu_ms=GPU_MS)
    newer, older = (until_ms - pl.col("end")) // DAY_MS, (until_ms - 1 - pl.col("time")) // DAY_MS
    edge_ms = until_ms - older * DAY_MS
    late = pl.when(older > newer).then(pl.col("end") - edge_ms).otherwise(0) / (pl.col("end") - pl.col("time"))
    parts = [
        rows.select("who", day=older, active_ms=pl.col("gpu_ms") * (1 - late)),
        rows.select("who", day=newer, active_ms=pl.col("gpu_ms") * late),
    ]
    return pl.concat(parts).group_by("who", "day").agg(pl.col("active_ms").sum())


def _on_their_days(grid: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return the days without weekends, for users who did not work on weekends before the last days."""
    before = pl.col("day") >= length
    at_weekends = pl.col("active_ms").filter(before & pl.col("weekend")).median().over("who")
    on_weekdays = pl.col("active_ms").filter(before & ~pl.col("weekend")).median().over("who")
    never = (at_weekends <= FALL_MAX * on_weekdays).fill_null(value=False)
    return grid.filter(~(pl.col("weekend") & never))


def _starts(context: Context) -> pl.DataFrame:
    """Return per user the time since the user's last process began or was first observed: who, no_start_ms."""
    began = pl.coalesce("started", "time")
    newest = context.rollups.processes().group_by(who="user").agg(newest=began.max())
    return newest.filter(pl.col("who").is_not_null()).select("who", no_start_ms=context.until_ms - pl.col("newest"))


PROJECT_END_DAYS = 14
HOLIDAY_DAYS = 21

_LITTLE = (*IDLE_ALLOCATED, "low")


def _pause_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    number, days = int(known["past_gap_count"]), known.get("past_gaps_p95_days")
    if days is None:
        return [tr_many("{number} past {pause|pauses}", number)]
    return [tr_many("{number} past {pause of|pauses, 95 % of them at most} {days} days", number, days=Number(days, 1))]


def _project_words(known: Mapping[str, Any], _: Finding) -> list[Sentence]:
    day, days = plain(known["project_end"]), float(known["days_until_project_end"])
    if days <= 0:
        return [tr("the project ended on {day}, {days} days ago", day=day, days=Number(abs(days), 1))]
    return [tr("the project ends on {day}, in {days} days", day=day, days=Number(days, 1))]


def ending_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per user, or line of the owners file, whose work has nearly stopped or whose project ends.

    A GPU is in one finding: the finding about an ended project takes precedence.
    """
    now = last_rows(context).filter(pl.col("state").is_in(ALLOCATED))
    projects = list(_project_findings(context, now))
    over = {gpu for each in projects for gpu in each.reclaimable_gpus}
    yield from faded_findings(context, now.filter(~pl.col("gpu").is_in(list(over))))
    yield from projects


ENDING = Rule(
    name="ending",
    category="demand",
    sentence=of_gpus("kept by a user whose work has nearly stopped or whose project ends"),
    kinds=(waste.ALLOCATED_IDLE, waste.HELD_IDLE, waste.INEFFICIENT),
    precedence=80,
    history=HistoryNeed(RECENT_DAYS * DAY_MS),
    thresholds={
        "gap": (
            f"time without activity over the 95th percentile of past gaps above {GAP_RATIO:g}, from {GAPS_MIN} gaps of"
            f" at least {PAUSE_MS // HOUR_MS} h (facts of the field), and at least {GAP_MIN_MS // DAY_MS} days (longer"
            " than a weekend; ours)"
        ),
        "fall": (
            f"mean active GPU-hours of the last {RECENT_DAYS} to {FOLLOWED_DAYS} days at most {FALL_MAX:.0%} of the"
            f" median of the {PRIOR_DAYS} days before (at least {PRIOR_MIN_DAYS}), and no process begun in"
            f" {NO_START_MS // HOUR_MS} h; without weekends for users who never work on them"
        ),
        "lull": (
            f"neither where the others' activity fell to {LULL_MAX:.0%} or less too, of at least {LULL_USERS_MIN}"
            " others (holidays; ours)"
        ),
        "holiday": f"less sure below {HOLIDAY_DAYS} days, because a holiday looks like an end (ours)",
        "project end": f"at most {PROJECT_END_DAYS} days ahead, or past, in the owners file",
    },
    labels=(
        label("days_without_activity", "{value} days without activity"),
        Label(("past_gaps_p95_days", "past_gap_count"), _pause_words),
        label("active_gpu_hours_a_day_lately", "{value} used GPU-hours per day since the decrease"),
        label("active_gpu_hours_a_day_before", "{value} per day before"),
        label("days_since_a_process_began", "no process started for {value} days"),
        Label(("project_end", "days_until_project_end"), _project_words),
        counted("gpus_still_theirs", "the user still has {number} {GPU|GPUs}"),
        label("gpus_idle_now", "{value} GPUs idle now"),
    ),
    find=ending_findings,
)


def faded_findings(context: Context, now: pl.DataFrame) -> Iterator[Candidate]:
    """Yield a finding per user whose work has nearly stopped; `now` are the last rows of allocated GPUs."""
    theirs = split_users(now).select("who", "gpu")
    for row in fading(context, theirs["who"].unique()).iter_rows(named=True):
        who = str(row["who"])
        gpus = theirs.filter(pl.col("who") == who)["gpu"]
        since_ms = int(row["since"])
        rows = split_users(context.inside.segments).filter(
            (pl.col("who") == who) & pl.col("gpu").is_in(gpus.implode()) & pl.col("state").is_in(_LITTLE)
        )
        late = rows.drop("who").filter(pl.col("end") > since_ms)
        if late.is_empty():
            continue
        numbers: dict[str, EvidenceValue] = {
            "days_without_activity": _in(DAY_MS, row["gap_ms"]),
            "past_gaps_p95_days": _in(DAY_MS, row["gap_p95_ms"]),
            "past_gap_count": row["gap_count"],
            "active_gpu_hours_a_day_lately": _in(HOUR_MS, row["recent_ms"]),
            "active_gpu_hours_a_day_before": _in(HOUR_MS, row["prior_ms"]),
            "days_since_a_process_began": _in(DAY_MS, row["no_start_ms"]),
        }
        unknown = row["no_start_ms"] is None and not row["by_gap"]
        failed = [tr("the start of the processes is not known")] if unknown else []
        if context.until_ms - since_ms < HOLIDAY_DAYS * DAY_MS:
            days = floored((context.until_ms - since_ms) / DAY_MS)
            failed.append(
                tr(
                    "after {days} days the user may be on holiday; {wanted} days are needed",
                    days=days,
                    wanted=Number(HOLIDAY_DAYS),
                )
            )
        about = clip(late, since_ms)
        yield _ending_finding(context, who, who, about, numbers, failed=failed)


def _project_findings(context: Context, now: pl.DataFrame) -> Iterator[Candidate]:
    horizon = (from_ms(context.until_ms) + timedelta(days=PROJECT_END_DAYS)).date()
    ending = [
        each for each in context.owners.by_name.values() if each.project_end is not None and each.project_end <= horizon
    ]
    if not ending:
        return
    lines = owner_lines(context, now)
    owned = context.inside.segments.filter(pl.col("state").is_in(ALLOCATED)).join(
        lines, on=("user", "account"), nulls_equal=True
    )
    theirs = now.join(lines, on=("user", "account"), nulls_equal=True)
    for owner in ending:
        line = f"{owner.kind} {owner.name}"
        gpus = theirs.filter(pl.col("line") == line)["gpu"]
        rows = owned.filter((pl.col("line") == line) & pl.col("gpu").is_in(gpus.implode())).drop("line")
        if not rows.is_empty():
            end_ms = parse_day_ms(str(owner.project_end)) + DAY_MS
            over = end_ms <= context.until_ms
            after = rows.filter(pl.col("end") > end_ms) if over else rows
            about = clip(after, end_ms) if over and not after.is_empty() else rows
            numbers: dict[str, EvidenceValue] = {
                "project_end": str(owner.project_end),
                "days_until_project_end": (end_ms - context.until_ms) / DAY_MS,
            }
            subject = f"project end: {owner.kind} {owner.name}"
            yield _ending_finding(context, subject, joined(about, "user"), about, numbers, over=over)


def _ending_finding(
    context: Context,
    subject: str,
    user: str | None,
    rows: pl.DataFrame,
    numbers: Mapping[str, EvidenceValue],
    *,
    failed: Sequence[str] = (),
    over: bool = True,
) -> Candidate:
    last = last_rows(context).filter(pl.col("gpu").is_in(rows["gpu"].unique().implode()))
    # a user who shares one of these GPUs still needs it
    idle = last.filter(
        pl.col("state").is_in(IDLE_ALLOCATED) & pl.col("user").is_in(rows["user"].drop_nulls().unique().implode())
    )
    shared = idle.filter(pl.col("user").str.contains("+", literal=True))
    unwatched = idle.filter(pl.col("user_source").is_in(UNWATCHED_SOURCES))
    kept = {*shared["gpu"], *unwatched["gpu"]}
    free = {gpu for gpu in idle["gpu"] if over and gpu not in kept and not ties(context, [gpu])}
    return Candidate(
        rows,
        subject=subject,
        numbers={
            "user_source": rows.sort("time")["user_source"][-1],
            **numbers,
            "gpus_still_theirs": last.height,
            "gpus_idle_now": idle.height,
        },
        failed=[failed],
        next_command=_ending_look(rows, user),
        reclaimable_gpus=sorted(free),
        user=user,
    )


def owner_lines(context: Context, now: pl.DataFrame) -> pl.DataFrame:
    """Return the owners file's line of users and accounts with GPUs at the end of the window: user, account, line."""
    pairs = now.select("user", "account").unique()
    owners = [context.owners.of(user, account) for user, account in pairs.iter_rows()]
    lines = [None if owner is None else f"{owner.kind} {owner.name}" for owner in owners]
    return pairs.with_columns(line=pl.Series(lines, dtype=pl.String)).filter(pl.col("line").is_not_null())


def _ending_look(rows: pl.DataFrame, user: str | None) -> str:
    own = of_user_alone(rows, user)
    jobs = own["job"].drop_nulls()
    if user and jobs.str.contains("slurm:").any():
        return f"squeue --user={quote(user.replace('+', ','))}"
    accounts = own.filter(pl.col("job").str.contains("pod:"))["account"].drop_nulls()
    if not accounts.is_empty():
        return f"kubectl get pods -n {quote(str(accounts[0]))}"
    return look_command(rows["host"][0])


def _in(unit_ms: int, milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / unit_ms
