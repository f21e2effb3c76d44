"""Endings: which GPUs become free on which day, by time limits of jobs, ends of projects and fading work."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from typing import Literal

import polars as pl

from analytics.capacity.jobs import LATE_MS
from analytics.ledger.usage import SEVERAL_HOLD
from analytics.names import JOINER, joined_names
from analytics.proportions import wilson
from analytics.rules.ending import ENDING, faded_findings, owner_lines
from analytics.scope import Scope
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.context import week_before
from analytics.workloads.finding_parts import findings_of
from analytics.workloads.ledger_rows import by_job, joined
from analytics.workloads.model import Context
from analytics.workloads.window_end import last_rows
from fallow.clock import from_ms

EndingSource = Literal["time_limit", "project_end", "fading"]
"""The source of an ending: a running job's time limit, `project_end` in the owners file, or fading work."""

SOURCES: tuple[EndingSource, ...] = ("time_limit", "project_end", "fading")
HORIZON_DAYS = 14
WEEK_DAYS = 7
"""Days of the headline, and of the back-test's look back."""


@dataclass(frozen=True)
class Chance:
    low: float | None
    """Lower end of the 90 % interval; None if only the point estimate is known."""
    point: float
    high: float | None
    """Upper end of the 90 % interval; None if only the point estimate is known."""


@dataclass(frozen=True)
class Leaving:
    """How the GPUs of a job, project or user become free: the source, the day, and the probability."""

    name: str
    """Name of the job (as in the ledger), project or user."""
    source: EndingSource
    day: date
    """The last day of use; the day of the window's end if that day has passed."""
    team: str | None
    """The team; several are joined by `+`; None if unknown."""
    user: str | None
    """The user; several are joined by `+`; None if unknown."""
    chance: Chance | None
    """Probability that the GPUs are free afterwards; None if unknown."""

    @property
    def order(self) -> tuple[float, date, int, str]:
        """Return the sort key: the most certain first, unknown last."""
        return 1.0 if self.chance is None else -self.chance.point, self.day, SOURCES.index(self.source), self.name


@dataclass(frozen=True)
class Ending(Leaving):
    """GPUs of a pool and model that a job, project or user frees on a day."""

    gpus: tuple[str, ...]
    """UUIDs, sorted."""
    pool: str
    model: str
    hosts: tuple[str, ...]
    islands: tuple[str, ...]
    """NVLink islands of the GPUs, where known."""


@dataclass(frozen=True)
class EndingCheck:
    """Back-test: GPUs by source that the method named a week before the end, and how many of them became free."""

    named: Mapping[EndingSource, int]
    came_free: Mapping[EndingSource, int]


@dataclass(frozen=True)
class Endings:
    """The endings of the days after `today`, the first day first."""

    today: date
    days: int
    rows: tuple[Ending, ...]
    check: EndingCheck | None
    """The back-test; None if the ledger has less than a week."""
    running: int
    """Running jobs at the end of the window."""
    with_limit: int
    """Running jobs with a known time limit."""
    projects: int
    """Lines of the owners file with an end."""

    def within(self, days: int) -> tuple[Ending, ...]:
        return tuple(each for each in self.rows if each.day <= self.today + timedelta(days))

    def of_scope(self, scope: Scope) -> tuple[Ending, ...]:
        """Return the endings of a scope. For a team or a user, only GPUs that are theirs alone."""
        asked = vars(scope).items()
        return tuple(
            each for each in self.rows if all(value is None or getattr(each, name) == value for name, value in asked)
        )


_Candidate = tuple[Leaving, frozenset[str]]
"""An ending with the GPUs that its source names, before GPUs with a more certain source are removed."""


def find_endings(context: Context, jobs: pl.DataFrame, days: int, zone: tzinfo) -> Endings:
    """Return the GPUs that become free in the days after the window's end, with a back-test a week earlier.

    A GPU is in a single ending, by its most certain source. GPUs with several jobs or users and parts of cards are left
    out.

    `jobs` has JOB_SCHEMA; the days are those of `zone`.
    """
    now, not_over = _whole_gpus(context), _unfinished_jobs(context, jobs)
    running = _running_jobs(not_over, context.until_ms)
    return Endings(
        today=_day(context.until_ms, zone),
        days=days,
        rows=_named_endings(context, now, not_over, days, zone),
        check=_back_test(context, jobs, zone),
        running=running.height,
        with_limit=running["planned_end"].drop_nulls().len(),
        projects=sum(each.project_end is not None for each in context.owners.by_name.values()),
    )


