"""What claims say at the end of a window and no GPU shows: work of a job that nobody sees, GPUs that are only counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import polars as pl

from analytics.language.sentences import say, say_many
from analytics.states import IN_USE
from analytics.workloads.allocation_spans import claims
from analytics.workloads.finding_parts import on_host_ahead, seen_lately
from analytics.workloads.ledger_by_job import by_job
from analytics.workloads.memo import once
from analytics.workloads.window_end import STANDING, newest_rows, unlisted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.workloads.model import Context


def unseen_places(context: Context, jobs: Iterable[str]) -> tuple[str, ...]:
    """GPUs and hosts that these jobs, pods or Ray jobs claim and on which nobody can say what they do."""
    known = unseen_by_job(context)
    return tuple(sorted({place for job in jobs for place in known.get(job, ())}))


@once
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
    counted = _counted(context).filter(pl.col("job").is_in(running["job"].unique().implode()))
    doubtful = _doubtful(context)
    for job, host, user, rest in counted.select("job", "host", "user", "rest").iter_rows():
        if (rest is None or rest > 0) and (host not in hosts or _anybody(doubtful.get(host, ()), user)):
            found[job].add(host)
    return {job: frozenset(places) for job, places in found.items()}


@once
def counted_gpus(context: Context) -> Mapping[str, int | None]:
    """By host how many of its GPUs are claimed now by a count alone, and shown by no work; None where not even that is known.

    Which they are nobody can say: each GPU of the host that is free may be one of them.
    """
    rests: dict[str, list[int | None]] = defaultdict(list)
    nameless = Counter(dict(_nameless(context).group_by("host").len().iter_rows()))
    for host, rest in _counted(context).select("host", "rest").iter_rows():
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
    """Failure to know which GPUs of these hosts are claimed."""
    counted = counted_gpus(context)
    return [_in_words(host, counted[host]) for host in sorted(set(hosts) & set(counted))]


def _in_words(host: str, number: int | None) -> str:
    if number is None:
        return say("GPUs of {host} are claimed, and nobody can say how many or which", host=host)
    return say_many(
        "{number} GPU of {host} is claimed by count alone: nobody can say which",
        "{number} GPUs of {host} are claimed by count alone: nobody can say which",
        number,
        host=host,
    )


@once
def _running(context: Context) -> pl.DataFrame:
    """What is claimed at the end of the window."""
    return claims(context).filter(pl.col("end") > context.until_ms)


@once
def _counted(context: Context) -> pl.DataFrame:
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


@once
def _nameless(context: Context) -> pl.DataFrame:
    """GPUs that are at work, or may be, and that no job is known of: host, gpu, holder."""
    working = pl.col("state").is_in(IN_USE) | ((pl.col("state") == "held") & unlisted()) | on_host_ahead(context)
    rows = newest_rows(context).filter(pl.col("job").is_null() & working & seen_lately(context))
    return rows.select("host", "gpu", "holder")


def _anybody(holders: Iterable[str | None], user: str | None) -> bool:
    """Whether one of the holders may be the user."""
    return any(user is None or holder is None or user in holder.split("+") for holder in holders)
