"""State of each GPU at the end of a window by its last informative ledger row, and allocations that no row shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.allocations.spans import known_allocations
from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import tr, tr_many
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.names import JOINER
from analytics.states import IN_USE, OCCUPIED, UNOCCUPIED
from analytics.workloads.ledger_rows import by_job
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.row_sums import CANDIDATE

STANDING = "allocation:"
"""A reservation ends GPU by GPU, and no work ends with it; a job, pod or Ray job ends as a whole.

An allocation from a file may be either. If its GPUs have no process list, all of them may belong to a single job.
"""


@dataclass(frozen=True)
class WindowEnd:
    """The last informative ledger row of each GPU, silent GPUs included, by GPU and by job.

    On a host whose clock is ahead the state is unknown: there may be work.
    """

    state: Mapping[str, str]
    jobs_on: Mapping[str, frozenset[str]]
    at_work: Mapping[str, frozenset[str]]
    """By job, the GPUs on which it works, or may work if there is no process list."""


@once_per_context
def newest_rows(context: Context) -> pl.DataFrame:
    """Return the last informative row of each GPU, of any age."""
    return newest_of_each_gpu(context.inside.segments, pl.col("state") != "unknown")


def newest_of_each_gpu(rows: pl.DataFrame, counts: pl.Expr) -> pl.DataFrame:
    """Return the last row of each GPU that counts, by GPU."""
    places = rows.lazy().with_row_index("place").filter(counts).select("place", "gpu", "end").collect()
    return rows[places.sort("gpu", "end").unique("gpu", keep="last", maintain_order=True)["place"]]


@once_per_context
def window_end(context: Context) -> WindowEnd:
    last = newest_rows(context)
    jobs = by_job(last)
    has_list = pl.col("gpu").is_in(pl.Series(context.users.lists.keys(), dtype=pl.String).implode())
    ending_whole = jobs.filter(~pl.col("work").str.starts_with(STANDING) | (unlisted() & ~has_list))
    working = jobs.filter(pl.col("state").is_in(IN_USE) | unlisted() | on_host_ahead(context))
    current = last.filter(~on_host_ahead(context))
    return WindowEnd(
        dict(current.select("gpu", "state").iter_rows()),
        _sets(ending_whole, "gpu", "work"),
        _sets(working, "work", "gpu"),
    )


def unlisted() -> pl.Expr:
    """Return whether the GPU has a user but no process list: it may be working even if it looks idle."""
    return (pl.col("state") != "reserved") & pl.col("user_source").ne_missing("process")


def _sets(frame: pl.DataFrame, key: str, value: str) -> dict[str, frozenset[str]]:
    return {name: frozenset(values) for name, values in frame.group_by(key).agg(value).iter_rows()}


@once_per_context
def last_rows(context: Context) -> pl.DataFrame:
    """Return the last ledger row of each GPU observed in the window's last hour, by a host with a correct clock."""
    recent = pl.col("end") > context.until_ms - SILENT_AFTER_MS
    return newest_of_each_gpu(context.inside.segments, recent).filter(~on_host_ahead(context))


def still_going(context: Context, segments: pl.DataFrame) -> tuple[str, ...]:
    """Return the GPUs that were observed in the last hour and whose last row of the window is among these segments."""
    last_seen = _last_row_end(context)
    rows = zip(segments["gpu"].to_list(), segments["end"].to_list(), strict=True)
    return tuple(sorted({gpu for gpu, end in rows if last_seen.get(gpu) == end}))


def still_going_each(context: Context, rows: pl.DataFrame) -> dict[int, tuple[str, ...]]:
    """Return the same by the rows' CANDIDATE; candidates without such GPUs are left out."""
    last_seen = _last_row_end(context)
    found: dict[int, set[str]] = defaultdict(set)
    for number, gpu, end in rows.select(CANDIDATE, "gpu", "end").iter_rows():
        if last_seen.get(gpu) == end:
            found[number].add(gpu)
    return {number: tuple(sorted(gpus)) for number, gpus in found.items()}


@once_per_context
def _last_row_end(context: Context) -> dict[str, int]:
    """Return the end of the last row of each GPU observed in the last hour."""
    last = context.inside.segments.group_by("gpu").agg(pl.col("end").max(), pl.col("host").sort_by("end").last())
    return dict(last.filter(describes_window_end(context)).select("gpu", "end").iter_rows())


def describes_window_end(context: Context) -> pl.Expr:
    """Return whether a GPU's last row (`host`, `end`) describes the end of the window."""
    return (pl.col("end") > context.until_ms - SILENT_AFTER_MS) & ~on_host_ahead(context)


def on_host_ahead(context: Context) -> pl.Expr:
    return pl.col("host").is_in(pl.Series(sorted(context.ahead), dtype=pl.String).implode())