def _whole_gpus(context: Context) -> pl.DataFrame:
    """Return the last rows of GPUs with a single user, without parts of cards."""
    return last_rows(context).filter(pl.col("state").is_in(ALLOCATED) & (pl.col("gpu_share") == 1) & ~SEVERAL_HOLD)


def _day(moment_ms: int, zone: tzinfo) -> date:
    return from_ms(moment_ms).astimezone(zone).date()


def _named_endings(
    context: Context, now: pl.DataFrame, jobs: pl.DataFrame, days: int, zone: tzinfo
) -> tuple[Ending, ...]:
    today = _day(context.until_ms, zone)
    found = [
        *_limit_endings(context, now, jobs, zone),
        *_project_endings(context, now, today),
        *_fading_endings(context, now, today),
    ]
    near = [each for each in found if each[0].day <= today + timedelta(days)]
    taken: set[str] = set()
    endings: list[Ending] = []
    for leaving, gpus in sorted(near, key=lambda candidate: candidate[0].order):
        endings += _endings_by_pool(context, leaving, gpus - taken)
        taken |= gpus
    return tuple(sorted(endings, key=lambda each: (each.day, SOURCES.index(each.source), each.name, each.gpus)))


def _endings_by_pool(context: Context, leaving: Leaving, gpus: frozenset[str]) -> Iterator[Ending]:
    inventory, hosts = context.inventory, dict(last_rows(context).select("gpu", "host").iter_rows())
    places = {gpu: (inventory.pool(gpu), inventory.model(gpu)) for gpu in sorted(gpus)}
    for pool, model in sorted(set(places.values())):
        own = tuple(gpu for gpu, place in places.items() if place == (pool, model))
        islands = {inventory.device(gpu, hosts[gpu]).nvlink_island for gpu in own}
        yield Ending(
            **vars(leaving),
            gpus=own,
            pool=pool,
            model=model,
            hosts=tuple(sorted({hosts[gpu] for gpu in own})),
            islands=tuple(sorted(each for each in islands if each is not None)),
        )


