"""A job got several GPUs and never ran a kernel on some of them while others worked.

Look-alikes that it leaves alone: jobs that are starting, ranks that evaluate, cards that take turns, a standby in a pod
of its own, two programs of one user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import Number, Sentence, tr, tr_many
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import ending_command, look_command, quote, ties
from analytics.workloads.finding_parts import label
from analytics.workloads.ledger_rows import GPU_MS, by_job, highest, joined, mean_of, newest_source
from analytics.workloads.model import Context, Finding, of_gpus
from analytics.workloads.processes import program_segments
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import KNOWN_MIN, still_going, unseen_gpus
from fallow.clock import HOUR_MS, MINUTE_MS

UNUSED_BELOW_PCT = 0.5
USED_FROM_PCT = 5.0
MIN_MS = 61 * MINUTE_MS

_COUNTED = tr(
    "the allocation has a number of GPUs and does not name them; these GPUs are inferred, because the job was never"
    " observed on them"
)


_USE = ("host", "gpu", "job", "state", "time", "end", "util_ms", "gpu_util_mean_pct")


def partial_use_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per job or program with GPUs that it never used."""
    # over the job's whole time: a GPU that worked before the window has been of use to it
    unseen = unseen_gpus(context, MIN_MS)
    owned = _owned(context, context.whole.segments.select(_USE))
    counted = pl.col("work").is_in(unseen["work"].implode())
    per_gpu = _partial_use_per_gpu(owned.filter((pl.col("gpu").n_unique().over("work") > 1) | counted))
    yield from _never_seen_findings(context, unseen, per_gpu)
    several = per_gpu.filter(pl.len().over("work") > 1)
    judged = several.filter(pl.col("unused").any().over("work") & pl.col("used").any().over("work"))
    if judged.is_empty():
        return
    candidates = context.inside.segments.join(judged.select("gpu").unique(), on="gpu", how="semi")
    inside = _owned(context, candidates).join(judged.select("work").unique(), on="work", how="semi")
    unused_gpus = judged.filter("unused").select("work", "gpu")
    idle = inside.join(unused_gpus, on=("work", "gpu"), how="semi", maintain_order="left")
    of_work = idle.partition_by("work", as_dict=True, maintain_order=True)
    kept_of_work = judged.filter(~pl.col("unused")).partition_by("work", as_dict=True, maintain_order=True)
    reserved_ms = dict(idle.filter(pl.col("state") == "reserved").group_by("work").agg(GPU_MS.sum()).iter_rows())
    by_work = judged.with_columns(pl.col("work").set_sorted())
    used_pct = dict(by_work.filter("used").group_by("work").agg(pl.col("mean_pct").mean()).iter_rows())
    unused_pct = pl.col("mean_pct").filter("unused").max()
    for work, gpu_count, most_pct in (
        by_work.group_by("work", maintain_order=True).agg(pl.len(), unused_pct).iter_rows()
    ):
        if (rows := of_work.get((work,))) is not None:
            user, kept = joined(rows, "user"), kept_of_work[work,]
            now = still_going(context, rows)
            bound = _bound(context, work, now, kept["gpu"].to_list())
            free = () if bound else now
            yield Candidate(
                rows.drop("work"),
                subject=work,
                source=newest_source(rows),
                numbers={
                    "gpus_of_the_job": gpu_count,
                    "gpus_used": kept.height,
                    "gpus_never_used": gpu_count - kept.height,
                    "used_gpu_util_mean_pct": used_pct[work],
                    "unused_gpu_util_mean_pct": most_pct,
                    "reserved_gpu_hours": reserved_ms.get(work, 0.0) / HOUR_MS,
                    "mem_used_max_bytes": highest(rows, "mem_used_max_bytes"),
                },
                next_command=_partial_use_command(context, work, rows, kept, free),
                reclaimable_gpus=free,
                user=user,
                notes=_partial_use_notes(work, kept, bound=bool(now) and bound),
            )


PARTIAL_USE = Rule(
    name="partial_use",
    category="reclaim",
    sentence=of_gpus("never used while other GPUs of the same job were used"),
    kinds=(waste.ALLOCATED_IDLE, waste.HELD_IDLE),
    precedence=40,
    history=HistoryNeed(MIN_MS),
    thresholds={
        "unused": (
            f"mean utilization over the job's whole time under {UNUSED_BELOW_PCT} % (loading libraries takes seconds)"
        ),
        "used": f"another GPU of the job with a mean of at least {USED_FROM_PCT:g} % (more than a start-up)",
        "job time": f"at least {MIN_MS // MINUTE_MS} min beside working GPUs (Job Defense Shield looks from 61 min on)",
        "counted": (
            "of GPUs that an allocation counts and does not name: those that neither the job nor work of no known job"
            f" was seen on, if as many were free for {KNOWN_MIN:.0%} of its time (ours)"
        ),
        "known": f"utilization known for at least {KNOWN_MIN:.0%} of the job's time on the GPU",
    },
    labels=(
        label("gpus_used", "{value} GPUs used"),
        label("gpus_never_used", "{value} GPUs never used"),
        label("gpus_allocated", "{value} GPUs allocated on the host"),
        label("gpus_seen_of_the_allocation", "the job was observed on {value} of them"),
        label("gpus_never_seen_of_the_allocation", "never on the other {value}"),
        label("used_gpu_util_mean_pct", "mean utilization of the used GPUs {value} %"),
        label("unused_gpu_util_mean_pct", "of the other GPUs at most {value} %"),
    ),
    find=partial_use_findings,
)


