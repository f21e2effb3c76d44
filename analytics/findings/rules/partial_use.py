"""A job got several GPUs and never ran a kernel on some of them while others worked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.base import GPU_MS, SPAN, finding_of, joined, still_going
from analytics.findings.confidence import known_holder
from analytics.findings.ending import ending_command
from analytics.findings.holders import look_command, quote
from analytics.findings.programs import program_stretches
from analytics.findings.work import by_job, newest_source
from fallow.clock import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.findings.model import Context, Finding, Number

UNUSED_BELOW_PCT = 0.5
USED_FROM_PCT = 5.0
MIN_MS = 61 * MINUTE_MS
KNOWN_MIN = 0.9


class PartialUse:
    """GPUs of a job or program that never worked in all of its time; one finding per job."""

    name = "partial_use"
    category = "reclaim"
    sentence = "never worked while other GPUs of the same job did"
    per_host = False
    thresholds: Mapping[str, str] = {
        "unused": f"mean utilization over the job's whole time under {UNUSED_BELOW_PCT} % (loading libraries takes seconds)",
        "used": f"another GPU of the job with a mean of at least {USED_FROM_PCT:g} % (its work is no start-up either)",
        "job time": f"at least {MIN_MS // MINUTE_MS} min beside working GPUs (Job Defense Shield looks from 61 min on)",
        "known": f"utilization known for at least {KNOWN_MIN:.0%} of the job's time on the GPU",
    }

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        # over the job's whole time: a GPU that worked before the window has been of use to it
        per_gpu = _per_gpu(_owned(context, context.whole.stretches))
        judged = per_gpu.filter(pl.col("unused").any().over("work") & pl.col("used").any().over("work"))
        if judged.is_empty():
            return
        candidates = context.inside.stretches.join(judged.select("gpu").unique(), on="gpu", how="semi")
        inside = _owned(context, candidates).join(judged.select("work").unique(), on="work", how="semi")
        for (work,), gpus in judged.group_by("work", maintain_order=True):
            idle = gpus.filter("unused")["gpu"].to_list()
            rows = inside.filter((pl.col("work") == work) & pl.col("gpu").is_in(idle))
            if not rows.is_empty():
                yield self._finding(context, str(work), gpus, rows)

    def _finding(self, context: Context, work: str, gpus: pl.DataFrame, rows: pl.DataFrame) -> Finding:
        source = newest_source(rows)
        holder = joined(rows, "holder")
        kept = gpus.filter(~pl.col("unused"))
        now = still_going(context, rows)
        bound = _bound(context, work, now, kept["gpu"].to_list())
        free = () if bound else now
        return finding_of(
            context,
            self,
            rows.drop("work"),
            subject=work,
            numbers=_numbers(gpus, rows, source),
            failed=[known_holder(source, holder)],
            next_command=_command(context, work, rows, kept, free),
            reclaimable_gpus=free,
            holder=holder,
            notes=_notes(work, kept, bound=bool(now) and bound),
        )


def _owned(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows of jobs and programs, once for each, with `work`."""
    return pl.concat([by_job(stretches), program_stretches(context, stretches)])


def _per_gpu(rows: pl.DataFrame) -> pl.DataFrame:
    """Per work and GPU: host, mean_pct over all its time, and whether it counts as unused or used; works on one GPU left out."""
    busy = pl.col("state").is_in(("low", "active"))
    several = rows.filter(pl.col("gpu").n_unique().over("work") > 1)
    return (
        several.group_by("work", "gpu")
        .agg(
            pl.col("host").last(),
            span_ms=SPAN.sum(),
            busy_ms=SPAN.filter(busy).sum(),
            known_ms=pl.col("util_ms").sum(),
            mean_pct=(pl.col("gpu_util_mean_pct") * pl.col("util_ms")).sum() / pl.col("util_ms").sum(),
        )
        .with_columns(
            # beside GPUs that have worked for an hour: before that, the job may still be loading
            worked_ms=pl.col("busy_ms").max().over("work"),
            known=pl.col("known_ms") >= KNOWN_MIN * pl.col("span_ms"),
        )
        .with_columns(
            unused=pl.col("known")
            & (pl.col("mean_pct") < UNUSED_BELOW_PCT)
            & (pl.min_horizontal("span_ms", "worked_ms") >= MIN_MS),
            used=pl.col("known") & (pl.col("mean_pct") >= USED_FROM_PCT),
        )
        .sort("work", "host", "gpu")
    )


def _numbers(gpus: pl.DataFrame, rows: pl.DataFrame, source: str | None) -> dict[str, Number]:
    busy = gpus.filter("used")
    reserved = rows.filter(pl.col("state") == "reserved")
    return {
        "holder_source": source,
        "gpus_of_the_job": gpus.height,
        "gpus_used": gpus.filter(~pl.col("unused")).height,
        "gpus_never_used": gpus.filter("unused").height,
        "used_gpu_util_mean_pct": busy.select(pl.col("mean_pct").mean()).item(),
        "unused_gpu_util_mean_pct": gpus.filter("unused").select(pl.col("mean_pct").max()).item(),
        "reserved_gpu_hours": float(reserved.select(GPU_MS.sum()).item()) / HOUR_MS,
        "mem_used_max_bytes": rows["mem_used_max_bytes"].max(),
    }


def _bound(context: Context, work: str, idle: Sequence[str], busy: Sequence[str]) -> bool:
    """Whether the idle GPUs cannot be freed without ending what works on the others."""
    if not work.startswith("claim:"):
        return True  # one job, or one program: its scheduler, launcher or collective operations end it as a whole
    processes = context.holders.of(idle)
    if not processes or any(gpu not in {process.gpu for process in processes} for gpu in idle):
        return True
    return not set(busy).isdisjoint(context.holders.beyond(idle))


def _command(context: Context, work: str, rows: pl.DataFrame, kept: pl.DataFrame, free: Sequence[str]) -> str:
    """The directive for the next submission; for a claim with processes of their own, what ends them."""
    kind, _, name = work.partition(":")
    hosts = kept.group_by("host", maintain_order=True).len()
    if kind == "slurm":
        return f"#SBATCH {_request(hosts)}"
    if kind == "pod":
        space, _, pod = name.partition("/")
        return f"kubectl get pod -n {quote(space)} {'-- ' if pod.startswith('-') else ''}{quote(pod)} -o yaml"
    if kind == "claim":
        host = str(rows["host"][0])
        return ending_command(context, host, free, joined(rows, "holder")) if free else look_command(host)
    if kind == "ray":
        return look_command(str(rows["host"][0]))
    return f"export CUDA_VISIBLE_DEVICES={quote(','.join(kept['gpu']))}"


def _request(hosts: pl.DataFrame) -> str:
    """Slurm's directive for as many GPUs as were used, on as many hosts."""
    counts = hosts["len"]
    if counts.n_unique() > 1:
        return f"--gpus={counts.sum()}"
    nodes = f"--nodes={hosts.height} " if hosts.height > 1 else ""
    return f"{nodes}--gres=gpu:{counts[0]}"


def _notes(work: str, kept: pl.DataFrame, *, bound: bool) -> list[str]:
    wanted = kept.height
    notes = [f"resubmit with {wanted} of nvidia.com/gpu"] if work.startswith("pod:") else []
    if work.startswith("ray:"):
        notes.append(f"start it again with num_gpus={wanted}")
    if bound:
        notes.append(
            "the unused GPUs cannot be taken without ending the work on the others: it is for the next submission"
        )
    return notes