def _unfinished_jobs(context: Context, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs; in a window up to the lake's newest row, without those that ended since and hold no GPU."""
    asked_ms = context.window.until_ms
    if asked_ms is not None and context.until_ms >= asked_ms:
        return jobs
    return jobs.filter((pl.col("end") <= context.until_ms).fill_null(value=True))


def _running_jobs(jobs: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    is_open = pl.col("end").is_null() | (pl.col("end") > until_ms)
    return jobs.filter(pl.col("start") <= until_ms, is_open)


def _limit_endings(context: Context, now: pl.DataFrame, jobs: pl.DataFrame, zone: tzinfo) -> Iterator[_Candidate]:
    """Yield a candidate for each running job that shares no GPU and whose limit has not passed."""
    until_ms = context.until_ms
    # by the id alone: the same job may be known from a table here, and there from processes that a scheduler started
    workloads = by_job(now).with_columns(job=pl.col("work").str.replace(r"^[a-z]+:", ""))
    own = workloads.filter(pl.len().over("gpu") == 1)
    lengths = _past_lengths(jobs, until_ms)
    limited = _running_jobs(jobs, until_ms).filter(pl.col("planned_end") > until_ms).explode("hosts")
    limited = limited.select("job", "start", "planned_end", host="hosts").unique(("job", "host"), keep="last")
    found = own.join(limited, on=("job", "host")).group_by("work", maintain_order=True)
    for row in found.agg(pl.col("gpu", "user", "account"), pl.col("start", "planned_end").last()).iter_rows(named=True):
        limit_ms = row["planned_end"] - row["start"]
        user, account = joined_names(row["user"]), joined_names(row["account"])
        chance = _limit_chance(lengths, (until_ms - row["start"]) / limit_ms, limit_ms)
        team = context.owners.team(user, account)
        leaving = Leaving(row["work"], "time_limit", _day(row["planned_end"], zone), team, user, chance)
        yield leaving, frozenset(row["gpu"])


def _past_lengths(jobs: pl.DataFrame, until_ms: int) -> list[float]:
    """Return the lengths of completed runs, in shares of their limits, sorted."""
    # without a state, an end at the limit was not observed: see `ended_by_limit`
    was_seen = pl.col("state").is_not_null() | (pl.col("end") != pl.col("planned_end"))
    over = jobs.filter(
        was_seen, pl.col("end") <= until_ms, pl.col("start") < pl.col("end"), pl.col("planned_end") > pl.col("start")
    )
    return (
        over.select((pl.col("end") - pl.col("start")) / (pl.col("planned_end") - pl.col("start")))
        .to_series()
        .sort()
        .to_list()
    )


def _limit_chance(lengths: Sequence[float], ran: float, limit_ms: int) -> Chance | None:
    """Return the share of past runs at least this long that ended by the limit; None without such runs."""
    reached = len(lengths) - bisect_left(lengths, ran)
    late = len(lengths) - bisect_left(lengths, 1 + LATE_MS / limit_ms)
    if not reached:
        return None
    share = (reached - late) / reached
    low, high = wilson(share, reached)
    return Chance(low, share, high)


def _project_endings(context: Context, now: pl.DataFrame, today: date) -> Iterator[_Candidate]:
    """Yield a candidate for each project and day of its end in the owners file, past ends included."""
    lines: dict[tuple[str, date], list[str]] = {}
    for each in context.owners.by_name.values():
        if each.project_end is not None:
            lines.setdefault((each.project or each.name, each.project_end), []).append(f"{each.kind} {each.name}")
    theirs = now.join(owner_lines(context, now), on=("user", "account"), nulls_equal=True)
    for (name, end), own in sorted(lines.items()):
        rows = theirs.filter(pl.col("line").is_in(own))
        user, account = joined(rows, "user"), joined(rows, "account")
        team = context.owners.team(user, account)
        yield Leaving(name, "project_end", max(end, today), team, user, None), frozenset(rows["gpu"])


def _fading_endings(context: Context, now: pl.DataFrame, today: date) -> Iterator[_Candidate]:
    """Yield a candidate for each user whose work has faded.

    The chance is that the GPUs stay unused for `findings.horizon` more.
    """
    users = dict(now.select("gpu", "user").iter_rows())
    for each in findings_of(context, ENDING, faded_findings(context, now)):
        promised = each.confidence.outlook
        share = None if promised is None else promised.probability
        gpus = frozenset(gpu for gpu in each.gpus if users.get(gpu) == each.user)
        chance = None if share is None else Chance(None, share, None)
        yield Leaving(each.subject, "fading", today, each.team, each.user, chance), gpus


def _back_test(context: Context, jobs: pl.DataFrame, zone: tzinfo) -> EndingCheck | None:
    before = week_before(context)
    if before is None:
        return None
    named = _named_endings(before, _whole_gpus(before), jobs, WEEK_DAYS - 1, zone)
    there = last_rows(context)
    kept = _kept_gpus(context, there, before.until_ms)
    seen = set(there["gpu"])
    announced: Counter[EndingSource] = Counter()
    came_free: Counter[EndingSource] = Counter()
    for each in named:
        looked_at = seen.intersection(each.gpus)
        theirs = [each.name] if each.source == "time_limit" else (each.user or "").split(JOINER)
        announced[each.source] += len(looked_at)
        came_free[each.source] += sum(kept[each.source].isdisjoint((gpu, name) for name in theirs) for gpu in looked_at)
    return EndingCheck(dict(announced), dict(came_free))


def _kept_gpus(context: Context, there: pl.DataFrame, since_ms: int) -> dict[EndingSource, set[tuple[str, str]]]:
    """Return by source the GPUs that did not become free, with their job or users, or the users who used them again."""
    held = there.filter(pl.col("state").is_in(ALLOCATED))
    used = context.whole.segments.filter(pl.col("state").is_in(IN_USE) & (pl.col("end") > since_ms))
    return {
        "time_limit": set(by_job(held).select("gpu", "work").iter_rows()),
        "project_end": _gpu_users(held),
        "fading": _gpu_users(used),
    }


def _gpu_users(rows: pl.DataFrame) -> set[tuple[str, str]]:
    pairs = rows.select("gpu", pl.col("user").fill_null("").str.split(JOINER)).unique()
    return set(pairs.explode("user").iter_rows())
