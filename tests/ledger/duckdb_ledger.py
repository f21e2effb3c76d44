"""The ledger by DuckDB alone: SQL from the lake's Parquet files to segments, without any of the ledger's code.

Of the evidence that kernels only wait, it knows power, SM activity, memory bandwidth, process list and memory.

`assert_agree` compares structure exactly, and sums of floats within rounding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from analytics.intervals import SPAN_MS
from fallow.clock import DAY_MS
from fallow.schema import ALLOCATION, DEVICE, GPU, PROCESS
from fallow.stall_evidence import NO_CONTEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.ledger.build import Ledger
    from analytics.ledger.settings import LedgerSettings
    from fallow.lake import Lake, LakeFile
    from fallow.schema import LakeTable

_TYPES = {"timestamp[ms, UTC]": "timestamptz", "int16": "smallint", "int32": "integer", "int64": "bigint"}

STEPS = {
    "sample": """
with plain as (
    select host, gpu,
           epoch_ms("time") as listed_ms,
           epoch_ms("time") // 86400000 as day,
           greatest(epoch_ms("time") + coalesce(offset_ms, 0), epoch_ms("time") // 86400000 * 86400000) as start_ms,
           interval_ms::bigint as interval_ms,
           coalesce(health, '') as health,
           case when isfinite(gpu_util_pct) and gpu_util_pct between 0 and 100.5
           then gpu_util_pct::double end as util_pct,
           case when isfinite(gpu_util_max_pct) and gpu_util_max_pct between 0 and 100.5
           then gpu_util_max_pct::double end as util_max_pct,
           case when isfinite(sm_active_pct) and sm_active_pct between 0 and 100.5
           then sm_active_pct::double end as sm_pct,
           case when isfinite(dram_active_pct) and dram_active_pct between 0 and 100.5
           then dram_active_pct::double end as dram_pct,
           case when isfinite(gpu_util_coverage_ratio) and gpu_util_coverage_ratio between 0 and 1.01
           then gpu_util_coverage_ratio::double end as covered,
           case when power_w >= 0 and isfinite(power_w) then power_w::double end as power_w,
           case when mem_used_bytes >= 0 then mem_used_bytes end as mem_used_bytes,
           case when energy_mj >= 0 then energy_mj end as energy_mj,
           epoch_ms(counters_since) as epoch,
           util_source = 'scraped' as scraped,
           process_count
    from raw_gpu
    where gpu is not null and interval_ms > 0
      and greatest(epoch_ms("time") + coalesce(offset_ms, 0), 0) // 86400000 <= epoch_ms("time") // 86400000
),
distinct_start as (
    select distinct on (gpu, start_ms) * from plain
    order by gpu, start_ms, util_pct desc nulls last, util_max_pct desc nulls last, sm_pct desc nulls last,
             process_count desc nulls last, mem_used_bytes desc nulls last,
             listed_ms, interval_ms, health, covered nulls first, power_w nulls first, epoch nulls first,
             energy_mj nulls first
)
select *,
       health in ('lost', 'missing', 'reset_required', 'wedged', 'driver_down') as out_of_order,
       health = 'asleep' as asleep,
       (util_pct = 0 and util_max_pct is null) or (util_max_pct = 0 and util_pct < 0.5) as reads_zero
from distinct_start
""",
    "risen": """
with neighbours as (
    select *,
           lag(start_ms) over by_day as last_ms,
           lag(interval_ms) over by_day as last_interval_ms,
           lag(epoch) over by_day as last_epoch,
           lag(scraped) over by_day as last_scraped,
           lag(energy_mj) over by_day as last_energy_mj
    from sample window by_day as (partition by gpu, day order by start_ms)
)
select * exclude (last_ms, last_interval_ms, last_epoch, last_scraped, last_energy_mj),
       case when (epoch is not distinct from last_epoch or scraped and last_scraped
       and not coalesce(epoch <> last_epoch, epoch > last_ms, false))
                and start_ms - last_ms <= 3 * last_interval_ms
                and energy_mj >= last_energy_mj
            then energy_mj - last_energy_mj end as risen_mj,
       start_ms - last_ms as since_ms
from neighbours
""",
    "draw": """
select gpu,
least(1.25 * 198 / 700 * arg_max(power_limit_w, "time"), 0.6 * arg_max(power_limit_w, "time")) as spinning_w,
       1.25 * 126 / 700 * arg_max(power_limit_w, "time") as context_w,
       40.0 / 700 * arg_max(power_limit_w, "time") as least_w
from raw_device group by gpu
""",
    "seen": """
select host, gpu, min(start_ms) as first_ms, max(start_ms + interval_ms) as last_ms from sample group by host, gpu
""",
    "usable": """
with told as (
    select * exclude (reads_zero),
           coalesce(reads_zero, false) and not out_of_order as zero,
           coalesce(out_of_order or asleep or util_pct is not null or process_count = 0, false) as tells,
           lead(start_ms) over (partition by gpu order by start_ms) as next_ms
    from risen
    where tells or health = 'released'
)
select * exclude (tells), lead(start_ms) over (partition by gpu, day order by start_ms) is null as last_of_day,
       case when next_ms is null then start_ms + interval_ms
            else least(next_ms, start_ms + 3 * interval_ms) end as end_ms
from told
where tells
""",
    "held_process": """
select * exclude ("user"),
       replace(case when coalesce(slurm_job_id, pod, ray_job_id) is not null then "user"
                       when container is not null and ("user" = 'root' or regexp_full_match("user", '[0-9]+'))
                       then container_runtime || '/' || container
                       when unit is not null and "user" = 'root' then unit
                       else "user" end, '+', '\\') as user
from raw_process
""",
    "process_list": """
with process as (
    select host, gpu, epoch_ms("time") as listed_ms, interval_ms, user as "user",
           replace(coalesce(slurm_account, namespace), '+', '\\') as account,
           case when slurm_job_id is not null then 'slurm:' || slurm_job_id
                when pod is not null then 'pod:' || coalesce(namespace, 'default') || '/' || pod
                when ray_job_id is not null then 'ray:' || ray_job_id end as job
    from held_process
)
select host, gpu, listed_ms, listed_ms // 86400000 as day,
       3 * max(interval_ms) as reach_ms,
       string_agg(distinct "user", '+' order by "user") as users,
       string_agg(distinct account, '+' order by account) as accounts,
       string_agg(distinct job, '+' order by job) as jobs
from process
group by host, gpu, listed_ms
""",
    "list_user": """
select host, gpu, epoch_ms("time") as listed_ms, user as "user", count(distinct pid) as pairs
from held_process
where user is not null
group by all
""",
    "listed": """
select usable.*,
       case when usable.listed_ms - earlier.listed_ms <= earlier.reach_ms then earlier
            when later.listed_ms - usable.listed_ms <= later.reach_ms then later end as list
from usable
asof left join process_list as earlier
    on usable.host = earlier.host and usable.gpu = earlier.gpu and usable.day = earlier.day
    and usable.listed_ms >= earlier.listed_ms
asof left join process_list as later
    on usable.host = later.host and usable.gpu = later.gpu and usable.day = later.day
    and usable.listed_ms <= later.listed_ms
""",
    "allocation_span": """
select host, gpu, epoch_ms("time") as start_ms,
       coalesce(epoch_ms(max("end")), epoch_ms(min(planned_end)), 4611686018427387904) as end_ms,
       max(replace("user", '+', '\\')) as "user", max(replace(account, '+', '\\')) as account,
       case scheduler when 'slurm' then 'slurm:' when 'kubernetes' then 'pod:' else 'allocation:' end
       || allocation_id as job
from raw_allocation
where gpu is not null
group by host, gpu, "time", scheduler, allocation_id
""",
    "allocated": """
select usable.gpu, usable.start_ms,
       string_agg(distinct allocation_span."user", '+' order by allocation_span."user") as users,
       string_agg(distinct allocation_span.account, '+' order by allocation_span.account) as accounts,
       string_agg(distinct allocation_span.job, '+' order by allocation_span.job) as jobs
from usable
join allocation_span
    on usable.host = allocation_span.host and usable.gpu = allocation_span.gpu
    and usable.start_ms >= allocation_span.start_ms and usable.start_ms < allocation_span.end_ms
group by usable.gpu, usable.start_ms
""",
    "used": """
with judged as (
    select listed.*,
           case when allocated.start_ms is not null then allocated end as allocated,
           coalesce(process_count > 0, false) as by_process,
           process_count is null and coalesce(mem_used_bytes > $held_min_bytes, false) as by_memory,
           util_pct is not null and not zero as busy
    from listed left join allocated on listed.gpu = allocated.gpu and listed.start_ms = allocated.start_ms
),
kinds as (
    select *,
           case when out_of_order then 'unavailable'
                when by_process or by_memory or busy then 'use'
                when allocated is not null then 'reserved'
                else 'free' end as kind
    from judged
),
sources as (
    select *,
           case when kind = 'unavailable' then null
                when kind = 'reserved' then
                    case when process_count is null and not coalesce(mem_used_bytes < $no_context_bytes, false)
                    and not asleep then 'allocation_unwatched' else 'allocation' end
                when kind = 'free' then
                    case when process_count is null and not coalesce(mem_used_bytes < $no_context_bytes, false)
                    and not asleep then 'unwatched' end
                when by_process and list.users is not null then 'process'
                when allocated is not null then 'allocation'
                when by_process then 'process'
                when by_memory then 'memory' end as source
    from kinds
)
select * exclude (list, allocated),
       case when source = 'process' then list.listed_ms end as list_ms,
       {
           'kind': kind,
           'source': source,
           'user': case source when 'process' then list.users when 'allocation' then allocated.users
           when 'allocation_unwatched' then allocated.users end,
           'account': case source when 'process' then list.accounts when 'allocation' then allocated.accounts
           when 'allocation_unwatched' then allocated.accounts end,
           'job': case source when 'process' then list.jobs when 'allocation' then allocated.jobs
           when 'allocation_unwatched' then allocated.jobs end
       } as use
from sources
""",
    "waiting": """
with drawn as (select *, greatest(power_w, risen_mj / since_ms) as any_w from used left join draw using (gpu)),
witnesses as (
    select *, case when any_w >= least_w then any_w end as drawn_w,
           coalesce(any_w between least_w and spinning_w, false) as draws_little,
           coalesce(sm_pct <= 2, false)
               or (coalesce(sm_pct <= 5, false) or dram_pct is not null)
               and not coalesce(any_w >= least_w and any_w > context_w, false) as runs_nothing,
           coalesce(process_count = 0, false) as has_no_process,
           (coalesce(covered < 0.5, end_ms - start_ms > 1000 / 3)) and end_ms - start_ms > 60000 as is_coarse
    from drawn
),
judged as (
    select *,
           case when use.kind = 'use' and not zero and coalesce(util_pct >= 97, false)
                     and not coalesce(drawn_w > spinning_w, false) and not coalesce(sm_pct > 30, false)
                     and not coalesce(dram_pct > 0.2, false)
                then draws_little::int + runs_nothing::int + has_no_process::int else 0 end as agree
    from witnesses
)
select * exclude (any_w, drawn_w, draws_little, runs_nothing, has_no_process, is_coarse, spinning_w, context_w,
least_w, agree),
       agree >= 2 and not is_coarse as waits,
       case when agree >= 1 then 1 + is_coarse::int else 0 end as speaks
from judged
""",
    "piece": """
with marked as (
    select *,
           lag(end_ms) over by_gpu is distinct from start_ms
           or lag(use) over by_gpu is distinct from use
           or lag(speaks) over by_gpu is distinct from speaks
           or lag(day) over by_gpu is distinct from day
           or lag(zero) over by_gpu is distinct from zero as begins
    from waiting window by_gpu as (partition by gpu order by start_ms)
),
numbered as (select *, count(*) filter (begins) over (partition by gpu order by start_ms) as piece from marked)
select * exclude (begins, piece, waits, speaks),
       speaks > 0 and 2 * sum(case when waits then end_ms - start_ms else 0 end) over by_piece
       >= sum(end_ms - start_ms) over by_piece as stalls
from numbered window by_piece as (partition by gpu, piece)
""",
    "labelled": """
with marked as (
    select *,
           lag(end_ms) over by_gpu is distinct from start_ms
           or lag(use) over by_gpu is distinct from use
           or lag(stalls) over by_gpu is distinct from stalls
           or lag(zero) over by_gpu is distinct from zero as begins
    from piece window by_gpu as (partition by gpu order by start_ms)
),
idle_intervals as (select *, count(*) filter (begins) over (partition by gpu order by start_ms)
as idle_interval from marked),
spans as (select *, sum(end_ms - start_ms) over (partition by gpu, idle_interval)
as idle_interval_ms from idle_intervals)
select * exclude (begins, idle_interval, idle_interval_ms),
       case when use.kind <> 'use' then use.kind
            when zero and idle_interval_ms >= $idle_after_ms then 'held'
            when stalls and idle_interval_ms >= $stalled_after_ms then 'stalled'
            else 'busy' end as label
from spans
""",
    "grouped": """
with marked as (
    select *,
           lag(end_ms) over by_gpu is distinct from start_ms
           or lag(use) over by_gpu is distinct from use
           or lag(label) over by_gpu is distinct from label as begins
    from labelled window by_gpu as (partition by gpu order by start_ms)
)
select * exclude (begins), count(*) filter (begins) over (partition by gpu order by start_ms) as segment from marked
""",
    "segment": """
with summed as (
    select host, gpu, segment, any_value(use) as use, any_value(label) as label,
           min(start_ms) as start_ms, max(end_ms) as end_ms,
           sum(end_ms - start_ms) filter (zero) as zero_ms,
           sum(end_ms - start_ms) filter (util_pct is not null and not out_of_order) as util_ms,
           sum(util_pct * (end_ms - start_ms)) filter (not out_of_order) as util_sum,
           max(greatest(util_pct, util_max_pct)) as util_max_pct,
           sum(sm_pct * (end_ms - start_ms)) / sum(end_ms - start_ms) filter (sm_pct is not null) as sm_mean_pct,
           max(mem_used_bytes) as mem_used_max_bytes,
           sum(power_w * (end_ms - start_ms)) / sum(end_ms - start_ms) filter (power_w is not null) as power_mean_w,
           sum(case when energy_mj is not null then risen_mj else power_w * (end_ms - start_ms) end) as energy_mj,
           -- what a counter says of the time beyond the day is in the next row
           sum(case when energy_mj is not null and last_of_day then least(end_ms - start_ms, interval_ms)
           else end_ms - start_ms end)
               filter (case when energy_mj is not null then risen_mj else power_w end is not null) as energy_ms,
           sum(covered * (end_ms - start_ms)) / sum(end_ms - start_ms) filter (covered is not null) as coverage_ratio,
           count(*) as sample_count
    from grouped group by host, gpu, segment
)
select * exclude (label),
       case when label <> 'busy' then label
            when util_sum / util_ms < $low_below_pct then 'low'
            else 'active' end as state
from summed
""",
    "user_share": """
with each_user as (
    select gpu, segment, "user", sum(pairs * (end_ms - start_ms)) as weight
    from grouped join list_user using (host, gpu)
    where list_user.listed_ms = grouped.list_ms
    group by gpu, segment, "user"
)
select gpu, segment, list(weight / whole order by "user") as user_shares
from (select *, sum(weight) over (partition by gpu, segment) as whole from each_user)
group by gpu, segment having count(*) > 1
""",
    "result": """
with edges as (
    select host, gpu, start_ms as at_ms, end_ms as then_ms from segment
    union all select host, gpu, first_ms, first_ms from seen
    union all select host, gpu, last_ms, last_ms from seen
),
gaps as (
    select host, gpu, max(then_ms) over so_far as start_ms, lead(at_ms) over so_far as end_ms
    from edges
    window so_far as (partition by gpu order by at_ms, then_ms)
)
select host, gpu, start_ms, end_ms, state, use.user, use.source, use.account, use.job,
       coalesce(zero_ms, 0)::bigint as zero_ms, coalesce(util_ms, 0)::bigint as util_ms, sample_count,
       util_sum / nullif(util_ms, 0) as util_mean_pct, util_max_pct, sm_mean_pct, mem_used_max_bytes, power_mean_w,
       energy_mj, coalesce(energy_ms, 0)::bigint as energy_ms,
       coverage_ratio, user_shares
from segment left join user_share using (gpu, segment)
union all by name
select host, gpu, start_ms, end_ms, 'unknown' as state, 0 as zero_ms, 0 as util_ms, 0 as energy_ms, 0 as sample_count
from gaps where start_ms < end_ms
""",
    "idle_interval": """
with marked as (
    select *,
           lag(end_ms) over by_gpu is distinct from start_ms or lag(zero) over by_gpu is distinct from zero as begins
    from used window by_gpu as (partition by gpu order by start_ms)
),
numbered as (select *, count(*) filter (begins) over (partition by gpu order by start_ms) as idle_interval from marked)
select gpu, min(start_ms) as start_ms, max(end_ms) as end_ms from numbered where zero group by gpu, idle_interval
""",
}
"""By its name each temporary table, made out of the ones before it."""


@dataclass(frozen=True)
class Found:
    """DuckDB's whole segments (not cut at midnight) and idle_intervals at zero, sorted by GPU and start."""

    segments: list[dict[str, Any]]
    idle_intervals: list[tuple[str, int, int]]


def duckdb_ledger(lake: Lake, settings: LedgerSettings) -> Found:
    """The ledger of a lake."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for each in (GPU, PROCESS, ALLOCATION, DEVICE):
            connection.execute(f"create temp view raw_{each.name} as {_rows(each, lake.files(each.name))}")
        known = asdict(settings) | {"no_context_bytes": NO_CONTEXT_BYTES}
        for table, step in STEPS.items():
            used = {name: value for name, value in known.items() if f"${name}" in step}
            connection.execute(f"create temp table {table} as {step}", used)
        return Found(
            _dicts(connection.sql("from result order by gpu, start_ms")),
            connection.sql("from idle_interval order by gpu, start_ms").fetchall(),
        )


def _rows(table: LakeTable, files: Iterable[LakeFile]) -> str:
    """The table's files with every column of the schema and the host of the path; no rows where there are no files."""
    columns = ", ".join(
        f'null::{_TYPES.get(each.type.value, each.type.value)} as "{each.name}"' for each in table.columns
    )
    empty = f"select null::varchar as host, {columns} where false".replace("::string", "::varchar")
    if not (urls := [file.url for file in files]):
        return empty
    read = (
        f"from read_parquet({urls}, hive_partitioning = true, hive_types = {{'host': varchar}}, union_by_name = true)"
    )
    return f"{empty} union all by name {read}"


def _dicts(rows: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]


_KEYS = ("host", "gpu", "start_ms", "end_ms", "state", "user", "source", "account", "job")
_COUNTS = ("zero_ms", "util_ms", "energy_ms")
_FLOATS = (
    "util_mean_pct",
    "util_max_pct",
    "sm_mean_pct",
    "power_mean_w",
    "coverage_ratio",
    "energy_mj",
    "mem_used_max_bytes",
)
_ONE_DAY_ONLY = ("sm_mean_pct", "power_mean_w", "coverage_ratio")
"""Means whose weights the ledger does not state: over midnight they cannot be put together again."""


def assert_agree(ledger: Ledger, found: Found) -> None:
    """The ledger has DuckDB's segments, idle_intervals and sums, cut at every midnight and without gaps."""
    for rows in (ledger.segments, ledger.idle_intervals):
        assert rows.select((pl.col("time") // DAY_MS == (pl.col("end") - 1) // DAY_MS).all()).item()
    mine = _whole_segments(ledger)
    assert [[row[key] for key in _KEYS] for row in mine] == [[row[key] for key in _KEYS] for row in found.segments]
    for row, theirs in zip(mine, found.segments, strict=True):
        _assert_sums(row, theirs)
    whole = ledger.idle_intervals.group_by("gpu", "idle_interval_start", "idle_interval_end").agg(
        SPAN_MS.sum().alias("covered_ms")
    )
    assert whole.sort("gpu", "idle_interval_start").rows() == [
        (*idle_interval, idle_interval[2] - idle_interval[1]) for idle_interval in found.idle_intervals
    ]


def _whole_segments(ledger: Ledger) -> list[dict[str, Any]]:
    """The ledger's segments with their pieces of several days put together, as DuckDB has them."""
    util = (pl.col("gpu_util_mean_pct") * pl.col("util_ms")).sum() / pl.col("util_ms").sum()
    keys = ("host", "gpu", "segment_start", "segment_end", "state", "gpu_share")
    return (
        ledger.segments.group_by(keys, maintain_order=True)
        .agg(
            pl.col("user", "account", "job", "user_shares").first(),
            pl.col("zero_ms", "util_ms", "sample_count", "energy_ms").sum(),
            pl.col("mem_used_max_bytes").max(),
            pl.col("power_mean_w", "coverage_ratio").mean(),
            util_max_pct=pl.col("gpu_util_max_pct").max(),
            sm_mean_pct=pl.col("sm_active_mean_pct").mean(),
            source=pl.col("user_source").first(),
            util_mean_pct=pl.when(pl.col("util_ms").sum() > 0).then(util),
            energy_mj=pl.when(pl.col("energy_mj").is_not_null().any()).then(pl.col("energy_mj").sum()),
            pieces=pl.len(),
            covered_ms=SPAN_MS.sum(),
        )
        .rename({"segment_start": "start_ms", "segment_end": "end_ms"})
        .sort("gpu", "start_ms")
        .to_dicts()
    )


def _assert_sums(row: dict[str, Any], theirs: dict[str, Any]) -> None:
    where = f"{row['gpu']} {row['start_ms']} {row['state']}"
    is_whole = row["pieces"] == 1
    assert (row["covered_ms"], row["sample_count"]) == (row["end_ms"] - row["start_ms"], theirs["sample_count"]), where
    for name in _COUNTS:  # cut at midnight, each piece is rounded by itself
        assert abs(row[name] - theirs[name]) <= row["pieces"] - 1, (where, name)
    for name in _FLOATS:
        if is_whole or name not in _ONE_DAY_ONLY:
            # a millisecond that lies over midnight may be too little to have a sum of its own
            expected = theirs[name] and pytest.approx(theirs[name], rel=1e-6 if is_whole else 1e-4, abs=1e-3)
            assert row[name] == expected, (where, name)
    shares, expected = row["user_shares"], theirs["user_shares"]
    if row["start_ms"] // DAY_MS == (row["end_ms"] - 1) // DAY_MS:
        assert (shares and list(shares)) == (expected and pytest.approx(expected, abs=1e-9)), where
    assert shares is None or sum(shares) == pytest.approx(1), where
