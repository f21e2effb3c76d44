"""Which GPUs come free on which day: planned ends of running jobs, ends of projects, and work that has faded."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from typing import Literal

import polars as pl

from analytics.names import JOINER
from analytics.plan.jobs import LATE_MS
from analytics.proportions import wilson
from analytics.rules.wind_down import faded_findings, owner_lines
from analytics.scope import Scope
from analytics.states import ALLOCATED, IN_USE
from analytics.workloads.context import week_before
from analytics.workloads.ledger_rows import by_job, joined
from analytics.workloads.model import Context
from analytics.workloads.window_end import last_rows
from fallow.clock import from_ms

EndingSource = Literal["time_limit", "project_end", "fading"]
"""What says so: the limit of a running job, `project_end` in the owners file, or how its work has faded."""

SOURCES: tuple[EndingSource, ...] = ("time_limit", "project_end", "fading")
HORIZON_DAYS = 14
WEEK_DAYS = 7
"""The days of the headline, and how long before the end the check looks."""


@dataclass(frozen=True)
class Chance:
    """A probability; `low` and `high` are its 90 % interval, None where only the point is known."""

    low: float | None
    point: float
    high: float | None


@dataclass(frozen=True)
class Leaving:
    """How a job, project or user lets go of GPUs: what says so, on which day, and how likely they are free after it."""

    name: str
    source: EndingSource
    day: date
    team: str | None
    holder: str | None
    chance: Chance | None

    @property
    def order(self) -> tuple[float, date, int, str]:
        """The surest first, what is unknown last."""
        return 1.0 if self.chance is None else -self.chance.point, self.day, SOURCES.index(self.source), self.name


@dataclass(frozen=True)
class Ending(Leaving):
    """GPUs of one pool and model that one job, project or user lets go of on a day.

    `name` is that of the job (as in the ledger), project or user; `gpus` are UUIDs, in order, `hosts` and `islands` (NVLink,
    where known) those that they are on. `team` and `holder` are None where nobody is known, several are joined by `+`. `day`
    is the last day on which they are in use, that of the window's end where it has passed. `chance` is how likely they are free
    after it; None is unknown.
    """

    gpus: tuple[str, ...]
    pool: str
    model: str
    hosts: tuple[str, ...]
    islands: tuple[str, ...]


@dataclass(frozen=True)
class EndingCheck:
    """What the same would have said a week before the end: by source how many GPUs, and how many of them came free."""

    said: Mapping[EndingSource, int]
    came_free: Mapping[EndingSource, int]


@dataclass(frozen=True)
class Endings:
    """What comes free up to so many days after `today`, the first day first.

    `check` is None where the ledger does not reach back a week. `running` are the jobs at the end of the window, `with_limit` of
    them those whose planned end is known; `projects` the lines of the owners file with an end.
    """

    today: date
    days: int
    rows: tuple[Ending, ...]
    check: EndingCheck | None
    running: int
    with_limit: int
    projects: int

    def within(self, days: int) -> tuple[Ending, ...]:
        """Those of the next so many days."""
        return tuple(each for each in self.rows if each.day <= self.today + timedelta(days))

    def of_scope(self, scope: Scope) -> tuple[Ending, ...]:
        """Those of a scope; of a team or a user only what is theirs alone."""
        asked = vars(scope).items()
        return tuple(
            each for each in self.rows if all(value is None or getattr(each, name) == value for name, value in asked)
        )


_Candidate = tuple[Leaving, frozenset[str]]
"""With the GPUs that a source names, before those are left out that a surer one names too."""


def find_endings(context: Context, jobs: pl.DataFrame, days: int, zone: tzinfo) -> Endings:
    """What comes free in the days after the window's end, and whether the same came true a week before.

    A GPU is in one ending, that of the surest source. Of a GPU on which several jobs or users are, and of parts of cards,
    nothing is said.

    Args:
        context: the window.
        jobs: with JOB_SCHEMA.
        days: how many after the window's end.
        zone: the site's time zone, whose days count.
    """
    now = _whole_gpus(context)
    running = _running(jobs, context.until_ms)
    return Endings(
        today=_day(context.until_ms, zone),
        days=days,
        rows=_announced(context, now, jobs, days, zone),
        check=_check(context, jobs, zone),
        running=running.height,
        with_limit=running["planned_end"].drop_nulls().len(),
        projects=sum(each.project_end is not None for each in context.owners.by_name.values()),
    )


def _whole_gpus(context: Context) -> pl.DataFrame:
    """The last rows of GPUs that somebody has alone, without parts of cards."""
    shared = pl.col("holder").str.contains(JOINER, literal=True).fill_null(value=False)
    return last_rows(context).filter(pl.col("state").is_in(ALLOCATED) & (pl.col("gpu_share") == 1) & ~shared)


def _day(moment_ms: int, zone: tzinfo) -> date:
    return from_ms(moment_ms).astimezone(zone).date()


def _announced(context: Context, now: pl.DataFrame, jobs: pl.DataFrame, days: int, zone: tzinfo) -> tuple[Ending, ...]:
    today = _day(context.until_ms, zone)
    found = [
        *_at_limits(context, now, jobs, zone),
        *_at_project_ends(context, now, today),
        *_faded(context, now, today),
    ]
    near = [each for each in found if each[0].day <= today + timedelta(days)]
    taken: set[str] = set()
    endings: list[Ending] = []
    for leaving, gpus in sorted(near, key=lambda candidate: candidate[0].order):
        endings += _placed(context, leaving, gpus - taken)
        taken |= gpus
    return tuple(sorted(endings, key=lambda each: (each.day, SOURCES.index(each.source), each.name, each.gpus)))


def _placed(context: Context, leaving: Leaving, gpus: frozenset[str]) -> Iterator[Ending]:
    """One ending for each pool and model."""
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


def _running(jobs: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """The jobs that run at a moment."""
    is_open = pl.col("end").is_null() | (pl.col("end") > until_ms)
    return jobs.filter(pl.col("start") <= until_ms, is_open)


def _at_limits(context: Context, now: pl.DataFrame, jobs: pl.DataFrame, zone: tzinfo) -> Iterator[_Candidate]:
    """One for each running job that has its GPUs for itself and whose limit has not passed."""
    until_ms = context.until_ms
    # by the id alone: the same job may be known from a table here, and there from processes that a scheduler started
    works = by_job(now).with_columns(job=pl.col("work").str.replace(r"^[a-z]+:", ""))
    own = works.filter(pl.len().over("gpu") == 1)
    lengths = _past_lengths(jobs, until_ms)
    limited = _running(jobs, until_ms).filter(pl.col("planned_end") > until_ms).explode("hosts")
    limited = limited.select("job", "start", "planned_end", host="hosts").unique(("job", "host"), keep="last")
    found = own.join(limited, on=("job", "host")).group_by("work", maintain_order=True)
    for row in found.agg(pl.col("gpu", "holder", "account"), pl.col("start", "planned_end").last()).iter_rows(
        named=True
    ):
        limit_ms = row["planned_end"] - row["start"]
        holder, account = ("+".join(sorted(set(row[name]) - {None})) or None for name in ("holder", "account"))
        chance = _chance(lengths, (until_ms - row["start"]) / limit_ms, limit_ms)
        team = context.owners.team(holder, account)
        leaving = Leaving(row["work"], "time_limit", _day(row["planned_end"], zone), team, holder, chance)
        yield leaving, frozenset(row["gpu"])


def _past_lengths(jobs: pl.DataFrame, until_ms: int) -> list[float]:
    """How long the runs that ended lasted, in shares of their limits, in order."""
    # without a state, an end at the limit is one that nobody saw: see `ended_by_limit`
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


def _chance(lengths: Sequence[float], ran: float, limit_ms: int) -> Chance | None:
    """How many of the past runs that lasted for such a share of their limit ended by it; None where none did so."""
    reached = len(lengths) - bisect_left(lengths, ran)
    late = len(lengths) - bisect_left(lengths, 1 + LATE_MS / limit_ms)
    if not reached:
        return None
    share = (reached - late) / reached
    low, high = wilson(share, reached)
    return Chance(low, share, high)


def _at_project_ends(context: Context, now: pl.DataFrame, today: date) -> Iterator[_Candidate]:
    """One for each project and day in the owners file on which it ends, or has ended."""
    lines: dict[tuple[str, date], list[str]] = {}
    for each in context.owners.by_name.values():
        if each.project_end is not None:
            lines.setdefault((each.project or each.name, each.project_end), []).append(f"{each.kind} {each.name}")
    theirs = now.join(owner_lines(context, now), on=("holder", "account"), nulls_equal=True)
    for (name, end), own in sorted(lines.items()):
        rows = theirs.filter(pl.col("line").is_in(own))
        holder, account = joined(rows, "holder"), joined(rows, "account")
        team = context.owners.team(holder, account)
        yield Leaving(name, "project_end", max(end, today), team, holder, None), frozenset(rows["gpu"])


def _faded(context: Context, now: pl.DataFrame, today: date) -> Iterator[_Candidate]:
    """One for each user whose work has faded; the chance is that the GPUs stay unused for `findings.horizon` more."""
    holders = dict(now.select("gpu", "holder").iter_rows())
    for each in faded_findings(context, now):
        promised = each.confidence.outlook
        share = None if promised is None else promised.probability
        gpus = frozenset(gpu for gpu in each.gpus if holders.get(gpu) == each.holder)
        chance = None if share is None else Chance(None, share, None)
        yield Leaving(each.subject, "fading", today, each.team, each.holder, chance), gpus


def _check(context: Context, jobs: pl.DataFrame, zone: tzinfo) -> EndingCheck | None:
    before = week_before(context)
    if before is None:
        return None
    said = _announced(before, _whole_gpus(before), jobs, WEEK_DAYS - 1, zone)
    there = last_rows(context)
    kept = _kept(context, there, before.until_ms)
    seen = set(there["gpu"])
    announced: Counter[EndingSource] = Counter()
    came_free: Counter[EndingSource] = Counter()
    for each in said:
        looked_at = seen.intersection(each.gpus)
        theirs = [each.name] if each.source == "time_limit" else (each.holder or "").split(JOINER)
        announced[each.source] += len(looked_at)
        came_free[each.source] += sum(kept[each.source].isdisjoint((gpu, name) for name in theirs) for gpu in looked_at)
    return EndingCheck(dict(announced), dict(came_free))


def _kept(context: Context, there: pl.DataFrame, since_ms: int) -> dict[EndingSource, set[tuple[str, str]]]:
    """By source the GPUs that did not come free, with the job or the holders who have them, or who used them again."""
    held = there.filter(pl.col("state").is_in(ALLOCATED))
    used = context.whole.stretches.filter(pl.col("state").is_in(IN_USE) & (pl.col("end") > since_ms))
    return {
        "time_limit": set(by_job(held).select("gpu", "work").iter_rows()),
        "project_end": _each_holder(held),
        "fading": _each_holder(used),
    }


def _each_holder(rows: pl.DataFrame) -> set[tuple[str, str]]:
    pairs = rows.select("gpu", pl.col("holder").fill_null("").str.split(JOINER)).unique()
    return set(pairs.explode("holder").iter_rows())
