"""How each GPU stands at the end of a window by the last ledger row that says anything of it, and what allocations say and no row shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.allocations.spans import known_allocations
from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import tr, tr_many
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import IN_USE, OCCUPIED
from analytics.workloads.ledger_rows import by_job
from analytics.workloads.model import Context, once_per_context

STANDING = "claim:"
"""A reservation ends GPU by GPU, and no work with it; a job, pod or Ray job ends as a whole.

An allocation from a file may be either. Where nobody lists the processes on its GPUs, they may all be of one job.
"""


@dataclass(frozen=True)
class WindowEnd:
    """The last ledger row of each GPU that says anything, silent GPUs included, by GPU and by job.

    How it stands on a host whose clock is ahead nobody knows: there may be work there.
    """

    state: Mapping[str, str]
    jobs_on: Mapping[str, frozenset[str]]
    at_work: Mapping[str, frozenset[str]]
    """By job the GPUs that it works on, or may work on where nobody lists processes."""


@once_per_context
def newest_rows(context: Context) -> pl.DataFrame:
    """The last row of each GPU that says anything, however old."""
    rows = context.inside.stretches.filter(pl.col("state") != "unknown").sort("gpu", "end")
    return rows.unique("gpu", keep="last", maintain_order=True)


@once_per_context
def window_end(context: Context) -> WindowEnd:
    last = newest_rows(context)
    jobs = by_job(last)
    told_apart = pl.col("gpu").is_in(pl.Series(context.holders.lists.keys(), dtype=pl.String).implode())
    ending_whole = jobs.filter(~pl.col("work").str.starts_with(STANDING) | (unlisted() & ~told_apart))
    working = jobs.filter(pl.col("state").is_in(IN_USE) | unlisted() | on_host_ahead(context))
    told = last.filter(~on_host_ahead(context))
    return WindowEnd(
        dict(told.select("gpu", "state").iter_rows()), _sets(ending_whole, "gpu", "work"), _sets(working, "work", "gpu")
    )


def unlisted() -> pl.Expr:
    """Whether somebody is on the GPU and no list says who: at rest or not, it may be work."""
    return (pl.col("state") != "reserved") & pl.col("holder_source").ne_missing("process")


def _sets(frame: pl.DataFrame, key: str, value: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, each in frame.select(key, value).iter_rows():
        found[name].add(each)
    return {name: frozenset(values) for name, values in found.items()}


@once_per_context
def last_rows(context: Context) -> pl.DataFrame:
    """The last ledger row of each GPU that was seen in the window's last hour, by a host whose clock is right."""
    rows = context.inside.stretches.filter(pl.col("end") > context.until_ms - SILENT_AFTER_MS)
    return rows.sort("gpu", "end").unique("gpu", keep="last", maintain_order=True).filter(~on_host_ahead(context))


def still_going(context: Context, stretches: pl.DataFrame) -> tuple[str, ...]:
    """The GPUs that were seen lately and whose last row of the window is among these: what is the case at its end."""
    last_seen = _last_seen(context)
    rows = zip(stretches["gpu"].to_list(), stretches["end"].to_list(), strict=True)
    return tuple(sorted({gpu for gpu, end in rows if last_seen.get(gpu) == end}))


@once_per_context
def _last_seen(context: Context) -> dict[str, int]:
    """The end of the last row of each GPU that was seen lately."""
    last = context.inside.stretches.group_by("gpu").agg(pl.col("end").max(), pl.col("host").sort_by("end").last())
    return dict(last.filter(seen_lately(context)).select("gpu", "end").iter_rows())


def seen_lately(context: Context) -> pl.Expr:
    """Whether what a GPU's last row (`host`, `end`) says was the case at the end of the window."""
    return (pl.col("end") > context.until_ms - SILENT_AFTER_MS) & ~on_host_ahead(context)


def on_host_ahead(context: Context) -> pl.Expr:
    """Whether a row is of a host whose clock is ahead."""
    return pl.col("host").is_in(pl.Series(sorted(context.ahead), dtype=pl.String).implode())


@once_per_context
def allocations(context: Context) -> pl.DataFrame:
    """What is known of each claim that began before the end of the window: `known_allocations`, and `stated`.

    `stated` is the end that the source itself gave, null where there is none: the end of a time limit may be raised.
    """
    begun = context.rollups.claims.filter(pl.col("time") < context.until_ms).with_columns(stated=pl.col("end"))
    return known_allocations(begun)