def _never_seen_findings(context: Context, allocations: pl.DataFrame, per_gpu: pl.DataFrame) -> Iterator[Candidate]:
    """Yield findings about GPUs that an allocation has by number only and on which its job was never observed."""
    worked = per_gpu.filter(pl.col("used") & (pl.col("busy_ms") >= MIN_MS))
    for allocation in allocations.join(worked.select("work").unique(), on="work", how="semi").iter_rows(named=True):
        met = context.inside.segments.filter(
            pl.col("gpu").is_in(allocation["candidates"]),
            pl.col("end") > allocation["start"],
            pl.col("time") < allocation["end"],
        )
        if not met.is_empty():
            rows = clip(met, allocation["start"], allocation["end"])
            seen = per_gpu.filter(pl.col("work") == allocation["work"])
            unseen, candidates = int(allocation["unseen"]), len(allocation["candidates"])
            work = allocation["work"]
            own = by_job(context.whole.segments.filter(pl.col("gpu").is_in(seen["gpu"].implode())))
            own = own.filter(pl.col("work") == work)
            user = joined(own, "user")
            account = joined(own, "account")
            yield Candidate(
                rows,
                subject=f"{work}: counted on {allocation['host']}",
                source=newest_source(own),
                numbers={
                    "gpus_allocated": allocation["allocated"],
                    "gpus_seen_of_the_allocation": allocation["seen"],
                    "gpus_never_seen_of_the_allocation": unseen,
                    "used_gpu_util_mean_pct": mean_of(seen.filter("used"), "mean_pct"),
                },
                failed=[[_counted(unseen, candidates)]],
                next_command=_partial_use_command(context, work, own, seen.filter(~pl.col("unused")), ()),
                user=user,
                since_ms=allocation["start"],
                notes=_partial_use_notes(work, seen.filter(~pl.col("unused")), bound=True),
                revised=partial(
                    _some_of, context, unseen, candidates, {"job": work, "team": context.owners.team(user, account)}
                ),
            )


def _some_of(context: Context, unseen: int, candidates: int, owner: Mapping[str, Any], finding: Finding) -> Finding:
    """Return the finding about some of its GPUs; which of them it concerns is unknown."""
    share = unseen / candidates
    alike = len({context.inventory.model(gpu) for gpu in finding.gpus}) == 1
    return replace(
        finding,
        sentence=finding.sentence
        if share == 1
        else tr_many("of which {number} {was|were} never used while other GPUs of the same job were used", unseen),
        **owner,
        gpu_ms=share * finding.gpu_ms,
        # their energy may differ, and cards of one model cost the same
        energy_kwh=finding.energy_kwh if share == 1 else None,
        cost=share * finding.cost if finding.cost is not None and (share == 1 or alike) else None,
    )


def _counted(unseen: int, candidates: int) -> Sentence:
    if unseen >= candidates:
        return _COUNTED
    return tr("{counted} ({part} of these {all} GPUs)", counted=_COUNTED, part=Number(unseen), all=Number(candidates))


def _owned(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger's rows of jobs and programs, once per `work`."""
    return pl.concat([by_job(segments), program_segments(context, segments)])


def _partial_use_per_gpu(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per work and GPU: host, busy_ms, mean_pct over all its time, and whether the GPU is unused or used."""
    busy = pl.col("state").is_in(IN_USE)
    return (
        rows.group_by("work", "gpu")
        .agg(
            pl.col("host").last(),
            span_ms=SPAN_MS.sum(),
            busy_ms=SPAN_MS.filter(busy).sum(),
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


def _bound(context: Context, work: str, idle: Sequence[str], busy: Sequence[str]) -> bool:
    """Return True if the idle GPUs cannot be freed without ending the work on the others."""
    if not work.startswith("allocation:"):
        return True  # one job, or one program: its scheduler, launcher or collective operations end it as a whole
    processes = context.users.on(idle)
    if not processes or any(gpu not in {process.gpu for process in processes} for gpu in idle):
        return True
    return bool(ties(context, idle)) or not set(busy).isdisjoint(context.users.beyond(idle))


def _partial_use_command(
    context: Context, work: str, rows: pl.DataFrame, kept: pl.DataFrame, free: Sequence[str]
) -> str:
    """Return the next command: it limits the next start, shows the work, or ends an allocation's idle part."""
    kind, _, name = work.partition(":")
    hosts = kept.group_by("host", maintain_order=True).len()
    if kind == "slurm":
        return f"#SBATCH {_request(hosts)}"
    if kind == "pod":
        space, _, pod = name.partition("/")
        return f"kubectl get pod -n {quote(space)} {'-- ' if pod.startswith('-') else ''}{quote(pod)} -o yaml"
    if kind == "allocation":
        host = rows["host"][0]
        return ending_command(context, host, free, joined(rows, "user")) if free else look_command(host)
    if kind == "ray":
        return look_command(rows["host"][0])
    return f"export CUDA_VISIBLE_DEVICES={quote(','.join(kept['gpu']))}"


def _request(hosts: pl.DataFrame) -> str:
    counts = hosts["len"]
    if counts.n_unique() > 1:
        return f"--gpus={counts.sum()}"
    nodes = f"--nodes={hosts.height} " if hosts.height > 1 else ""
    return f"{nodes}--gres=gpu:{counts[0]}"


def _partial_use_notes(work: str, kept: pl.DataFrame, *, bound: bool) -> list[str]:
    wanted = kept.height
    notes: list[str] = (
        [tr("resubmit with {number} of nvidia.com/gpu", number=Number(wanted))] if work.startswith("pod:") else []
    )
    if work.startswith("ray:"):
        notes.append(tr("start the workload again with num_gpus={number}", number=wanted))
    if bound:
        notes.append(tr("reclaiming the unused GPUs ends the work on the others: change the next submission instead"))
    return notes