@once_per_context
def allocations(context: Context) -> pl.DataFrame:
    """Return the known data of allocations that began before the window's end: `known_allocations`, and `stated`.

    `stated` is the end that the source itself gave, null without one: the end of a time limit may be extended.
    """
    begun = context.rollups.allocations.filter(pl.col("time") < context.until_ms).with_columns(stated=pl.col("end"))
    return known_allocations(begun)


def unseen_places(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """Return GPUs and hosts that these jobs, pods or Ray jobs allocate and whose activity is unknown."""
    known = unseen_by_job(context)
    return tuple(sorted({place for job in jobs for place in known.get(job, ())}))


@once_per_context
def unseen_by_job(context: Context) -> Mapping[str, frozenset[str]]:
    """Return by running job its allocation's GPUs and hosts that are silent, never reported, or maybe working."""
    running = _running(context).filter(~pl.col("job").str.starts_with(STANDING))
    last = newest_rows(context)
    seen = last.filter(describes_window_end(context))
    gpus, hosts = set(seen["gpu"]), set(seen["host"])
    found: dict[str, set[str]] = defaultdict(set)
    for job, gpu in running.filter(pl.col("gpu").is_not_null()).select("job", "gpu").iter_rows():
        if gpu not in gpus:
            found[job].add(gpu)
    counted = _running_counts(context).filter(pl.col("job").is_in(running["job"].unique().implode()))
    doubtful = _doubtful_users(context)
    for job, host, user, rest in counted.select("job", "host", "user", "rest").iter_rows():
        if (rest is None or rest > 0) and (host not in hosts or _may_be_user(doubtful.get(host, ()), user)):
            found[job].add(host)
    return {job: frozenset(places) for job, places in found.items()}


@once_per_context
def counted_gpus(context: Context) -> Mapping[str, int | None]:
    """Return by host the number of GPUs allocated by count alone, without known work; None if unknown.

    Which GPUs these are is unknown: every free GPU of the host may be one of them.
    """
    rests: dict[str, list[int | None]] = defaultdict(list)
    nameless = Counter(dict(_nameless_gpus(context).group_by("host").len().iter_rows()))
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


def unoccupied_now(context: Context, gpus: pl.Series) -> frozenset[str]:
    """Return the GPUs that were in working order and without a workload at the end of the window.

    A lost or silent GPU cannot be allocated, so it is left out.
    """
    rows = context.inside.segments.select("gpu", "host", "state", "end").filter(pl.col("gpu").is_in(gpus.implode()))
    last = rows.group_by("gpu").agg(pl.col("end").max(), pl.col("state", "host").sort_by("end").last())
    # an allocation by count may be on any free GPU of the host
    counted = (pl.col("state") == "free") & pl.col("host").is_in(list(counted_gpus(context)))
    there = last.filter(pl.col("state").is_in(UNOCCUPIED) & describes_window_end(context) & ~counted)
    return frozenset(there["gpu"])


def allocated_by_count(context: Context, hosts: Iterable[str]) -> list[str]:
    """Return a failure for each of these hosts with GPUs allocated by count: it is unknown which GPUs they are."""
    counted = counted_gpus(context)
    return [_counted_failure(host, counted[host]) for host in sorted(set(hosts) & set(counted))]


def _counted_failure(host: str, number: int | None) -> str:
    if number is None:
        return tr("GPUs of {host} are allocated, but their number and names are unknown", host=host)
    return tr_many(
        "{number} {GPU|GPUs} of {host} {is|are} allocated by count only, so it is unknown which {GPU|GPUs}",
        number,
        host=host,
    )


@once_per_context
def _running(context: Context) -> pl.DataFrame:
    return allocations(context).filter(pl.col("end") > context.until_ms)


@once_per_context
def _running_counts(context: Context) -> pl.DataFrame:
    """Return running allocations that count GPUs of a host: job, host, user, and `rest`.

    `rest` is the number of GPUs that no ledger row shows; null if unknown.
    """
    running = _running(context)
    key = ("job", "host")
    by_host = running.group_by(key).agg(
        user=pl.col("user").drop_nulls().first(),
        count=pl.col("host_gpu_count").filter(pl.col("gpu").is_null()).sum().cast(pl.Int64),
        sizeless=(pl.col("gpu").is_null() & pl.col("host_gpu_count").is_null()).any(),
        counts=pl.col("gpu").is_null().any(),
        named=pl.col("gpu").drop_nulls().n_unique().cast(pl.Int64),
    )
    shown = by_job(newest_rows(context).filter(describes_window_end(context)))
    seen = shown.group_by("host", job="work").agg(seen=pl.col("gpu").n_unique().cast(pl.Int64))
    joined = by_host.filter("counts").join(seen, on=key, how="left")
    # GPUs that the same allocation names are not counted
    left = pl.col("count") - (pl.col("seen").fill_null(0) - pl.col("named")).clip(lower_bound=0)
    return joined.select("job", "host", "user", rest=pl.when(~pl.col("sizeless")).then(left)).sort("job", "host")


def _doubtful_users(context: Context) -> dict[str, tuple[str | None, ...]]:
    """Return by host the users of GPUs on which a job may be working without its name; None for an unknown user."""
    silent = newest_rows(context).filter(~describes_window_end(context)).with_columns(user=pl.lit(None, pl.String))
    rows = pl.concat([_nameless_gpus(context), silent.select("host", "gpu", "user")])
    return {host: tuple(users) for host, users in rows.group_by("host").agg("user").iter_rows()}


_LOOKS_IDLE = tuple(state for state in OCCUPIED if state not in IN_USE)


@once_per_context
def _nameless_gpus(context: Context) -> pl.DataFrame:
    """Return GPUs that work, or may work, without a known job: host, gpu, user."""
    working = pl.col("state").is_in(IN_USE) | (pl.col("state").is_in(_LOOKS_IDLE) & unlisted()) | on_host_ahead(context)
    rows = newest_rows(context).filter(pl.col("job").is_null() & working & describes_window_end(context))
    return rows.select("host", "gpu", "user")


def _may_be_user(names: Iterable[str | None], user: str | None) -> bool:
    """Return True if `user` may be among the names. A name may stand for several users, a null for any user."""
    return any(user is None or name is None or user in name.split(JOINER) for name in names)


KNOWN_MIN = 0.9


def unseen_gpus(context: Context, shortest_ms: int) -> pl.DataFrame:
    """Return a row per job and host with allocated GPUs that the job certainly never used.

    Columns: work (as in `by_job`), host, start and end (of the allocation), allocated, seen (number of GPUs), unseen
    (number of GPUs certainly never used), candidates (UUIDs that include these: no process was on them while the job
    ran).

    Allocations and rows before the window count as well; allocations shorter than `shortest_ms` are left out.
    """
    counted = _counted_runs(context).filter(pl.col("end") - pl.col("start") >= shortest_ms)
    there = context.whole.segments.join(counted.select("host").unique(), on="host", how="semi")
    parts = there.filter(pl.col("gpu_share") != 1).select("host").unique()
    counted = counted.join(parts, on="host", how="anti")  # split GPUs are allocated by the instance
    own = by_job(there).select("work", "host", "gpu").unique()
    seen = own.group_by("work", "host").agg(seen=pl.len().cast(pl.Int64))
    beside = _unused_gpus_beside(there, counted, own)
    found = counted.join(seen, on=("work", "host"), how="left").join(beside, on=("work", "host"))
    found = found.with_columns(pl.col("seen").fill_null(0))
    # work elsewhere without a job's name, or unobserved, may belong to this job
    unseen = pl.col("allocated") - pl.col("seen") - pl.col("doubtful")
    found = found.with_columns(unseen=pl.min_horizontal(unseen, pl.col("candidates").list.len()))
    return found.filter(pl.col("unseen") > 0).drop("doubtful").sort("work", "host")


def _counted_runs(context: Context) -> pl.DataFrame:
    """Return runs whose GPUs on a host are counted and not all named: work, host, start, end, allocated."""
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
        # if a job ran twice on a host, its rows cannot be assigned to a run
        .filter(pl.len().over("job", "host") == 1)
        .select(pl.col("host"), "start", "end", work="job", allocated=pl.col("rest") + pl.col("named"))
    )