def unseen_places(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """GPUs and hosts that these jobs, pods or Ray jobs claim and on which nobody can say what they do."""
    known = unseen_by_job(context)
    return tuple(sorted({place for job in jobs for place in known.get(job, ())}))


@once_per_context
def unseen_by_job(context: Context) -> Mapping[str, frozenset[str]]:
    """By job that runs the GPUs and hosts that it claims and that are silent, never reported, or where it may be at work unseen."""
    running = _running(context).filter(~pl.col("job").str.starts_with(STANDING))
    last = newest_rows(context)
    seen = last.filter(seen_lately(context))
    gpus, hosts = set(seen["gpu"]), set(seen["host"])
    found: dict[str, set[str]] = defaultdict(set)
    for job, gpu in running.filter(pl.col("gpu").is_not_null()).select("job", "gpu").iter_rows():
        if gpu not in gpus:
            found[job].add(gpu)
    counted = _running_counts(context).filter(pl.col("job").is_in(running["job"].unique().implode()))
    doubtful = _doubtful(context)
    for job, host, user, rest in counted.select("job", "host", "user", "rest").iter_rows():
        if (rest is None or rest > 0) and (host not in hosts or _anybody(doubtful.get(host, ()), user)):
            found[job].add(host)
    return {job: frozenset(places) for job, places in found.items()}


@once_per_context
def counted_gpus(context: Context) -> Mapping[str, int | None]:
    """By host how many of its GPUs are claimed now by a count alone, and shown by no work; None where not even that is known.

    Which they are nobody can say: each GPU of the host that is free may be one of them.
    """
    rests: dict[str, list[int | None]] = defaultdict(list)
    nameless = Counter(dict(_nameless(context).group_by("host").len().iter_rows()))
    for host, rest in _running_counts(context).select("host", "rest").iter_rows():
        rests[host].append(rest)
    found: dict[str, int | None] = {}
    for host, parts in rests.items():
        left = sum(max(part or 0, 0) for part in parts) - nameless[host]
        if None in parts:
            found[host] = None
        elif left > 0:
            found[host] = left
    return found


def claimed_by_count(context: Context, hosts: Iterable[str]) -> list[str]:
    """Fails where GPUs of these hosts are allocated by count: which ones is not known."""
    counted = counted_gpus(context)
    return [_counted_failure(host, counted[host]) for host in sorted(set(hosts) & set(counted))]


def _counted_failure(host: str, number: int | None) -> str:
    if number is None:
        return tr("GPUs of {host} are allocated: how many and which ones is not known", host=host)
    return tr_many(
        "{number} GPU of {host} is allocated by count only: which one is not known",
        "{number} GPUs of {host} are allocated by count only: which ones is not known",
        number,
        host=host,
    )


@once_per_context
def _running(context: Context) -> pl.DataFrame:
    return allocations(context).filter(pl.col("end") > context.until_ms)


@once_per_context
def _running_counts(context: Context) -> pl.DataFrame:
    """Running claims that count GPUs of a host: job, host, user and `rest`, how many of them no ledger row shows (null: unknown)."""
    running = _running(context)
    key = ("job", "host")
    by_host = running.group_by(key).agg(
        user=pl.col("user").drop_nulls().first(),
        count=pl.col("host_gpu_count").filter(pl.col("gpu").is_null()).sum().cast(pl.Int64),
        sizeless=(pl.col("gpu").is_null() & pl.col("host_gpu_count").is_null()).any(),
        counts=pl.col("gpu").is_null().any(),
        named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
    )
    shown = by_job(newest_rows(context).filter(seen_lately(context)))
    seen = shown.group_by("host", job="work").agg(seen=pl.col("gpu").n_unique().cast(pl.Int64))
    joined = by_host.filter("counts").join(seen, on=key, how="left")
    # what the same claim names is not what it counts
    left = pl.col("count") - (pl.col("seen").fill_null(0) - pl.col("named")).clip(lower_bound=0)
    return joined.select("job", "host", "user", rest=pl.when(~pl.col("sizeless")).then(left)).sort("job", "host")


def _doubtful(context: Context) -> dict[str, tuple[str | None, ...]]:
    """By host the holders of the GPUs on which a job may be at work without its name; None where nobody knows one."""
    silent = newest_rows(context).filter(~seen_lately(context)).with_columns(holder=pl.lit(None, pl.String))
    rows = pl.concat([_nameless(context), silent.select("host", "gpu", "holder")])
    return {host: tuple(holders) for host, holders in rows.group_by("host").agg("holder").iter_rows()}


@once_per_context
def _nameless(context: Context) -> pl.DataFrame:
    """GPUs that are at work, or may be, and that no job is known of: host, gpu, holder."""
    working = pl.col("state").is_in(IN_USE) | ((pl.col("state") == "held") & unlisted()) | on_host_ahead(context)
    rows = newest_rows(context).filter(pl.col("job").is_null() & working & seen_lately(context))
    return rows.select("host", "gpu", "holder")


def _anybody(holders: Iterable[str | None], user: str | None) -> bool:
    """Whether the user may be one of the holders."""
    return any(user is None or holder is None or user in holder.split("+") for holder in holders)


KNOWN_MIN = 0.9


def unseen_gpus(context: Context, shortest_ms: int) -> pl.DataFrame:
    """One row per job and host with GPUs that the claim counts and that the job was surely never on.

    Columns: work (as in `by_job`), host, start and end (of the claim), claimed, seen (how many GPUs), unseen (how many it
    surely never was on), candidates (the UUIDs among which these are: nobody was on them while it ran).

    Args:
        context: the window; claims and rows before it count as well.
        shortest_ms: claims that were shorter are left out.
    """
    counted = _counted_runs(context).filter(pl.col("end") - pl.col("start") >= shortest_ms)
    there = context.whole.stretches.join(counted.select("host").unique(), on="host", how="semi")
    parts = there.filter(pl.col("gpu_share") != 1).select("host").unique()
    counted = counted.join(parts, on="host", how="anti")  # what is split is claimed by the instance
    own = by_job(there).select("work", "host", "gpu").unique()
    seen = own.group_by("work", "host").agg(seen=pl.len().cast(pl.Int64))
    beside = _unused_beside(there, counted, own)
    found = counted.join(seen, on=("work", "host"), how="left").join(beside, on=("work", "host"))
    found = found.with_columns(pl.col("seen").fill_null(0))
    # what ran elsewhere without the name of a job, or unseen, may be this one's
    unseen = pl.col("claimed") - pl.col("seen") - pl.col("doubtful")
    found = found.with_columns(unseen=pl.min_horizontal(unseen, pl.col("candidates").list.len()))
    return found.filter(pl.col("unseen") > 0).drop("doubtful").sort("work", "host")


def _counted_runs(context: Context) -> pl.DataFrame:
    """Runs whose GPUs on a host are counted and not, or not all, named: work, host, start, end, claimed."""
    run = ("job", "host", "start")
    rows = allocations(context).with_columns(pl.col("end").clip(upper_bound=context.until_ms))
    nameless = pl.col("gpu").is_null()
    return (
        rows.group_by(run)
        .agg(
            pl.col("end").max(),
            rest=pl.col("host_gpu_count").filter(nameless).max(),
            named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
        )
        .filter(pl.col("rest") > 0)
        # of a job that ran twice on a host nobody can say which run was seen where
        .filter(pl.len().over("job", "host") == 1)
        .select(pl.col("host"), "start", "end", work="job", claimed=pl.col("rest") + pl.col("named"))
    )


def _unused_beside(there: pl.DataFrame, counted: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Per work and host the other GPUs on which nobody was meanwhile, and on how many the work may have been all the same."""
    met = there.join(counted.select("work", "host", "start", claim_end="end"), on="host")
    met = met.filter((pl.col("time") < pl.col("claim_end")) & (pl.col("end") > pl.col("start")))
    met = met.join(own, on=("work", "host", "gpu"), how="anti")
    during = clip(met, "start", "claim_end")
    unwatched = pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False) | (pl.col("state") == "unknown")
    span_ms = pl.col("claim_end").first() - pl.col("start").first()
    watched = SPAN_MS.filter(~unwatched).sum() >= KNOWN_MIN * span_ms
    nameless = (pl.col("state").is_in(OCCUPIED) & pl.col("job").is_null()).any()
    per_gpu = during.group_by("work", "host", "gpu").agg(
        nobody=((pl.col("state") == "free") | unwatched).all() & watched, doubtful=nameless | ~watched
    )
    return per_gpu.group_by("work", "host").agg(
        candidates=pl.col("gpu").filter("nobody").sort(), doubtful=pl.col("doubtful").sum().cast(pl.Int64)
    )
