"""fallow's accuracy on an independent trace, by labels made from the trace itself, without fallow's code.

The trace genai26 (143 serving pods over a day, a duty cycle every 57 s) becomes a lake, and its CSV file becomes
labels. A pod is used in rows above 0, and unused where it stays at 0 for at least five minutes. It is reclaimable at a
moment where it stays at 0 for the following horizon. Then `fallow evaluate --every 2h` judges the findings of every two
hours by the later labels.

The licence keeps the trace out of this repository: it belongs in ../shared/traces or the folder FALLOW_BENCH_TRACES.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks.measure import Figure
from fallow.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST, STEP_S, EVERY = "trace", 57, "2h"
HORIZONS_H = (1, 2, 4)

LABELS = """
copy (
    with samples as (
        select container_ip as pod, timestamp_anon as moment, value > 0 as used,
               lead(timestamp_anon) over pods as next_moment
        from read_csv('{trace}')
        window pods as (partition by container_ip order by timestamp_anon)
    ),
    -- a gap of more than three steps, or the end of the trace: the later state is unknown
    segments as (
        select *, coalesce(sum((coalesce(next_moment - moment, 1e9) > 3 * {step})::int) over (
            partition by pod order by moment rows between unbounded preceding and 1 preceding), 0) as segment
        from samples
    ),
    runs as (
        select *, row_number() over (partition by pod, segment order by moment)
                - row_number() over (partition by pod, segment, used order by moment) as run
        from segments
    ),
    spans as (
        select pod, segment, used, min(moment) as since, max(moment) + {step} as until
        from runs group by pod, segment, used, run
    ),
    following as (
        select *, coalesce(lead(since) over (partition by pod, segment order by since), until) as next_since,
               max(until) over (partition by pod, segment) - {horizon} as known_until
        from spans
    ),
    -- safe until the horizon before the next use; nothing is known where the horizon reaches beyond what was
    -- recorded: there
    -- a use could be seen and its absence could not, which would count against every promise
    cut as (
        select *, least(greatest(next_since - {horizon}, since), next_since) as safe_until from following
    ),
    parts as (
        select pod, used, since, next_since as until, next_since - since as lasts, 'false' as takeable
        from cut where used
        union all
        select pod, used, since, safe_until, next_since - since, 'true' from cut where not used
        union all
        select pod, used, safe_until, least(greatest(known_until, safe_until), next_since), next_since - since, 'false'
        from cut where not used
        union all
        select pod, used, least(greatest(known_until, safe_until), next_since), next_since, next_since - since, null
        from cut where not used
    ),
    labels as (
        select *, case when used then 'used' when lasts >= 300 then 'unused' end as state from parts where since < until
    )
    select '{host}/' || pod as gpu, epoch_ms((since * 1000)::bigint)::varchar as since,
           epoch_ms((until * 1000)::bigint)::varchar as until, state, takeable
    from labels where state is not null or takeable is not null order by gpu, since
) to '{labels}' (header)
"""


def trace_folder() -> Path | None:
    """Return the folder of the trace; None where it is missing."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "traces"
    folder = Path(os.environ.get("FALLOW_BENCH_TRACES", beside)) / "genai26"
    return folder if (folder / "duty.csv.gz").is_file() else None


def write_labels(trace: Path, labels: Path, horizon_h: int) -> None:
    """Write labels of the trace: states, and whether a pod stays unused for the horizon."""
    values = {"trace": trace, "labels": labels, "step": STEP_S, "horizon": 3600 * horizon_h, "host": HOST}
    with duckdb.connect() as connection:
        connection.execute(LABELS.format(**values))


def import_trace(folder: Path, lake: Path) -> None:
    _run(
        "import", "series", "--time", "timestamp_anon", "--gpu", "container_ip", "--interval", f"{STEP_S}s",
        "--host", HOST, "--column", f"gpu_util_pct={folder / 'duty.csv.gz'}:value",
        "--column", f"mem_used_bytes={folder / 'memory.csv.gz'}:value", "--lake", str(lake), "--yes",
    )  # fmt: skip


def measure() -> Iterator[Figure]:
    """Yield the precision of reclaimable pods per horizon, and the agreement of states; nothing without the trace."""
    folder = trace_folder()
    if folder is None:
        print("skipped: the trace genai26 is not in ../shared/traces (its licence keeps it out)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as name:
        lake, labels = Path(name) / "lake", Path(name) / "labels.csv"
        import_trace(folder, lake)
        for horizon_h in HORIZONS_H:
            write_labels(folder / "duty.csv.gz", labels, horizon_h)
            flags = ("--lake", str(lake), "--labels", str(labels), "--every", EVERY)
            print(f"\nunused for {horizon_h} h more\n{_run('evaluate', *flags)}", file=sys.stderr)
            tables = json.loads(_run("evaluate", *flags, "--json"))["tables"]
            yield from _figures(tables["takeable"]["rows"], horizon_h)
        yield _states(tables["evaluation"]["rows"][0])


def _run(*arguments: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(list(arguments))
    if code:
        raise SystemExit(code)
    return printed.getvalue()


def _figures(rows: Sequence[dict[str, Any]], horizon_h: int) -> Iterator[Figure]:
    for row in rows:
        right, judged = row["takeable_right"], row["takeable_judged"]
        if judged:
            low, high = row["takeable_interval_90"]
            how = f"genai26: {right} of {judged} GPUs, 90 % interval {low:.3f} to {high:.3f}"
            yield Figure(f"trace_takeable_{row['confidence']}_{horizon_h}h", row["takeable_share"], "ratio", how)


def _states(counts: dict[str, Any]) -> Figure:
    how = f"genai26: {counts['judged_gpu_hours']:,.1f} labelled and observed GPU-hours"
    return Figure("trace_states_agreed", counts["agreed_share"], "ratio", how)