def _unused_gpus_beside(there: pl.DataFrame, counted: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Return `candidates` by work and host, other GPUs without a process meanwhile, and the number `doubtful`."""
    met = there.join(counted.select("work", "host", "start", allocation_end="end"), on="host")
    met = met.filter((pl.col("time") < pl.col("allocation_end")) & (pl.col("end") > pl.col("start")))
    met = met.join(own, on=("work", "host", "gpu"), how="anti")
    during = clip(met, "start", "allocation_end")
    unwatched = pl.col("user_source").is_in(UNWATCHED_SOURCES).fill_null(value=False) | (pl.col("state") == "unknown")
    span_ms = pl.col("allocation_end").first() - pl.col("start").first()
    watched = SPAN_MS.filter(~unwatched).sum() >= KNOWN_MIN * span_ms
    nameless = (pl.col("state").is_in(OCCUPIED) & pl.col("job").is_null()).any()
    per_gpu = during.group_by("work", "host", "gpu").agg(
        unused=((pl.col("state") == "free") | unwatched).all() & watched, doubtful=nameless | ~watched
    )
    return per_gpu.group_by("work", "host").agg(
        candidates=pl.col("gpu").filter("unused").sort(), doubtful=pl.col("doubtful").sum().cast(pl.Int64)
    )
