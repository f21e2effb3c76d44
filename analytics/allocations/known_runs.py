"""Matches imported allocations that name GPUs with the runs of pods and jobs that the lake already has.

A run may come from several sources and in parts. Labels of a metrics server name its GPUs from sample to sample; a
scheduler knows its start and user; an agent recorded its arrival. Rows from labels take start and facts of a
scheduler's or agent's row. A scheduler's rows that only count GPUs take labels' GPUs. Parts of one run that labels
reported become one run.
"""

from __future__ import annotations

import polars as pl

from analytics.allocations.model import ROW_SCHEMA, conform, is_reported, is_running
from analytics.frames import read_frame
from analytics.importers.times import LATEST_MS
from fallow.clock import DAY_MS, MINUTE_MS, utc_day
from fallow.lake import Lake
from fallow.schema import ALLOCATION

_CLOCKS_MS = MINUTE_MS
"""The most by which the clocks of a node and of its cluster may differ."""


def on_seen_gpus(lake: Lake, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows with counted pods on the GPUs that agents observed, and the runs that these replace.

    A run is (scheduler, allocation_id, host, time). Where agents observed one pod at several moments, for example after
    a restart, its end belongs to the last moment.
    """
    pods = rows.filter(pl.col("scheduler") == "kubernetes", pl.col("gpu").is_null())
    seen = _observed_gpus(lake, pods)
    key = ["scheduler", "allocation_id", "host"]
    met = pods.join(seen, on=key).filter(
        pl.col("seen") >= pl.col("time") - _CLOCKS_MS, (pl.col("seen") < pl.col("end")).fill_null(value=True)
    )
    run = [*key, "time"]
    last = pl.col("seen").max().over(run)
    stood_for = met.select(run).unique()
    on_gpus = met.with_columns(
        time="seen",
        gpu="seen_gpu",
        host_gpu_count=pl.lit(None, pl.Int32),
        end=pl.when(pl.col("seen") == last).then("end"),
    )
    other_rows = rows.join(stood_for, on=run, how="anti")
    moved = met.filter(pl.col("seen") != pl.col("time")).select(run).unique()
    return pl.concat([other_rows, on_gpus.select(*ROW_SCHEMA)]), moved


def _observed_gpus(lake: Lake, pods: pl.DataFrame) -> pl.DataFrame:
    """Return the GPUs on which agents observed these pods: scheduler, allocation_id, host, seen, seen_gpu."""
    files = lake.files(ALLOCATION.name, hosts=set(pods["host"])) if pods.height else []
    if files:
        first_day = utc_day(int(str(pods["time"].min())) - DAY_MS)
        files = [file for file in files if file.date >= first_day and file.first_seq >= LATEST_MS]
    columns = ["scheduler", "allocation_id", "time", "gpu"]
    known = read_frame(files, ALLOCATION, columns, lake.left_out.leave_out).drop_nulls("gpu")
    return known.select("scheduler", "allocation_id", "host", seen="time", seen_gpu="gpu").unique()


_NEAR_MS = MINUTE_MS
"""The largest gap between two parts of one run, and the most by which the clocks of its sources may differ."""

_BACK_MS = 8 * DAY_MS
"""How far back the files of a host are searched for the start of a run that no other source knows. Few jobs last
longer, and every day is another file to open."""

_SCHEDULERS = ("kubernetes", "slurm")
_JOB = ["scheduler", "allocation_id", "host"]
_RUN = [*_JOB, "time"]
_FACTS = [name for name in ROW_SCHEMA if name not in (*_RUN, "gpu", "end", "host_gpu_count")]
_EVER = 2**62
NO_RUNS = pl.DataFrame(schema={name: ROW_SCHEMA[name] for name in _RUN})


def on_known_runs(lake: Lake, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows on their runs, and the lake's runs (scheduler, allocation_id, host, time) that they replace.

    `rows` has ROW_SCHEMA; those of other schedulers stay as they are.
    """
    is_mine = pl.col("scheduler").is_in(_SCHEDULERS).fill_null(value=False)
    is_named, is_counted = is_mine & pl.col("gpu").is_not_null(), is_mine & pl.col("gpu").is_null()
    known = _known_rows(lake, rows.filter(is_mine))
    if known.is_empty():
        return rows, NO_RUNS
    named, replaced = _named_rows(rows.filter(is_named), known)
    counted, also = _counted_rows(rows.filter(is_counted), known.filter(~pl.col("is_fixed")))
    return pl.concat([rows.filter(~is_mine), counted, named]), pl.concat([replaced, also]).unique()


def _known_rows(lake: Lake, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the lake's rows of these pods and jobs, once per run and GPU: ROW_SCHEMA, `is_agents` and `is_fixed`.

    `is_fixed` is true for rows of agents and schedulers, and for rows that only count GPUs.
    """
    files = lake.files(ALLOCATION.name, hosts=set(rows["host"])) if rows.height else []
    first = dict(rows.group_by("host").agg(pl.col("time").min() - _BACK_MS).iter_rows())
    files = [file for file in files if file.date >= utc_day(first[file.host])]
    parts = []
    for is_agents in (False, True):
        own = [file for file in files if (file.first_seq >= LATEST_MS) == is_agents]
        frame = conform(read_frame(own, ALLOCATION, None, lake.left_out.leave_out))
        same = frame.join(rows.select(_JOB).unique(), on=_JOB, how="semi", nulls_equal=True)
        parts.append(same.with_columns(is_agents=pl.lit(is_agents)))
    once = pl.concat(parts).group_by(*_RUN, "gpu", maintain_order=True).agg(pl.all().max())
    is_fixed = is_reported() | pl.col("gpu").is_null() | pl.col("is_agents")
    return once.with_columns(is_fixed=is_fixed.any().over(_RUN))


def _runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run: `until`, `is_reported` (by a scheduler), `gpus`.

    `until` is its end, or the moment at which it ran; where no source states that, the largest number.
    """
    runs = pl.col("end").is_null().any()
    return rows.group_by(_RUN, maintain_order=True).agg(
        until=pl.when(runs).then(pl.col("as_of").max().fill_null(_EVER)).otherwise(pl.col("end").max()),
        is_reported=is_reported().any(),
        gpus=pl.col("gpu").drop_nulls().unique(),
    )


def _named_rows(rows: pl.DataFrame, known: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows on the runs of the lake, and the runs that they replace."""
    flags = known.group_by(_RUN).agg(pl.col("is_agents").any(), pl.col("is_fixed").first())
    # a run that ends now no longer continues, even if the lake does not know it yet
    ends = rows.select(*_JOB, "gpu", ended="end").drop_nulls("ended")
    closed = known.select(*_RUN, "gpu").join(ends, on=[*_JOB, "gpu"]).filter(pl.col("ended") > pl.col("time"))
    closed = closed.group_by(*_RUN, "gpu").agg(pl.col("ended").min())
    now = known.join(closed, on=[*_RUN, "gpu"], how="left")
    there = _runs(now.with_columns(end=pl.coalesce("end", "ended"))).join(flags, on=_RUN)
    there = there.rename({name: f"{name}_there" for name in ("time", "until", "is_reported", "gpus")})
    # a pod that follows soon on a GPU that the earlier pod did not have is another pod of that name
    is_other = (
        (pl.col("scheduler") == "kubernetes")
        & ~pl.col("is_fixed")
        & (pl.col("gpus").list.set_intersection("gpus_there").list.len() == 0)
    )
    near = pl.when(is_other).then(0).otherwise(_NEAR_MS)
    slack = pl.when(pl.col("is_reported_there")).then(0).otherwise(near)
    pairs = (
        _runs(rows)
        .join(there, on=_JOB, nulls_equal=True)
        .filter(
            pl.col("time_there") <= pl.col("until") + near,
            pl.col("time") <= pl.col("until_there") + slack,
            pl.col("is_agents") | ~pl.col("is_reported") | ~pl.col("is_reported_there"),
        )
    )
    loose = pl.col("time_there").filter(~pl.col("is_fixed")).min()
    fixed = pl.col("time_there").filter("is_fixed")
    began = pairs.group_by(_RUN).agg(
        began=pl.coalesce(
            fixed.filter(fixed <= pl.col("time").first() + _NEAR_MS).max(),
            fixed.min(),
            pl.when(~pl.col("is_reported").first()).then(pl.min_horizontal(pl.col("time").first(), loose)),
            pl.col("time").first(),
        )
    )
    placed = rows.join(began, on=_RUN, how="left").with_columns(_came="time", time=pl.coalesce("began", "time"))
    same = pairs.filter(~pl.col("is_fixed")).join(began, on=_RUN).sort("began")
    same = same.select(*_JOB, "began", time="time_there").unique(_RUN, keep="first", maintain_order=True)
    kept = known.join(same, on=_RUN).with_columns(_was="time", time="began")
    joined = _joined_parts(placed.select(*ROW_SCHEMA, "_came"), kept.select(*ROW_SCHEMA, "_was"))
    # rows of the lake that get an earlier start, or lose their end, are replaced
    begun_again = joined.filter("_runs_again").select(*_JOB, began="time").unique()
    moved = pl.concat(
        [
            same.filter(pl.col("time") != pl.col("began")).select(_RUN),
            same.join(begun_again, on=[*_JOB, "began"], how="semi").select(_RUN),
        ]
    )
    return _with_facts(joined, known.filter("is_fixed")), moved.unique()


def _joined_parts(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    """Return parts of the same runs on the same GPUs joined, and whether a run that had ended runs again.

    A new end ends the run before it. A run that runs now continues, even if it had ended earlier; a later end stays,
    except beside the end that a scheduler reports.
    """
    key = [*_RUN, "gpu"]
    # a run that left a GPU and came back to it appears there once
    once = new.group_by(key, maintain_order=True).agg(
        pl.exclude("end", "_came").first(),
        end=pl.when(~pl.col("end").is_null().any()).then(pl.col("end").max()),
        _came=pl.col("_came").min(),
    )
    parts = once.with_columns(_is_new=True).join(
        old, on=key, how="full", coalesce=True, suffix="_old", nulls_equal=True
    )
    follows = (pl.col("_was") >= pl.col("end") - _NEAR_MS) & (pl.col("_was") > pl.col("_came"))
    is_later_part = pl.col("end_old").is_null() & follows
    ended_since = pl.col("end_old") > pl.col("as_of").fill_null(_EVER)
    end = (
        pl.when(pl.col("_is_new").is_null())
        .then("end_old")
        .when(pl.col("end").is_null())
        .then(pl.when(ended_since).then("end_old"))
        .when(is_later_part)
        .then(None)
        .when(is_reported())
        .then("end")
        .otherwise(pl.max_horizontal("end", "end_old"))
    )
    names = [*_FACTS, "host_gpu_count"]
    facts = parts.with_columns(end.alias("end"), *(pl.coalesce(name, f"{name}_old").alias(name) for name in names))
    # of several parts in the lake, the latest decides whether the run continues
    one = (
        facts.sort("_was", nulls_last=False, maintain_order=True)
        .group_by(key, maintain_order=True)
        .agg(
            pl.col(names).drop_nulls().first(),
            end=pl.when(pl.col("end").last().is_not_null()).then(pl.col("end").max()),
            _had_end=pl.col("end_old").is_not_null().any(),
        )
    )
    again = pl.col("end").is_null() & pl.col("_had_end")
    return one.with_columns(_runs_again=again).select(*ROW_SCHEMA, "_runs_again")


def _with_facts(rows: pl.DataFrame, fixed: pl.DataFrame) -> pl.DataFrame:
    """Return the rows, those of labels with the facts that schedulers reported of their runs, including the end."""
    ended = pl.col("end").filter(~is_running())  # of a running job, only labels show an end
    scheduled = fixed.filter(~pl.col("is_agents")).group_by(_RUN).agg(pl.col(_FACTS).max(), ended.max())
    met = rows.join(scheduled, on=_RUN, how="left", suffix="_fact")
    # the merge compares two reports of schedulers
    facts = [
        pl.when(is_reported()).then(name).otherwise(pl.coalesce(f"{name}_fact", name)).alias(name)
        for name in (*_FACTS, "end")
    ]
    return met.with_columns(facts).select(*ROW_SCHEMA)


def _counted_rows(rows: pl.DataFrame, loose: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows plus one for each GPU that labels named in their time, and the lake's runs of these GPUs.

    A row gets at most as many GPUs as it counts, the longest first, and keeps them while its job runs.
    """
    runs = rows.sort("time").with_columns(next=pl.col("time").shift(-1).over(_JOB))
    until = pl.min_horizontal(pl.col("end"), pl.col("next") - _NEAR_MS, pl.lit(_EVER))
    seen = loose.select(*_JOB, "gpu", time_there="time", end_there="end")
    met = (
        runs.with_columns(until=until)
        .drop("gpu")
        .join(seen, on=_JOB)
        .filter(pl.col("time_there") >= pl.col("time") - _NEAR_MS, pl.col("time_there") < pl.col("until"))
        .filter(pl.col("time_there") != pl.col("time"))  # the merge has those
    )
    lasted = pl.coalesce("end_there", "until") - pl.col("time_there")
    ran_on = (pl.col("end_there") <= pl.col("as_of")).fill_null(value=False)
    by_gpu = (
        met.with_columns(lasted=lasted, end=pl.coalesce("end", pl.when(~ran_on).then("end_there")))
        .sort("lasted", descending=True)
        .unique([*_RUN, "gpu"], keep="first", maintain_order=True)
    )
    fits = (pl.int_range(pl.len()).over(_RUN) < pl.col("host_gpu_count")).fill_null(value=True)
    named = by_gpu.filter(fits).with_columns(host_gpu_count=pl.lit(None, pl.Int32)).select(*ROW_SCHEMA)
    return pl.concat([rows, named]), met.select(*_JOB, time="time_there").unique()
